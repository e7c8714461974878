"""What all commands share: common options, texts from arguments, files or standard input, and written results."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

from cyclopts import Group, Parameter

from bertkit.cli import STANDARD_STREAM
from bertkit.errors import ConfigError, DataError, ResourceError
from bertkit.system.console import standard_input

T = TypeVar("T")
Pair = tuple[str, str]

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", re.IGNORECASE | re.ASCII)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)

COMMON_GROUP = Group("Common options", sort_key=9)

Model = Annotated[str, Parameter(alias="-m", help="Model folder, Hub name, or run folder of 'bertkit finetune'.")]
Texts = Annotated[str, Parameter(help="Texts; a single - reads standard input, one text per line.")]
File = Annotated[Path | None, Parameter(help="Read this file instead, one text per line.")]
Encoding = Annotated[str | None, Parameter(help="Encoding of --file or standard input; default: utf-8.")]
Truncate = Annotated[bool, Parameter(negative=(), help="Truncate texts that are too long, instead of refusing them.")]
MaxLength = Annotated[
    int | None, Parameter(help="Maximum tokens per text; default: as in training, or what the model can read.")
]
Corpus = Annotated[
    str,
    Parameter(
        help="Files, folders or patterns: plain text, .jsonl, .parquet or MediaWiki .xml, also compressed (.gz .bz2 "
        ".xz .zst). A single - reads standard input."
    ),
]
Dedup = Annotated[
    Literal["exact", "near"] | None,
    Parameter(help="Drop duplicates of earlier documents, or near-duplicates too."),
]


@Parameter(name="*", group=COMMON_GROUP)
@dataclass(frozen=True)
class Output:
    """Options of every command, except the seed, which training settings define themselves."""

    json: Annotated[bool, Parameter(negative=(), help="Write results as JSON, one object per line.")] = False
    device: Annotated[str | None, Parameter(help="cpu, cuda, cuda:1 ...; default: a GPU if there is one.")] = None
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative=(), help="No messages, no progress bars.")] = (
        False
    )


@Parameter(name="*", group=COMMON_GROUP)
@dataclass(frozen=True)
class Common(Output):
    """Options of every command."""

    seed: Annotated[int, Parameter(help="Seed of all random numbers.")] = 0

    def begin(self) -> None:
        """Seed all generators and apply ``--quiet``. Imports torch."""
        import numpy as np
        import torch

        from bertkit.system.console import set_quiet

        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"--seed must be from 0 to {2**32 - 1}, got {self.seed}")
        set_quiet(self.quiet)
        random.seed(self.seed)
        np.random.seed(self.seed)
        torch.manual_seed(self.seed)


OUTPUT = Output()
COMMON = Common()


def read_texts(texts: tuple[str, ...], file: Path | None, encoding: str | None = None) -> list[str] | Iterator[str]:
    """The texts of a command: its arguments, the lines of a file, or the lines of standard input (lazily).

    Raises:
        ConfigError: none of the three was given, or more than one; an unknown encoding.
        DataError: a line is not in the encoding, which is UTF-8 by default.
    """
    from_stdin = texts == (STANDARD_STREAM,) or (file is not None and str(file) == STANDARD_STREAM)
    if STANDARD_STREAM in texts and len(texts) > 1:
        raise ConfigError("- must stand alone: give texts as arguments or on standard input, not both")
    if file is not None and texts:
        raise ConfigError("give texts as arguments or with --file, not both")
    if from_stdin:
        return _lines_of_input(encoding)
    if file is not None:
        return _lines_of_file(file, encoding)
    if not texts:
        raise ConfigError("no text: give texts as arguments, --file FILE, or - for standard input, one text per line")
    return list(texts)


def read_pairs(texts: tuple[str, ...], file: Path | None, encoding: str | None = None) -> Iterator[Pair]:
    """The pairs of a command: two arguments each, or lines with one tab.

    Raises:
        DataError: an odd number of arguments, or a line without exactly one tab.
    """
    given = read_texts(texts, file, encoding)
    if isinstance(given, list):
        if len(given) % 2:
            count = "1 text does" if len(given) == 1 else f"{len(given)} texts do"
            raise DataError(f"{count} not make pairs: give two texts for each pair, each in quotes")
        yield from zip(given[::2], given[1::2], strict=True)
        return
    for number, line in enumerate(given, start=1):
        halves = line.split("\t")
        if len(halves) != 2:
            raise DataError(f"line {number}: {len(halves) - 1} tabs found, expected one: first text, tab, second text")
        yield halves[0], halves[1]


def decode(data: bytes, where: str, encoding: str | None) -> str:
    """Bytes as text, without a byte order mark.

    Raises:
        ConfigError: Python knows no such encoding.
        DataError: the bytes are not in that encoding; names ``where``.
    """
    from bertkit.tasks.reading.lines import check_encoding

    check_encoding(encoding)
    try:
        return data.decode(encoding or "utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: not {encoding or 'UTF-8'} (byte {error.object[error.start]:#04x} at {error.start}); give its "
            "encoding, for example --encoding cp1252"
        ) from None


def _lines_of_file(path: Path, encoding: str | None) -> Iterator[str]:
    from bertkit.tasks.reading.bad_rows import BadRows
    from bertkit.tasks.reading.lines import Lines

    if not path.is_file():
        raise DataError(f"{path} is not a file")
    lines = Lines(path, BadRows(), encoding)
    for line in lines:
        lines.report_damage(lines.number, lines.number)
        yield line.rstrip("\r\n")


def _lines_of_input(encoding: str | None) -> Iterator[str]:
    for number, line in enumerate(standard_input(), start=1):
        yield decode(line, f"standard input, line {number}", encoding).rstrip("\r\n")


def open_pipeline(task: str, model: str, common: Common) -> Any:
    """The pipeline of a task, on the device that the command was given."""
    common.begin()
    from bertkit.inference.pipelines import pipeline

    return pipeline(task, model=model, device=common.device)


class Tee(Generic[T]):
    """Keeps the items of a stream until their results arrive, so that both can be written together."""

    def __init__(self, items: Iterable[T]) -> None:
        self._items = iter(items)
        self._kept: list[T] = []
        self._taken = 0

    def __iter__(self) -> Iterator[T]:
        for item in self._items:
            self._kept.append(item)
            yield item

    def next_kept(self) -> T:
        """The oldest item not yet returned."""
        item = self._kept[self._taken]
        self._taken += 1
        if self._taken >= 4096:
            del self._kept[: self._taken]
            self._taken = 0
        return item


def with_texts(texts: Iterable[T], run: Callable[[Iterator[T]], Iterable[Any]]) -> Iterator[tuple[T, Any]]:
    """Pairs of text and result; ``run`` maps an iterator of texts to an iterable of results in the same order."""
    tee = Tee(texts)
    for result in run(iter(tee)):
        yield tee.next_kept(), result


def bytes_of(amount: str) -> int:
    """``500MB``, ``4GB``, ``1.5 GiB`` or a number of bytes; K, M, G, T count in powers of 1,024.

    Raises:
        ConfigError: anything else.
    """
    found = _SIZE.fullmatch(amount.strip())
    if found is None:
        raise ConfigError(f"{amount!r} is not an amount of memory; write for example 500MB or 4GB")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def seconds_of(duration: str) -> float:
    """``90``, ``90s``, ``20m``, ``1h30m``, ``1.5h`` or ``1h 30m 15s``; a number without unit is seconds.

    Raises:
        ConfigError: anything else, or zero.
    """
    found = _DURATION.fullmatch("".join(duration.split()))
    if found is None or not any(found.groups()):
        raise ConfigError(f"{duration!r} is not a duration; write for example 90, 90s, 20m or 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    total = 3600 * hours + 60 * minutes + seconds
    if total <= 0:
        raise ConfigError(f"a duration must be over 0 seconds, got {duration!r}")
    return total


def write_json(value: Any) -> None:
    """Write one JSON object on a line of stdout."""
    write_line(json.dumps(value, ensure_ascii=False, allow_nan=False))


def write_line(line: str) -> None:
    """Write one line to stdout, escaping what its encoding cannot represent.

    Raises:
        ResourceError: standard output is closed.
    """
    if sys.stdout is None:
        raise ResourceError("standard output is closed, so there is nowhere to write results; leave out '>&-'")
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")
    sys.stdout.flush()  # a reader at the other end of a pipe should see each result as it comes
