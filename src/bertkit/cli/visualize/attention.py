"""``bertkit visualize attention``: what the heads of a model attend to in a text."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter

from bertkit.cli.common_options import Common, Model, Truncate
from bertkit.cli.visualize.picture_options import MaxTokens, Out, check_out, show


def attention(
    text: Annotated[str, Parameter(help="The text; what a BART or T5 reads.")],
    text_pair: Annotated[str | None, Parameter(help="A second text; what a BART or T5 writes.")] = None,
    /,
    *,
    model: Model,
    view: Annotated[
        Literal["heads", "lines", "average", "rollout"],
        Parameter(
            help="heads: a matrix for each head of a layer; lines: lines between words, for one head or the mean of "
            "all; average: the mean over the heads; rollout: attention followed down to the input."
        ),
    ] = "heads",
    layer: Annotated[
        int | None, Parameter(help="From 1, or -1 for the top; default: the top, of the average all layers.")
    ] = None,
    head: Annotated[int | None, Parameter(help="From 1, with --view lines; default: the mean of the heads.")] = None,
    part: Annotated[
        Literal["encoder", "decoder", "cross"] | None,
        Parameter(help="Of a pair in a BART or T5, whose attention is shown; default: cross."),
    ] = None,
    words: Annotated[bool, Parameter(negative=(), help="Join word pieces to words.")] = False,
    truncate: Truncate = False,
    max_length: MaxTokens = None,
    out: Out = None,
    common: Common = Common(),
) -> None:
    r"""Show what each head of a layer attends to in one text or pair.

    With --out FILE.html, the page has all layers and heads: lines between words,
    matrices, means and rollout, by mouse or keyboard. A picture has the layer, head
    and view that are chosen here.

    For example:

        bertkit visualize attention "The cat slept." --model DIR --out heads.html
        bertkit visualize attention "A text." "Another." --model DIR --layer 4 \
            --head 2 --view lines --words --out lines.png
    """
    common.begin()
    check_out(out)
    from bertkit.insight.attention_maps import attention as attention_of

    found = attention_of(
        text,
        text_pair,
        model=model,
        view=view,
        layer=layer,
        head=head,
        part=part,
        words=words,
        truncation=truncate,
        max_length=max_length,
        device=common.device,
    )
    show(found, out, common)
