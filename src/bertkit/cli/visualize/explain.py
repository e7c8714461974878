"""``bertkit visualize explain``: which words of a text moved a prediction."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from bertkit.cli.common_options import Common, MaxLength, TrainedModel, Truncate
from bertkit.cli.visualize.picture_options import Out, check_out, show
from bertkit.system.console import for_stream

if TYPE_CHECKING:
    from bertkit.insight.explanation import Explanation


def explain(
    text: Annotated[str, Parameter(help="The text; of a model that answers questions, the question.")],
    text_pair: Annotated[
        str | None, Parameter(help="The second text of a pair, or the text with the answer to a question.")
    ] = None,
    /,
    *,
    model: TrainedModel,
    label: Annotated[
        str | None, Parameter(help="Explain this label, tag or answer; default: the one that the model gives.")
    ] = None,
    word: Annotated[
        str | None,
        Parameter(help="Of a tagger: the word whose tag is explained, or its number from 1; default: the surest tag."),
    ] = None,
    baseline: Annotated[
        Literal["mask", "pad"], Parameter(help="Token that stands for a text without words in integrated gradients.")
    ] = "mask",
    truncate: Truncate = False,
    max_length: MaxLength = None,
    out: Out = None,
    common: Common = Common(),
) -> None:
    """Show which words of a text moved a prediction.

    Two methods stand side by side: integrated gradients, which add up to what the
    model says beyond what it says of masks alone, and occlusion, the fall of the
    logit when a word is masked. Where they disagree, trust neither. Works with
    models for texts and pairs, tags of words, and answers.

    For example:

        bertkit visualize explain "A film to remember." --model run
        bertkit visualize explain "Dull, but kind." --model run --label negative
        bertkit visualize explain "Ann Lee left Rome." --model ner --word Rome
        bertkit visualize explain "Who?" "It was Ann." --model squad --out why.html
    """
    check_out(out)
    common.begin()
    from bertkit.insight.explanation import explain

    found = explain(
        text,
        text_pair,
        model=model,
        label=label,
        word=word,
        baseline=baseline,
        truncation=truncate,
        max_length=max_length,
        device=common.device,
    )
    if not common.json and sys.stdout is not None and sys.stdout.isatty():
        _show_colored(found)
    show(found, out, common)


def _show_colored(found: Explanation) -> None:
    """The texts with the words that stand for the label in blue, and those against it in orange."""
    from rich.console import Console
    from rich.text import Text

    from bertkit.visualize.word_pictures import parts_of

    gradients = found.gradients
    most = abs(gradients).max() or 1.0
    shown = Console(file=sys.stdout, highlight=False)
    for text, first, words in found.texts():
        line = Text()
        for part, number in parts_of(text, words):
            share = 0.0 if number is None else gradients[first + number] / most
            color = "dodger_blue1" if share > 0 else "dark_orange"
            style = "" if abs(share) < 0.05 else f"bold {color}" if abs(share) > 0.5 else color
            line.append(for_stream(part, sys.stdout), style)
        shown.print(line)
