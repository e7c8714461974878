"""The words that set a group of texts apart from the others.

Candidates are the words with the largest class TF-IDF (Grootendorst 2022, "BERTopic: Neural topic modeling with a
class-based TF-IDF procedure", section 3.3): all texts of a class are one document, and the weight of word t in class
c is ::

    W(t, c) = tf(t, c) * ln(1 + A / f(t))

with tf the share of t among the words of c (BERTopic divides by the number of words, which the paper leaves open), f(t)
how often t occurs in all classes, and A the mean number of words of a class, as a whole number.

Counts alone cannot tell "since" from "parcel" in a few texts. So candidates are ordered by ::

    ln(1 + n(t, c)) * ln(N / n(t)) * cos(vector of t, centre of c - centre of the other classes)

with n(t) the number of texts with t, of all N. Words that are everywhere and words that say nothing about the class
come last, in any language and without a list of stop words. (Ordering candidates by their vectors is KeyBERT's idea.)

Letters of the array shapes: N texts, C classes, W words, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from bertkit.metrics.bm25 import words_of
from bertkit.metrics.nearest import directions
from bertkit.ragged import Floats, Ints

#: Words of each class whose vectors are compared.
CANDIDATES = 50
#: In a class of more texts than this, a word of one text says more about that text than about the class.
FEW_TEXTS = 20
#: A word is shown if it is so many times as frequent in the class as in the others.
LIFT = 2.0


def class_tfidf(counts_CW: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Weights of how often each word occurs in each class; see the module. A class without words has zeros."""
    per_class = counts_CW.sum(axis=1)
    shares_CW = counts_CW / np.maximum(per_class, 1)[:, None]
    weights: npt.NDArray[np.float64] = shares_CW * np.log1p(
        int(per_class.mean()) / np.maximum(counts_CW.sum(axis=0), 1)
    )
    return weights


def words_of_classes(
    texts: Sequence[str], vectors_ND: Floats, classes: Ints, encode: Callable[[list[str]], Floats], count: int = 8
) -> list[list[str]]:
    """The ``count`` words that characterize each class ``0, 1, ...`` best, the best first; see the module.

    Words are lower-cased and not stemmed. Left out are those that are not :data:`LIFT` times as frequent in the class
    as in the others, those that are nearer to the others, those of all texts, those without a letter, and in classes of
    more than :data:`FEW_TEXTS` texts those of a single text.
    """
    numbers: dict[str, int] = {}
    words = [[numbers.setdefault(word, len(numbers)) for word in words_of(text)] for text in texts]
    names, sizes = list(numbers), np.bincount(classes)
    counts_CW = np.zeros((len(sizes), len(names)), np.int64)
    texts_CW = np.zeros_like(counts_CW)
    for label, of_text in zip(classes.tolist(), words, strict=True):
        np.add.at(counts_CW[label], of_text, 1)
        texts_CW[label, list(set(of_text))] += 1
    weights_CW = class_tfidf(counts_CW)
    size_C1 = counts_CW.sum(axis=1, keepdims=True)
    elsewhere_CW = counts_CW.sum(axis=0) - counts_CW
    apart_CW = counts_CW * (size_C1.sum() - size_C1) >= LIFT * elsewhere_CW * size_C1
    apart_CW &= texts_CW > (sizes > FEW_TEXTS)[:, None]
    apart_CW &= np.array([any(map(str.isalpha, name)) for name in names], np.bool_)
    candidates = [
        [word for word in np.argsort(-weights, kind="stable").tolist() if apart[word]][:CANDIDATES]
        for weights, apart in zip(weights_CW, apart_CW, strict=True)
    ]
    asked = sorted({word for each in candidates for word in each})
    if not asked:
        return [[] for _ in candidates]
    vectors = dict(zip(asked, directions(encode([names[word] for word in asked])), strict=True))
    rarity_W = np.log(len(texts) / texts_CW.sum(axis=0))
    found = []
    for label, mine in enumerate(candidates):
        towards_D = _direction(vectors_ND, classes == label)
        scores = {word: np.log1p(texts_CW[label, word]) * rarity_W[word] * (vectors[word] @ towards_D) for word in mine}
        best = sorted((word for word in mine if scores[word] > 0), key=lambda word: -scores[word])
        found.append([names[word] for word in best[:count]])
    return found


def _direction(vectors_ND: Floats, mine_N: npt.NDArray[np.bool_]) -> Floats:
    """From the centre of the other texts to the centre of these ``(D,)``."""
    centre_D = vectors_ND[mine_N].mean(axis=0)
    found: Floats = directions((centre_D if mine_N.all() else centre_D - vectors_ND[~mine_N].mean(axis=0))[None])[0]
    return found
