"""``bertkit embed``: turn texts into vectors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Common, Model, Reading, Texts, read_texts, write_json, write_line
from bertkit.cli.vectors import WRITERS, Pool, as_object, vectors
from bertkit.errors import ConfigError
from bertkit.system.console import say


def embed(
    *text: Texts,
    model: Model,
    out: Annotated[Path | None, Parameter(alias="-o", help="Write a .npy, .jsonl or .parquet file instead.")] = None,
    pooling: Pool = None,
    normalize: Annotated[bool, Parameter(negative=(), help="Scale vectors to length 1.")] = False,
    reading: Reading = Reading(),
    common: Common = Common(),
) -> None:
    r"""Turn texts into vectors.

    Without --out, prints one line of numbers per text; with --json one object with
    the text, its vector, its number of tokens and whether it was truncated. A .npy
    file holds the vectors alone, one row per text, in order.

    For example:

        bertkit embed --model DIR "A sentence." "Another one."
        bertkit embed --model DIR --file sentences.txt --normalize \
            --out vectors.npy
    """
    if out is not None and out.suffix not in WRITERS:
        raise ConfigError(f"--out {out}: unknown format; the name must end in {', '.join(WRITERS)}")
    if out is not None and not out.parent.is_dir():
        raise ConfigError(f"--out {out}: the folder {out.parent} does not exist")
    rows = vectors(model, common, read_texts(text, reading), reading, pooling, normalize=normalize)
    if out is None:
        for asked, vector in rows:
            if common.json:
                write_json(as_object(asked, vector))
            else:
                write_line(" ".join(f"{number:.7g}" for number in vector.tolist()))
        return
    partial = out.with_name(f".{out.name}.partial")
    try:
        count, width = WRITERS[out.suffix](rows, partial)
        os.replace(partial, out)
    finally:
        partial.unlink(missing_ok=True)
    say(f"wrote {count:,} vectors of {width} numbers to {out}")
    if common.json:
        write_json({"out": str(out), "rows": count, "width": width})
