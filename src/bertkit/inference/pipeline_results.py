"""What pipelines return where a plain array or number could not say that its text was cut."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


class Embedding(np.ndarray[Any, np.dtype[np.float32]]):
    """The vector ``(D,)`` or token matrix ``(S, D)`` of one text: a float32 array that knows where it comes from.

    It is an ordinary array everywhere (``np.stack``, ``torch.from_numpy``, arithmetic). Whatever is computed from it
    (a slice, a stack, a sum) no longer speaks about one text, so there both attributes are None.

    num_tokens: word pieces that were encoded, special tokens included.
    truncated: True where the text was longer than that and its end was not read.
    """

    num_tokens: int | None
    truncated: bool | None

    @classmethod
    def of(cls, values: NDArray[Any], *, num_tokens: int | None, truncated: bool | None) -> Self:
        """``values`` as an Embedding, without a copy."""
        embedding = values.view(cls)
        embedding.num_tokens = num_tokens
        embedding.truncated = truncated
        return embedding

    def __array_finalize__(self, source: Any) -> None:
        self.num_tokens = None
        self.truncated = None

    def __reduce__(self) -> Any:
        return _rebuild_embedding, (np.asarray(self), self.num_tokens, self.truncated)


def _rebuild_embedding(values: NDArray[np.float32], num_tokens: int | None, truncated: bool | None) -> Embedding:
    return Embedding.of(values, num_tokens=num_tokens, truncated=truncated)


class Score(float):
    """A similarity, a cosine unless the model says otherwise: a float that knows whether a text was ``truncated``."""

    truncated: bool

    def __new__(cls, value: float, *, truncated: bool = False) -> Self:
        score = super().__new__(cls, value)
        score.truncated = truncated
        return score

    def __reduce__(self) -> Any:
        return _rebuild_score, (float(self), self.truncated)


def _rebuild_score(value: float, truncated: bool) -> Score:
    return Score(value, truncated=truncated)
