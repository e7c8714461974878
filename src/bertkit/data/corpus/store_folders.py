"""Token stores among the files of a corpus: bertkit's own files, whose content is ids and is not read as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from bertkit.errors import CheckpointError
from bertkit.system.untrusted_files import read_object

#: What lies in a store, see :mod:`bertkit.data.store.store_manifest`.
MANIFEST, TOKENIZER, PROGRESS = "manifest.json", "tokenizer", "progress.json"
#: The file of a finished and of an unfinished store, and keys that no other file of this name has.
_KEYS: Mapping[str, frozenset[str]] = {
    MANIFEST: frozenset({"id_type", "shards", "tokenizer"}),
    PROGRESS: frozenset({"identity", "num_read", "shards"}),
}
#: A shard takes 300 bytes in them; the limit of values of read_object comes first, at some 29,000 shards.
_MAX_BYTES = 1 << 26


def store_finder() -> Callable[[Path], bool]:
    """Tells whether a file belongs to a token store, finished or not; each folder is looked into once."""
    is_store = cache(_is_store)
    return lambda file: is_store(file.parent) or (file.parent.name == TOKENIZER and is_store(file.parent.parent))


def _is_store(folder: Path) -> bool:
    for name, keys in _KEYS.items():
        try:
            if keys <= read_object(folder / name, max_bytes=_MAX_BYTES).keys():
                return True
        except CheckpointError:  # there is none, or it is a file of the corpus
            continue
    return False
