"""Which file of a folder holds which split, and how to open it, compressed or not."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from bertkit.errors import DataError, shorten
from bertkit.tasks.examples import SPLITS, Split
from bertkit.tasks.reading.hub_datasets import local_data

#: Kinds of file that can be read.
SUFFIXES = (".tsv", ".csv", ".jsonl", ".ndjson", ".parquet")
#: Compressions that may follow the kind, as in ``train.tsv.xz``.
COMPRESSIONS = (".xz", ".gz", ".bz2")
#: Names of each split, best first; ``-``, ``_`` or ``.`` and more may follow, as in ``train_slice``; in a folder also
#: stand before, as in ``easy_train``.
SPLIT_NAMES: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training"),
    "dev": ("dev", "validation", "valid", "val", "eval", "dev_matched", "validation_matched"),
    "test": ("test", "testing", "test_matched"),
}


class NamedTask(Protocol):
    """What is read of a task here."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def folders(self) -> tuple[str, ...]:
        """Names that a data folder of the task may have."""


def kind_of(path: Path, suffixes: Sequence[str] = SUFFIXES) -> str | None:
    """The one of ``suffixes`` that says how to read the file (``.tsv`` for ``train.tsv.xz``), or None for others."""
    name = path.name.casefold()
    for compression in COMPRESSIONS:
        name = name.removesuffix(compression)
    return next((suffix for suffix in suffixes if name.endswith(suffix)), None)


def split_of(path: Path) -> Split | None:
    """The split a file's name speaks of, or None."""
    found = _rank(path)
    return found[0] if found else None


def splits_of(task: NamedTask, data: str | Path) -> dict[Split, Path]:
    """The files of a task, by split, in the order train, dev, test.

    Args:
        task: its ``folders`` name the folders that may hold it.
        data: the task's folder; a folder that contains it, as GLUE's; the common beginning of several files' names,
            ``arc/arc_easy`` for ``arc_easy_train.csv`` and ``arc_easy_dev.csv``; or one file, which counts as the split
            its name speaks of, and as train when its name speaks of none. Or ``hub:owner/name``, see
            :mod:`bertkit.tasks.reading.hub_datasets`.

    Raises:
        DataError: nothing there, no file with a split's name, or two files that claim one split equally.
    """
    data = local_data(data, (task.name, *task.folders))
    if data.is_file():
        must_be_readable(data)
        return {split_of(data) or "train": data}
    if not data.is_dir():
        splits = _splits_in(data.parent, f"{data.name.casefold()}_") if data.parent.is_dir() and data.name else {}
        if splits:
            return splits
        near = [path.name for path in data.parent.iterdir()] if data.parent.is_dir() else []
        beside = f"; {data.parent} has {shorten(sorted(near), limit=8)}" if near else ""
        raise DataError(f"data {data} does not exist{beside}. Give a data file or the folder with train and dev files")
    for folder in _candidates(task, data):
        splits = _splits_in(folder)
        if splits:
            return splits
    there = sorted(path.name for path in data.iterdir())
    raise DataError(
        f"no data of task {task.name} in {data}: looked for train, dev or test files with {', '.join(SUFFIXES)} "
        f"(also {', '.join(COMPRESSIONS)}) there"
        + (f" and in folders named {', '.join(task.folders)}" if task.folders else "")
        + f"; found {shorten(there, limit=8) if there else 'an empty folder'}"
    )


def own_folder(task: NamedTask, data: str | Path) -> Path | None:
    """The folder in ``data``, or in its folder ``glue``, that is named after the task; None where there is none."""
    named = _candidates(task, Path(data))[:-1]
    return named[0] if named else None


def split_path(task: NamedTask, data: str | Path, split: Split) -> Path:
    """The file of one split.

    Raises:
        DataError: the split has no file. The message says which splits there are and how to get one held out.
    """
    return choose_split(task, data, split, lambda found: splits_of(task, found))


