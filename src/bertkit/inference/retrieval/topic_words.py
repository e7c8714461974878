"""The words that set a group of texts apart: TF-IDF of classes, as BERTopic computes it.

Grootendorst 2022, "BERTopic: Neural topic modeling with a class-based TF-IDF procedure", section 3.3: all texts of a
class are one document, and the weight of word t in class c is ::

    W(t, c) = tf(t, c) * ln(1 + A / f(t))

with tf the share of t among the words of c (BERTopic divides by the number of words, which the paper leaves open), f(t)
how often t occurs in all classes, and A the mean number of words of a class, as a whole number.

Letters of the array shapes: C classes, W words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bertkit.metrics.bm25 import words_of
from bertkit.ragged import Ints

#: A word of fewer texts of the class is not shown: it says more of those than of the class.
FEWEST_TEXTS = 2
#: A word is shown if it is so many times as frequent in the class as in the others: "the" is not, in any language.
LIFT = 2.0


def class_tfidf(counts_CW: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Weights of how often each word occurs in each class; see the module. A class without words has zeros."""
    per_class = counts_CW.sum(axis=1)
    shares_CW = counts_CW / np.maximum(per_class, 1)[:, None]
    weights: npt.NDArray[np.float64] = shares_CW * np.log1p(
        int(per_class.mean()) / np.maximum(counts_CW.sum(axis=0), 1)
    )
    return weights


def words_of_classes(texts: Sequence[str], classes: Ints, count: int = 8) -> list[list[str]]:
    """The ``count`` words with the largest weights of each class ``0, 1, ...``, the largest first.

    Words are lower-cased and not stemmed. Left out are those of fewer than :data:`FEWEST_TEXTS` texts of the class,
    those that are not :data:`LIFT` times as frequent in it as in the others, and those without a letter.
    """
    numbers: dict[str, int] = {}
    pairs: Counter[tuple[int, int]] = Counter()
    spread: Counter[tuple[int, int]] = Counter()
    for text, label in zip(texts, classes.tolist(), strict=True):
        words = [numbers.setdefault(word, len(numbers)) for word in words_of(text)]
        pairs.update((label, word) for word in words)
        spread.update((label, word) for word in set(words))
    num_classes = int(classes.max()) + 1
    counts_CW = np.zeros((num_classes, len(numbers)), np.int64)
    for (label, word), times in pairs.items():
        counts_CW[label, word] = times
    weights_CW, names = class_tfidf(counts_CW), list(numbers)
    size_C1 = counts_CW.sum(axis=1, keepdims=True)
    elsewhere_CW = counts_CW.sum(axis=0) - counts_CW
    apart_CW = counts_CW * (size_C1.sum() - size_C1) >= LIFT * elsewhere_CW * size_C1
    return [
        [
            names[word]
            for word in np.argsort(-weights_CW[label], kind="stable").tolist()
            if spread[label, word] >= FEWEST_TEXTS and apart_CW[label, word] and any(map(str.isalpha, names[word]))
        ][:count]
        for label in range(num_classes)
    ]
