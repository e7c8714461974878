"""``bertkit embed``: turn texts into vectors, printed or written to a file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from bertkit.cli.common_options import (
    Computing,
    JsonLike,
    Model,
    Reading,
    Texts,
    answers,
    check_format,
    open_pipeline,
    read_texts,
    with_texts,
    write_json,
    write_line,
)
from bertkit.errors import ConfigError, DataError, counted, needs_bertkit
from bertkit.system.console import say

if TYPE_CHECKING:
    from bertkit.inference.pipeline_results import Embedding

    Row = tuple[str, Embedding]

Pool = Annotated[
    Literal["cls", "mean", "max"] | None,
    Parameter(help="How token vectors are combined into one; default: as the model says (1_Pooling), otherwise mean."),
]
#: Rows of one Parquet row group.
ROW_GROUP = 4096
#: Bytes reserved for the header of a .npy file, which is written last, when the number of rows is known.
NPY_HEADER = 128


def embed(
    *text: Texts,
    model: Model,
    out: Annotated[
        Path | None,
        Parameter(alias="-o", help="Write a .npy, .jsonl or .parquet file instead; with --sparse .npz or .jsonl."),
    ] = None,
    pooling: Pool = None,
    normalize: Annotated[bool, Parameter(negative=(), help="Scale vectors to length 1.")] = False,
    sparse: Annotated[
        bool, Parameter(negative=(), help="Weights of words instead, by a masked-LM head (SPLADE).")
    ] = False,
    reading: Reading = Reading(),
    common: Computing = Computing(),
) -> None:
    r"""Turn texts into vectors.

    Without --out, prints one line of numbers per text; with --json one object with
    the text, its vector, its number of tokens and whether it was truncated. A .npy
    file holds the vectors alone, one row per text, in order; with --sparse a .npz
    file, a matrix for scipy.sparse.load_npz.

    For example:

        bertkit embed --model DIR "A sentence." "Another one."
        bertkit embed --model DIR --file sentences.txt --normalize \
            --out vectors.npy
        bertkit embed --model SPLADE --sparse "A sentence."
    """
    if sparse:
        if pooling is not None or normalize:
            raise ConfigError("--pooling and --normalize are for dense vectors; leave them out with --sparse")
        _embed_sparse(text, model, out, reading, common)
        return
    if out is not None:
        check_format(out, WRITERS)
    rows = vectors(model, common, read_texts(text, reading), reading, pooling, normalize=normalize)
    if out is None:
        for asked, vector in rows:
            if common.json:
                write_json(as_object(asked, vector))
            else:
                write_line(" ".join(f"{number:.7g}" for number in vector.tolist()))
        return
    count, width = _written(out, lambda path: WRITERS[out.suffix](rows, path))
    say(f"wrote {counted(count, 'vector')} of {width} numbers to {out}")
    if common.json:
        write_json({"out": str(out), "rows": count, "width": width})


def _written(out: Path, write: Callable[[Path], tuple[int, int]]) -> tuple[int, int]:
    """Write a file that appears when it is complete; what ``write`` returns."""
    partial = out.with_name(f".{out.name}.partial")
    try:
        found = write(partial)
        os.replace(partial, out)
    finally:
        partial.unlink(missing_ok=True)
    return found


def _embed_sparse(text: tuple[str, ...], model: str, out: Path | None, reading: Reading, common: Computing) -> None:
    from bertkit.cli.sparse_vectors import show_sparse, write_npz, write_sparse_jsonl

    if out is not None:
        check_format(out, (".npz", ".jsonl"))
    texts, pipe = read_texts(text, reading), open_pipeline("sparse-encoding", model, common)
    rows = with_texts(texts, lambda items: pipe(items, **reading.limits))
    if out is None:
        show_sparse(rows, as_json=common.json)
        return
    as_lines, words = out.suffix == ".jsonl", pipe.config.vocab_size
    count, weights = _written(
        out, lambda path: write_sparse_jsonl(rows, path) if as_lines else write_npz(rows, path, words)
    )
    say(f"wrote {counted(count, 'vector')} with {weights / max(count, 1):.0f} words each, of {words:,}, to {out}")
    if common.json:
        write_json({"out": str(out), "rows": count, "width": words, "weights": weights})


def vectors(
    model: str, common: Computing, texts: Iterable[str], reading: Reading, pooling: str | None, *, normalize: bool
) -> Iterator[Row]:
    """The texts with their vectors, lazily and in order."""
    from bertkit.checkpoints.huggingface import checkpoint_folder, saved_pooling
    from bertkit.system.model_sources import resolve

    pooling = pooling or saved_pooling(checkpoint_folder(resolve(model))) or "mean"
    return answers("feature-extraction", model, common, texts, pooling=pooling, normalize=normalize, **reading.limits)


def as_object(text: str, vector: Embedding) -> dict[str, JsonLike]:
    """What ``embed --json`` writes for one text."""
    return {
        "text": text,
        "embedding": [float(number) for number in vector.tolist()],
        "num_tokens": vector.num_tokens,
        "truncated": vector.truncated,
    }


def write_npy(rows: Iterator[Row], path: Path) -> tuple[int, int]:
    """Write vectors one by one, and last the header with their number. Returns rows and width."""
    import numpy as np

    count = width = 0
    with path.open("wb") as file:
        file.write(b"\0" * NPY_HEADER)
        for _, vector in rows:
            file.write(np.ascontiguousarray(vector, dtype="<f4").tobytes())
            count, width = count + 1, len(vector)
        file.seek(0)
        facts = {"descr": "<f4", "fortran_order": False, "shape": (count, width)}
        np.lib.format.write_array_header_1_0(file, facts)
        assert file.tell() == NPY_HEADER
    return count, width


def write_jsonl(rows: Iterator[Row], path: Path) -> tuple[int, int]:
    """One object per line, as ``embed --json``. Returns rows and width."""
    count = width = 0
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for text, vector in rows:
            file.write(json.dumps(as_object(text, vector), ensure_ascii=False, allow_nan=False) + "\n")
            count, width = count + 1, len(vector)
    return count, width


def write_parquet(rows: Iterator[Row], path: Path) -> tuple[int, int]:
    """Columns ``text``, ``embedding`` (fixed-size list of float32), ``num_tokens``, ``truncated``."""
    import numpy as np

    with needs_bertkit("a .parquet file"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    first = next(rows, None)
    if first is None:
        raise DataError("the input has no texts, so there is nothing to write")
    width = len(first[1])
    schema = pa.schema(
        {
            "text": pa.string(),
            "embedding": pa.list_(pa.float32(), width),
            "num_tokens": pa.int32(),
            "truncated": pa.bool_(),
        }
    )
    count = 0
    rows = chain([first], rows)
    with path.open("wb") as file, pq.ParquetWriter(file, schema) as writer:  # Arrow takes paths in UTF-8 only
        while part := list(islice(rows, ROW_GROUP)):
            flat = np.concatenate([np.asarray(vector) for _, vector in part])
            columns = [
                pa.array([text for text, _ in part]),
                pa.FixedSizeListArray.from_arrays(pa.array(flat), width),
                pa.array([vector.num_tokens for _, vector in part], pa.int32()),
                pa.array([vector.truncated for _, vector in part], pa.bool_()),
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))
            count += len(part)
    return count, width


WRITERS = {".npy": write_npy, ".jsonl": write_jsonl, ".parquet": write_parquet}
