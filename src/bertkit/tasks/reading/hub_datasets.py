"""Data sets by their name on the Hugging Face Hub: their Parquet files, fetched once. No scripts are run.

``hub:owner/name`` in place of a folder; ``hub:owner/name:subset`` where a page has several; ``@revision`` after it for
a branch, tag or commit. Which file belongs to which split is read off the names; a page without Parquet files has those
that the Hub makes of it by itself (branch ``refs/convert/parquet``). Honours what :mod:`bertkit.system.model_sources`
honours; without a connection, what was fetched before is used again.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from bertkit.errors import BertkitError, CheckpointError, DataError, ResourceError, did_you_mean, shorten
from bertkit.system.console import say
from bertkit.system.model_sources import hub_errors

#: What a name of the Hub begins with, so that it is never taken for a path, nor a mistyped path for a name.
PREFIX = "hub:"
#: Where the Hub keeps the Parquet files that it makes of other formats.
CONVERTED = "refs/convert/parquet"
DEFAULT = "default"
#: Written beside the files, last: where they are from.
SOURCE = "source.json"

_WORD = r"[A-Za-z0-9_][\w.\-+]*"
_NAME = re.compile(
    rf"hub:(?P<name>{_WORD}/{_WORD})(?::(?P<subset>{_WORD}))?(?:@(?P<revision>{_WORD}(?:/{_WORD})*))?", re.A
)
_SPLIT = re.compile(r"(?:partial-)?(train|validation|valid|val|dev|test|[\w.]+?)(?:-\d{4,}-of-\d{4,})?", re.ASCII)
_SPLIT_WORD = re.compile(r"(train|validation|valid|val|dev|test|eval)([_.]\w+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class HubData:
    """What ``hub:owner/name:subset@revision`` says."""

    name: str
    subset: str | None
    revision: str | None

    @classmethod
    def parse(cls, text: str) -> HubData:
        """Read the form above.

        Raises:
            DataError: another form.
        """
        found = _NAME.fullmatch(text)
        if found is None:
            raise DataError(
                f"{text!r} is no data set of the Hub: expected hub:owner/name, hub:owner/name:subset or "
                "hub:owner/name@revision"
            )
        return cls(**found.groupdict())


def is_hub_name(data: str | Path) -> bool:
    """Whether data is named by the Hub."""
    return str(data).startswith(PREFIX)


def local_data(data: str | Path, prefer: Iterable[str] = ()) -> Path:
    """A path as it is; a name of the Hub as the folder that its files are fetched into.

    Args:
        data: a path, or a name; see the module.
        prefer: subsets to take, the first one there, when none is named: what a task is called.

    Raises:
        DataError: no such data set, no Parquet file, several subsets and none named.
        ResourceError: no connection, and nothing fetched before; disk full.
    """
    return fetch_dataset(str(data), tuple(prefer)) if is_hub_name(data) else Path(data)


@lru_cache(maxsize=64)
def fetch_dataset(text: str, prefer: tuple[str, ...] = ()) -> Path:
    """The folder with one Parquet file a split, ``train.parquet`` and so on; see :func:`local_data`.

    It lies in ``$XDG_CACHE_HOME/bertkit/datasets`` (by default below ``~/.cache``) and is renewed when the page has
    changed.
    """
    wanted = HubData.parse(text)
    home = cache_folder() / wanted.name.replace("/", "--") / (wanted.revision or "main").replace("/", "--")
    try:
        commit, files = _list_files(wanted)
    except ResourceError as error:
        kept = _kept(home, wanted.subset, prefer)
        if kept is None:
            raise
        say(f"{text}: the Hub cannot be asked ({error}); using what was fetched before ({kept})")
        return kept
    subset, splits = _choose(wanted, files, prefer)
    folder = home / subset
    source = {"repository": wanted.name, "commit": commit, "subset": subset, "splits": splits}
    if _read_source(folder) != source:
        _fetch(wanted.name, commit, splits, folder, source)
    return folder


def cache_folder() -> Path:
    """Where fetched data sets are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "bertkit" / "datasets"


