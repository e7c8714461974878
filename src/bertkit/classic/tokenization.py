"""``tokenization.py`` of google-research/bert: its classes, and its functions over a vocabulary.

The tokenizers are the readable reference of :mod:`bertkit.tokenization`. Unlike the original they keep special tokens
in a text whole.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping

from bertkit.errors import ConfigError, InputError
from bertkit.tokenization.reference import (
    BasicTokenizer,
    FullTokenizer,
    WordpieceTokenizer,
    convert_by_vocab,
    load_vocab,
)

__all__ = [
    "BasicTokenizer",
    "FullTokenizer",
    "WordpieceTokenizer",
    "_is_control",
    "_is_punctuation",
    "_is_whitespace",
    "convert_by_vocab",
    "convert_ids_to_tokens",
    "convert_to_unicode",
    "convert_tokens_to_ids",
    "load_vocab",
    "printable_text",
    "validate_case_matches_checkpoint",
    "whitespace_tokenize",
]


def convert_to_unicode(text: str | bytes) -> str:
    """``text`` as ``str``; bytes are decoded as UTF-8, and invalid ones dropped, as in the original.

    Raises:
        InputError: neither ``str`` nor ``bytes``.
    """
    if isinstance(text, str):
        return text
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    raise InputError(f"a text must be str or bytes, got {type(text).__name__} {text!r:.80}")


def printable_text(text: str | bytes) -> str:
    """``text`` ready to be printed, which in Python 3 is what :func:`convert_to_unicode` returns."""
    return convert_to_unicode(text)


def validate_case_matches_checkpoint(do_lower_case: bool, init_checkpoint: str | None) -> None:
    """See that ``do_lower_case`` is what a checkpoint's name says, such as ``.../uncased_L-12_H-768/bert_model.ckpt``.

    Other names say nothing.

    Raises:
        ConfigError: they contradict each other.
    """
    found = re.search(r"([A-Za-z0-9_-]+)/bert_model\.ckpt", init_checkpoint or "")
    name = found.group(1) if found else ""
    cased = name.startswith(("cased_", "multi_cased_"))
    lower = name.startswith(("uncased_", "multilingual_", "chinese_"))
    if (cased and do_lower_case) or (lower and not do_lower_case):
        raise ConfigError(
            f"do_lower_case={do_lower_case} does not match {init_checkpoint}, a checkpoint for "
            f"{'cased' if cased else 'lower-cased'} text; pass do_lower_case={not do_lower_case}"
        )


def _is_whitespace(char: str) -> bool:
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def _is_control(char: str) -> bool:
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def _is_punctuation(char: str) -> bool:
    """All ASCII but letters, digits, blanks and controls, so also ``$`` and ``^``; elsewhere Unicode's punctuation."""
    if char.isascii():
        return char.isprintable() and not char.isalnum() and char != " "
    return unicodedata.category(char).startswith("P")


def whitespace_tokenize(text: str) -> list[str]:
    """The words between white space."""
    return text.split()


def convert_tokens_to_ids(vocab: Mapping[str, int], tokens: Iterable[str]) -> list[int]:
    """Ids of ``tokens``; raises as :func:`convert_by_vocab`."""
    return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(inv_vocab: Mapping[int, str], ids: Iterable[int]) -> list[str]:
    """Tokens of ``ids``; raises as :func:`convert_by_vocab`."""
    return convert_by_vocab(inv_vocab, ids)
