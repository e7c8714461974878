"""``bertkit visualize senses``: whether vectors tell the senses of a word apart."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Common, Model
from bertkit.cli.visualize.picture_options import Out, check_out, show


def senses(
    *word: Annotated[str, Parameter(help="Only these words of the list, in this order; the first is drawn.")],
    model: Model,
    file: Annotated[
        Path | None, Parameter(help="Own sentences: a table with the columns word, sense and sentence.")
    ] = None,
    vectors: Annotated[
        str | None,
        Parameter(help="Word vectors to compare with: text file or folder; default: the model's word embeddings."),
    ] = None,
    out: Out = None,
    common: Common = Common(),
) -> None:
    """Show whether vectors tell the senses of a word apart, layer by layer.

    Groups the vectors of an ambiguous word in its sentences by k-means and compares
    the groups with the senses (adjusted Rand index), for 21 English words with ten
    sentences a sense. A word vector is the same in every sentence, and scores 0; the
    mean of the word vectors around the word is a fairer comparison.

    For example:

        bertkit visualize senses --model DIR --out senses.png
        bertkit visualize senses bank --model DIR --out bank.html
    """
    common.begin()
    check_out(out, own_page=False)
    from bertkit.visualize import senses as draw

    drawn = draw(model, file=file, words=list(word) or None, vectors=vectors, seed=common.seed, device=common.device)
    show(drawn, out, common)
