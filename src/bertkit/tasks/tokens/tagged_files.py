"""Which file of a folder holds which split of tagged sentences: CoNLL files go by many names."""

from __future__ import annotations

import re
from pathlib import Path

from bertkit.errors import DataError, shorten
from bertkit.tasks.examples import SPLITS, Split
from bertkit.tasks.reading.hub_datasets import local_data
from bertkit.tasks.reading.splits import COMPRESSIONS

#: Suffixes of files that a folder is searched for; a file that is named on its own may have any.
SUFFIXES = (
    ".conll",
    ".conll2002",
    ".conll2003",
    ".bio",
    ".iob",
    ".iob2",
    ".bioes",
    ".ner",
    ".txt",
    ".tsv",
    ".annotated",
    ".jsonl",
    ".ndjson",
    ".parquet",
)
#: Words in file names that tell the split. The test sets of CoNLL-2003 are ``eng.testa`` (dev) and ``eng.testb``.
SPLIT_WORDS: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training"),
    "dev": ("dev", "devel", "development", "validation", "valid", "val", "eval", "testa"),
    "test": ("test", "testing", "testb"),
}


def tagged_files(data: str | Path) -> dict[Split, Path]:
    """The files of a data set by split, in the order train, dev, test.

    Args:
        data: a folder with files whose names tell the split (``train.conll``, ``eng.testb``, ``wnut17train.conll.xz``);
            one file, in a folder or not, which counts as the split that its name tells, and as train where it tells
            none; or a data set of the Hub (``hub:owner/name``).

    Raises:
        DataError: nothing there, no file with a split's name, or two that tell the same split equally well.
    """
    data = local_data(data, ("ner",))
    if data.is_file():
        told = _split_told(data)
        return {told[0] if told else "train": data}
    if not data.is_dir():
        near = sorted(path.name for path in data.parent.iterdir()) if data.parent.is_dir() else []
        beside = f"; {data.parent} has {shorten(near, limit=8)}" if near else ""
        raise DataError(
            f"data {data} does not exist{beside}. Give a file of tagged words or a folder with train and dev files"
        )
    found: dict[Split, list[tuple[int, str, Path]]] = {}
    candidates = [path for path in sorted(data.iterdir()) if path.is_file() and _may_be_tagged(path)]
    for path in candidates:
        told = _split_told(path)
        if told:
            found.setdefault(told[0], []).append((told[1], path.name, path))
    if not found and len(candidates) == 1:
        return {"train": candidates[0]}
    if not found:
        there = sorted(path.name for path in data.iterdir())
        raise DataError(
            f"no CoNLL, JSONL or Parquet files in {data} whose names say train, dev or test; found "
            f"{shorten(there, limit=8) if there else 'an empty folder'}. Give the path of the file to train on, or "
            "rename the files, for example to train.conll and dev.conll"
        )
    return {split: _only(data, split, sorted(found[split])) for split in SPLITS if split in found}


def tagged_file(data: str | Path, split: Split) -> Path:
    """The file of one split; a file that tells no split is whatever it is asked for.

    Raises:
        DataError: the split has no file.
    """
    data = local_data(data, ("ner",))
    if data.is_file() and _split_told(data) is None:
        return data
    files = tagged_files(data)
    if split not in files:
        there = ", ".join(f"{name} ({path.name})" for name, path in files.items())
        raise DataError(f"there is no {split} file in {data}, only {there}. Give the path of the file itself")
    return files[split]


def _split_told(path: Path) -> tuple[Split, int] | None:
    """The split that a file's name tells, and how clearly (0 best)."""
    name = _bare_name(path)
    words = [word for word in re.split(r"[^a-z0-9]+", name) if word]
    for word in words:
        for split, known in SPLIT_WORDS.items():
            if word in known:
                return split, known.index(word) if words[0] == word else 50
    for word in words:
        for split, known in SPLIT_WORDS.items():
            if word.endswith(known[0]):  # wnut17train
                return split, 100
    return None


def _may_be_tagged(path: Path) -> bool:
    suffix = Path(_bare_name(path)).suffix
    return suffix in SUFFIXES or any(suffix[1:] in words for words in SPLIT_WORDS.values())


def _bare_name(path: Path) -> str:
    name = path.name.casefold()
    for compression in COMPRESSIONS:
        name = name.removesuffix(compression)
    return name


def _only(folder: Path, split: Split, files: list[tuple[int, str, Path]]) -> Path:
    rivals = [name for rank, name, _ in files if rank == files[0][0]]
    if len(rivals) > 1:
        raise DataError(
            f"{folder} has {len(rivals)} files for {split}: {shorten(rivals)}. Keep one, or give a file's path"
        )
    return files[0][2]
