"""``bertkit word-vectors distill``: word vectors out of an encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Computing, Model


def distill(
    *,
    model: Model,
    out: Annotated[Path, Parameter(alias="-o", help="New folder for the word vectors.")],
    dimensions: Annotated[int, Parameter(help="Numbers of a vector; all, if the model has fewer.")] = 256,
    sif: Annotated[
        float, Parameter(help="Weight of a word of share p: sif / (sif + p); smaller: frequent words count less.")
    ] = 1e-4,
    weights: Annotated[bool, Parameter(help="Weigh words by their frequency, after Zipf's law.")] = True,
    common: Computing = Computing(),
) -> None:
    """Make word vectors out of an encoder: fast, small, without layers.

    Every token of the vocabulary goes through the encoder alone; the vectors are
    reduced to their principal components and weighted by frequency. OUT loads
    wherever a sentence encoder does (embed, similarity, search, cluster, topics), and
    in model2vec and sentence-transformers.

    For example:

        bertkit word-vectors distill --model bertkit-tiny-en --out words
        bertkit embed --model words "A sentence." "Another one."
    """
    common.begin()
    from bertkit.training.word_vectors.distilled_words import distill_words

    found = distill_words(
        model, out, dimensions=dimensions, sif=sif if weights else None, device=common.device, **common.engine
    )
    common.report(found)
