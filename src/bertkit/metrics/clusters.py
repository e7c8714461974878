"""How well a division into clusters agrees with labels: numpy only. Values equal scikit-learn's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError
from bertkit.metrics.probabilities import entropy


def v_measure(clusters: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Harmonic mean of homogeneity (a cluster has one label) and completeness (a label is in one cluster), 0 to 1.

    Rosenberg and Hirschberg 2007, with beta 1: ``2 I(C; L) / (H(C) + H(L))``. The names of clusters do not count.
    """
    found, right = np.asarray(clusters), np.asarray(labels)
    if found.ndim != 1 or found.shape != right.shape or not len(found):
        raise InputError(f"expected as many clusters as labels, at least one, got {found.shape} and {right.shape}")
    cluster_of, label_of = (np.unique(values, return_inverse=True)[1] for values in (found, right))
    both = cluster_of * (int(label_of.max()) + 1) + label_of
    of_clusters, of_labels, of_both = (entropy(np.bincount(codes)) for codes in (cluster_of, label_of, both))
    total = of_clusters + of_labels
    return float(2 * max(of_clusters + of_labels - of_both, 0.0) / total) if total > 0 else 1.0
