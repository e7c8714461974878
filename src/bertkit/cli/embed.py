"""``bertkit embed``: turn texts into vectors, printed or written to a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli import STANDARD_STREAM
from bertkit.cli.block_options import Blocks, write_folder
from bertkit.cli.common_options import (
    Computing,
    JsonLike,
    Model,
    Reading,
    Texts,
    check_format,
    open_pipeline,
    read_texts,
    with_texts,
    write_json,
    write_line,
)
from bertkit.cli.sparse_vectors import SPARSE_FORMATS, show_sparse, sparse_file, write_sparse
from bertkit.errors import ConfigError, DataError, counted, needs_bertkit
from bertkit.system.atomic_files import new_file
from bertkit.system.console import say
from bertkit.system.paths import refuse_address

if TYPE_CHECKING:
    from bertkit.bulk.planner import What
    from bertkit.inference.pipeline_results import Embedding
    from bertkit.metrics.vector_precision import VectorPrecision
    from bertkit.ragged import Floats

    Row = tuple[str, Embedding]


Pool = Annotated[
    Literal["model", "mean", "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len_tokens"],
    Parameter(
        help="How a text gets its vector: as the model says (the modules, prompt and length of a folder of "
        "sentence-transformers; otherwise the mean of its tokens), or by one way of pooling alone."
    ),
]


@Parameter(name="*")
@dataclass(frozen=True)
class VectorOptions:
    """How texts become vectors."""

    pooling: Pool = "model"
    prompt: Annotated[str | None, Parameter(help="Put this before each text.")] = None
    prompt_name: Annotated[
        str | None, Parameter(help="The same, by the model's name for it, for example query or document.")
    ] = None
    dimensions: Annotated[
        int | None, Parameter(help="Keep only the first numbers of each vector, of models trained for that.")
    ] = None


Bits = Annotated[
    Literal["float32", "int8", "uint8", "binary", "ubinary"],
    Parameter(help="Numbers of a vector as float32, as whole numbers (needs --calibration), or one bit each."),
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
        Parameter(
            alias="-o",
            help="Write a .npy, .jsonl or .parquet file instead; with --sparse .npz or .jsonl. Or a folder of parts: "
            "the TEXTs are then files, folders or patterns, as for 'bertkit predict'. Of a --file it can be "
            "interrupted; the same command resumes.",
        ),
    ] = None,
    making: VectorOptions = VectorOptions(),
    normalize: Annotated[
        bool | None, Parameter(help="Scale vectors to length 1, or do not; default: as the model says.")
    ] = None,
    vector_precision: Bits = "float32",
    calibration: Annotated[
        Path | None,
        Parameter(help="Vectors of typical texts, the .npy file of an earlier 'embed', from which ranges are taken."),
    ] = None,
    sparse: Annotated[
        bool, Parameter(negative=(), help="Weights of words instead, by a masked-LM head (SPLADE).")
    ] = False,
    blocks: Blocks = Blocks(),
    reading: Reading = Reading(),
    common: Computing = Computing(),
) -> None:
    r"""Turn texts into vectors.

    Without --out, prints one line of numbers per text; with --json one object with
    the text, its vector, its number of tokens and whether it was truncated. A .npy
    file holds the vectors alone, one row per text, in order; with --sparse a .npz
    file, a matrix for scipy.sparse.load_npz. Parts of --sparse hold the numbers of
    the words and their weights. With --calibration, reports the accuracy lost to
    lower precision. BART's vectors come from its decoder, T5's from its encoder.

    For example:

        bertkit embed --model bertkit-tiny-en "A sentence." "Another one."
        bertkit embed --model DIR --file sentences.txt --normalize \
            --out vectors.npy
        bertkit embed --model DIR --file more.txt --vector-precision int8 \
            --calibration vectors.npy --out more.npy
        bertkit embed --model DIR "texts/*.parquet" --out vectors --workers 4
        bertkit embed --model SPLADE --sparse "A sentence."
    """
    dense = making != VectorOptions() or normalize is not None or vector_precision != "float32" or bool(calibration)
    _check(out, sparse=sparse, dense=dense)
    formats = SPARSE_FORMATS if sparse else tuple(WRITERS)
    options = reading.limits if sparse else {**asdict(making), **reading.limits, "normalize": normalize}
    if out is not None and not out.suffix:
        if vector_precision != "float32" or calibration:
            raise ConfigError("--vector-precision is for one file; leave it out with a folder of parts")
        inputs = [*text, *([] if reading.file is None else [str(reading.file)])]
        if not inputs:
            raise ConfigError(f"--out {out} is a folder: name the files to read, or give a {', '.join(formats)} file")
        cut = {**options, "truncation": True}
        write_folder(_what(model, cut, reading, common, sparse=sparse), inputs, out, blocks, common)
        return
    fewer = in_fewer_bits(vector_precision, calibration)
    if out is not None:
        check_format(out, formats)
        if not text and reading.file is not None and str(reading.file) != STANDARD_STREAM:
            what = _what(model, options, reading, common, sparse=sparse)
            _embed_file(replace(what, on_error="raise"), reading.file, out, fewer, blocks, common)
            return
    blocks.refuse("texts that are no file are computed by this process")
    if sparse:
        _embed_sparse(text, model, out, reading, common)
        return
    texts, pipe = read_texts(text, reading, model), open_pipeline("feature-extraction", model, common)
    found = with_texts(texts, lambda texts: pipe(texts, **options))
    rows = ((asked, fewer(embedding)) for asked, embedding in found)
    if out is None:
        _show(rows, common)
        return
    with new_file(out) as draft:
        written = WRITERS[out.suffix](rows, draft)
    _tell(out, *written, common)


def _check(out: Path | None, *, sparse: bool, dense: bool) -> None:
    if out is not None:
        refuse_address(out)
    if sparse and dense:
        raise ConfigError(
            "options of dense vectors, such as --pooling and --normalize, cannot be combined with --sparse"
        )


def _show(rows: Iterable[Row], common: Computing) -> None:
    for text, vector in rows:
        if common.json:
            write_json(as_object(text, vector))
        else:
            write_line(" ".join(f"{number:.7g}" for number in vector.tolist()))


def _tell(out: Path, count: int, width: int, common: Computing) -> None:
    say(f"wrote {counted(count, 'vector')} of {width} numbers to {out}")
    if common.json:
        write_json({"out": str(out), "rows": count, "width": width})


def _what(model: str, options: Mapping[str, Any], reading: Reading, common: Computing, *, sparse: bool) -> What:
    """For :mod:`bertkit.bulk.planner`."""
    common.begin()
    from bertkit.bulk.planner import What
    from bertkit.system.device import check_device

    if reading.columns.text_pair:
        raise ConfigError("this command reads single texts; leave --text-pair out")
    check_device(common.device)
    given = {name: value for name, value in options.items() if value is not None}
    device = common.device or "auto"
    places, computing = reading.columns.places, (device, common.precision, common.threads)
    return What(model, "embed", places, *computing, given, sparse)


def _embed_file(
    what: What,
    source: Path,
    out: Path,
    fewer: Callable[[Embedding], Embedding],
    blocks: Blocks,
    common: Computing,
) -> None:
    """Compute the parts of a file, and make the file of them."""
    if what.sparse:
        _tell_sparse(out, *sparse_file(what, source, out, blocks), common)
        return
    from bertkit.bulk.parts import read_vectors
    from bertkit.bulk.planner import compute_file

    written: list[tuple[int, int]] = []

    def join(parts: Sequence[Path], taken: Collection[str], draft: Path) -> None:
        found = chain.from_iterable(read_vectors(part, taken) for part in parts)
        written.append(WRITERS[out.suffix](((text, fewer(vector)) for text, vector in found), draft))

    compute_file(what, [source], out, blocks.how(), suffix=blocks.suffix(), join=join)
    _tell(out, *written[0], common)


def _embed_sparse(text: tuple[str, ...], model: str, out: Path | None, reading: Reading, common: Computing) -> None:
    texts, pipe = read_texts(text, reading, model), open_pipeline("sparse-encoding", model, common)
    rows = with_texts(texts, lambda items: pipe(items, **reading.limits))
    if out is None:
        show_sparse(rows, as_json=common.json)
        return
    words = pipe.config.vocab_size
    with new_file(out) as draft:
        count, weights = write_sparse(rows, draft, out.suffix, words)
    _tell_sparse(out, count, weights, words, common)


def _tell_sparse(out: Path, count: int, weights: int, words: int, common: Computing) -> None:
    say(f"wrote {counted(count, 'vector')} with {weights / max(count, 1):.0f} words each, of {words:,}, to {out}")
    if common.json:
        write_json({"out": str(out), "rows": count, "width": words, "weights": weights})


def in_fewer_bits(precision: VectorPrecision, calibration: Path | None) -> Callable[[Embedding], Embedding]:
    """What brings a vector to a precision; what that costs on the vectors of the file ``calibration`` is said."""
    if precision == "float32":
        if calibration is not None:
            raise ConfigError("--calibration is for --vector-precision other than float32")
        return lambda vector: vector
    import numpy as np

    from bertkit.inference.pipeline_results import Embedding
    from bertkit.metrics.vector_precision import precision_loss, quantized, ranges_of

    ranges, loss, width = None, None, 0
    if calibration is not None:
        known = read_vectors(calibration)
        ranges, width = ranges_of(known), known.shape[1]
        loss = precision_loss(known, precision, ranges)
    elif precision in ("int8", "uint8"):
        raise ConfigError(
            f"--vector-precision {precision} needs ranges: embed some hundred typical texts with the same options and "
            "--out vectors.npy, and give that file with --calibration"
        )

    def fewer(vector: Embedding) -> Embedding:
        nonlocal loss
        if loss is not None:
            if len(vector) != width:
                raise DataError(
                    f"{calibration} holds vectors of {width} numbers, and these have {len(vector)}; make it with the "
                    "same model and options"
                )
            say(str(loss))
            loss = None
        found = quantized(vector.view(np.ndarray), precision, ranges)
        return Embedding.of(found, num_tokens=vector.num_tokens, truncated=vector.truncated)

    return fewer


def read_vectors(path: Path) -> Floats:
    """The float32 vectors ``(N, D)`` of a ``.npy`` file; DataError if it holds something else."""
    import numpy as np

    try:
        found = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise DataError(f"no file {str(path)!r} with vectors") from None
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is not a .npy file of vectors: {error}") from None
    if not isinstance(found, np.ndarray) or found.dtype != np.float32 or found.ndim != 2:
        kind = f"{found.dtype} of shape {found.shape}" if isinstance(found, np.ndarray) else type(found).__name__
        raise DataError(
            f"{path} holds {kind}, expected float32 vectors (texts, numbers), as 'bertkit embed' writes them"
        )
    return found


def as_object(text: str, vector: Embedding) -> dict[str, JsonLike]:
    """What ``embed --json`` writes for one text."""
    return {"text": text, "embedding": vector.tolist(), "num_tokens": vector.num_tokens, "truncated": vector.truncated}


def first_vector(rows: Iterator[Row]) -> tuple[Embedding, Iterator[Row]]:
    """The first vector, and all rows; a DataError if there are none, because their width is then unknown."""
    first = next(rows, None)
    if first is None:
        raise DataError("the input has no texts, so there are no vectors to write")
    return first[1], chain([first], rows)


def write_npy(rows: Iterator[Row], path: Path) -> tuple[int, int]:
    """Write vectors one by one, and last the header with their number. Returns rows and width."""
    import numpy as np

    first, rows = first_vector(rows)
    count, kind = 0, first.dtype.newbyteorder("<").str
    with path.open("wb") as file:
        file.write(b"\0" * NPY_HEADER)
        for _, vector in rows:
            file.write(np.ascontiguousarray(vector, dtype=kind).tobytes())
            count += 1
        file.seek(0)
        facts = {"descr": kind, "fortran_order": False, "shape": (count, len(first))}
        np.lib.format.write_array_header_1_0(file, facts)
        assert file.tell() == NPY_HEADER
    return count, len(first)


def write_jsonl(rows: Iterator[Row], path: Path) -> tuple[int, int]:
    """One object per line, as ``embed --json``. Returns rows and width."""
    count = width = 0
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for text, vector in rows:
            file.write(json.dumps(as_object(text, vector), ensure_ascii=False, allow_nan=False) + "\n")
            count, width = count + 1, len(vector)
    return count, width


def write_parquet(rows: Iterator[Row], path: Path) -> tuple[int, int]:
    """Columns ``text``, ``embedding`` (fixed-size list), ``num_tokens``, ``truncated``."""
    import numpy as np

    with needs_bertkit("a .parquet file"):
        import pyarrow as pa
        import pyarrow.parquet as pq

    first, rows = first_vector(rows)
    width = len(first)
    schema = pa.schema(
        {
            "text": pa.string(),
            "embedding": pa.list_(pa.from_numpy_dtype(first.dtype), width),
            "num_tokens": pa.int32(),
            "truncated": pa.bool_(),
        }
    )
    count = 0
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
