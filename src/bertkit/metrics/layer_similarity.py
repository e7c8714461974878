"""How similar the representations of the same examples are in two layers, of one model or of two.

This is linear CKA (Kornblith et al. 2019), which stays the same if a space is rotated or scaled. HSIC is estimated
without bias (Song et al. 2012), as in Nguyen et al. 2021: with the usual, biased estimate, any two layers look similar
whose vectors have more numbers than there are examples.

Letters of the array shapes: L and M layers, N examples, D numbers of a vector.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError

Floats = npt.NDArray[np.float64]
#: Fewest examples that the unbiased estimate is defined for.
FEWEST = 4


def layer_similarity(first: Iterable[npt.ArrayLike], second: Iterable[npt.ArrayLike]) -> Floats:
    """Linear CKA of each of L layers with each of M others, all ``(N, D)`` of the same examples: ``(L, M)``.

    At most 1; unrelated layers are near 0, perhaps a little below. NaN for a layer in which all examples are the same.
    """
    rows, columns = (np.stack([_direction(np.asarray(x, np.float64)) for x in side]) for side in (first, second))
    if rows.shape[1] != columns.shape[1]:
        raise InputError("the layers must have been computed of the same examples")
    similar: Floats = np.minimum(rows @ columns.T, 1.0)
    return similar


def _direction(x_ND: Floats) -> Floats:
    """The inner products of all examples, U-centered (Székely & Rizzo 2014), as a vector ``(N * N,)`` of length 1.

    The inner product of two of these is the ratio of HSICs that CKA is.
    """
    count = len(x_ND)
    if x_ND.ndim != 2 or count < FEWEST:
        raise InputError(f"the similarity of layers needs {FEWEST} examples or more, got an array of {x_ND.shape}")
    x_ND = x_ND - x_ND.mean(axis=0)
    products = x_ND @ x_ND.T
    np.fill_diagonal(products, 0.0)
    sums = products.sum(axis=0)
    products -= (sums[:, None] + sums) / (count - 2) - sums.sum() / ((count - 1) * (count - 2))
    np.fill_diagonal(products, 0.0)
    length = np.linalg.norm(products)
    found: Floats = products.ravel() / (length if length > 0 else np.nan)
    return found
