"""``bertkit embed --sparse``: texts as weights of words, printed or written to a file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bertkit.cli.common_options import JsonLike, write_json, write_line

if TYPE_CHECKING:
    from bertkit.inference.sparse_encoding import SparseEmbedding

    Row = tuple[str, SparseEmbedding]


def show_sparse(rows: Iterator[Row], *, as_json: bool) -> None:
    """One line for each text: its words with their weights, or with ``--json`` one object."""
    for text, found in rows:
        if as_json:
            write_json(_object(text, found))
        else:
            write_line("  ".join(f"{token} {weight:.4f}" for token, weight in found.as_dict().items()))


def write_sparse_jsonl(rows: Iterator[Row], path: Path) -> tuple[int, int]:
    """One object per line, as ``embed --sparse --json``. Returns texts and weights."""
    count = weights = 0
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for text, found in rows:
            file.write(json.dumps(_object(text, found), ensure_ascii=False, allow_nan=False) + "\n")
            count, weights = count + 1, weights + len(found.ids)
    return count, weights


def write_npz(rows: Iterator[Row], path: Path, vocab_size: int) -> tuple[int, int]:
    """A matrix ``(texts, vocab_size)``, held in memory, as ``scipy.sparse.save_npz`` has it. Texts and weights."""
    import numpy as np

    from bertkit.ragged import boundaries_of

    found = [(each.ids, each.weights) for _, each in rows]
    ids = np.concatenate([np.zeros(0, np.int32), *(each for each, _ in found)])
    bounds = boundaries_of([len(each) for each, _ in found])
    with path.open("wb") as file:
        np.savez_compressed(
            file,
            indices=ids,
            indptr=bounds,
            data=np.concatenate([np.zeros(0, np.float32), *(weights for _, weights in found)]),
            shape=np.array([len(found), vocab_size]),
            format=np.array(b"csr"),
        )
    return len(found), len(ids)


def _object(text: str, found: SparseEmbedding) -> dict[str, JsonLike]:
    return {"text": text, "embedding": found.as_dict(), "num_tokens": found.num_tokens, "truncated": found.truncated}
