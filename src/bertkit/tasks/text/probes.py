"""What vectors of texts, dense or of TF-IDF, know of labels: neighbours, a linear classifier, clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Union

import numpy as np

from bertkit.ragged import Floats, Ints
from bertkit.tasks.text.baseline import INVERSE_PENALTY

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

#: One vector a text, dense or sparse.
Vectors = Union[Floats, "csr_matrix"]

#: How many of the nearest training texts vote on the label of a text.
NEIGHBOURS = 10


def neighbour_labels(train: Vectors, labels_N: Ints, dev: Vectors) -> Ints:
    """The most frequent label of the :data:`NEIGHBOURS` training texts with the largest cosines, ``(M,)``."""
    from sklearn.neighbors import KNeighborsClassifier

    model = KNeighborsClassifier(min(NEIGHBOURS, len(labels_N)), metric="cosine", algorithm="brute")
    return np.asarray(model.fit(train, labels_N).predict(dev), dtype=np.int64)


def linear_labels(train: Vectors, labels_N: Ints, dev: Vectors) -> Ints:
    """What logistic regression on the training texts says of others, ``(M,)``."""
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=INVERSE_PENALTY, max_iter=1000)
    return np.asarray(model.fit(train, labels_N).predict(dev), dtype=np.int64)


def cluster_numbers(vectors: Vectors, count: int) -> Ints:
    """The cluster of each text, ``(M,)``, of ``count`` that k-means finds; the same input gives the same clusters."""
    from sklearn.cluster import KMeans

    model = KMeans(min(count, vectors.shape[0]), n_init=10, random_state=0)
    return np.asarray(model.fit_predict(vectors), dtype=np.int64)
