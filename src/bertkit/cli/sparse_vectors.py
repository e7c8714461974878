"""``bertkit embed --sparse``: texts as weights of words, printed or written to a file."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from bertkit.cli.block_options import Blocks
from bertkit.cli.common_options import JsonLike, write_json, write_line

if TYPE_CHECKING:
    from bertkit.bulk.planner import What
    from bertkit.inference.sparse_encoding import SparseEmbedding

    Row = tuple[str, SparseEmbedding]

#: Files of sparse vectors.
SPARSE_FORMATS = (".npz", ".jsonl")


def show_sparse(rows: Iterator[Row], *, as_json: bool) -> None:
    """One line for each text: its words with their weights, or with ``--json`` one object."""
    for text, found in rows:
        if as_json:
            write_json(_object(text, found))
        else:
            write_line("  ".join(f"{token} {weight:.4f}" for token, weight in found.as_dict().items()))


def sparse_file(what: What, source: Path, out: Path, blocks: Blocks) -> tuple[int, int, int]:
    """Compute the parts of a file, and make the file of them. Returns texts, weights, and words of the vocabulary."""
    from bertkit.bulk.parts import read_sparse
    from bertkit.bulk.planner import compute_file
    from bertkit.config.any_config import read_any_config
    from bertkit.config.config_file import checkpoint_folder, config_path
    from bertkit.system.model_sources import resolve
    from bertkit.tokenization.auto_tokenizer import AutoTokenizer

    folder = checkpoint_folder(resolve(what.model))
    vocab_size = read_any_config(config_path(folder)).vocab_size
    written: list[tuple[int, int]] = []

    def join(parts: Sequence[Path], taken: Collection[str], draft: Path) -> None:
        words = AutoTokenizer.from_pretrained(folder).convert_ids_to_tokens
        rows = chain.from_iterable(read_sparse(part, taken, words) for part in parts)
        written.append(write_sparse(rows, draft, out.suffix, vocab_size))

    compute_file(what, [source], out, blocks.how(), suffix=blocks.suffix(), join=join)
    return (*written[0], vocab_size)


def write_sparse(rows: Iterator[Row], path: Path, suffix: str, vocab_size: int) -> tuple[int, int]:
    """A file of one of :data:`SPARSE_FORMATS`. Returns texts and weights."""
    return _write_jsonl(rows, path) if suffix == ".jsonl" else _write_npz(rows, path, vocab_size)


def _write_jsonl(rows: Iterator[Row], path: Path) -> tuple[int, int]:
    """One object per line, as ``embed --sparse --json``."""
    count = weights = 0
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for text, found in rows:
            file.write(json.dumps(_object(text, found), ensure_ascii=False, allow_nan=False) + "\n")
            count, weights = count + 1, weights + len(found.ids)
    return count, weights


def _write_npz(rows: Iterator[Row], path: Path, vocab_size: int) -> tuple[int, int]:
    """A matrix ``(texts, vocab_size)``, held in memory, as ``scipy.sparse.save_npz`` has it."""
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
