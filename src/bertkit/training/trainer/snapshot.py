"""Checkpoints that are either whole or not there.

A checkpoint is a folder: ``tensors.safetensors``, ``state.json``, and ``manifest.json`` with the size and SHA-256 of
the other two. It is written into a hidden folder beside its final place, every file is flushed to the disk, the
manifest comes last, and one rename makes it visible. Whatever kills the process or the machine in between, the
checkpoint before stays intact, and the next start removes the remains. Nothing in it is executable: no pickle.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from bertkit.errors import CheckpointError
from bertkit.system.atomic_files import disk_guard, sha256_file, sync_file, sync_folder

FORMAT_VERSION = 1
TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
#: Names of hidden folders that are being written; never read, removed at the next start.
TEMPORARY = ".writing-"

_STEP_FOLDER = re.compile(r"^step-(\d{8,})(?:\.(\d+))?$")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a run needs to go on: named tensors, and values that JSON can hold."""

    tensors: Mapping[str, Tensor]
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """What is in a folder of checkpoints.

    path: the newest whole one; None: there is none.
    damaged: newer ones, which were passed over.
    skipped: for each of them its name and why.
    """

    path: Path | None
    damaged: tuple[Path, ...] = ()
    skipped: tuple[str, ...] = ()


def save_snapshot(parent: Path, name: str, snapshot: Snapshot, *, advice: str = "Make room and try again") -> Path:
    """Write ``parent/name``, or nothing.

    Args:
        parent: where the run's checkpoints are; made if it is not there.
        name: see :func:`step_name`.
        snapshot: what to write.
        advice: what to do when the disk is full, see :func:`~bertkit.system.atomic_files.disk_guard`.

    Returns:
        The folder; ``name.1``, ``name.2`` ... where ``name`` was taken, so that no older one is ever overwritten.

    Raises:
        ResourceError: the disk cannot hold it. Checked before the first byte; older checkpoints are untouched.
    """
    parent.mkdir(parents=True, exist_ok=True)
    needed = sum(tensor.numel() * tensor.element_size() for tensor in snapshot.tensors.values()) + 1_000_000
    temporary = parent / f"{TEMPORARY}{name}-{os.getpid()}"
    with disk_guard(parent, needed, what=f"checkpoint {name}", advice=advice):
        try:
            temporary.mkdir()
            save_file({key: tensor.contiguous() for key, tensor in snapshot.tensors.items()}, temporary / TENSORS)
            (temporary / STATE).write_text(json.dumps(snapshot.values, allow_nan=False), encoding="utf-8")
            files = {file: _describe(temporary / file) for file in (TENSORS, STATE)}
            for file in files:
                sync_file(temporary / file)
            manifest = {"format_version": FORMAT_VERSION, "files": files}
            (temporary / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
            sync_file(temporary / MANIFEST)
            sync_folder(temporary)
            final = _free_name(parent, name)
            temporary.rename(final)
            sync_folder(parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    return final


def load_snapshot(folder: Path) -> Snapshot:
    """Read a checkpoint whose manifest agrees with its files.

    Raises:
        CheckpointError: it does not; the message says how.
    """
    if (fault := check(folder)) is not None:
        raise CheckpointError(f"{folder}: {fault}")
    values = json.loads((folder / STATE).read_text(encoding="utf-8"))
    return Snapshot(load_file(folder / TENSORS), values)


def check(folder: Path) -> str | None:
    """What is wrong with a checkpoint folder, or None when it is whole: every byte is hashed."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format_version"] != FORMAT_VERSION:
            return f"its format version is {manifest['format_version']!r}, this bertkit reads {FORMAT_VERSION}"
        for file in (TENSORS, STATE):
            expected = manifest["files"][file]
            if (size := (folder / file).stat().st_size) != expected["num_bytes"]:
                return f"{file} has {size:,} bytes, its manifest says {expected['num_bytes']:,}"
            if _describe(folder / file) != expected:
                return f"the bytes of {file} are not those its manifest describes"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{MANIFEST} cannot be used: {error!r}"
    return None


def step_folders(parent: Path) -> list[Path]:
    """Training checkpoints of a run, newest first, whole or not."""
    found = []
    for folder in parent.iterdir() if parent.is_dir() else ():
        if match := _STEP_FOLDER.match(folder.name):
            found.append((int(match[1]), int(match[2] or 0), folder))
    return [folder for _, _, folder in sorted(found, reverse=True)]


def step_name(step: int) -> str:
    """Folder name of the checkpoint after ``step`` optimizer steps."""
    return f"step-{step:08d}"


def newest_whole(parent: Path) -> Found:
    """The newest checkpoint that passes :func:`check`.

    Raises:
        CheckpointError: there are checkpoints, but every one is damaged. Starting again from nothing without being
            told to would throw work away silently.
    """
    damaged: list[Path] = []
    skipped: list[str] = []
    for folder in step_folders(parent):
        if (fault := check(folder)) is None:
            return Found(folder, tuple(damaged), tuple(skipped))
        damaged.append(folder)
        skipped.append(f"{folder.name}: {fault}")
    if skipped:
        raise CheckpointError(
            f"no checkpoint in {parent} can be used ({'; '.join(skipped)}). "
            f"Remove the folder to begin again, or restore one from a backup"
        )
    return Found(None)


def remove_remains(parent: Path) -> None:
    """Delete what an interrupted write left behind. Call it only while holding the run folder."""
    for folder in parent.glob(f"{TEMPORARY}*") if parent.is_dir() else ():
        shutil.rmtree(folder, ignore_errors=True)


def _describe(path: Path) -> dict[str, Any]:
    return {"num_bytes": path.stat().st_size, "sha256": sha256_file(path)}


def _free_name(parent: Path, name: str) -> Path:
    candidate, number = parent / name, 0
    while candidate.exists():
        number += 1
        candidate = parent / f"{name}.{number}"
    return candidate
