"""What the actions that ask word vectors share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Output
from bertkit.engine.static.word_vectors import Neighbor, WordVectors

Vectors = Annotated[
    str, Parameter(alias="-v", help="Text file (word2vec, GloVe, fastText; also .gz), or folder of word vectors.")
]
MaxWords = Annotated[int | None, Parameter(help="Read only so many words of a file, which begins with frequent ones.")]


def open_vectors(path: str, max_words: int | None) -> WordVectors:
    """The word vectors of a command."""
    return WordVectors.load(Path(path), max_words=max_words)


def show_neighbors(found: list[Neighbor], common: Output) -> None:
    """A line for each word, the nearest first."""
    for word, score in found:
        common.show({"word": word, "score": score}, f"{score:.4f}  {word}")
