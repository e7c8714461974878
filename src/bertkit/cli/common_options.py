"""What all commands share: common options, texts from arguments, files or standard input, and written results."""

from __future__ import annotations

import json
import os
import random
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeVar

from cyclopts import Group, Parameter

from bertkit.cli import STANDARD_STREAM
from bertkit.cli.placed import Placed, located, refuse_file_name
from bertkit.cli.task_options import TextColumns
from bertkit.errors import ConfigError, DataError, ResourceError, counted
from bertkit.system.console import for_stream, say, set_quiet, standard_input
from bertkit.system.model_sources import INCLUDED

if TYPE_CHECKING:
    from bertkit.config.file_columns import Columns
    from bertkit.tasks.reading.file_rows import FileRow, Samples

T = TypeVar("T")
R = TypeVar("R")
Pair = tuple[str, str]
JsonLike = None | bool | int | float | str | Sequence["JsonLike"] | Mapping[str, "JsonLike"]

COMMON_GROUP = Group("Common options", sort_key=9)

ModelArgument = Annotated[
    str, Parameter(help=f"Model folder, Hub name, run folder of 'bertkit finetune', or {INCLUDED} (included).")
]
Model = Annotated[ModelArgument, Parameter(alias="-m")]
#: Of commands for which the included model has no head.
TrainedModel = Annotated[str, Parameter(alias="-m", help="Model folder, Hub name or run folder of 'bertkit finetune'.")]
Texts = Annotated[str, Parameter(help="Texts; a single - reads standard input, one text per line.")]
MaxLength = Annotated[
    int | None, Parameter(help="Maximum tokens per text; default: as in training, or the model's limit.")
]
LongestText = Annotated[int | None, Parameter(help="Maximum tokens per text; default: what the model can read.")]
Truncate = Annotated[bool, Parameter(negative=(), help="Truncate texts that are too long, instead of refusing them.")]
Pairs = Annotated[bool, Parameter(negative=(), help="Texts are pairs: two arguments each, or lines split by a tab.")]
Corpus = Annotated[
    str,
    Parameter(
        help="Files, folders or patterns: plain text, .jsonl, .parquet or MediaWiki .xml, also compressed (.gz .bz2 "
        ".xz .zst). A single - reads standard input."
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class Source:
    """Where texts come from that are not given as arguments."""

    file: Annotated[
        Path | None, Parameter(help="Read this file instead: one text per line, or a column of a table (.csv ...).")
    ] = None
    columns: TextColumns = TextColumns()


@Parameter(name="*")
@dataclass(frozen=True)
class Reading(Source):
    """Where texts come from that are not given as arguments, and how much of a text is read."""

    truncate: Truncate = False
    max_length: MaxLength = None

    @property
    def limits(self) -> dict[str, int | bool | None]:
        """For the call of a pipeline."""
        return {"truncation": self.truncate, "max_length": self.max_length}


# Subclasses stand here, because the annotations of their fields are looked up in the module of the subclass.


@Parameter(name="*")
@dataclass(frozen=True)
class PairReading(Reading):
    """The same, for pairs."""

    file: Annotated[
        Path | None, Parameter(help="Read this file: two columns of a table (.csv ...), or lines with a tab.")
    ] = None


@Parameter(name="*")
@dataclass(frozen=True)
class OtherReading(Reading):
    """The same, for texts that one text is compared with."""

    file: Annotated[Path | None, Parameter(help="Compare with each line of this file, or row of a table.")] = None


@Parameter(name="*")
@dataclass(frozen=True)
class DocumentReading(Reading):
    """The same, for the documents of a query."""

    file: Annotated[Path | None, Parameter(help="Rank the lines of this file, or rows of a table.")] = None


@Parameter(name="*")
@dataclass(frozen=True)
class CorpusReading:
    """How a corpus is read."""

    text: Annotated[str | None, Parameter(help="Text column of .jsonl and .parquet files.")] = None
    on_error: Annotated[
        Literal["raise", "skip"], Parameter(help="Stop at the first unreadable document, or count and skip them.")
    ] = "raise"
    dedup: Annotated[
        Literal["exact", "near"] | None, Parameter(help="Drop duplicates of earlier documents, or near-duplicates too.")
    ] = None


class Report(Protocol):
    """A result that programs and people can read."""

    def to_dict(self) -> Mapping[str, JsonLike]: ...
    def render(self) -> str: ...


@Parameter(name="*", group=COMMON_GROUP)
@dataclass(frozen=True)
class Output:
    """Options of every command, except the seed, which training settings define themselves."""

    json: Annotated[bool, Parameter(negative=(), help="Write results as JSON, one object per line.")] = False
    device: Annotated[str | None, Parameter(help="cpu, cuda, cuda:1 ...; default: a GPU if there is one.")] = None
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative=(), help="No messages, no progress bars.")] = (
        False
    )

    def refuse_device(self, why: str) -> None:
        """ConfigError for a ``--device`` other than the CPU, in a command that says ``why`` it has no choice of one."""
        if self.device not in (None, "cpu"):
            raise ConfigError(f"{why}, so --device {self.device} has no effect; leave it out")

    def report(self, result: Report, **more: JsonLike) -> None:
        """Write a result as text, or with ``--json`` as one object: ``more``, then its own fields."""
        if self.json:
            write_json({**more, **result.to_dict()})
        else:
            write_line(result.render())

    def show(self, facts: JsonLike, line: str) -> None:
        """Write one of several results as a line, or with ``--json`` as an object."""
        if self.json:
            write_json(facts)
        else:
            write_line(line)


