"""Ways to damage a file, bounds on what reading it may take, and attacks with them.

A mutation changes the content in place and returns what must come of it: ``REFUSED``, ``SAME`` (refused, or read as the
undamaged file), or None where another content is as good as the first.
"""

from __future__ import annotations

import ctypes
import json
import operator
import random
import shutil
import signal
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from bertkit.errors import BertkitError

REFUSED, SAME = "refused", "refused, or the same as before"
Mutation = Callable[[bytearray, random.Random], str | None]
#: Mutations of each kind of file in the campaign, and in the default run.
MANY, FEW = 500, 20

#: Most that a small file may take: processor time, growth of the process, and time in all, waiting included.
MAX_S, MAX_BYTES, MAX_WAIT_S = 20.0, 200_000_000, 120.0

HUGE = [2**31 - 1, 2**31, 2**32 - 1, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**18, 10**30, -1, -(2**63)]
NAMES = [
    "../../../etc/passwd", "/etc/passwd", "a\0b", "..\\..\\x", "x" * 5000, "\ud800", "", "." * 300, "CON", "\x1b[2J",
]  # fmt: skip
#: Values as JSON writes them, with their types. None of the numbers is one, and no text has a lone surrogate.
NEVER = [
    ("NaN", "number"), ("Infinity", "number"), ("-Infinity", "number"), ("1e999", "number"), ("9" * 5000, "number"),
    ('"\\ud800"', "text"), ("[" * 100_000 + "]" * 100_000, "list"), ('{"a":' * 50_000 + "1" + "}" * 50_000, "table"),
]  # fmt: skip
ODD = [
    ("[]", "list"), ("[[]]", "list"), ("{}", "table"), ('"x"', "text"), ('""', "text"), ("true", "truth"),
    ("false", "truth"), ("-1", "number"), ("0.5", "number"), (str(2**63), "number"),
]  # fmt: skip
_HERE = "@@here@@"


# --- bytes and text --------------------------------------------------------------------------------------------------


def flip(content: bytearray, draw: random.Random) -> None:
    for _ in range(draw.choice([1, 1, 2, 8])):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)


def cut(content: bytearray, draw: random.Random) -> None:
    del content[draw.randrange(len(content)) :]


def remove(content: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(content))
    del content[at : at + draw.choice([1, 2, 4, 8, 100])]


def double(content: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(content))
    piece = content[at : at + draw.choice([1, 8, 64, 1000])]
    content[at:at] = piece * draw.choice([1, 1, 3, 50])


def overwrite(content: bytearray, draw: random.Random) -> None:
    """A whole number of 1 to 8 bytes becomes an extreme one."""
    size, at = draw.choice([1, 2, 4, 8]), draw.randrange(len(content))
    value = draw.choice([0, 1, (1 << 8 * size) - 1, 1 << 8 * size - 1, draw.getrandbits(8 * size)])
    content[at : at + size] = value.to_bytes(size, "little")


def rubbish(content: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(content))
    content[at : at + 20] = draw.randbytes(20)


def digits(content: bytearray, draw: random.Random) -> None:
    """A number in text becomes absurd."""
    places = [at for at, byte in enumerate(content) if 48 <= byte <= 57]
    if places:
        at = draw.choice(places)
        content[at : at + 1] = str(draw.choice(HUGE)).encode()


def names(content: bytearray, draw: random.Random) -> None:
    """A text in quotes becomes a hostile one."""
    parts = bytes(content).split(b'"')
    if len(parts) > 3:
        at = draw.randrange(1, len(parts) - 1)
        parts[at] = json.dumps(draw.choice(NAMES)).strip('"').encode()
        content[:] = b'"'.join(parts)


def nested(content: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(content))
    content[at:at] = draw.choice([b"[", b'{"a":', b"("]) * draw.choice([50, 5_000, 200_000])


# --- JSON, whose structure stays whole -------------------------------------------------------------------------------


def _type(value: Any) -> str:
    kinds = ((bool, "truth"), (int | float, "number"), (str, "text"), (list, "list"), (dict, "table"))
    return next((name for kind, name in kinds if isinstance(value, kind)), "nothing")  # type: ignore[arg-type]


