"""The rows of files to rows of results: what is read of a block, and what is said of its rows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from bertkit.bulk.answers import PipelineAnswers, RunAnswers
from bertkit.bulk.bad_rows import Failure, answers_or_failures
from bertkit.bulk.cuts import Block, block_bytes, sha256_of_bytes
from bertkit.bulk.inputs import local_copy, opened, plain_path
from bertkit.config.file_columns import Columns
from bertkit.engine.rows import same_packs
from bertkit.errors import ConfigError, DataError
from bertkit.inference.predict_files import columns_of, joined
from bertkit.inference.row_cells import Row
from bertkit.inference.run_files import text_places
from bertkit.system.console import quiet
from bertkit.tasks.answering import ColumnType
from bertkit.tasks.examples import Example
from bertkit.tasks.reading.bad_rows import BadRows
from bertkit.tasks.reading.encodings import open_binary
from bertkit.tasks.reading.file_rows import FileRow, Samples
from bertkit.tasks.reading.lines import seekable
from bertkit.tasks.reading.splits import kind_of
from bertkit.tasks.reading.tables import DelimitedTable, open_table
from bertkit.tasks.reading.text_rows import USUAL, read_texts
from bertkit.tasks.registry import Task
from bertkit.tasks.text.decoding import inputs_of

#: The field of a row that has no result.
ERROR = "error"
#: Rows that are answered together.
TOGETHER = 2048


class RowWork(Protocol):
    """What is done with rows: by an open model, and in one way for a whole run."""

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """What results hold beside the columns of the input."""

    def survey(self, path: Path, name: str) -> tuple[Samples, Columns | None, Callable[[], int]]:
        """The columns of a file, where its texts are (None: it is read as a whole), and what counts its rows."""

    def read(self, path: Path, places: Columns | None) -> Iterator[Any]:
        """The rows of a file."""

    def answer(self, items: Sequence[Any], taken: Collection[str]) -> list[Row | Failure]:
        """A row of results for each row."""

    def without(self, item: Any, reason: str, taken: Collection[str]) -> Row:
        """The row of results of a row that has none."""


class _Texts:
    """Rows with a text or two."""

    places: Columns
    inferred: bool
    #: Whether a missing text is an empty one, and no fault.
    may_lack = True

    def survey(self, path: Path, name: str) -> tuple[Samples, Columns | None, Callable[[], int]]:
        columns = self.places
        if kind_of(path) in (".csv", ".tsv"):
            table = open_table(path, replace(columns, text=columns.text or USUAL), BadRows())
            assert isinstance(table, DelimitedTable)
            columns = replace(columns, delimiter=table.delimiter)
        taken, _ = read_texts(path, columns, inferred=self.inferred, may_lack=self.may_lack, mark=True)
        return taken, columns, lambda: sum(1 for _ in self.read(path, columns))

    def read(self, path: Path, places: Columns | None) -> Iterator[FileRow]:
        assert places is not None
        return read_texts(path, places, inferred=self.inferred, may_lack=self.may_lack, mark=True)[1]

    def without(self, item: FileRow, reason: str, taken: Collection[str]) -> Row:
        return joined(item, {**inputs_of([Example(item.text, item.pair)])[0], ERROR: reason}, taken)

    def _answered(
        self, items: Sequence[FileRow], taken: Collection[str], answer: Callable[[Sequence[FileRow]], list[Row]]
    ) -> list[Row | Failure]:
        good = [item for item in items if not item.fault]
        said: Iterator[Row | Failure] = iter(answers_or_failures(good, answer))
        found = [Failure(item.fault) if item.fault else next(said) for item in items]
        return [
            each if isinstance(each, Failure) else joined(item, each, taken)
            for item, each in zip(items, found, strict=True)
        ]


class TextRows(_Texts):
    """``predict`` with a model of texts or pairs."""

    def __init__(self, answers: RunAnswers, given: Columns) -> None:
        places = columns_of(answers.run, given)
        assert places is not None
        self.run, self.places, self.inferred = answers.run, places, not given.text
        named = ("text", "text_pair")[: 1 + bool(places.text_pair)]
        self.columns: dict[str, ColumnType] = {**dict.fromkeys(named, "string"), **answers.columns}

    def answer(self, items: Sequence[FileRow], taken: Collection[str]) -> list[Row | Failure]:
        return self._answered(items, taken, self._rows)

    def _rows(self, items: Sequence[FileRow]) -> list[Row]:
        with same_packs():
            answered = self.run.answered(items, lambda row: Example(row.text, row.pair))
            return [row for _, part in answered for row in part]


class ExampleRows:
    """``predict`` with a model of another kind, whose files are read as a whole."""

    def __init__(self, answers: RunAnswers) -> None:
        self.run = answers.run
        self.columns = answers.columns

    def survey(self, path: Path, name: str) -> tuple[Samples, Columns | None, Callable[[], int]]:
        return {}, None, lambda: len(self.run.workflow.read_file(path, "test"))

    def read(self, path: Path, places: Columns | None) -> Iterator[Any]:
        examples = iter(self.run.workflow.read_file(path, "test"))
        return ((path.is_dir(), example) for example in examples)

    def answer(self, items: Sequence[tuple[bool, Any]], taken: Collection[str]) -> list[Row | Failure]:
        found = answers_or_failures([example for _, example in items], self._rows)
        return [
            each if isinstance(each, Failure) else {**_file_of(*item), **each}
            for item, each in zip(items, found, strict=True)
        ]

    def without(self, item: tuple[bool, Any], reason: str, taken: Collection[str]) -> Row:
        return {**_file_of(*item), "row": item[1].row, ERROR: reason}

    def _rows(self, examples: Sequence[Any]) -> list[Row]:
        with same_packs():
            return [row for _, part in self.run.answered(examples) for row in part]


def _file_of(in_folder: bool, example: Any) -> Row:
    """Of a folder whose files are a text each, which file."""
    return {"file": Path(example.source).name} if in_folder else {}


class VectorRows(_Texts):
    """``embed``: vectors, or weights of words.

    task: what the model was trained for, if it is a run; says in which columns its texts are.
    """

    may_lack = False

    def __init__(self, answers: PipelineAnswers, given: Columns, task: Task | None) -> None:
        self.places = replace(text_places(task, given), text_pair=())
        self.inferred, self.answers = not given.text, answers
        (self._cell,) = answers.columns.keys() & {"vector", "sparse"}
        self.columns: dict[str, ColumnType] = {
            "text": "string", "embedding": answers.columns[self._cell], "num_tokens": "int32", "truncated": "bool"
        }  # fmt: skip

    def answer(self, items: Sequence[FileRow], taken: Collection[str]) -> list[Row | Failure]:
        return self._answered(items, taken, self._rows)

    def _rows(self, items: Sequence[FileRow]) -> list[Row]:
        pipe, options = self.answers.pipe, self.answers.options
        with quiet(), same_packs():
            found = pipe([item.text for item in items], progress=False, **options)
        rows: list[Any] = [
            {"text": item.text, "embedding": self.answers.asked.cells(vector)[self._cell],
             "num_tokens": vector.num_tokens, "truncated": vector.truncated}
            for item, vector in zip(items, found, strict=True)
        ]  # fmt: skip
        return rows


class BlockReader:
    """Reads blocks; of a file that is read as a whole it keeps the rows behind the last block, which come next."""

    def __init__(self, work: RowWork) -> None:
        self.work = work
        self._stream: tuple[str, int, Iterator[Any]] = ("", 0, iter(()))

    def rows(self, name: str, block: Block, places: Columns | None) -> list[Any]:
        """The rows of a block; DataError if its file is not as it was when the work was planned."""
        if block.kind == "rows":
            return self._in_order(name, block, places)
        with quiet(), _slice(name, block) as path:
            skip = int(block.kind == "bytes" and block.start > 0 and kind_of(path) in (".jsonl", ".ndjson"))
            try:
                rows = list(islice(self.work.read(path, places), skip, None))
            except DataError as error:
                raise DataError(f"{str(error).replace(str(path), name)} (counted from line {block.line:,})") from None
        first = block.line - skip - (block.head > 0 and skip == 0 and block.kind == "bytes" and block.start > 0)
        return [row._replace(line=row.line + first) for row in rows]

    def _in_order(self, name: str, block: Block, places: Columns | None) -> list[Any]:
        known, place, stream = self._stream
        if known != f"{name} {block.sha256}" or place > block.start:
            with local_copy(name) as path, quiet():
                rows = self.work.read(path, places)
                stream = iter(list(rows)) if str(path) != name else rows  # a copy goes away
            place = 0
        with quiet():
            found = list(islice(stream, block.start - place, block.end - place))
        self._stream = (f"{name} {block.sha256}", block.end, stream)
        if len(found) != block.end - block.start:
            raise changed(name)
        return found


def changed(name: str) -> ConfigError:
    """The error for a file that is another one than when the work was planned."""
    return ConfigError(
        f"{name} has changed since the work was planned, so that its rows would be mixed: restore it, or run again "
        "with --refresh, which computes again what has changed"
    )


@contextmanager
def _slice(name: str, block: Block) -> Iterator[Path]:
    """A file with the block alone, of the same kind."""
    with tempfile.TemporaryDirectory(prefix="bertkit-") as folder:
        part = Path(folder) / f"block{kind_of(plain_path(name)) or '.txt'}"
        if block.kind == "groups":
            with opened(name, seekable) as stream:
                _copy_groups(name, stream, block, part)
        else:
            with opened(name, open_binary) as stream:
                head, content = block_bytes(stream, block)
            if sha256_of_bytes(head, content) != block.sha256:
                raise changed(name)
            part.write_bytes(head + content if block.start > 0 else content)
        yield part


def _copy_groups(name: str, stream: BinaryIO, block: Block, part: Path) -> None:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(stream)
    first, groups = 0, list[int]()
    start = 0
    for group in range(file.metadata.num_row_groups):
        rows = file.metadata.row_group(group).num_rows
        if start < block.end and start + rows > block.start:
            first = first if groups else start
            groups.append(group)
        start += rows
    table = file.read_row_groups(groups).slice(block.start - first, block.end - block.start)
    if table.num_rows != block.end - block.start:
        raise changed(name)
    with part.open("wb") as out:
        pq.write_table(table, out)