@Parameter(name="*", group=COMMON_GROUP)
@dataclass(frozen=True)
class Common(Output):
    """Options of every command."""

    seed: Annotated[int, Parameter(help="Seed of all random numbers.")] = 0

    def begin(self) -> None:
        """Seed all generators and apply ``--quiet``. Imports torch."""
        import torch

        self.begin_without_torch()
        torch.manual_seed(self.seed)

    def begin_without_torch(self) -> None:
        """Seed the generators of Python and numpy, and apply ``--quiet``."""
        import numpy as np

        self.begin_without_seed()
        random.seed(self.seed)
        np.random.seed(self.seed)

    def begin_without_seed(self) -> None:
        """Apply ``--quiet`` alone, once ``--seed`` is a possible one."""
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"--seed must be from 0 to {2**32 - 1}, got {self.seed}")
        set_quiet(self.quiet)


@Parameter(name="*", group=COMMON_GROUP)
@dataclass(frozen=True)
class Computing(Common):
    """Options of the commands that compute with a finished model."""

    precision: Annotated[
        Literal["auto", "fp32", "fp16", "bf16", "int8"],
        Parameter(help="Arithmetic of the model; auto: the fastest on this machine that gives the answers of fp32."),
    ] = "auto"
    threads: Annotated[int | None, Parameter(help="CPU threads per call; default: one per core.")] = None

    def begin(self) -> None:
        """Apply ``--quiet`` alone: few models need torch, and what is drawn here is given its seed."""
        self.begin_without_seed()

    @property
    def engine(self) -> dict[str, Any]:
        """For whatever opens a model."""
        return {"precision": self.precision, "threads": self.threads}


def read_texts(texts: tuple[str, ...], source: Source, model: str | None = None) -> list[str] | Placed[str]:
    """The texts of a command: its arguments, or lazily of a file or standard input; ``model`` may know the columns."""
    rows = read_rows(texts, source, model)
    return list(texts) if _are_arguments(texts) else rows.map(lambda row: row.text)


def read_pairs(texts: tuple[str, ...], source: Source) -> Iterator[Pair]:
    """The pairs of a command: two arguments each, two columns of a table, or lines with one tab."""
    return read_pair_rows(texts, source).map(lambda row: (row.text, str(row.pair)))