def _place(top: Any, draw: random.Random) -> tuple[Any, Any]:
    """A list or table somewhere in ``top`` and a key of it; the values near the top are as likely as those below."""
    inside, key = top, draw.choice(list(top))
    while inside[key] and isinstance(inside[key], (list, dict)) and draw.random() < 0.6:
        inside = inside[key]
        key = draw.choice(list(inside)) if isinstance(inside, dict) else draw.randrange(len(inside))
    return inside, key


def _with_raw(top: Any, raw: str) -> bytes:
    """The JSON text, with ``raw`` in the place of the one value that is :data:`_HERE`."""
    return json.dumps(top, ensure_ascii=False).replace(json.dumps(_HERE), raw).encode()


def never_a_value(content: bytearray, draw: random.Random) -> str:
    """A number that is none, or of 5,000 digits; half a character; nesting a hundred thousand deep."""
    return _replace(content, draw, draw.choice(NEVER)[0])


def other_type(content: bytearray, draw: random.Random) -> str | None:
    """A value of another type than the one that is there."""
    raw, kind = draw.choice(ODD)
    return _replace(content, draw, raw, but=kind)


def _replace(content: bytearray, draw: random.Random, raw: str, but: str | None = None) -> str | None:
    top = json.loads(content)
    inside, key = _place(top, draw)
    free = _type(inside[key]) in (but, "nothing")  # another of the same type; or any, where there was none
    inside[key] = _HERE
    content[:] = _with_raw(top, raw)
    return None if but is not None and free else SAME


def key_twice(content: bytearray, draw: random.Random) -> str | None:
    """A key of a table is there twice, with another value before or after the right one: who reads it must choose."""
    top = json.loads(content)
    inside, key = _place(top, draw)
    if not isinstance(inside, dict):
        inside, key = top, draw.choice(list(top))
    right, other = json.dumps(inside[key], ensure_ascii=False), draw.choice(ODD)[0]
    inside[key] = _HERE
    first, second = draw.sample([right, other], 2)
    content[:] = _with_raw(top, f"{first}, {json.dumps(key, ensure_ascii=False)}: {second}")
    return REFUSED


def in_header(mutation: Mutation) -> Mutation:
    """A mutation of the JSON at the beginning of a safetensors file, with its length made right."""

    def mutate(content: bytearray, draw: random.Random) -> str | None:
        (size,) = struct.unpack("<Q", content[:8])
        header = content[8 : 8 + size]
        expected = mutation(header, draw)
        content[: 8 + size] = struct.pack("<Q", len(header)) + header
        return expected

    mutate.__name__ = f"{mutation.__name__} in the header"
    return mutate


BYTES: tuple[Mutation, ...] = (flip, cut, remove, double, overwrite, rubbish)
TEXT: tuple[Mutation, ...] = (*BYTES, digits, nested)
STRUCTURE: tuple[Mutation, ...] = (never_a_value, other_type, key_twice)
HEADER: tuple[Mutation, ...] = tuple(map(in_header, STRUCTURE))
JSON: tuple[Mutation, ...] = (*TEXT, names, *STRUCTURE)


# --- bounds ----------------------------------------------------------------------------------------------------------


class HangError(BaseException):
    """Reading waits for something that does not come. No ``except Exception`` catches it."""


def _hang(signum: int, frame: FrameType | None) -> None:
    raise HangError(f"still reading after {MAX_WAIT_S:g} s")


def peak_bytes(*, forget: bool = False) -> int:
    """Most memory that the process has had since the last call with ``forget``; Linux only."""
    if forget:
        # What earlier tests have freed goes back to the system: taken again, it would not be seen as growth.
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


@contextmanager
def bounded(what: str) -> Iterator[None]:
    """Fails where the block takes more processor time or memory than a small file may, or hangs."""
    before, started = peak_bytes(forget=True), time.process_time()
    usual = signal.signal(signal.SIGALRM, _hang)
    signal.setitimer(signal.ITIMER_REAL, MAX_WAIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)
    spent, grown = time.process_time() - started, peak_bytes() - before
    assert spent < MAX_S, f"{what}: {spent:.1f} s"
    assert grown < MAX_BYTES, f"{what}: {grown:,} bytes"


