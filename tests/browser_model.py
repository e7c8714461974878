"""The C code of the page "try it here", compiled for this machine and called through ctypes."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from collections.abc import Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int32, c_size_t, c_void_p
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bertkit.engine.native.build import FOLDER, NATIVE, NEUTRAL, VARIANT, compilers, variants_here
from bertkit.tokenization.vocabulary import MAX_INPUT_CHARS_PER_WORD, SPECIAL_TOKENS

BROWSER = FOLDER / "browser"
Array = np.ndarray[Any, np.dtype[np.float32]]
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


def compiled_page(folder: Path) -> Path:
    """Everything that the page runs, for this very processor; a library has one page."""
    browser = sorted(str(path.relative_to(FOLDER)) for path in BROWSER.glob("*.c"))
    flags = (*variants_here()[NATIVE], f"-DBERTKIT_VARIANT={NATIVE}", f"-DBERTKIT_VARIANTS=X({NATIVE})", "-pthread")
    return compiled(folder, (*NEUTRAL, VARIANT, *browser), "-O1", "-ffp-contract=fast", "-fno-math-errno", *flags)


class PageInC:
    """``browser.c``, the functions that the page calls, with the engine for this very processor."""

    def __init__(self, library: Path) -> None:
        self._functions = ctypes.CDLL(str(library))
        for name in ("browser_file", "browser_text", "browser_result", "browser_entry"):
            getattr(self._functions, name).restype = c_void_p
        self._functions.browser_error.restype = c_char_p
        for name in ("file", "load", "text", "pieces", "similarities"):
            getattr(self._functions, f"browser_{name}").argtypes = [c_size_t]
        self._functions.browser_fill.argtypes = [c_size_t, c_int32]

    def _check(self, found: int) -> int:
        if found < 0:
            raise ValueError(self._functions.browser_error().decode())
        return found

    def _ask(self, name: str, text: str, *rest: int) -> int:
        data = text.encode()
        ctypes.memmove(self._functions.browser_text(len(data)), data, len(data))
        return self._check(getattr(self._functions, f"browser_{name}")(len(data), *rest))

    def _result(self, size: int) -> bytes:
        return ctypes.string_at(self._functions.browser_result(), size)

    def load(self, data: bytes) -> None:
        """Read the model's file."""
        place = self._functions.browser_file(len(data))
        ctypes.memmove(place, data, len(data))
        self._check(self._functions.browser_load(len(data)))

    def entry(self, number: int) -> str:
        """An entry of the vocabulary."""
        return ctypes.string_at(
            self._functions.browser_entry(number), self._functions.browser_entry_size(number)
        ).decode()

    def pieces(self, text: str) -> list[Piece]:
        """The pieces of a text."""
        count = self._ask("pieces", text)
        return [Piece(*numbers) for numbers in struct.iter_unpack("<4i", self._result(16 * count))]

    def fill(self, text: str, most: int) -> list[list[tuple[int, float]]]:
        """For each mask, the likeliest ids with their probabilities."""
        masks = self._ask("fill", text, most)
        found = list(struct.iter_unpack("<if", self._result(8 * masks * most)))
        return [found[start : start + most] for start in range(0, len(found), most)]

    def similarities(self, lines: Sequence[str]) -> tuple[Array, Array]:
        """Cosines ``(n, n)`` and vectors ``(n, D)``."""
        count, width = self._ask("similarities", "\n".join(lines)), self._functions.browser_width()
        numbers = np.frombuffer(self._result(4 * count * (count + width)), np.float32)
        return numbers[: count * count].reshape(count, count), numbers[count * count :].reshape(count, width)
