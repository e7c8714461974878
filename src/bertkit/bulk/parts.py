"""The files of blocks: JSON lines or Parquet, each whole or not at all, and made into one at the end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.bulk.tables import arrow_column, arrow_field
from bertkit.errors import ConfigError, DataError, needs_bertkit
from bertkit.inference.pipeline_results import Embedding
from bertkit.inference.row_cells import Row, Table, own_name, table_of
from bertkit.inference.row_files import FORMATS, write_rows
from bertkit.inference.sparse_encoding import SparseEmbedding
from bertkit.system.atomic_files import disk_guard, draft_of, new_file, sync_file, sync_folder
from bertkit.tasks.answering import ColumnType
from bertkit.tasks.reading.excel import CellText
from bertkit.tasks.run_rows import to_jsonl

#: In a part for a workbook: what a cell is beside its text.
_TYPED = "\0cell"
#: Columns of parts of ``embed``.
_OF_EMBED = ("text", "embedding", "num_tokens", "truncated")
_ADVICE = "Make room and run the same command to resume"


def write_part(
    path: Path,
    rows: Sequence[Row],
    types: Mapping[str, ColumnType],
    taken: Collection[str] = (),
    *,
    typed: bool = False,
) -> None:
    """Write a part under another name, have it on disk, and rename it.

    types: of all columns; of Parquet, whose parts all have the same schema. taken: those of the input. typed: keep
        dates and numbers of cells.
    """
    draft = draft_of(path)
    try:
        with disk_guard(path.parent, 0, what=path.name, advice=_ADVICE):
            if path.suffix == ".parquet":
                _write_parquet(draft, table_of(rows, taken), len(rows), types)
            else:
                lines = to_jsonl([_typed(row) for row in rows] if typed else [_listed(row) for row in rows])
                draft.write_text(lines, encoding="utf-8", newline="")
            sync_file(draft)
            draft.replace(path)
            sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _write_parquet(path: Path, table: Table, count: int, types: Mapping[str, ColumnType]) -> None:
    with needs_bertkit("a .parquet file"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    schema = pa.schema([arrow_field(name, kind) for name, kind in types.items()])
    none: list[Any] = [None] * count
    try:
        arrays = [
            arrow_column([_as(kind, cell) for cell in table.get(name, none)], kind) for name, kind in types.items()
        ]
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise DataError(f"{path.name}: {error}: a .parquet file cannot hold this; choose --format jsonl") from None
    vectors = any(isinstance(kind, tuple) for kind in types.values())  # whose numbers do not repeat
    repeated = [name for name, kind in types.items() if isinstance(kind, str)] if vectors else True
    with path.open("wb") as file:
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), file, use_dictionary=repeated)


def _as(kind: ColumnType, cell: Any) -> Any:
    """A cell as its column's type has it."""
    if cell is None:
        return None
    if kind == "string" and not isinstance(cell, str):
        return json.dumps(cell, ensure_ascii=False)
    if kind == "float64" and isinstance(cell, int):
        return float(cell)
    return list(cell) if isinstance(cell, tuple) else cell


def _listed(row: Row) -> Row:
    """Vectors as lists, which JSON has; of Parquet they stay arrays."""
    return {name: cell.tolist() if isinstance(cell, np.ndarray) else cell for name, cell in row.items()}


def _typed(row: Row) -> dict[str, Any]:
    return {name: _cell(value) if isinstance(value, CellText) else value for name, value in row.items()}


def _cell(value: CellText) -> dict[str, Any]:
    own = value.value
    return {_TYPED: str(value), type(own).__name__: own.isoformat() if isinstance(own, date | time) else own}


_READ: dict[str, Callable[[Any], Any]] = {
    "int": int, "float": float, "bool": bool, "date": date.fromisoformat, "datetime": datetime.fromisoformat,
    "Timestamp": datetime.fromisoformat, "time": time.fromisoformat,
}  # fmt: skip


def _untyped(row: Row) -> Row:
    return {
        name: _value(value) if isinstance(value, dict) and _TYPED in value else value for name, value in row.items()
    }


