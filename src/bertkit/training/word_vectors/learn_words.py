"""Word vectors of a corpus: by co-occurrence counts, or skip-gram with negative sampling (``gensim``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from bertkit.data.corpus.documents import read_documents
from bertkit.engine.static.word_vectors import WordVectors
from bertkit.errors import ConfigError, require
from bertkit.system.console import progress, say
from bertkit.training.word_vectors.cooccurrence import WINDOW, pair_counts, vectors_of_pairs
from bertkit.training.word_vectors.word_corpus import WordCorpus, read_word_corpus

Method = Literal["cooccurrence", "skip-gram"]
#: Words of a sentence of gensim, which cuts longer ones without a word.
_SENTENCE = 10_000


def learn_words(
    corpus: Sequence[str | Path] | str | Path,
    *,
    method: Method = "cooccurrence",
    dimensions: int = 128,
    window: int = WINDOW,
    min_count: int = 5,
    max_vocabulary: int = 100_000,
    cased: bool = False,
    epochs: int = 5,
    seed: int = 0,
    text: str | None = None,
) -> WordVectors:
    """Learn word vectors, of length 1 by ``"cooccurrence"``; words are those of BERT, before it cuts them into pieces.

    Args:
        corpus: files, folders or patterns, see :func:`bertkit.data.corpus.documents.read_documents`.
        method: ``"cooccurrence"``, see :mod:`bertkit.training.word_vectors.cooccurrence`, or ``"skip-gram"`` (Mikolov
            et al. 2013) by the extra ``gensim``.
        dimensions: numbers of a vector; fewer if there are fewer words.
        window: words on each side that count as near.
        min_count: rarer words are left out.
        max_vocabulary: only so many words, the most frequent ones.
        cased: keep capitals and accents.
        epochs: of skip-gram.
        seed: of the random numbers; one thread, so that the result is the same.
        text: the column of JSONL and Parquet files.

    Raises:
        ConfigError: a setting out of bounds.
        DataError: fewer than two words are left; a file that cannot be read.
        MissingExtraError: skip-gram without gensim.
    """
    numbers = {"dimensions": dimensions, "window": window, "min_count": min_count, "max_vocabulary": max_vocabulary}
    for name, value in {**numbers, "epochs": epochs}.items():
        if value < 1:
            raise ConfigError(f"{name} must be a whole number from 1, got {value}")
    if method not in ("cooccurrence", "skip-gram"):
        raise ConfigError(f"method must be cooccurrence or skip-gram, got {method!r}")
    if method == "skip-gram":
        require("gensim", extra="gensim", needed_for="skip-gram")
    documents = read_documents(corpus, sentences="line", text=text)
    words = read_word_corpus(documents, lower=not cased, min_count=min_count, max_vocabulary=max_vocabulary)
    if method == "skip-gram":
        return _skip_gram(words, dimensions, window, epochs, seed)
    vectors = vectors_of_pairs(pair_counts(words.with_documents(), words.counts, window), dimensions, seed=seed)
    if vectors.shape[1] < dimensions:
        say(f"{len(words.words):,} words give vectors of {vectors.shape[1]} numbers")
    return WordVectors(words.words, vectors)


@dataclass(frozen=True, slots=True)
class _Sentences:
    """Documents as gensim reads them: again and again."""

    corpus: WordCorpus
    label: str

    def __iter__(self) -> Iterator[list[str]]:
        for words in progress(self.corpus.documents(), label=self.label, unit="documents"):
            for start in range(0, len(words), _SENTENCE):
                yield words[start : start + _SENTENCE]


def _skip_gram(corpus: WordCorpus, dimensions: int, window: int, epochs: int, seed: int) -> WordVectors:
    gensim = require("gensim.models", extra="gensim", needed_for="skip-gram")
    model = gensim.Word2Vec(
        sentences=_Sentences(corpus, "skip-gram"),
        vector_size=dimensions,
        window=window,
        min_count=1,
        sg=1,
        negative=5,
        epochs=epochs,
        seed=seed,
        workers=1,
    )
    rows = [model.wv.key_to_index[word] for word in corpus.words]
    return WordVectors(corpus.words, np.asarray(model.wv.vectors, np.float32)[rows])
