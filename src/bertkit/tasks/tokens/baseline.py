"""A baseline for named-entity recognition: a linear model of a word and its neighbours, and which tag follows which.

The features are those of taggers before neural networks: words, beginnings and endings, and shapes (``Oslo`` is
``Xx``) in a window of five words, hashed. The probability of a tag given the word, divided by that of the tag, stands
for that of the word given its tag in a Markov chain, of which the best path is taken (Bourlard & Morgan 1993).
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from bertkit.errors import DataError
from bertkit.metrics.tags import OUTSIDE
from bertkit.tasks.examples import Row
from bertkit.tasks.tokens.task import TaggedExample, TokenTask, score_tags

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

#: Most hashed features, and most weights of all tags together, which bound the memory.
MOST_FEATURES, MOST_WEIGHTS = 1 << 18, 1 << 23
#: Passes over the training words, and most updates of a tag's weights in all of them, which bound the time.
PASSES, MOST_UPDATES = 10, 20_000_000
#: Of a longer file, sentences at even distances are learned from.
MOST_WORDS = 200_000
#: Words whose features are in memory at once while tagging.
WORDS_AT_ONCE = 20_000
_PENALTY = 1e-5
#: Counts of every tag, and of every pair of tags, that are taken to have been seen beforehand.
_PRIOR = 0.1
_EDGE = "<>"
_REPEATED = re.compile(r"(.)\1+")

Scores = npt.NDArray[np.float64]


class WordFeatureTagger:
    """Learns from tagged sentences; the same sentences give the same tagger."""

    def __init__(self, train: Sequence[TaggedExample]) -> None:
        from sklearn.feature_extraction import FeatureHasher
        from sklearn.linear_model import SGDClassifier

        tags = sorted({tag for example in train for tag in example.tags} | {OUTSIDE})
        self.tags, size = tags, len(tags)
        num_features = min(MOST_FEATURES, 1 << (MOST_WEIGHTS // size).bit_length() - 1)
        self._hasher = FeatureHasher(num_features, input_type="string", alternate_sign=False, dtype=np.float32)
        self.learned_from = _at_even_distances(train, min(MOST_WORDS, MOST_UPDATES // (PASSES * size)))
        numbers = {tag: number for number, tag in enumerate(tags)}
        rows = [[numbers[tag] for tag in example.tags] for example in self.learned_from]
        right = np.array([number for row in rows for number in row], dtype=np.int64)
        self._seen = np.unique(right)  # a model of one tag alone would be none
        self._model = None
        if len(self._seen) > 1:
            model = SGDClassifier(loss="log_loss", alpha=_PENALTY, max_iter=PASSES, tol=None, random_state=0)
            self._model = model.fit(self._matrix(self.learned_from), right)
        self._prior = np.log((np.bincount(right, minlength=size) + _PRIOR) / (len(right) + _PRIOR * size))
        self._first, self._next = _transitions(tags, rows)
        self.num_features = num_features

    def tag(self, sentences: Sequence[TaggedExample]) -> list[list[str]]:
        """A tag for each word of each sentence."""
        found: list[list[str]] = []
        for part in _parts(sentences):
            scores = self._scores(part)
            start = 0
            for example in part:
                own = scores[start : start + len(example.words)]
                found.append([self.tags[number] for number in best_path(own, self._first, self._next)])
                start += len(example.words)
        return found

    def _matrix(self, sentences: Sequence[TaggedExample]) -> csr_matrix:
        return self._hasher.transform(features for each in sentences for features in word_features(each.words))

    def _scores(self, sentences: Sequence[TaggedExample]) -> Scores:
        """Log probability of each word given each tag ``(words, tags)``, up to a constant a word."""
        count = sum(len(example.words) for example in sentences)
        logits = np.full((count, len(self.tags)), -np.inf)
        if self._model is None or not count:
            logits[:, self._seen] = 0.0
            return logits
        values = self._model.decision_function(self._matrix(sentences))
        if values.ndim == 1:  # of two tags, the second one's
            values = np.stack([-values, values], axis=1)
        log_shares = -np.logaddexp(0.0, -values)  # one against the rest
        log_shares -= np.logaddexp.reduce(log_shares, axis=1, keepdims=True)
        logits[:, self._seen] = log_shares - self._prior[self._seen]
        return logits


def feature_baseline(train: Sequence[TaggedExample], dev: Sequence[TaggedExample], task: TokenTask) -> Row:
    """Fit on train, score on dev. The same input gives the same numbers."""
    started = time.perf_counter()
    if not train or not dev:
        raise DataError("the baseline needs train and dev sentences")
    tagger = WordFeatureTagger(train)
    return {
        "name": "word features + linear",
        "model": "linear, of words, their beginnings, endings and shapes in a window of five, and of pairs of tags",
        "metrics": score_tags(task, tagger.tag(dev), [example.tags for example in dev]),
        "train_rows": len(tagger.learned_from),
        "dev_rows": len(dev),
        "features": tagger.num_features,
        "seconds": time.perf_counter() - started,
    }


def word_features(words: Sequence[str]) -> Iterator[list[str]]:
    """The features of each word, as texts."""
    folded = [_EDGE, _EDGE, *(word.casefold() for word in words), _EDGE, _EDGE]
    shapes = [_EDGE, _EDGE, *map(word_shape, words), _EDGE, _EDGE]
    for place, word in enumerate(words, start=2):
        own, shape = folded[place], shapes[place]
        before, after = folded[place - 1], folded[place + 1]
        window = range(place - 2, place + 3)
        yield [
            f"word {word}",
            *(f"{each - place} {folded[each]}" for each in window),
            *(f"{each - place} shape {shapes[each]}" for each in window),
            *(f"begins {own[:length]}" for length in range(1, 5)),
            *(f"ends {own[-length:]}" for length in range(1, 5)),
            *(f"{step} begins {folded[place + step][:3]}" for step in (-1, 1)),
            *(f"{step} ends {folded[place + step][-3:]}" for step in (-1, 1)),
            f"two {before} {own}",
            f"and {own} {after}",
            f"left {before} {shape}",
            f"right {shape} {after}",
            f"between {before} {shape} {after}",
            f"shapes {shapes[place - 1]} {shape} {shapes[place + 1]}",
            f"shapes before {shapes[place - 2]} {shapes[place - 1]} {shape}",
        ]


def word_shape(word: str) -> str:
    """``Xx`` for Oslo, ``X`` for NATO, ``d-d`` for 10-12: kinds of characters, each run of one written once."""
    kinds = ("d" if c.isdigit() else "X" if c.isupper() else "x" if c.isalpha() else c for c in word)
    return _REPEATED.sub(r"\1", "".join(kinds))


def best_path(scores_WT: Scores, first_T: Scores, next_TT: Scores) -> list[int]:
    """The tags of a sentence with the largest sum of scores (Viterbi): of words, of the first tag, of pairs of tags."""
    if not len(scores_WT):
        return []
    best = scores_WT[0] + first_T
    before: list[npt.NDArray[np.intp]] = []
    for own in scores_WT[1:]:
        sums = best[:, None] + next_TT
        before.append(sums.argmax(axis=0))
        best = sums.max(axis=0) + own
    path = [int(best.argmax())]
    for choice in reversed(before):
        path.append(int(choice[path[-1]]))
    return path[::-1]


def _transitions(tags: Sequence[str], rows: Sequence[Sequence[int]]) -> tuple[Scores, Scores]:
    """Log probability of the first tag ``(T,)`` and of a tag after another ``(T, T)``; I- continues its own type."""
    size = len(tags)
    first, following = np.full(size, _PRIOR), np.full((size, size), _PRIOR)
    for row in rows:
        if row:
            first[row[0]] += 1
        for one, other in pairwise(row):
            following[one, other] += 1
    for number, tag in enumerate(tags):
        if tag.startswith("I-"):
            first[number] = 0
            following[[other not in (tag, f"B-{tag[2:]}") for other in tags], number] = 0
    with np.errstate(divide="ignore"):  # what cannot be has the logarithm of 0
        return np.log(first / first.sum()), np.log(following / following.sum(axis=1, keepdims=True))


def _at_even_distances(sentences: Sequence[TaggedExample], most_words: int) -> Sequence[TaggedExample]:
    words = sum(len(each.words) for each in sentences)
    if words <= most_words:
        return sentences
    count = max(1, int(len(sentences) * most_words / words))
    return [sentences[number] for number in np.linspace(0, len(sentences) - 1, count).astype(np.int64).tolist()]


def _parts(sentences: Sequence[TaggedExample]) -> Iterator[list[TaggedExample]]:
    part: list[TaggedExample] = []
    words = 0
    for example in sentences:
        part.append(example)
        words += len(example.words)
        if words >= WORDS_AT_ONCE:
            yield part
            part, words = [], 0
    if part:
        yield part
