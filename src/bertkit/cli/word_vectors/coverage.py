"""``bertkit word-vectors coverage``: the words of texts that a word list has not."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Common, ModelArgument, Source, Texts, read_texts
from bertkit.cli.word_vectors.vector_options import MaxWords, Vectors, open_vectors


def coverage(
    *text: Texts,
    vectors: Vectors,
    model: Annotated[ModelArgument, Parameter(alias="-m")],
    top_k: Annotated[int, Parameter(help="How many unknown words to show.")] = 10,
    max_words: MaxWords = None,
    source: Source = Source(),
    common: Common = Common(),
) -> None:
    r"""Count the words of texts that a word list has not, and that a tokenizer reads.

    Words outside the list have no vector; a model's tokenizer cuts them into pieces
    that it knows. Reports how many there are, how many of them the tokenizer reads
    without its unknown token, and the most frequent ones with their pieces.

    For example:

        bertkit word-vectors coverage --vectors own.vec --model bertkit-tiny-en \
            --file reviews.csv
    """
    common.begin_without_torch()
    from bertkit.system.model_sources import resolve
    from bertkit.tokenization.auto_tokenizer import AutoTokenizer

    texts = read_texts(text, source)
    tokenizer = AutoTokenizer.from_pretrained(resolve(model))
    common.report(open_vectors(vectors, max_words).coverage(texts, tokenizer, examples=top_k))