def read_rows(texts: tuple[str, ...], source: Source, model: str | None = None) -> Placed[FileRow]:
    """The texts of :func:`read_texts`, each with its row; arguments have line 0 and no columns."""
    if source.columns.text_pair:
        raise ConfigError("this command reads single texts; leave --text-pair out")
    places, inferred = places_in(source, model)
    return placed_rows(texts, source, replace(places, text_pair=()), inferred=inferred)


def read_pair_rows(texts: tuple[str, ...], source: Source, model: str | None = None) -> Placed[FileRow]:
    """The pairs of :func:`read_pairs`, each with its row."""
    from bertkit.tasks.reading.text_rows import USUAL_PAIRS

    places, inferred = places_in(source, model)
    firsts, seconds = zip(*USUAL_PAIRS, strict=True)
    places = replace(places, text=places.text or firsts, text_pair=places.text_pair or seconds)
    rows = placed_rows(texts, source, places, inferred=inferred)
    if not _are_arguments(texts):
        return rows.map(lambda row: _halved(row, source))
    if len(texts) % 2:
        count = f"{counted(len(texts), 'text')} {'does' if len(texts) == 1 else 'do'}"
        raise DataError(f"{count} not make pairs: give two texts for each pair, each in quotes")
    return Placed(((0, first._replace(pair=second.text)) for first, second in zip(rows, rows, strict=True)), str)


def places_in(source: Source, model: str | None) -> tuple[Columns, bool]:
    """Where texts are; and whether as in the data of the run that is the model, not as was said."""
    given = source.columns.places
    if source.file is None or model is None:
        return given, False
    from bertkit.inference.run_files import trained_places

    trained = trained_places(source.file, model, given)
    return trained or given, trained is not None


def _halved(row: FileRow, source: Source) -> FileRow:
    """A row whose pair is in two columns, or on a line with one tab."""
    if row.pair is not None:
        return row
    halves = row.text.split("\t")
    if len(halves) != 2:
        found = f"{len(halves) - 1} tabs found, expected one: first text, tab, second text"
        raise DataError(f"{_place(source, row.line)}: {found}")
    return row._replace(text=halves[0], pair=halves[1])


def _place(source: Source, line: int) -> str:
    from bertkit.tasks.examples import place_of

    from_stdin = source.file is None or str(source.file) == STANDARD_STREAM
    return f"standard input, line {line}" if from_stdin else place_of(str(source.file), line)


def _are_arguments(texts: tuple[str, ...]) -> bool:
    return bool(texts) and texts != (STANDARD_STREAM,)


def placed_rows(texts: tuple[str, ...], source: Source, places: Columns, *, inferred: bool) -> Placed[FileRow]:
    """The rows of a file or of standard input, or texts that are arguments."""
    from bertkit.tasks.reading.file_rows import FileRow

    if STANDARD_STREAM in texts and len(texts) > 1:
        raise ConfigError("- must stand alone: give texts as arguments or on standard input, not both")
    if source.file is not None and texts:
        raise ConfigError("give texts as arguments or with --file, not both")
    if not texts and source.file is None:
        raise ConfigError("no text: give texts as arguments, --file FILE, or - for standard input, one text per line")
    if _are_arguments(texts):
        _refuse_columns(source.columns, "texts given as arguments have no columns")
        refuse_file_name(texts, "--file {0}")
        if (name := next((text for text in texts if os.path.isfile(text)), None)) is not None:
            say(f"{name!r} is read as a text, although there is a file of that name; --file {name} reads its texts")
        return Placed(((0, FileRow(text, None, {}, 0)) for text in texts), str)
    taken, rows = rows_of(source.file or Path(STANDARD_STREAM), source.columns, places, inferred=inferred)
    return Placed(((row.line, row) for row in rows), lambda line: _place(source, line), taken)


