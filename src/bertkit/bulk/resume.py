"""What of an earlier run is still good: its plan, and its finished blocks."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace

from bertkit.bulk.cuts import Size
from bertkit.bulk.inputs import InputFile
from bertkit.bulk.plan import Plan, Work
from bertkit.bulk.row_work import changed
from bertkit.bulk.state import Manifest, State
from bertkit.errors import ConfigError
from bertkit.system.atomic_files import remove_old_drafts


def new_or_same(
    old: Plan | None, work: Work, files: Sequence[InputFile], state: State, size: Size | None, *, refresh: bool
) -> Plan | None:
    """The old plan if it is still right; None if there is to be a new one.

    Raises:
        ConfigError: the run has finished blocks of another model, of other settings or other input, and nobody has
            asked for a ``refresh``.
    """
    if old is None:
        return None
    same_work = old.work.identity == work.identity and size in (None, old.size)
    same_variant = work.variant == old.work.variant
    same_names = [file.name for file in old.files] == [file.name for file in files]
    if same_work and same_variant and old.files == list(files):
        return old
    if refresh or not state.manifests():
        return None
    if not (same_work and same_names):
        raise ConfigError(
            f"{state.out} was started with another model, other settings or another input; remove it, choose another "
            "--out, or compute what has changed with --refresh"
        )
    if not same_variant:
        raise ConfigError(
            f"{state.out} was computed with {old.work.variant or 'several processors'}, and now it is to be "
            f"{work.variant or 'any'}: the last bits of results would differ. Leave --cpu and --mixed-hardware as "
            "they were"
        )
    raise changed(next(file.name for file, now in zip(old.files, files, strict=True) if file != now))


def finished(plan: Plan, state: State, numbers: Sequence[int] | None = None) -> dict[str, Manifest]:
    """The manifests of blocks that are done, by key, in their order: whose part has its name and its size.

    numbers: of the blocks that are looked at; None: all.
    """
    found = {}
    for number in range(len(plan.blocks)) if numbers is None else numbers:
        manifest = state.manifest(plan.keys[number])
        if manifest is not None and manifest.part == plan.part(number) and _is_whole(manifest, state):
            found[manifest.key] = manifest
    return found


def _is_whole(manifest: Manifest, state: State) -> bool:
    try:
        return os.stat(f"{state.out}/{manifest.part}").st_size == manifest.size
    except FileNotFoundError:
        return False


def settle(plan: Plan, state: State) -> dict[str, Manifest]:
    """Give parts of blocks that are now others the numbers of these, and remove what the plan does not have.

    No step loses a part: one is set aside under a name of its own before another takes its place. Returns what
    :func:`finished` would.
    """
    numbers = {key: number for number, key in enumerate(plan.keys)}
    done, aside = dict[str, Manifest](), dict[str, Manifest]()
    for key, manifest in state.manifests().items():
        if key not in numbers or not _is_whole(manifest, state):
            state.forget(key)
        elif manifest.part == plan.part(numbers[key]):
            done[key] = manifest
        else:
            aside[key] = _moved(manifest, f".moved-{key}{plan.work.suffix}", state)
    done |= {key: _moved(manifest, plan.part(numbers[key]), state) for key, manifest in aside.items()}
    wanted = {plan.part(number) for number in range(len(plan.blocks))}
    for name in os.listdir(state.out):
        if name.startswith(("part-", ".moved-")) and name not in wanted and not name.endswith(".tmp"):
            (state.out / name).unlink(missing_ok=True)
    return {key: done[key] for key in plan.keys if key in done}


def _moved(manifest: Manifest, part: str, state: State) -> Manifest:
    (state.out / manifest.part).replace(state.out / part)
    moved = replace(manifest, part=part)
    state.commit(moved)
    return moved


def remove_drafts(state: State, parts: Collection[str]) -> None:
    """Remove drafts of these parts, whose writers were killed; other shards may be writing theirs elsewhere."""
    for draft in state.out.glob(".part-*.tmp"):
        name = ".".join(draft.name.split(".")[1:3])
        if name in parts:
            remove_old_drafts(state.out / name)
