"""Datasets from the Hugging Face Hub: their Parquet files, downloaded once. No scripts are run.

Give ``hub:owner/name`` instead of a folder; ``hub:owner/name:subset`` if a dataset has several subsets; append
``@revision`` for a branch, tag or commit. The split of a file is inferred from its name. For a dataset without Parquet
files, those that the Hub has converted are used (branch ``refs/convert/parquet``). Environment variables are those of
:mod:`bertkit.system.model_sources`; offline, an earlier download is used.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TypedDict

from bertkit.errors import CheckpointError, DataError, ResourceError, counted, did_you_mean, shorten
from bertkit.system.atomic_files import draft_folder
from bertkit.system.console import say
from bertkit.system.model_sources import hub_errors
from bertkit.system.paths import cache_root
from bertkit.tasks.reading.given_rows import Given, names_in_metadata
from bertkit.tasks.reading.lines import seekable

#: Prefix of a name on the Hub, so that names and paths are never confused.
PREFIX = "hub:"
#: The branch with the Parquet files that the Hub has converted from other formats.
CONVERTED = "refs/convert/parquet"
DEFAULT = "default"
#: Records where the files came from; written last.
SOURCE = "source.json"

_WORD = r"[A-Za-z0-9_][\w.\-+]*"
_NAME = re.compile(
    rf"hub:(?P<name>{_WORD}/{_WORD})(?::(?P<subset>{_WORD}))?(?:@(?P<revision>{_WORD}(?:/{_WORD})*))?", re.A
)
_SPLIT = re.compile(r"(?:partial-)?(train|validation|valid|val|dev|test|[\w.]+?)(?:-\d{4,}-of-\d{4,})?", re.ASCII)
_SPLIT_WORD = re.compile(r"(train|validation|valid|val|dev|test|eval)([_.]\w+)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class HubData:
    """The parts of ``hub:owner/name:subset@revision``."""

    name: str
    subset: str | None
    revision: str | None

    @classmethod
    def parse(cls, text: str) -> HubData:
        """Parse a name."""
        found = _NAME.fullmatch(text)
        if found is None:
            raise DataError(
                f"{text!r} is not the name of a dataset on the Hub: expected hub:owner/name, hub:owner/name:subset or "
                "hub:owner/name@revision"
            )
        return cls(**found.groupdict())


def local_data(data: str | Path, prefer: Iterable[str] = ()) -> Path:
    """A path unchanged, or where a dataset of the Hub is downloaded to: its subset, or the first of ``prefer``."""
    return fetch_dataset(str(data), tuple(prefer)) if str(data).startswith(PREFIX) else Path(data)


class _Source(TypedDict):
    """Where the files of a folder came from: Parquet files by split."""

    repository: str
    commit: str
    subset: str
    splits: dict[str, list[str]]


@lru_cache(maxsize=64)
def fetch_dataset(text: str, prefer: tuple[str, ...] = ()) -> Path:
    """The cached folder, with one Parquet file per split (``train.parquet``); refreshed if the dataset has changed."""
    wanted = HubData.parse(text)
    home = cache_folder() / wanted.name.replace("/", "--") / (wanted.revision or "main").replace("/", "--")
    try:
        commit, files = _list_files(wanted)
    except ResourceError as error:
        there = {path.parent.name for path in home.glob(f"*/{SOURCE}") if not path.parent.name.startswith(".")}
        chosen = wanted.subset if wanted.subset is not None else _preferred(sorted(there), prefer)
        if chosen not in there:
            raise
        kept = home / chosen
        say(f"{text}: cannot reach the Hub ({error}); using the earlier download in {kept}")
        return kept
    subset, splits = _choose(wanted, files, prefer)
    folder = home / subset
    source: _Source = {"repository": wanted.name, "commit": commit, "subset": subset, "splits": splits}
    try:
        before = json.loads((folder / SOURCE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = None
    if before != source:
        _fetch(source, folder)
    return folder


def cache_folder() -> Path:
    """Where downloaded datasets are cached."""
    return cache_root() / "datasets"


def splits_by_subset(files: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    """Subset -> split -> Parquet files in order, read off their names; names without a split are ignored.

    ``data/train-00000-of-00002.parquet`` is train of ``default``, ``sst2/validation-00000-of-00001.parquet`` and
    ``sst2/validation/0000.parquet`` are validation of ``sst2``.
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
    """The commit and its Parquet files: the dataset's own, else those that the Hub has converted."""
    try:
        commit, files = _list_revision(wanted, wanted.revision)
    except CheckpointError as error:
        raise DataError(str(error)) from None
    if not files and wanted.revision is None:
        with contextlib.suppress(CheckpointError):  # nothing was converted
            commit, files = _list_revision(wanted, CONVERTED)
    if not files:
        why = f", and the Hub has not converted it ({CONVERTED}). Download its files and give their folder"
        if wanted.revision is not None:
            why = f" at revision {wanted.revision!r}. Leave it out, or download its files and give their folder"
        raise DataError(f"the Hub dataset {wanted.name!r} has no Parquet files{why}")
    return commit, files