def choose_split(
    task: NamedTask,
    data: str | Path,
    split: Split,
    files: Callable[[Path], Mapping[Split, Path]],
    *,
    suffixes: Sequence[str] = SUFFIXES,
    unit: str = "rows",
) -> Path:
    """:func:`split_path` for a kind of task that finds and reads its files in its own way.

    Args:
        task: see :func:`splits_of`.
        data: likewise.
        split: the one wanted.
        files: the files of all splits in ``data``, which is then a path on this machine.
        suffixes: of files that can be read.
        unit: what is held out where there is no dev file, for the message.

    Raises:
        DataError: see :func:`split_path`.
    """
    if split not in SPLITS:
        raise DataError(f"unknown split {split!r}: use {', '.join(SPLITS)}")
    data = local_data(data, (task.name, *task.folders))
    if data.is_file() and split_of(data) is None:
        must_be_readable(data, suffixes)
        return data  # a file that names no split is whatever it is asked for
    found = files(data)
    if split in found:
        return found[split]
    there = ", ".join(f"{name} ({path.name})" for name, path in found.items())
    advice = {
        "train": "Give the path of a file to train on, under a name that does not say dev or test",
        "dev": f"Hold {unit} out of train (dev_share, seeded and recorded in the protocol), or add a dev file",
        "test": "Use dev, or give the path of the test file",
    }[split]
    raise DataError(f"task {task.name} has no {split} file in {data}, only {there}. {advice}")


def beside(task: NamedTask, data: str | Path, split: Split, word: str) -> Path | None:
    """The file beside that of a split whose name has ``word`` in place of ``matched``; None where there is none.

    MNLI has ``dev_matched`` and ``dev_mismatched``, ``test_matched`` and ``test_mismatched``.
    """
    path = splits_of(task, data).get(split)
    stem = _stem(path) if path is not None else ""
    if path is None or "matched" not in stem:
        return None
    wanted = stem.replace("matched", word)
    return next((other for other in sorted(path.parent.iterdir()) if kind_of(other) and _stem(other) == wanted), None)


def open_binary(path: Path) -> BinaryIO:
    """The bytes of a file, decompressed by its name.

    Raises:
        DataError: it cannot be opened. Damage inside a compressed file shows while reading.
    """
    opener = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix.casefold(), open)
    try:
        return cast(BinaryIO, opener(path, "rb"))  # type: ignore[operator]
    except OSError as error:
        raise DataError(f"cannot open {path}: {error.strerror or error}") from None


def _candidates(task: NamedTask, data: Path) -> list[Path]:
    """Folders to look in, the most specific first: named after the task, then the one given."""
    wanted = {_plain(name) for name in task.folders}
    children = sorted(path for path in data.iterdir() if path.is_dir())
    glue = [child for folder in children if _plain(folder.name) == "glue" for child in sorted(folder.iterdir())]
    named = [path for path in (*children, *glue) if path.is_dir() and _plain(path.name) in wanted]
    return [*named, data]


def _splits_in(folder: Path, beginning: str = "") -> dict[Split, Path]:
    """The best file of each split; with ``beginning``, of the files whose names begin so (``-`` counts as ``_``)."""
    ranked: dict[Split, list[tuple[int, str, Path]]] = {}
    for path in sorted(folder.iterdir()):
        if not path.name.casefold().replace("-", "_").startswith(beginning.replace("-", "_")):
            continue
        found = _rank(path, at_end=True) if path.is_file() and kind_of(path) else None
        if found:
            split, rank, stem = found
            ranked.setdefault(split, []).append((rank, stem, path))
    chosen = {}
    for split in SPLITS:
        files = sorted(ranked.get(split, []))
        if not files:
            continue
        rivals = [path.name for rank, _, path in files if rank == files[0][0]]
        if len(rivals) > 1:
            raise DataError(
                f"{folder} has {len(rivals)} files for {split}: {shorten(rivals)}. Keep one, give the file's path, "
                "or how the names of the files that belong together begin"
            )
        chosen[split] = files[0][2]
    return chosen


def _rank(path: Path, *, at_end: bool = False) -> tuple[Split, int, str] | None:
    """Split, how directly the name says so (0 best), and the name without its suffixes.

    With ``at_end`` a name may also end with the split's; of a file that a user names, that says too little.
    """
    stem = _stem(path)
    for split, names in SPLIT_NAMES.items():
        if stem in names:
            return split, names.index(stem), stem
        for split_name in names:
            if re.match(re.escape(split_name) + r"[-_. ]", stem):
                return split, 100, stem
            if at_end and re.search(r"[-_. ]" + re.escape(split_name) + "$", stem):
                return split, 200, stem
    return None


def _stem(path: Path) -> str:
    """The name in small letters, without its suffixes."""
    suffix = kind_of(path)
    name = path.name.casefold()
    return name[: name.rindex(suffix)] if suffix else name.partition(".")[0]


def must_be_readable(path: Path, suffixes: Sequence[str] = SUFFIXES) -> None:
    """See that the name of a file says how to read it.

    Raises:
        DataError: it does not.
    """
    if kind_of(path, suffixes) is None:
        raise DataError(
            f"{path}: cannot tell how to read it; the name must end in {', '.join(suffixes)}, "
            f"optionally followed by {', '.join(COMPRESSIONS)}"
        )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())
