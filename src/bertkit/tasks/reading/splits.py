"""Which file of a folder holds which split."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bertkit.errors import DataError, shorten
from bertkit.tasks.examples import SPLITS, Split
from bertkit.tasks.reading.given_rows import Given
from bertkit.tasks.reading.hub_datasets import local_data
from bertkit.tasks.reading.lines import COMPRESSIONS

#: Kinds of table that can be read.
SUFFIXES = (".tsv", ".csv", ".jsonl", ".ndjson", ".parquet", ".json", ".xlsx")
#: What the name of the file begins with by which Excel says that a workbook is open.
LOCK = "~$"
#: Names of each split, best first; ``-``, ``_`` or ``.`` and more may follow, as in ``train_slice``, and in a folder
#: precede, as in ``easy_train``. The test sets of CoNLL-2003 are ``eng.testa`` (dev) and ``eng.testb``.
SPLIT_NAMES: dict[Split, tuple[str, ...]] = {
    "train": ("train", "training"),
    "dev": (
        *("dev", "validation", "valid", "val", "eval", "dev_matched", "validation_matched"),
        *("devel", "development", "testa"),
    ),
    "test": ("test", "testing", "test_matched", "testb"),
}
#: Ranks of file names that are more than the name of a split, after those that are just that: 0, 1, ... by SPLIT_NAMES.
NAME_IS_A_WORD, NAME_COMES_FIRST, NAME_ENDS_A_WORD, NAME_COMES_LAST = 50, 100, 100, 200


class NamedTask(Protocol):
    """What is read of a task here: its name, for messages, and names that a data folder of it may have."""

    @property
    def name(self) -> str: ...

    @property
    def folders(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True)
class FileRules:
    """Which files a kind of task takes.

    suffixes: of the files in a folder. last: those of them that give way to another file of the same split.
    version, other_versions: of two files for a split, the one with ``version`` in its name is taken; files of other
        versions never are.
    loose: the name of a split may be any word of a file's name or end one (``eng.testa``, ``wnut17train``); the only
        file of a folder is train whatever its name; and a file given by its path may have any suffix.
    is_folder: whether a folder is read as one file is.
    unit: what is held out where there is no dev file, for messages.
    """

    suffixes: tuple[str, ...] = SUFFIXES
    last: tuple[str, ...] = (".json", ".xlsx")
    version: str = ""
    other_versions: tuple[str, ...] = ()
    loose: bool = False
    is_folder: Callable[[Path], bool] = lambda path: False
    unit: str = "rows"

    def is_one(self, path: Path) -> bool:
        """Whether a path holds the data of one split: a file, or a folder that is read as one is."""
        return path.is_file() or self.is_folder(path)


TABLES = FileRules()


def kind_of(path: Path, suffixes: tuple[str, ...] = SUFFIXES) -> str | None:
    """The one of ``suffixes`` that says how to read the file (``.tsv`` for ``train.tsv.xz``), or None for others."""
    if isinstance(path, Given):
        return ".parquet"  # as such a file, rows in memory have cells of any type, and perhaps names of labels
    name = _bare_name(path)
    return next((suffix for suffix in suffixes if name.endswith(suffix)), None)


def split_of(path: Path, rules: FileRules = TABLES) -> Split | None:
    """The split in a file's name, or None."""
    if isinstance(path, Given):
        return path.split
    found = _rank(path, rules)
    return found[0] if found else None


