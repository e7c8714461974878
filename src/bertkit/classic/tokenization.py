"""``tokenization.py`` of google-research/bert: its classes, and its functions over a vocabulary.

The tokenizers are :mod:`bertkit.tokenization`'s readable reference. Unlike the original they keep special tokens that
stand in a text whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from bertkit.errors import InputError
from bertkit.tokenization import BasicTokenizer, FullTokenizer, WordpieceTokenizer, load_vocab

__all__ = [
    "BasicTokenizer",
    "FullTokenizer",
    "WordpieceTokenizer",
    "convert_by_vocab",
    "convert_ids_to_tokens",
    "convert_to_unicode",
    "convert_tokens_to_ids",
    "load_vocab",
    "whitespace_tokenize",
]

Key = TypeVar("Key", str, int)
Value = TypeVar("Value")


def convert_to_unicode(text: str | bytes) -> str:
    """``text`` as ``str``; bytes are UTF-8, and wrong ones are left out, as in the original.

    Raises:
        InputError: neither ``str`` nor ``bytes``.
    """
    if isinstance(text, str):
        return text
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    raise InputError(f"a text must be str or bytes, got {type(text).__name__} {text!r:.80}")


def whitespace_tokenize(text: str) -> list[str]:
    """What white space separates."""
    return text.split()


def convert_by_vocab(vocab: Mapping[Key, Value], items: Iterable[Key]) -> list[Value]:
    """The value of each item.

    Args:
        vocab: token to id, or id to token.
        items: tokens, or ids.

    Raises:
        InputError: an item that ``vocab`` has not.
    """
    try:
        return [vocab[item] for item in items]
    except KeyError as error:
        raise InputError(
            f"{error.args[0]!r} is not in the vocabulary of {len(vocab):,} entries; tokenize the text first"
        ) from None


def convert_tokens_to_ids(vocab: Mapping[str, int], tokens: Iterable[str]) -> list[int]:
    """Ids of ``tokens``; raises as :func:`convert_by_vocab`."""
    return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(inv_vocab: Mapping[int, str], ids: Iterable[int]) -> list[str]:
    """Tokens of ``ids``; raises as :func:`convert_by_vocab`."""
    return convert_by_vocab(inv_vocab, ids)