def splits_by_subset(files: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """Subset -> split -> Parquet files in order, read off their names.

    ``data/train-00000-of-00002.parquet`` is train of ``default``, ``sst2/validation-00000-of-00001.parquet`` and
    ``sst2/validation/0000.parquet`` are validation of ``sst2``. Files that name no split, and folders with other names
    than words, are left out.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for file in sorted(files):
        path = PurePosixPath(file)
        if path.suffix != ".parquet":
            continue
        folders, split = list(path.parts[:-1]), _split_of(path.stem)
        if split is None and folders:
            split = _split_of(folders.pop())
        if split is None or not all(re.fullmatch(_WORD, part, re.ASCII) for part in folders):
            continue
        subset = "--".join(part for part in folders if part != "data") or DEFAULT
        found.setdefault(subset, {}).setdefault(split, []).append(file)
    return found


def _split_of(name: str) -> str | None:
    match = _SPLIT.fullmatch(name)
    return match[1] if match and _SPLIT_WORD.fullmatch(match[1]) else None


def _list_files(wanted: HubData) -> tuple[str, list[str]]:
    """The commit, and the Parquet files in it: of the page itself, else of what the Hub has made of it."""
    try:
        commit, files = _list_revision(wanted, wanted.revision)
    except CheckpointError as error:
        raise DataError(str(error)) from None
    if not files and wanted.revision is None:
        with contextlib.suppress(CheckpointError):  # nothing was made of it
            commit, files = _list_revision(wanted, CONVERTED)
    if not files:
        raise DataError(
            f"the Hub data set {wanted.name!r} has no Parquet files, nor has the Hub made some of it ({CONVERTED}). "
            "Download its files and give their folder"
        )
    return commit, files


def _list_revision(wanted: HubData, revision: str | None) -> tuple[str, list[str]]:
    from huggingface_hub import HfApi

    with hub_errors(wanted.name, revision, f"no folder {wanted.name!r}", what="data set"):
        info = HfApi(library_name="bertkit").dataset_info(wanted.name, revision=revision)
    names = [sibling.rfilename for sibling in info.siblings or ()]
    return str(info.sha), [name for name in names if name.endswith(".parquet")]


def _choose(wanted: HubData, files: Sequence[str], prefer: Sequence[str]) -> tuple[str, dict[str, list[str]]]:
    subsets = splits_by_subset(files)
    if not subsets:
        raise DataError(
            f"the Hub data set {wanted.name!r} has {len(files):,} Parquet files, but no name says train, validation or "
            f"test: {shorten(files)}"
        )
    if wanted.subset is not None and wanted.subset not in subsets:
        raise DataError(
            f"the Hub data set {wanted.name!r} has no subset {wanted.subset!r}{did_you_mean(wanted.subset, subsets)}; "
            f"it has {shorten(subsets, limit=12)}"
        )
    subset = wanted.subset or _preferred(subsets, prefer)
    if subset is None:
        raise DataError(
            f"the Hub data set {wanted.name!r} has the subsets {shorten(subsets, limit=12)}; name one, for example "
            f"{PREFIX}{wanted.name}:{next(iter(subsets))}"
        )
    return subset, subsets[subset]


def _preferred(subsets: Iterable[str], prefer: Sequence[str]) -> str | None:
    plain = {re.sub(r"[^a-z0-9]", "", subset.casefold()): subset for subset in subsets}
    for name in prefer:
        if (found := plain.get(re.sub(r"[^a-z0-9]", "", name.casefold()))) is not None:
            return found
    if DEFAULT in plain:
        return plain[DEFAULT]
    return next(iter(plain.values())) if len(plain) == 1 else None


def _fetch(
    name: str, commit: str, splits: Mapping[str, Sequence[str]], folder: Path, source: Mapping[str, Any]
) -> None:
    """Download the files of all splits, and put the folder into its place when it is whole."""
    from huggingface_hub import hf_hub_download

    count = sum(map(len, splits.values()))
    say(f"fetching {name} ({', '.join(splits)}; {count} file{'s' if count > 1 else ''}) from the Hub")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unfinished-") as unfinished:
            whole = Path(unfinished) / "whole"
            whole.mkdir()
            for split, files in splits.items():
                with hub_errors(name, commit, f"no folder {name!r}", what="data set"):
                    parts = [
                        Path(hf_hub_download(name, file, repo_type="dataset", revision=commit, library_name="bertkit"))
                        for file in files
                    ]
                _join(parts, whole / f"{split}.parquet")
            (whole / SOURCE).write_text(json.dumps(source, indent=2) + "\n", encoding="utf-8")
            shutil.rmtree(folder, ignore_errors=True)
            whole.replace(folder)
    except OSError as error:
        raise ResourceError(f"cannot store {name!r} in {folder}: {error.strerror or error}") from error
    except CheckpointError as error:
        raise DataError(str(error)) from None


def _join(parts: Sequence[Path], target: Path) -> None:
    """The rows of all parts in one file, with the schema's notes (names of labels), a row group in memory at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if len(parts) == 1:
        shutil.copyfile(parts[0], target)
        return
    try:
        schema = pq.read_schema(parts[0])
        with pq.ParquetWriter(target, schema) as writer:
            for part in parts:
                with pq.ParquetFile(part) as file:
                    for group in range(file.num_row_groups):
                        writer.write_table(file.read_row_group(group).cast(schema))
    except (pa.ArrowException, ValueError) as error:
        raise DataError(f"{parts[0].name} and the files that belong to it cannot be put together: {error}") from None


def _read_source(folder: Path) -> Any:
    try:
        return json.loads((folder / SOURCE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _kept(home: Path, subset: str | None, prefer: Sequence[str]) -> Path | None:
    """What was fetched before, where it is whole."""
    there = {path.parent.name for path in home.glob(f"*/{SOURCE}") if not path.parent.name.startswith(".")}
    chosen = subset if subset is not None else _preferred(sorted(there), prefer)
    return home / chosen if chosen in there else None


def label_names(path: Path, column: str) -> tuple[str, ...] | None:
    """The names that a Parquet file of the Hub gives the numbers of a label column; None where it gives none."""
    import pyarrow.parquet as pq

    try:
        notes = pq.read_schema(path).metadata or {}
        feature = json.loads(notes[b"huggingface"])["info"]["features"][column]
        names = feature.get("names") or feature["feature"]["names"]
    except (BertkitError, OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return tuple(names) if isinstance(names, list) and all(isinstance(name, str) for name in names) else None