def splits_of(task: NamedTask, data: str | Path, rules: FileRules = TABLES) -> dict[Split, Path]:
    """The files of a task, by split, in the order train, dev, test.

    Args:
        task: its ``folders`` name the folders that may hold it.
        data: the task's folder; a folder that contains it, as GLUE's; the common beginning of several files' names,
            ``arc/arc_easy`` for ``arc_easy_train.csv`` and ``arc_easy_dev.csv``; or one file, which counts as the split
            in its name, and as train if its name has none. Or ``hub:owner/name``, see
            :mod:`bertkit.tasks.reading.hub_datasets`.
        rules: which files the kind of task takes.

    Raises:
        DataError: nothing there, no file with a split's name, or two files that claim one split equally.
    """
    if isinstance(data, Given):
        for file in data.splits.values():
            must_be_readable(file, rules)
        return data.splits
    data = local_data(data, (task.name, *task.folders))
    if rules.is_one(data):
        must_be_readable(data, rules)
        return {split_of(data, rules) or "train": data}
    if not data.is_dir():
        found = _splits_in(data.parent, rules, f"{data.name.casefold()}_") if data.parent.is_dir() and data.name else {}
        if found:
            return found
        if str(data).startswith("<"):
            raise DataError(f"{data} stands for rows that a run was given in memory. Give the data again, as files")
        near = sorted(path.name for path in data.parent.iterdir()) if data.parent.is_dir() else []
        beside = f"; {data.parent} has {shorten(near, limit=8)}" if near else ""
        raise DataError(f"data {data} does not exist{beside}. Give a data file or the folder with train and dev files")
    for folder in _candidates(task, data):
        found = _splits_in(folder, rules)
        if found:
            return found
    there = sorted(path.name for path in data.iterdir())
    raise DataError(
        f"no data of task {task.name} in {data}: looked for train, dev or test files with {', '.join(rules.suffixes)} "
        f"(also {', '.join(COMPRESSIONS)}) there"
        + (f" and in folders named {', '.join(task.folders)}" if task.folders else "")
        + f"; found {shorten(there, limit=8) if there else 'an empty folder'}. Give the path of the file to train on, "
        "or rename the files, for example to train and dev"
    )


def own_folder(task: NamedTask, data: str | Path) -> Path | None:
    """The folder in ``data``, or in its folder ``glue``, that is named after the task; None where there is none."""
    named = _candidates(task, Path(data))[:-1]
    return named[0] if named else None


def split_path(task: NamedTask, data: str | Path, split: Split, rules: FileRules = TABLES) -> Path:
    """The file of one split, as :func:`splits_of`. A file without a split in its name serves as any split."""
    if split not in SPLITS:
        raise DataError(f"unknown split {split!r}: use {', '.join(SPLITS)}")
    if isinstance(data, Given) and data.by_split is None:
        return data
    data = data if isinstance(data, Given) else local_data(data, (task.name, *task.folders))
    if rules.is_one(data) and split_of(data, rules) is None:
        must_be_readable(data, rules)
        return data
    found = splits_of(task, data, rules)
    if split in found:
        return found[split]
    there = ", ".join(f"{name} ({path.name})" for name, path in found.items())
    advice = {
        "train": "Give the path of a file to train on, under a name that does not say dev or test",
        "dev": f"Hold {rules.unit} out of train (dev_share, seeded and recorded in the protocol), or add a dev file",
        "test": "Use dev, or give the path of the test file",
    }[split]
    raise DataError(f"task {task.name} has no {split} file in {data}, only {there}. {advice}")


def beside(task: NamedTask, data: str | Path, split: Split, word: str) -> Path | None:
    """The file beside that of a split with ``word`` for ``matched``, as MNLI's ``dev_mismatched``; None without."""
    path = splits_of(task, data).get(split)
    stem = "" if path is None or isinstance(path, Given) else _stem(path, SUFFIXES)
    if path is None or "matched" not in stem:
        return None
    wanted = stem.replace("matched", word)
    others = (other for other in sorted(path.parent.iterdir()) if kind_of(other))
    return next((other for other in others if _stem(other, SUFFIXES) == wanted), None)


def must_be_readable(path: Path, rules: FileRules = TABLES) -> None:
    """Raise DataError if the suffix of a file is not one that can be read, or it is Excel's lock file."""
    if path.name.startswith(LOCK):
        raise DataError(
            f"{path} is the lock file that Excel keeps beside an open workbook; give {path.name.removeprefix(LOCK)}"
        )
    if kind_of(path, rules.suffixes) is None and not rules.loose:
        old = path.suffix.casefold() in (".xls", ".ods", ".xlsb")
        raise DataError(
            f"{path}: cannot tell how to read it; the name must end in {', '.join(rules.suffixes)}, "
            f"optionally followed by {', '.join(COMPRESSIONS)}"
            + (". Save the workbook as .xlsx, or the sheet as .csv" if old else "")
        )


