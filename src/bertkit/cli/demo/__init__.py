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

    Runs other commands and shows each of them as you would type it. First the
    included model guesses a word and finds similar texts. Then that model, or
    MiniLM-L6 if 'bertkit[demo]' is installed, learns the subjects of sentences from
    the documentation of the standard library. Its score is shown next to that of
    TF-IDF with a linear model. Takes up to three minutes on two processor cores.

    With --pretrain, learns a vocabulary from the same documentation, tokenizes it,
    and trains a small encoder for three minutes to guess masked words.

    For example:

        bertkit demo
        bertkit demo --pretrain
        bertkit demo --quick --out /tmp/demo
    """
    from bertkit.cli.demo.demo_script import fine_tune, pre_train

    try:
        if pretrain:
            pre_train(out or Path("bertkit-demo-pretrain"), common, quick=quick)
        else:
            fine_tune(out or Path("bertkit-demo"), common, quick=quick)
    except Interrupted as stop:
        raise Interrupted("stopped; run it again for the whole demo, it starts over", stop.signum) from None
