"""What pipelines return: arrays, numbers, lists and dictionaries that know their text, and show it in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from bertkit.visualize.html_text import Mark


class Embedding(np.ndarray[Any, np.dtype[np.float32]]):
    """The vector ``(D,)`` or token matrix ``(1, S, D)`` of one text: a float32 array that knows where it comes from.

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


class Entities(list[dict[str, Any]]):
    """The entities of a text, as a list of dictionaries; a notebook shows them in the ``text``."""

    def __init__(self, entities: Iterable[dict[str, Any]], text: str) -> None:
        super().__init__(entities)
        self.text = text

    def marks(self) -> list[Mark]:
        """Where they are, with their types."""
        from bertkit.visualize.html_text import Mark

        kinds = (entity.get("entity_group") or entity["entity"] for entity in self)
        return [Mark(one["start"], one["end"], kind, one["score"]) for one, kind in zip(self, kinds, strict=True)]

    def __reduce__(self) -> Any:
        return Entities, (list(self), self.text)

    def _repr_html_(self) -> str:
        from bertkit.visualize.html_text import marked_text

        return marked_text(self.text, self.marks())


class FoundAnswer(dict[str, Any]):
    """An answer as a dictionary; a notebook shows it in its ``context``."""

    def __init__(self, fields: Mapping[str, Any], context: str) -> None:
        super().__init__(fields)
        self.context = context

    def marks(self) -> list[Mark]:
        """Where it is; nowhere if there is no answer."""
        from bertkit.visualize.html_text import Mark

        return [Mark(self["start"], self["end"], "answer", self["score"])]

    def __reduce__(self) -> Any:
        return FoundAnswer, (dict(self), self.context)

    def _repr_html_(self) -> str:
        from bertkit.visualize.html_text import marked_text

        found = "" if self["answer"] else "<p><em>no answer</em></p>"
        return found + marked_text(self.context, self.marks())


class Ranked(list[dict[str, Any]]):
    """Labels or guesses with their scores, as a list of dictionaries; a notebook shows bars."""

    def _repr_html_(self) -> str:
        from bertkit.visualize.html_text import bars

        return bars([(str(each.get("label", each.get("token_str"))), each["score"]) for each in self])
