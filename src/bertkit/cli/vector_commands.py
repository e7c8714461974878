"""Commands that turn texts into vectors: embed, similarity; and the files vectors are written to."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli.common_options import (
    COMMON,
    Common,
    File,
    MaxLength,
    Model,
    Texts,
    Truncate,
    read_texts,
    with_texts,
    write_json,
    write_line,
)
from bertkit.errors import ConfigError, DataError

if TYPE_CHECKING:
    from bertkit.inference.pipeline_results import Embedding

    Row = tuple[str, Embedding]

Pool = Annotated[Literal["mean", "cls", "max"], Parameter(help="How token vectors become one vector.")]
#: Rows of one Parquet row group.
ROW_GROUP = 4096
#: Bytes kept for the header of a .npy file, which is written last: only then is the number of rows known.
NPY_HEADER = 128


def embed(
    *text: Texts,
    model: Model,
    out: Annotated[
        Path | None, Parameter(alias="-o", help="Write to this .npy, .jsonl or .parquet file instead of stdout.")
    ] = None,
    pooling: Pool = "mean",
    normalize: Annotated[bool, Parameter(negative=(), help="Scale vectors to length 1.")] = False,
    file: File = None,
    truncate: Truncate = False,
    max_length: MaxLength = None,
    common: Common = COMMON,
) -> None:
    """Turn texts into vectors.

    Without --out one line of numbers a text, or with --json one object with the text, its vector, the number of tokens
    and whether the text was cut. A .npy file holds the vectors only, one row a text, in order.

    For example:

        bertkit embed --model DIR "A sentence." "Another one."
        bertkit embed --model DIR --file sentences.txt --normalize --out vectors.npy
    """
    if out is not None and out.suffix not in WRITERS:
        raise ConfigError(f"--out {out}: the ending says the format; choose {', '.join(WRITERS)}")
    if out is not None and not out.parent.is_dir():
        raise ConfigError(f"--out {out}: there is no folder {out.parent}")
    rows = with_texts(
        read_texts(text, file),
        _encoder(model, common, pooling, normalize=normalize, truncation=truncate, max_length=max_length),
    )
    if out is None:
        for asked, vector in rows:
            if common.json:
                write_json(_as_object(asked, vector))
            else:
                write_line(" ".join(f"{number:.7g}" for number in vector.tolist()))
        return
    partial = out.with_name(f".{out.name}.partial")
    try:
        count, width = WRITERS[out.suffix](rows, partial)
        os.replace(partial, out)
    finally:
        partial.unlink(missing_ok=True)
    _report(out, count, width, common)


def similarity(
    *text: Annotated[str, Parameter(help="The source text, then what it is compared with; - reads the latter.")],
    model: Model,
    file: Annotated[Path | None, Parameter(help="Compare with the lines of this file.")] = None,
    pooling: Pool = "mean",
    top_k: Annotated[int | None, Parameter(help="Show only the nearest, nearest first.")] = None,
    truncate: Truncate = False,
    max_length: MaxLength = None,
    common: Common = COMMON,
) -> None:
    """Say how near texts are to the first one: the cosine of their vectors, from -1 to 1.

    One line a text: cosine, text; in the order given, or nearest first with --top-k.

    For example:

        bertkit similarity --model DIR "How do I reset my password?" "I forgot my password." "Opening hours?"
        bertkit similarity --model DIR "a question" --file answers.txt --top-k 5
    """
    if not text:
        raise ConfigError("no text: give the source text first, then what to compare it with")
    if top_k is not None and top_k < 1:
        raise ConfigError(f"--top-k must be at least 1, got {top_k}")
    source, others = text[0], read_texts(text[1:], file)
    encode = _encoder(model, common, pooling, normalize=True, truncation=truncate, max_length=max_length)
    rows = with_texts(chain([source], others), encode)
    _, first = next(rows)
    scored: Iterable[tuple[float, str]] = (
        (max(-1.0, min(1.0, float(first @ vector))), asked) for asked, vector in rows
    )
    if top_k is not None:
        scored = sorted(scored, key=lambda pair: -pair[0])[:top_k]
    for score, asked in scored:
        if common.json:
            write_json({"text": source, "text_pair": asked, "score": score})
        else:
            write_line(f"{score:.4f}  {asked}")


def _encoder(model: str, common: Common, pooling: str, **options: Any) -> Any:
    common.begin()
    from bertkit.inference.pipelines import pipeline

    pipe = pipeline("feature-extraction", model=model, device=common.device)
    return lambda items: pipe(items, pooling=pooling, **options)


def _as_object(text: str, vector: Embedding) -> dict[str, Any]:
    return {
        "text": text,
        "embedding": [float(number) for number in vector.tolist()],
        "num_tokens": vector.num_tokens,
        "truncated": vector.truncated,
    }


def _report(out: Path, count: int, width: int, common: Common) -> None:
    from bertkit.system.console import say

    say(f"wrote {count:,} vectors of {width} numbers to {out}")
    if common.json:
        write_json({"out": str(out), "rows": count, "width": width})


def write_npy(rows: Iterator[Row], path: Path) -> tuple[int, int]:
    """Write vectors one by one; the header, which holds their number, last. Returns rows and width."""
    import numpy as np

    count = width = 0
    with path.open("wb") as file:
        file.write(b"\0" * NPY_HEADER)
        for _, vector in rows:
            file.write(np.ascontiguousarray(vector, dtype="<f4").tobytes())
            count, width = count + 1, len(vector)
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({count}, {width}), }}".encode("ascii")
        room = NPY_HEADER - len(np.lib.format.magic(1, 0)) - 2
        file.seek(0)
        file.write(np.lib.format.magic(1, 0) + room.to_bytes(2, "little") + header.ljust(room - 1) + b"\n")
    return count, width


def write_jsonl(rows: Iterator[Row], path: Path) -> tuple[int, int]:
    """One object a line, as ``embed --json``. Returns rows and width."""
    count = width = 0
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for text, vector in rows:
            file.write(json.dumps(_as_object(text, vector), ensure_ascii=False, allow_nan=False) + "\n")
            count, width = count + 1, len(vector)
    return count, width


def write_parquet(rows: Iterator[Row], path: Path) -> tuple[int, int]:
    """Columns ``text``, ``embedding`` (fixed-size list of float32), ``num_tokens``, ``truncated``."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = next(rows, None)
    if first is None:
        raise DataError("no text came in, so there is nothing to write")
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
    with pq.ParquetWriter(path, schema) as writer:
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