def _candidates(task: NamedTask, data: Path) -> list[Path]:
    """Folders to look in, the most specific first: named after the task, then the one given."""
    wanted = {_plain(name) for name in task.folders}
    children = sorted(path for path in data.iterdir() if path.is_dir())
    glue = [child for folder in children if _plain(folder.name) == "glue" for child in sorted(folder.iterdir())]
    named = [path for path in (*children, *glue) if path.is_dir() and _plain(path.name) in wanted]
    return [*named, data]


def _splits_in(folder: Path, rules: FileRules, beginning: str = "") -> dict[Split, Path]:
    """The best file of each split; with ``beginning``, of the files whose names begin so (``-`` counts as ``_``)."""
    files, beginning = [], beginning.replace("-", "_")
    for path in sorted(folder.iterdir()):
        if path.name.startswith(LOCK):
            continue
        suffix = Path(_bare_name(path)).suffix
        known = kind_of(path, rules.suffixes) or rules.is_folder(path)
        known = known or (rules.loose and any(suffix[1:] in names for names in SPLIT_NAMES.values()))
        other = any(version in path.name for version in rules.other_versions)
        if known and not other and rules.is_one(path) and path.name.casefold().replace("-", "_").startswith(beginning):
            files.append(path)
    ranked: dict[Split, list[tuple[tuple[bool, int, bool], str, Path]]] = {}
    for path in files:
        found = _rank(path, rules, at_end=True)
        if found:
            split, rank = found
            order = (rules.version not in path.name, rank, kind_of(path) in rules.last)
            ranked.setdefault(split, []).append((order, path.name, path))
    if not ranked and len(files) == 1 and rules.loose:
        return {"train": files[0]}
    chosen = {}
    for split in SPLITS:
        best = sorted(ranked.get(split, []))
        rivals = [name for order, name, _ in best if order == best[0][0]]
        if len(rivals) > 1:
            raise DataError(
                f"{folder} has {len(rivals)} files for {split}: {shorten(rivals)}. Keep one, give the file's path, "
                "or how the names of the files that belong together begin"
            )
        if best:
            chosen[split] = best[0][2]
    return chosen


def _rank(path: Path, rules: FileRules, *, at_end: bool = False) -> tuple[Split, int] | None:
    """Split, and how directly the name says so (0 best); with ``at_end`` a name may also end with the split's."""
    if rules.loose:
        return _loose_rank(path)
    stem = _stem(path, rules.suffixes)
    for split, names in SPLIT_NAMES.items():
        if stem in names:
            return split, names.index(stem)
        for name in names:
            if re.match(re.escape(name) + r"[-_. ]", stem):
                return split, NAME_COMES_FIRST
            if at_end and re.search(r"[-_. ]" + re.escape(name) + "$", stem):
                return split, NAME_COMES_LAST
    return None


def _loose_rank(path: Path) -> tuple[Split, int] | None:
    words = [word for word in re.split(r"[^a-z0-9]+", _bare_name(path)) if word]
    for word in words:
        for split, names in SPLIT_NAMES.items():
            if word in names:
                return split, names.index(word) if words[0] == word else NAME_IS_A_WORD
    for word in words:
        for split, names in SPLIT_NAMES.items():
            if word.endswith(names[0]) and word not in ("latest", "contest"):  # wnut17train
                return split, NAME_ENDS_A_WORD
    return None


def _bare_name(path: Path) -> str:
    """The name in small letters, without a compression."""
    name = path.name.casefold()
    for compression in COMPRESSIONS:
        name = name.removesuffix(compression)
    return name


def _stem(path: Path, suffixes: tuple[str, ...]) -> str:
    """The name in small letters, without its suffixes."""
    suffix = kind_of(path, suffixes)
    name = path.name.casefold()
    return name[: name.rindex(suffix)] if suffix else name.partition(".")[0]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.casefold())
