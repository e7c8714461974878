"""Training checkpoints: take the state of a run, write it atomically, read it back, and resume bit for bit.

A checkpoint is a folder: ``tensors.safetensors``, ``state.json``, and ``manifest.json`` with the size and SHA-256 of
the other two. It is written to a hidden folder next to its final place and flushed to disk, the manifest last; one
rename makes it visible. If the process or the machine dies in between, the previous checkpoint is intact and the next
start removes the leftovers. Nothing in a checkpoint is executable: no pickle.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import Optimizer

from bertkit.errors import CheckpointError
from bertkit.system.atomic_files import disk_guard, sha256_file, sync_file, sync_folder
from bertkit.system.json_files import parsed, read_json
from bertkit.system.untrusted_files import Json
from bertkit.training.trainer.generators import capture_generators, restore_generators, seed_generators
from bertkit.training.trainer.parallel import Parallel

FORMAT_VERSION = 1
TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
#: Prefix of hidden folders that are being written: never read, and removed at the next start.
TEMPORARY = ".writing-"

_STEP_FOLDER = re.compile(r"^step-(\d{8,})(?:\.(\d+))?$")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a run needs to resume: named tensors, and values that JSON can hold."""

    tensors: Mapping[str, Tensor]
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """The newest intact checkpoint of a folder, damaged newer ones, and what is wrong with each of those."""

    path: Path | None
    damaged: tuple[Path, ...] = ()
    skipped: tuple[str, ...] = ()


def save_snapshot(parent: Path, name: str, snapshot: Snapshot, *, advice: str = "Make room and try again") -> Path:
    """Write ``parent/name``, or nothing; ``name.1`` ... if that exists, so that nothing is ever overwritten."""
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
            final, number = parent / name, 0
            while final.exists():
                number += 1
                final = parent / f"{name}.{number}"
            temporary.rename(final)
            sync_folder(parent)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    return final


def load_snapshot(folder: Path, *, checked: bool = False) -> Snapshot:
    """Read a checkpoint; its files are not hashed again if :func:`newest_whole` has just ``checked`` them."""
    if not checked and (fault := check(folder)) is not None:
        raise CheckpointError(f"{folder}: {fault}")
    try:
        return Snapshot(load_file(folder / TENSORS), read_json(folder / STATE, dict[str, Any]))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{folder / TENSORS} cannot be read: {error}") from None


def shared_snapshot(folder: Path, parallel: Parallel) -> Snapshot:
    """A checkpoint that :func:`newest_whole` has just checked, read by rank 0. Call it on every rank."""
    found: list[Snapshot] = []

    def read() -> Mapping[str, Any]:
        found.append(load_snapshot(folder, checked=True))
        return found[0].values

    values = parallel.on_first(read)  # so that a file that cannot be read ends all ranks
    return Snapshot(parallel.share(found[0].tensors if found else {}), values)


def check(folder: Path) -> str | None:
    """What is wrong with a checkpoint folder, or None if it is intact; every byte is hashed."""
    try:
        manifest = read_json(folder / MANIFEST, dict[str, Any])
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
    except (OSError, CheckpointError, KeyError, TypeError) as error:
        return f"{MANIFEST} is missing" if not (folder / MANIFEST).exists() else f"{MANIFEST} cannot be used: {error}"
    return None


def step_folders(parent: Path) -> list[Path]:
    """Training checkpoints of a run, newest first, intact or not."""
    found = []
    for folder in parent.iterdir() if parent.is_dir() else ():
        if match := _STEP_FOLDER.match(folder.name):
            found.append((int(match[1]), int(match[2] or 0), folder))
    return [folder for _, _, folder in sorted(found, reverse=True)]


def step_name(step: int) -> str:
    """Folder name of the checkpoint after ``step`` optimizer steps."""
    return f"step-{step:08d}"


def newest_whole(parent: Path) -> Found:
    """The newest intact checkpoint; a CheckpointError if all are damaged: starting again would throw work away."""
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
            f"Remove the folder to start again, or restore one from a backup"
        )
    return Found(None)


def drop_old(parent: Path, *, keep: int, damaged: Collection[Path] = ()) -> None:
    """Delete damaged checkpoints, and of the others all but the newest ``keep``."""
    intact = [folder for folder in step_folders(parent) if folder not in damaged]
    for old in (*damaged, *intact[keep:]):
        shutil.rmtree(old, ignore_errors=True)


def remove_remains(parent: Path) -> None:
    """Delete leftovers of interrupted writes. Call it only while the run folder is claimed."""
    for folder in parent.glob(f"{TEMPORARY}*") if parent.is_dir() else ():
        shutil.rmtree(folder, ignore_errors=True)


def _describe(path: Path) -> dict[str, int | str]:
    return {"num_bytes": path.stat().st_size, "sha256": sha256_file(path)}


