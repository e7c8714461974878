"""``bertkit word-vectors analogy``: a is to b as c is to what?"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Common
from bertkit.cli.word_vectors.vector_options import MaxWords, Vectors, open_vectors, show_neighbors


def analogy(
    a: Annotated[str, Parameter(help="The first word is to")],
    b: Annotated[str, Parameter(help="the second")],
    c: Annotated[str, Parameter(help="as the third is to the answer.")],
    /,
    *,
    vectors: Vectors,
    top_k: Annotated[int, Parameter(help="How many words to show.")] = 5,
    max_words: MaxWords = None,
    common: Common = Common(),
) -> None:
    """Show what is to a word as a second word is to a first.

    Prints the words nearest to the vector b - a + c, without the three, the nearest
    first, each with its cosine.

    For example:

        bertkit word-vectors analogy paris france london --vectors words
    """
    common.begin_without_torch()
    show_neighbors(open_vectors(vectors, max_words).analogy(a, b, c, top_k), common)
