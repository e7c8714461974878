"""What a caller may pass to a pipeline, brought to one form: a stream of texts, and the shape of the answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeGuard, TypeVar

from bertkit.errors import InputError, shorten
from bertkit.tokenization.features import Text as Text
from bertkit.tokenization.text_inputs import read_text

Shape = Literal["one", "list", "lazy"]

ItemT = TypeVar("ItemT")
AnswerT = TypeVar("AnswerT")
#: An answer, or several, in the shape of the request.
Shaped: TypeAlias = AnswerT | list[AnswerT] | Iterator[AnswerT]
#: One text or pair as a caller may pass it, and what a pipeline of texts is called with.
Item = str | tuple[str, str] | list[str] | Mapping[str, str]
Inputs = Item | Iterable[Item]
#: Types of one input, although it has a length. A tuple, because a union would be built on every call.
SINGLE = (str, bytes, Mapping)


def is_whole(value: Any, least: int = 1, most: float = math.inf) -> TypeGuard[int]:
    """Whether a value is a whole number (no bool) in a range."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def num_characters(text: Text) -> int:
    """Characters of a text or a pair."""
    return len(text[0]) + len(text[1] or "")


class Request(NamedTuple, Generic[ItemT]):
    """The items of one call: texts, or questions.

    items: checked one by one as they are drawn, so a generator never runs ahead of what is needed.
    shape: ``one`` answer for one item, a ``list`` for a sized collection, a ``lazy`` iterator for any other iterable.
    """

    items: Iterator[ItemT]
    shape: Shape
    total: int | None


def request_of(inputs: Any, read: Callable[[Any, str], ItemT], what: str, *, one: bool) -> Request[ItemT]:
    """A request for ``one`` item, or for those of an iterable; ``read`` checks an item, which it names by ``what``."""
    if one:
        return Request(iter([read(inputs, f"the {what}")]), "one", 1)
    total = len(inputs) if isinstance(inputs, Sized) else None
    labels = getattr(inputs, "index", None)
    if labels is None or callable(labels):
        items = (read(item, f"{what} {number}") for number, item in enumerate(items_of(inputs, what)))
    else:  # a Series of pandas
        named = zip(labels, items_of(inputs, what), strict=True)
        items = (read(item, f"{what} {number} (row {label!r})") for number, (label, item) in enumerate(named))
    return Request(items, "lazy" if total is None else "list", total)


def items_of(inputs: Any, what: str) -> Iterable[Any]:
    """The items of anything that holds some: also a column of Arrow or a data set of torch.

    Raises:
        InputError: a table, of which a column has to be picked, or something that holds no items.
    """
    if hasattr(inputs, "columns"):  # iterating over a DataFrame gives the names of its columns
        raise InputError(
            f"a pipeline reads {what}s, got a table with the columns {shorten(inputs.columns)}; pass one column of it, "
            "for example table['text']"
        )
    if hasattr(inputs, "to_pylist"):  # columns of Arrow
        return inputs.to_pylist()  # type: ignore[no-any-return]
    if isinstance(inputs, Iterable):
        return inputs
    if hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__"):  # data sets of torch
        return (inputs[number] for number in range(len(inputs)))
    raise InputError(f"a pipeline takes a {what} or an iterable of {what}s, got {type(inputs).__name__}")


def read_request(inputs: Inputs, *, tuple_is_pair: bool, pair_required: bool = False) -> Request[Text]:
    """Accept a text, a pair, a collection of those, or any iterable of them; errors name the item, when it is drawn.

    A collection is anything with a length (list, array, Series); a pair is ``{"text": ..., "text_pair": ...}`` or, in
    a collection, also a 2-tuple or 2-list. ``tuple_is_pair``: so is a bare tuple of two strings (tasks about pairs).
    """
    bare_pair = tuple_is_pair and isinstance(inputs, tuple) and len(inputs) == 2 and isinstance(inputs[0], str)
    one = isinstance(inputs, SINGLE) or bare_pair
    return request_of(inputs, lambda item, where: read_text(item, where, pair_required), "text", one=one)


def join_pairs(inputs: Any, text_pair: str | Iterable[str] | None) -> Any:
    """``pipe(first, second)`` and ``pipe(firsts, seconds)`` in the form of ``pipe(pairs)``."""
    if text_pair is None:
        return inputs
    if isinstance(inputs, str) and isinstance(text_pair, str):
        return (inputs, text_pair)
    if isinstance(inputs, str) or isinstance(text_pair, str):
        raise InputError("give two texts, or two lists of texts of the same length; got one text and one list")
    firsts, seconds = list(items_of(inputs, "text")), list(items_of(text_pair, "text"))
    if len(firsts) != len(seconds):
        raise InputError(f"got {len(firsts)} first texts but {len(seconds)} second texts")
    return list(zip(firsts, seconds, strict=True))
