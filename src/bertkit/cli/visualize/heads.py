"""``bertkit visualize heads``: what the heads of a model do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Common, Model, Pairs, Source, Texts, Truncate, read_pairs, read_texts, with_texts
from bertkit.cli.visualize.picture_options import MaxTokens, Out, check_out, show

if TYPE_CHECKING:
    from bertkit.inference.pipeline_inputs import Item


def heads(
    *text: Texts,
    model: Model,
    max_texts: Annotated[int, Parameter(help="Read at most this many texts.")] = 1000,
    pairs: Pairs = False,
    truncate: Truncate = False,
    max_length: MaxTokens = None,
    out: Out = None,
    source: Source = Source(),
    common: Common = Common(),
) -> None:
    """Show what the heads of a model attend to, over many texts.

    For each head: the share of its attention to the next and the previous token, to
    the token itself, to [CLS], [SEP], the same piece elsewhere in the text, and
    punctuation; how far it attends, and how broadly (entropy).

    For example:

        bertkit visualize heads --model DIR --file texts.txt --out heads.html
        bertkit visualize heads --model DIR --file texts.txt --truncate --json
    """
    common.begin()
    check_out(out)
    from bertkit.insight.head_statistics import heads as heads_of

    given: Iterator[Item] = iter(read_pairs(text, source) if pairs else read_texts(text, source))
    statistics = partial(
        heads_of,
        model=model,
        max_texts=max_texts,
        truncation=truncate,
        max_length=max_length,
        device=common.device,
    )
    # One result for all texts: errors name the line of a text.
    [(_, found)] = with_texts(given, lambda texts: [statistics(texts)])
    show(found, out, common)
