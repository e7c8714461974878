"""Tables of other libraries: the values of some columns out, and new columns in, in the same kind of table.

A column of ours has one type, whatever its rows hold. Where a library has a way to say that a value is missing, a row
without an answer has it; numpy has none but NaN, so there whole numbers are float64, and such a row is False.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bertkit.errors import InputError
from bertkit.tasks.answering import ColumnType

if TYPE_CHECKING:
    import pyarrow as pa

_KINDS = "a pyarrow.Table or RecordBatch, a pandas or polars DataFrame, or a dict of numpy arrays"


def library_of(table: Any) -> str:
    """``"dict"``, or the library that a table is of; InputError for what is none."""
    library = type(table).__module__.partition(".")[0]
    if isinstance(table, Mapping):
        return "dict"
    if library in ("pyarrow", "pandas", "polars") and type(table).__name__ in ("Table", "RecordBatch", "DataFrame"):
        return library
    raise InputError(f"expected {_KINDS}, got a {type(table).__name__}")


def names_in(table: Any) -> list[str]:
    """The names of the columns; InputError where one is there twice."""
    library = library_of(table)
    names = list(table) if library == "dict" else list(table.schema.names if library == "pyarrow" else table.columns)
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"the table has two columns {twice!r}; rename one")
    return names


def num_rows(table: Any) -> int:
    """How many rows a table has; InputError for columns of different lengths."""
    if library_of(table) != "dict":
        return int(table.num_rows if hasattr(table, "num_rows") else len(table))
    sizes = {name: len(values) for name, values in table.items()}
    if len(set(sizes.values())) > 1:
        raise InputError(f"the columns of a table have as many values each, got {sizes}")
    return next(iter(sizes.values()), 0)


def values_of(table: Any, name: str) -> list[Any]:
    """The values of a column as Python objects; lists for arrays, None for what a library calls missing."""
    library = library_of(table)
    if library == "pyarrow":
        return list(table.column(name).to_pylist())
    if library == "polars":
        return list(table.get_column(name).to_list())
    return [_plain(value) for value in table[name]]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value):
        return None
    return value.item() if isinstance(value, np.generic) else value


def with_columns(table: Any, columns: Mapping[str, Sequence[Any]], types: Mapping[str, ColumnType]) -> Any:
    """The table with columns of these types behind its own; None where a row has nothing."""
    library = library_of(table)
    if library == "dict":
        return {**table, **{name: numpy_column(values, types[name]) for name, values in columns.items()}}
    if library == "pyarrow":
        for name, values in columns.items():
            table = table.append_column(arrow_field(name, types[name]), arrow_column(values, types[name]))
        return table
    if library == "pandas":
        import pandas as pd

        series = {name: _pandas_column(values, types[name], table.index) for name, values in columns.items()}
        return pd.concat([table, pd.DataFrame(series, index=table.index)], axis="columns")
    import polars as pl

    return table.with_columns(
        [pl.Series(name, _lists(values), dtype=_polars_type(types[name])) for name, values in columns.items()]
    )


def numpy_column(values: Sequence[Any], kind: ColumnType) -> npt.NDArray[Any]:
    """``(n,)``; of vectors float32 ``(n, width)``."""
    if isinstance(kind, tuple):
        width = int(kind[1])
        none = np.full(width, np.nan, np.float32)
        rows = [none if value is None else value for value in values]
        return np.stack(rows).astype(np.float32) if rows else np.empty((0, width), np.float32)
    if kind == "bool":
        return np.array([value is True for value in values], np.bool_)
    if kind in ("float32", "float64", "int32", "int64"):
        found = [np.nan if value is None else value for value in values]
        return np.array(found, np.float32 if kind == "float32" else np.float64)
    column = np.empty(len(values), object)
    for number, value in enumerate(values):
        column[number] = value
    return column


def _pandas_column(values: Sequence[Any], kind: ColumnType, index: Any) -> Any:
    import pandas as pd

    if isinstance(kind, str) and kind.startswith("float"):
        return pd.Series(numpy_column(values, kind), index)
    whole = {"bool": "boolean", "int32": "Int32", "int64": "Int64"}
    return pd.Series(list(values), index, dtype=whole.get(kind, "object") if isinstance(kind, str) else "object")


def _lists(values: Sequence[Any]) -> list[Any]:
    return [value.tolist() if isinstance(value, np.ndarray) else value for value in values]


def arrow_type(kind: ColumnType) -> pa.DataType:
    """The type of a column in Arrow."""
    import pyarrow as pa

    if isinstance(kind, tuple):
        return pa.list_(arrow_type(kind[0]), int(kind[1]))
    if isinstance(kind, list):
        return pa.list_(arrow_type(kind[0]))
    if isinstance(kind, dict):
        return pa.struct([arrow_field(name, own) for name, own in kind.items()])
    return {"bool": pa.bool_(), "string": pa.string()}.get(kind) or pa.type_for_alias(kind)


def arrow_field(name: str, kind: ColumnType) -> pa.Field:
    """A column of a schema in Arrow."""
    import pyarrow as pa

    return pa.field(name, arrow_type(kind))


def arrow_column(values: Sequence[Any], kind: ColumnType) -> pa.Array:
    """The values of a column in Arrow."""
    import pyarrow as pa

    if not isinstance(kind, tuple):
        return pa.array(values, arrow_type(kind))
    missing = np.array([value is None for value in values], np.bool_)
    flat = numpy_column([0.0 * np.zeros(int(kind[1])) if value is None else value for value in values], kind)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), type=arrow_type(kind), mask=pa.array(missing))


def _polars_type(kind: ColumnType) -> Any:
    import polars as pl

    if isinstance(kind, tuple):
        return pl.Array(_polars_type(kind[0]), int(kind[1]))
    if isinstance(kind, list):
        return pl.List(_polars_type(kind[0]))
    if isinstance(kind, dict):
        return pl.Struct({name: _polars_type(own) for name, own in kind.items()})
    names = {"string": "String", "bool": "Boolean"}
    return getattr(pl, names.get(kind, kind.capitalize()))


def without_fixed_sizes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with ``list`` columns where it has ``fixed_size_list``."""
    import pyarrow as pa

    kinds = [pa.list_(kind.value_type) if pa.types.is_fixed_size_list(kind) else kind for kind in batch.schema.types]
    fields = [field.with_type(kind) for field, kind in zip(batch.schema, kinds, strict=True)]
    columns = [column.cast(kind) for column, kind in zip(batch.columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields, metadata=batch.schema.metadata))