def _list_revision(wanted: HubData, revision: str | None) -> tuple[str, list[str]]:
    from huggingface_hub import HfApi

    with hub_errors(wanted.name, revision, f"no folder {wanted.name!r}", what="dataset"):
        info = HfApi(library_name="bertkit").dataset_info(wanted.name, revision=revision)
    names = [sibling.rfilename for sibling in info.siblings or ()]
    return str(info.sha), [name for name in names if name.endswith(".parquet")]


def _choose(wanted: HubData, files: Sequence[str], prefer: Sequence[str]) -> tuple[str, dict[str, list[str]]]:
    subsets = splits_by_subset(files)
    if not subsets:
        raise DataError(
            f"the Hub dataset {wanted.name!r} has {counted(len(files), 'Parquet file')}, but no name contains train, "
            f"validation or test: {shorten(files)}"
        )
    if wanted.subset is not None and wanted.subset not in subsets:
        raise DataError(
            f"the Hub dataset {wanted.name!r} has no subset {wanted.subset!r}{did_you_mean(wanted.subset, subsets)}; "
            f"it has {shorten(subsets, limit=12)}"
        )
    subset = wanted.subset or _preferred(subsets, prefer)
    if subset is None:
        raise DataError(
            f"the Hub dataset {wanted.name!r} has the subsets {shorten(subsets, limit=12)}; choose one, for example "
            f"{PREFIX}{wanted.name}:{next(iter(subsets))}"
        )
    return subset, subsets[subset]


def _preferred(subsets: Iterable[str], prefer: Sequence[str]) -> str | None:
    plain = {re.sub(r"[^a-z0-9]", "", subset.casefold()): subset for subset in subsets}
    for name in (*prefer, DEFAULT):
        if (found := plain.get(re.sub(r"[^a-z0-9]", "", name.casefold()))) is not None:
            return found
    return next(iter(plain.values())) if len(plain) == 1 else None


def _fetch(source: _Source, folder: Path) -> None:
    from huggingface_hub import hf_hub_download

    name, commit, splits = source["repository"], source["commit"], source["splits"]
    num_files = sum(map(len, splits.values()))
    say(f"downloading {name} ({', '.join(splits)}; {counted(num_files, 'file')}) from the Hub")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with draft_folder(folder) as whole:
            for split, files in splits.items():
                with hub_errors(name, commit, f"no folder {name!r}", what="dataset"):
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
    """Concatenate files, with the metadata of the schema (label names), one row group in memory at a time."""
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
        raise DataError(f"{parts[0].name} and its sibling files cannot be concatenated: {error}") from None


def label_names(path: Path, column: str) -> tuple[str, ...] | None:
    """Label names of a column in the metadata of a Parquet file from the Hub, in order; None if it has none."""
    if isinstance(path, Given):
        return path.names_of_labels.get(column)
    import pyarrow.parquet as pq

    try:
        return names_in_metadata(pq.read_schema(seekable(path)).metadata or {}, column)
    except (OSError, ValueError):
        return None
