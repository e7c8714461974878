"""The C code of the page "try it here", compiled for this machine and called through ctypes."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int32, c_size_t, c_void_p
from pathlib import Path
from typing import ClassVar, NamedTuple

from bertkit.engine.native.build import FOLDER, compilers
from bertkit.tokenization.vocabulary import MAX_INPUT_CHARS_PER_WORD, SPECIAL_TOKENS

BROWSER = FOLDER / "browser"
TOKENIZER = ("browser/wordpiece.c", "browser/characters.c", "check.c")


class Piece(NamedTuple):
    """A piece of a text: its id, the number of its word, and its place in characters."""

    id: int
    word: int
    start: int
    end: int


class _Options(ctypes.Structure):
    _fields_: ClassVar = [
        ("entries", c_char_p), ("size", c_size_t), ("lower", c_int32), ("strip_accents", c_int32),
        ("chinese", c_int32), ("longest_word", c_int32), ("unknown", c_int32), ("num_whole", c_int32),
        ("whole", POINTER(c_int32)),
    ]  # fmt: skip


class _Error(ctypes.Structure):
    _fields_: ClassVar = [("status", c_int32), ("text", ctypes.c_char * 252)]


class WordPieceInC:
    """``wordpiece.c`` with a vocabulary.

    library: compiled from :data:`TOKENIZER`.
    vocab: token to id, ids from 0.
    """

    def __init__(
        self,
        library: Path,
        vocab: Mapping[str, int],
        *,
        lower: bool = True,
        strip_accents: bool | None = None,
        chinese: bool = True,
        longest_word: int = MAX_INPUT_CHARS_PER_WORD,
        whole: Sequence[str] = SPECIAL_TOKENS,
        unknown: int | None = None,
    ) -> None:
        self._functions = ctypes.CDLL(str(library))
        self._functions.wordpiece_cut.argtypes = [c_void_p, c_char_p, c_size_t, c_void_p, c_void_p, c_void_p]
        self._entries = "".join(f"{token}\n" for token in sorted(vocab, key=vocab.__getitem__)).encode()
        ids = (c_int32 * len(whole))(*[vocab[token] for token in whole])
        strips = lower if strip_accents is None else strip_accents
        unknown = vocab["[UNK]"] if unknown is None else unknown
        options = _Options(
            self._entries, len(self._entries), lower, strips, chinese, longest_word, unknown, len(ids), ids
        )
        self._made = c_void_p()
        self._check(self._functions.wordpiece_new(byref(options), byref(self._made), byref(error := _Error())), error)

    @staticmethod
    def _check(status: int, error: _Error) -> None:
        if status:
            raise ValueError(error.text.decode())

    def cut(self, text: str | bytes) -> list[Piece]:
        """The pieces of a text."""
        data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
        pieces, count = c_void_p(), c_int32()
        error = _Error()
        self._check(
            self._functions.wordpiece_cut(self._made, data, len(data), byref(pieces), byref(count), byref(error)),
            error,
        )
        numbers = (c_int32 * (4 * count.value)).from_address(pieces.value)[:] if count.value else []
        return list(map(Piece, *[iter(numbers)] * 4))


def compiled(folder: Path, sources: Sequence[str], *flags: str) -> Path:
    """A shared library of some of the engine's sources."""
    target = folder / "browser.so"
    files = [str(FOLDER / name) for name in sources]
    command = [*next(compilers()), "-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror", *flags]
    subprocess.run([*command, "-shared", "-fPIC", "-o", str(target), *files, "-lm"], check=True)
    return target
