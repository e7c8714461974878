"""``bertkit visualize heads``: what the heads of a model do."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Common, Model, Pairs, Source, Texts, Truncate, read_pairs, read_texts, with_texts
from bertkit.cli.visualize.picture_options import MaxTokens, Out, check_out, show


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

    options = {"max_texts": max_texts, "truncation": truncate, "max_length": max_length, "device": common.device}
    given = (read_pairs if pairs else read_texts)(text, source)
    # One result for all texts: errors name the line of a text.
    [(_, found)] = with_texts(given, lambda texts: [heads_of(texts, model=model, **options)])
    show(found, out, common)
