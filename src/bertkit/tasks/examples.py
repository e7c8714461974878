"""Examples: one labelled row of any kind of task, where it came from, and the columns it was read from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np

from bertkit.ragged import Flags, Ids, Ints

Split = Literal["train", "dev", "test"]
SPLITS: tuple[Split, ...] = ("train", "dev", "test")
#: A value that JSON can hold.
Fact = bool | int | float | str | Sequence["Fact"] | Mapping[str, "Fact"] | None
#: An object of a JSON file.
Row = dict[str, Fact]


#: JSON that is one value, whose rows are no lines.
_WHOLE_JSON = re.compile(r"\.json(\.(xz|gz|bz2))?$", re.IGNORECASE)


#: What stands for rows in memory in place of a file's name.
_IN_MEMORY = re.compile(r"<(data|train|dev|test)>")


def is_in_memory(source: str | Path) -> bool:
    """Whether a source is rows in memory, and not a file."""
    return _IN_MEMORY.fullmatch(str(source)) is not None


def row_name(source: str | Path, row: int) -> str:
    """``line N``; rows in memory are counted from 0, as their library does."""
    return f"row {row} (counted from 0)" if is_in_memory(source) else f"line {row}"


def place_of(source: str | Path, row: int, unit: str = "object") -> str:
    """``file:line`` for messages; of a file of JSON as a whole ``file: object N``, or what else its rows are called."""
    if is_in_memory(source):
        return f"{source}: {row_name(source, row)}"
    return f"{source}: {unit} {row}" if _WHOLE_JSON.search(str(source)) else f"{source}:{row}"


class Located(Protocol):
    """Where an example came from: its file, and the line, or record in Parquet, where it begins, counted from 1.

    Rows in memory are counted from 0.
    """

    __slots__ = ()

    @property
    def row(self) -> int: ...

    @property
    def source(self) -> str: ...

    @property
    def where(self) -> str:
        """``file:row`` for error messages."""
        return place_of(self.source, self.row)


ExampleT = TypeVar("ExampleT", bound=Located)


@dataclass(frozen=True, slots=True)
class Example(Located):
    """One labelled text, or pair of texts.

    text, text_pair: as in the file, nothing stripped; ``text_pair`` is None for one-text tasks.
    label: number of the label (int), a score (float) for regression, numbers of all labels that apply (tuple) where
        labels do not exclude each other, or None in an unlabelled test file.
    row: line where the row begins, counted from 1 as editors do; in Parquet the record, counted from 1.
    source: the file it came from.
    """

    text: str
    text_pair: str | None = None
    label: int | float | tuple[int, ...] | None = None
    row: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """A row that is not used: its place and number, the kind of fault, the message, and what could be done.

    asked: it is no bad row; its label is left out, as the user asked.
    """

    where: str
    row: int
    kind: str
    message: str
    advice: str = ""
    asked: bool = False


class Examples(list[ExampleT], Generic[ExampleT]):
    """The examples of one split, of any kind of task; a list that also knows where it came from.

    Attributes:
        path: the file read.
        split: train, dev or test.
        skipped: rows left out under ``on_error="skip"`` or because their label is, each with its reason.
    """

    def __init__(
        self,
        rows: Iterable[ExampleT] = (),
        path: Path | None = None,
        split: str = "",
        skipped: Sequence[SkippedRow] = (),
    ) -> None:
        super().__init__(rows)
        self.path = path
        self.split = split
        self.skipped = tuple(skipped)

    @property
    def bad(self) -> list[SkippedRow]:
        """Those of :attr:`skipped` that are bad rows."""
        return [row for row in self.skipped if not row.asked]

    @property
    def left_out(self) -> dict[str, int]:
        """How many rows were left out as asked, by their labels."""
        return dict(Counter(row.kind for row in self.skipped if row.asked))


def sample_of(examples: Examples[ExampleT], num_rows: int | None, seed: int) -> Examples[ExampleT]:
    """So many of the examples, drawn at random, in their order; None: all."""
    if num_rows is None or num_rows >= len(examples):
        return examples
    order = np.random.Generator(np.random.PCG64([seed, 0x5A])).permutation(len(examples))
    chosen = [examples[number] for number in np.sort(order[:num_rows]).tolist()]
    return Examples(chosen, examples.path, examples.split, examples.skipped)


#: What stays in train, and what becomes dev.
Halves = tuple[Examples[ExampleT], Examples[ExampleT]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIn:
    """What a built-in task says of itself: ``about`` is a line for people, ``notes`` are for readers of its scores."""

    folders: tuple[str, ...] = ()
    about: str = ""
    notes: tuple[str, ...] = field(default=(), compare=False)


class Encoded(Protocol):
    """Examples as token ids: R rows, one or several per example."""

    @property
    def ids(self) -> Ids:
        """Token ids of all rows, in any order."""

    @property
    def lengths(self) -> Ints:
        """Tokens of each row ``(R,)``; of a row that is several sequences, their sum."""

    @property
    def num_tokens_before(self) -> Ints:
        """Tokens of each row before truncation ``(R,)``."""

    @property
    def truncated(self) -> Flags:
        """Which rows lost something for good ``(R,)``; what a neighbouring window holds is not lost."""

    def __len__(self) -> int: ...
