"""What a call of the tokenizer asks for: the texts it is given and the meaning of its arguments."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from bertkit.errors import InputError, did_you_mean
from bertkit.habit_table import remedy
from bertkit.tokenization.templates import STRATEGIES, Template
from bertkit.tokenization.vocabulary import SPECIAL_NAMES, AddedToken, SpecialTokens


class SharedArguments(SpecialTokens, total=False):
    """Keyword arguments that every tokenizer takes; ``template`` is that of a ``tokenizer.json``, if it has another."""

    added_tokens: Iterable[AddedToken]
    model_max_length: int
    padding_side: str
    truncation_side: str
    clean_up_tokenization_spaces: bool
    template: Template
    source: str | None


def special_tokens(given: SharedArguments, usual: SpecialTokens, *, of: str) -> SpecialTokens:
    """The special tokens that are given, or usual in the class ``of``."""
    if unknown := given.keys() - SharedArguments.__annotations__.keys():
        instead = remedy("tokenizer", min(unknown), SharedArguments.__annotations__)
        raise TypeError(f"{of}.__init__() got an unexpected keyword argument {min(unknown)!r}{instead}")
    chosen = usual.copy()
    for name in SPECIAL_NAMES:
        if name in given and given[name] is not None:
            chosen[name] = given[name]
    return chosen


#: A text, or its words.
Text = str | Sequence[str]

PADDINGS = ("longest", "max_length", "do_not_pad")
SIDES = ("right", "left")
#: A ``model_max_length`` above this means that the tokenizer's files name no limit.
NO_LIMIT = 10**12


class Texts(NamedTuple):
    """The texts of a call; ``batched`` if the user gave a batch, so that the result has rows even for one text."""

    first: list[Any]
    second: list[Any] | None
    batched: bool


class Request(NamedTuple):
    """The arguments of a call, made definite; None: do not cut, do not pad, no limit, any length."""

    strategy: str | None
    padding: str | None
    max_length: int | None
    multiple: int | None
    stride: int
    pad_left: bool
    cut_left: bool
    add_special_tokens: bool = True
    words: bool = False
    windows: bool = False

    def pad_to(self, longest: int) -> int | None:
        """Length that rows are padded to, given that of the longest; None: do not pad."""
        if self.padding is None:
            return None
        length = self.max_length if self.padding == "max_length" and self.max_length is not None else longest
        return length if not self.multiple else -(-length // self.multiple) * self.multiple


class Defaults(Protocol):
    """What a tokenizer says where a call does not."""

    model_max_length: int
    padding_side: str
    truncation_side: str


def request(
    defaults: Defaults,
    padding: bool | str = False,
    truncation: bool | str | None = False,
    max_length: int | None = None,
    *,
    pad_to_multiple_of: int | None = None,
    padding_side: str | None = None,
    stride: int = 0,
    **flags: bool,
) -> Request:
    """Give the arguments of a call their meaning, which is that of transformers; ``max_length`` alone truncates."""
    for name, number in (("max_length", max_length), ("stride", stride), ("pad_to_multiple_of", pad_to_multiple_of)):
        if number is not None and (isinstance(number, bool) or not hasattr(number, "__index__") or number < 0):
            raise InputError(f"{name} must be a whole number from 0, got {number!r}")
    pad_side = padding_side or defaults.padding_side
    _one_of("padding_side", pad_side, SIDES)
    _one_of("truncation_side", defaults.truncation_side, SIDES)
    if truncation is None:
        truncation = max_length is not None and padding is False
    cut = "longest_first" if truncation is True else truncation or "do_not_truncate"
    _one_of("truncation", cut, (*STRATEGIES, "do_not_truncate"))
    pad = "longest" if padding is True else padding or "do_not_pad"
    _one_of("padding", pad, PADDINGS)
    strategy = None if cut == "do_not_truncate" else cut
    limit: int | None = defaults.model_max_length if max_length is None else max_length
    if max_length is None and defaults.model_max_length > NO_LIMIT:
        limit, strategy, pad = None, None, pad if pad == "longest" else "do_not_pad"
    padded = pad != "do_not_pad"
    if strategy and padded and pad_to_multiple_of and limit is not None and limit % pad_to_multiple_of:
        fitting = limit - limit % pad_to_multiple_of or pad_to_multiple_of
        raise InputError(
            f"max_length={limit} is not a multiple of pad_to_multiple_of={pad_to_multiple_of}: rows cannot be both cut "
            f"to the one and padded to the other; pass max_length={fitting}"
        )
    return Request(
        strategy,
        pad if padded else None,
        limit,
        pad_to_multiple_of,
        stride,
        pad_left=pad_side == "left",
        cut_left=defaults.truncation_side == "left",
        **flags,
    )


def checked_length(length: float) -> int:
    """``model_max_length`` as a whole number; 1e30, which many files have, means that there is no limit."""
    is_number = isinstance(length, int | float | np.number) and not isinstance(length, bool)
    if not is_number or not 1 <= length < math.inf:
        raise InputError(f"model_max_length must be a finite number from 1, got {length!r:.80}")
    return int(length)


def _one_of(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise InputError(
            f"{name} must be one of {', '.join(known)}, got {value!r:.80}{did_you_mean(str(value), known)}"
        )


def parse_texts(text: Any, text_pair: Any, *, words: bool) -> Texts:
    """The texts of a call in one form; beside a single text, an empty second one is as good as none."""
    text, text_pair = _as_list(text), _as_list(text_pair)
    is_text = _is_words if words else _is_text
    batched = isinstance(text, list) and (bool(text) and not isinstance(text[0], str) if words else True)
    if not batched:
        if not is_text(text) or not (text_pair is None or is_text(text_pair)):
            wrong = text if not is_text(text) else text_pair
            form = "words (a list of str)" if words else "a str"
            raise InputError(f"a text must be {form}, or a list of these, got {type(wrong).__name__} {wrong!r:.80}")
        return Texts([text], [text_pair] if text_pair else None, batched=False)
    if text_pair is None and text and all(isinstance(row, tuple) and len(row) == 2 for row in text):
        text, text_pair = [row[0] for row in text], [row[1] for row in text]
    _check_texts(text, is_text)
    if text_pair is not None:
        if not isinstance(text_pair, list):
            raise InputError("a batch of texts needs a list of as many second texts, got one text_pair")
        _check_texts(text_pair, is_text)
        if len(text) != len(text_pair):
            raise InputError(f"there are {len(text)} texts but {len(text_pair)} in text_pair; give as many of each")
    return Texts(text, text_pair, batched=True)


def _check_texts(texts: Sequence[Text], is_text: Callable[[Text], bool]) -> None:
    for row, text in enumerate(texts):
        if not is_text(text):
            raise InputError(f"text {row} is not a text: got {type(text).__name__} {text!r:.80}")


def list_of_texts(texts: Sequence[str]) -> Sequence[str]:
    """Texts as something to walk through twice; refuses a single text, and a row that is not a text."""
    if isinstance(texts, str):
        raise InputError("encode_ragged takes a list of texts; put a single text into a list")
    listed = texts if isinstance(texts, list | tuple) else list(texts)
    _check_texts(listed, _is_text)
    return listed


def _is_text(text: Text) -> bool:
    return isinstance(text, str)


def _is_words(text: Text) -> bool:
    return isinstance(text, list | tuple) and all(isinstance(word, str) for word in text)


def _as_list(texts: Any) -> Any:
    """Tuples, numpy arrays and table columns as lists; anything else as it is."""
    if isinstance(texts, tuple):
        return list(texts)
    for name in ("tolist", "to_list", "to_pylist"):
        if hasattr(texts, name) and not isinstance(texts, str):
            return getattr(texts, name)()
    return texts