def take_snapshot(
    model: nn.Module,
    optimizer: Optimizer,
    values: Mapping[str, Json],
    *,
    best: Mapping[str, Tensor] | None = None,
    parallel: Parallel,
) -> Snapshot:
    """Trained weights, optimizer state, generators, values, and the ``best`` weights if they are not the current ones.

    Call it on every rank. Rank 0 gets everything, by reference; the others get the generators of all ranks only.
    """
    tensors: dict[str, Tensor] = {}

    def add(key: str, tensor: Tensor) -> None:
        if parallel.is_sharded:
            from bertkit.training.trainer.sharding import whole

            tensor = whole(tensor)
        if parallel.is_first:
            tensors[key] = tensor

    for name, p in changing(model).items():
        add(f"model/{name}", p.detach())
    for name, p in _named_trained(model, optimizer):
        for key, value in optimizer.state[p].items():
            add(f"optimizer/{name}/{key}", value)
    for name, value in (best or {}).items():
        add(f"best/{name}", value)
    generators = parallel.gather(capture_generators())
    for rank, (rng_tensors, _) in enumerate(generators):
        prefix = "generator/" if rank == 0 else f"generator/rank{rank}."
        tensors |= {f"{prefix}{name}": state for name, state in rng_tensors.items()}
    of_ranks = [rng_values for _, rng_values in generators]
    return Snapshot(tensors, {**values, "generators": of_ranks[0], "generators_of_other_ranks": of_ranks[1:]})


def restore_snapshot(
    snapshot: Snapshot, model: nn.Module, optimizer: Optimizer, *, parallel: Parallel, source: str
) -> dict[str, Tensor]:
    """Put back what :func:`take_snapshot` took, on every rank; returns the best weights by name, if there are any.

    The number of ranks and their mode may differ. With the same number the run continues bit for bit; otherwise weights
    and optimizer state are the same, sums round differently, and ranks that the snapshot does not know start with
    generators derived from those of rank 0.
    """
    try:
        return _restore(snapshot, model, optimizer, parallel, source)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{source} is damaged: {type(error).__name__}: {error}") from None


def _restore(
    snapshot: Snapshot, model: nn.Module, optimizer: Optimizer, parallel: Parallel, source: str
) -> dict[str, Tensor]:
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "generator": {}, "best": {}}
    for key, tensor in snapshot.tensors.items():
        kind, _, name = key.partition("/")
        parts[kind][name] = tensor
    parameters, saved = dict(model.named_parameters()), parts["model"]
    for name, tensor in saved.items():
        own = parameters[name].shape if name in parameters else None
        if own != tensor.shape:
            raise CheckpointError(
                f"{source} holds the weights of a model with other shapes: {name} is {list(tensor.shape)}, here "
                f"{own and list(own)}. If an earlier version of bertkit wrote it, end that run with it, or begin again"
            )
    if missing := changing(model).keys() - saved.keys():  # earlier versions saved those that stay as they are, too
        raise CheckpointError(f"{source} holds the weights of another model: {min(missing)} is not among them")
    copy_into(model, saved)
    _load_optimizer(model, optimizer, parts["optimizer"])
    _restore_generators(parallel.rank, parts["generator"], snapshot)
    return {name: _as(value, parameters[name]).clone() for name, value in parts["best"].items()}


def copy_into(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Set the parameters of ``model`` with these names, sharded or not."""
    with torch.no_grad():
        for name, value in values.items():
            parameter = model.get_parameter(name)
            parameter.copy_(_as(value, parameter))


def changing(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that training changes, by name."""
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def check_identity(ours: Mapping[str, Json], theirs: object, source: str) -> None:
    """Refuse a snapshot of another run; the message lists up to five settings or data that differ."""
    theirs = parsed(theirs, dict, f"{source}: identity")
    if differing := sorted(key for key in theirs.keys() | ours.keys() if theirs.get(key) != ours.get(key)):
        changes = "; ".join(f"{key} was {theirs.get(key)!r}, now {ours.get(key)!r}" for key in differing[:5])
        raise CheckpointError(f"{source} belongs to another run: {changes}. Resume with the same settings and data")


def _as(value: Tensor, like: Tensor) -> Tensor:
    """A whole tensor on the device of ``like``, sharded as ``like`` is."""
    if hasattr(like, "placements") and not hasattr(value, "placements"):
        from bertkit.training.trainer.sharding import part_of

        return part_of(value, like)
    return value.to(like.device)


def _restore_generators(rank: int, tensors: Mapping[str, Tensor], snapshot: Snapshot) -> None:
    others = snapshot.values.get("generators_of_other_ranks", [])
    if 0 < rank <= len(others):
        prefix = f"rank{rank}."
        own = {name.removeprefix(prefix): state for name, state in tensors.items() if name.startswith(prefix)}
        restore_generators(own, others[rank - 1])
        return
    restore_generators(tensors, snapshot.values["generators"])
    if rank > 0:  # unknown to the snapshot: its own stream, derived from that of rank 0
        seed_generators(int(torch.randint(2**62, ())) ^ rank)


def _load_optimizer(model: nn.Module, optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    by_name: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        name, _, kind = key.rpartition("/")
        by_name.setdefault(name, {})[kind] = tensor
    names = {id(p): name for name, p in _named_trained(model, optimizer)}
    trained = trained_parameters(optimizer)  # torch numbers parameters in the order of the groups
    state = {
        number: {kind: _as(value, p) if value.shape == p.shape else value for kind, value in by_name[name].items()}
        for number, (name, p) in enumerate((names[id(p)], p) for p in trained)
        if name in by_name
    }
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def trained_parameters(optimizer: Optimizer) -> list[nn.Parameter]:
    """What the optimizer updates, in the order of its groups."""
    return [p for group in optimizer.param_groups for p in group["params"]]


def _named_trained(model: nn.Module, optimizer: Optimizer) -> list[tuple[str, nn.Parameter]]:
    trained = {id(p) for p in trained_parameters(optimizer)}
    return [(name, p) for name, p in model.named_parameters() if id(p) in trained]