def _value(cell: dict[str, Any]) -> CellText:
    text, (kind, value) = CellText(cell[_TYPED]), next(pair for pair in cell.items() if pair[0] != _TYPED)
    text.value = _READ[kind](value)
    return text


def read_part(path: Path) -> Iterator[Row]:
    """The rows of a part."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        with path.open("rb") as file:
            for batch in pq.ParquetFile(file).iter_batches(batch_size=4096):
                yield from batch.to_pylist()
        return
    with path.open(encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield _untyped(json.loads(line))


def read_vectors(path: Path, taken: Collection[str]) -> Iterator[tuple[str, Embedding]]:
    """The texts and vectors of a part of ``embed`` that has no errors; ``taken``: the columns of the input."""
    names = [own_name(name, taken) for name in _OF_EMBED]
    for columns in _columns_of(path, names):
        for text, vector, num_tokens, truncated in zip(*columns, strict=True):
            yield text, Embedding.of(vector, num_tokens=num_tokens, truncated=truncated)


def read_sparse(
    path: Path, taken: Collection[str], words: Callable[[list[int]], Sequence[str]]
) -> Iterator[tuple[str, SparseEmbedding]]:
    """The same of a part of ``embed --sparse``; ``words``: those of the vocabulary with these numbers."""
    names = [own_name(name, taken) for name in _OF_EMBED]
    rows: Iterator[Any] = read_part(path)
    for row in rows:
        text, found, num_tokens, truncated = (row[name] for name in names)
        ids, weights = np.array(found["indices"], np.int32), np.array(found["values"], np.float32)
        yield text, SparseEmbedding(ids, weights, words(found["indices"]), num_tokens, truncated)


def _columns_of(path: Path, names: Sequence[str]) -> Iterator[list[Any]]:
    """Values of columns, of which the second one has vectors, in batches."""
    if path.suffix != ".parquet":
        for row in read_part(path):
            cells = [row[name] for name in names]
            yield [[np.array(cell, np.float32)] if isinstance(cell, list) else [cell] for cell in cells]
        return
    import pyarrow.parquet as pq

    with path.open("rb") as file:
        for batch in pq.ParquetFile(file).iter_batches(batch_size=4096, columns=list(names)):
            columns: list[Any] = [batch.column(name) for name in names]
            vectors = columns.pop(1).flatten().to_numpy().reshape(batch.num_rows, -1)
            text, *others = (column.to_pylist() for column in columns)
            yield [text, vectors, *others]


def merge_parts(
    parts: Sequence[Path], out: Path, taken: Mapping[str, Any], *, excel: bool = False, without: str | None = None
) -> int | None:
    """Make one file of parts, in their order; returns the number of its rows, None where nobody counted them.

    taken: the columns of the input, which keep their names. without: a column that no row has anything in.
    """
    if out.suffix not in FORMATS:
        raise ConfigError(f"{out}: unknown format; the name must end in {', '.join(FORMATS)}")
    kinds = {part.suffix for part in parts}
    if kinds == {".jsonl"} and out.suffix == ".jsonl":
        with new_file(out) as draft:
            _join_lines(parts, draft)
        return None
    if kinds == {".parquet"} and out.suffix == ".parquet":
        with new_file(out) as draft:
            return _join_tables(parts, draft)
    rows = ({name: row[name] for name in row if name != without} for part in parts for row in read_part(part))
    return write_rows(rows, out, {name: {} for name in taken}, excel=excel)


def _join_lines(parts: Iterable[Path], out: Path) -> None:
    with out.open("wb") as file:
        for part in parts:
            with part.open("rb") as content:
                shutil.copyfileobj(content, file, 1 << 20)


def _join_tables(parts: Sequence[Path], out: Path) -> int:
    import pyarrow.parquet as pq

    count = 0
    with out.open("wb") as file, pq.ParquetWriter(file, pq.read_schema(parts[0])) as writer:
        for part in parts:
            with part.open("rb") as content:
                table = pq.read_table(content)
            writer.write_table(table)
            count += table.num_rows
    return count
