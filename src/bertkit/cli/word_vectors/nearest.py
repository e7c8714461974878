"""``bertkit word-vectors nearest``: the words that are nearest to a word."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Common
from bertkit.cli.word_vectors.vector_options import MaxWords, Vectors, open_vectors, show_neighbors
from bertkit.system.console import say


def nearest(
    word: Annotated[str, Parameter(help="A word.")],
    /,
    *,
    vectors: Vectors,
    top_k: Annotated[int, Parameter(help="How many words to show.")] = 10,
    max_words: MaxWords = None,
    common: Common = Common(),
) -> None:
    """Show the words whose vectors are nearest to that of a word.

    Prints the cosine and the word, the nearest first. A word that is not in a folder
    of word pieces has the mean of its pieces.

    For example:

        bertkit word-vectors nearest bank --vectors words
        bertkit word-vectors nearest bank --vectors glove.6B.100d.txt --top-k 5
    """
    common.begin_without_torch()
    known = open_vectors(vectors, max_words)
    found = known.nearest(word, top_k)
    if word not in known:
        say(f"{word!r} is not among the {len(known):,} words; its vector is the mean of its pieces")
    show_neighbors(found, common)