def rows_of(
    file: Path, given: TextColumns, places: Columns | None = None, *, inferred: bool = False
) -> tuple[Samples, Iterable[FileRow]]:
    """The rows of a file, or for - of standard input, as a stream; and the names of columns with other content.

    inferred: as of :func:`bertkit.tasks.reading.text_rows.read_texts`.
    """
    from bertkit.tasks.reading.file_rows import FileRow
    from bertkit.tasks.reading.lines import decode
    from bertkit.tasks.reading.splits import kind_of
    from bertkit.tasks.reading.text_rows import read_texts as read_file

    if str(file) == STANDARD_STREAM:
        _refuse_columns(given, "standard input holds one text per line and has no columns")
        lines = enumerate(standard_input(), start=1)
        texts = ((n, decode(line, f"standard input, line {n}", given.encoding).rstrip("\r\n")) for n, line in lines)
        return {}, (FileRow(text, None, {}, number) for number, text in texts)
    if kind_of(file) is None:
        _refuse_columns(given, f"{file} holds one text per line and has no columns")
    return read_file(file, places or given.places, inferred=inferred)


def _refuse_columns(given: TextColumns, why: str) -> None:
    """ConfigError if something is said of the columns of a table that is none."""
    said = [name for name, value in asdict(replace(given, encoding=None)).items() if value is not None]
    if said:
        raise ConfigError(f"{why}; leave --{said[0].replace('_', '-')} out")


def answers(
    task: str, model: str, common: Computing, rows: Placed[FileRow], **options: Any
) -> Iterator[tuple[FileRow, Any]]:
    """Rows, each with what a task's pipeline, called with some options, answers to its text or pair."""
    pipe = open_pipeline(task, model, common)
    return with_texts(rows, lambda given: pipe((row.asked for row in given), **options))


def open_pipeline(task: str, model: str, common: Computing, **options: Any) -> Any:
    """The pipeline of a task, on the device that the command was given."""
    common.begin()
    from bertkit.inference.pipelines import pipeline

    return pipeline(task, model=model, device=common.device, **common.engine, **options)


def with_texts(texts: Iterable[T], run: Callable[[Iterator[T]], Iterable[R]]) -> Iterator[tuple[T, R]]:
    """Pairs of text and result; ``run`` maps an iterator of texts to an iterable of results in the same order."""
    waiting: deque[T] = deque()

    def noted() -> Iterator[T]:
        for text in texts:
            waiting.append(text)
            yield text

    with located(texts):
        for result in run(noted()):
            yield waiting.popleft(), result


def check_format(out: Path, endings: Collection[str]) -> None:
    """Find what prevents writing this file before any work."""
    if out.suffix not in endings:
        raise ConfigError(f"--out {out}: unknown format; the name must end in {', '.join(endings)}")
    if not out.parent.is_dir():
        raise ConfigError(f"--out {out}: the folder {out.parent} does not exist")
    if out.is_dir():
        raise ConfigError(f"--out {out} is a folder; give the name of a file")
    check_writable(out, out.parent)


def check_writable(out: Path, folder: Path) -> None:
    """Raise ResourceError if the output ``out`` cannot be written to an existing folder."""
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise ResourceError(f"--out {out} cannot be written: {folder} is read-only, or not yours to write to")


def paths_of(corpus: Sequence[str], purpose: str) -> list[str]:
    """The arguments that name a corpus, at least one, with - for standard input; ``purpose`` is for the error."""
    if not corpus:
        raise ConfigError(f"no corpus: name the files to {purpose}, or - for standard input")
    return ["-" if path == STANDARD_STREAM else path for path in corpus]


def write_json(value: JsonLike) -> None:
    """Write one JSON object on a line of stdout."""
    write_line(json.dumps(value, ensure_ascii=False, allow_nan=False))


def write_line(line: str, end: str = "\n") -> None:
    """Write one line to stdout, or with another ``end`` a part of one, as :func:`for_stream` writes it."""
    if sys.stdout is None:
        raise ResourceError("standard output is closed, so there is nowhere to write results; leave out '>&-'")
    sys.stdout.write(for_stream(line + end, sys.stdout))
    sys.stdout.flush()  # a reader at the other end of a pipe should see each result as it comes
