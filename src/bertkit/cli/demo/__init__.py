"""``bertkit demo``: fine-tuning or pre-training from start to finish, on text that every Python ships with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Common
from bertkit.system.interrupts import Interrupted


def demo(
    *,
    out: Annotated[
        Path | None, Parameter(alias="-o", help="Folder to write; default: bertkit-demo, or bertkit-demo-pretrain.")
    ] = None,
    pretrain: Annotated[bool, Parameter(negative=(), help="Pre-train a BERT from scratch instead.")] = False,
    quick: Annotated[bool, Parameter(negative=(), help="A small sample: seconds instead of minutes, poor scores.")] = (
        False
    ),
    common: Common = Common(),
) -> None:
    """Fine-tune a small BERT on text that every Python ships with, without a network.

    First the model that comes with bertkit guesses a word and searches a few texts.
    What is fine-tuned is that one, or MiniLM-L6 if 'bertkit[demo]' is installed. The
    texts are sentences from the documentation of the standard library, the labels
    their subjects. Shows the data, the training, the score beside that of TF-IDF
    with a linear model, some predictions, and what to try next. Takes up to three
    minutes on two processor cores.

    With --pretrain, learns a vocabulary from the same documentation, tokenizes it,
    and trains a small encoder for three minutes to guess masked words.

    For example:

        bertkit demo
        bertkit demo --pretrain
        bertkit demo --quick --out /tmp/demo
    """
    from bertkit.cli.demo import demo_finetune, demo_pretrain

    try:
        if pretrain:
            size = demo_pretrain.QUICK if quick else demo_pretrain.FULL
            demo_pretrain.show(out or Path("bertkit-demo-pretrain"), size, common)
        else:
            settings = demo_finetune.QUICK if quick else demo_finetune.FULL
            demo_finetune.show(out or Path("bertkit-demo"), settings, common)
    except Interrupted as stop:
        raise Interrupted("stopped; run it again for the whole demo, it starts over", stop.signum) from None
