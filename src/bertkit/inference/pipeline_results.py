"""What pipelines return where a plain array or number could not say that its text was cut."""

from __future__ import annotations

from functools import partial
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
        return partial(self.of, num_tokens=self.num_tokens, truncated=self.truncated), (np.asarray(self),)


class Score(float):
    """A similarity, a cosine unless the model says otherwise: a float that knows whether a text was ``truncated``."""

    truncated: bool

    def __new__(cls, value: float, *, truncated: bool = False) -> Self:
        score = super().__new__(cls, value)
        score.truncated = truncated
        return score
