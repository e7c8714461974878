"""``bertkit visualize tokens``: a map of the pieces of a few texts."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Common, LongestText, Model, Source, Texts, read_texts
from bertkit.cli.visualize.embeddings import Method, Perplexity
from bertkit.cli.visualize.picture_options import Out, check_out, show


def tokens(
    *text: Texts,
    model: Model,
    layer: Annotated[
        int | None, Parameter(help="Hidden layer: 0 the embeddings, -1 the top; default: the top.")
    ] = None,
    method: Method = "pca",
    perplexity: Perplexity = None,
    special: Annotated[bool, Parameter(negative=(), help="Draw special tokens such as [CLS], too.")] = False,
    max_length: LongestText = None,
    out: Out = None,
    reading: Source = Source(),
    common: Common = Common(),
) -> None:
    r"""Draw a map of the word pieces of a few texts.

    Each point is a piece in its text, as a layer sees it. Pieces that occur in
    several texts are joined by a line: the longer it is, the more the texts change
    them. Shows the mean cosine of the same piece in two texts, beside that of
    different pieces.

    For example:

        bertkit visualize tokens "She sat on the bank of the river." \
            "The bank lent him money." --model DIR --out pieces.png
        bertkit visualize tokens --file sentences.txt --model DIR --layer 0 --json
    """
    common.begin_without_torch()
    check_out(out)
    from bertkit.visualize import tokens as draw

    drawn = draw(
        read_texts(text, reading),
        model,
        layer=layer,
        method=method,
        perplexity=perplexity,
        special=special,
        max_length=max_length,
        device=common.device,
        seed=common.seed,
    )
    show(drawn, out, common)