@contextmanager
def counted_calls() -> Iterator[Callable[[], int]]:
    """Calls and returns of functions in the block so far: its work, the same on any machine."""
    number, before = 0, sys.getprofile()

    def count(*_: object) -> None:
        nonlocal number
        number += 1

    sys.setprofile(count)
    try:
        yield lambda: number
    finally:
        sys.setprofile(before)


# --- attacks ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A kind of file, and what reads it.

    source: name of the folder that is copied.
    name: of the file that is mutated.
    change: what is done to the folder first.
    read: reads the folder, and returns what is compared.
    expected: what must come of a mutation that does not say so itself.
    repair: applied to the mutated content, so that the damage is not seen at once.
    as_before: whether what was read is what an undamaged file gives.
    """

    source: str
    name: str
    change: Callable[[Path], None]
    mutations: tuple[Mutation, ...]
    read: Callable[[Path], Any]
    expected: str | None = None
    repair: Callable[[bytearray], None] | None = None
    as_before: Callable[[Any, Any], bool] = operator.eq


def without(*names: str) -> Callable[[Path], None]:
    """Removes files of a folder."""

    def change(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return change


def sharded(folder: Path) -> None:
    """Turns the weights of a folder into two shards with an index."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    weight_map = {name: f"part-{number % 2}.safetensors" for number, name in enumerate(sorted(tensors))}
    for part in set(weight_map.values()):
        save_file({name: tensors[name] for name, where in weight_map.items() if where == part}, folder / part)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def prepare(kind: Kind, sources: Mapping[str, Path], folder: Path) -> None:
    """A copy of the source of a kind, changed as it says."""
    shutil.copytree(sources[kind.source], folder)
    kind.change(folder)


def attack(kind: Kind, sources: Mapping[str, Path], work: Path, times: int, seed: int) -> int:
    """Mutate a file again and again and read it; returns how often it was refused.

    Fails where a file was read that should not be, where another error than ours was raised, or where another file than
    the mutated one changed.
    """
    folder = work / "folder"
    prepare(kind, sources, folder)
    right = kind.read(folder)  # control: as it is, it is read; and whatever a first time costs is paid
    whole = (folder / kind.name).read_bytes()
    others = {file: file.read_bytes() for file in work.rglob("*") if file.is_file() and file.name != kind.name}
    draw, refused, wrong = random.Random(seed), 0, []
    for number in range(times):
        content = bytearray(whole)
        mutation = kind.mutations[number % len(kind.mutations)]
        expected = mutation(content, draw) or kind.expected
        if kind.repair is not None:
            kind.repair(content)
        (folder / kind.name).write_bytes(content)
        what, said = f"{mutation.__name__} number {number}", ""
        with bounded(what):
            try:
                found = kind.read(folder)
                is_bad = expected == REFUSED or not kind.as_before(found, right)
                if expected is not None and is_bad and bytes(content) != whole:
                    wrong.append(f"{what} was read, but should be {expected}: {_difference(content, whole)}")
            except BertkitError as error:
                said = str(error)
                refused += 1
            except Exception as error:
                wrong.append(f"{what} gave {type(error).__name__}: {error!s:.200}: {_difference(content, whole)}")
        assert len(said) < 20_000, f"{what} said {said[:300]}"
    assert not wrong, "\n".join([f"{len(wrong)} of {times}", *wrong[:10]])
    shutil.rmtree(folder / "out", ignore_errors=True)
    after = {file: file.read_bytes() for file in work.rglob("*") if file.is_file() and file.name != kind.name}
    assert after == {file: content for file, content in others.items() if "out" not in file.parts}
    assert {path.name for path in work.iterdir()} == {"folder"}
    return refused


def _difference(content: bytearray, whole: bytes) -> str:
    """A few bytes around the first that differs."""
    original = json.dumps(json.loads(whole), ensure_ascii=False).encode() if whole[:1] == b"{" else whole
    at = next((at for at, (a, b) in enumerate(zip(content, original, strict=False)) if a != b), len(original))
    return repr(bytes(content[max(0, at - 60) : at + 60]))
