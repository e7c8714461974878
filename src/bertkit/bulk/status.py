"""How far a folder of parts is, read from its manifests by anyone at any time; and one file made of a finished one."""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bertkit.bulk.parts import merge_parts
from bertkit.bulk.plan import Plan
from bertkit.bulk.resume import finished
from bertkit.bulk.row_work import ERROR
from bertkit.bulk.state import State
from bertkit.errors import ConfigError, shorten
from bertkit.inference.row_cells import own_name
from bertkit.inference.row_files import claimed
from bertkit.system.console import clock


@dataclass(frozen=True)
class Status:
    """Of a run: its blocks that are done, under way, and at which a process died; its rows, errors and variants.

    other_variants: parts that another variant has computed than the run's, or than most.
    """

    folder: str
    command: str
    blocks: int
    done: int
    rows: int
    rows_planned: int
    errors: int
    under_way: list[str]
    died: list[str]
    variants: dict[str, int]
    other_variants: list[str]
    first_errors: list[dict[str, str]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    def render(self) -> str:
        """For people."""
        share = 100 * self.rows // max(1, self.rows_planned)
        lines = [
            f"{self.folder}: {self.command}, {self.done:,} of {self.blocks:,} blocks done ({share} %), {self.rows:,} "
            f"rows, {self.errors:,} without a result"
        ]
        lines += [f"  under way: {each}" for each in self.under_way]
        lines += [f"  a process died at {each}; the same command computes it again" for each in self.died]
        lines += [f"  {error['place']}: {error['error']}" for error in self.first_errors]
        if self.other_variants:
            counts = ", ".join(f"{name} ({count:,})" for name, count in self.variants.items())
            lines.append(f"  computed with different variants: {counts}; {shorten(self.other_variants)} differ")
        return "\n".join(lines)


def _open(folder: Path) -> tuple[State, Plan]:
    state = State(folder)
    plan = state.plan()
    if plan is None:
        raise ConfigError(
            f"{folder} is no folder of parts: 'bertkit predict FILE... --model RUN --out {folder.name}' makes one"
        )
    return state, plan


def status_of(folder: Path) -> Status:
    """The status of a run; ConfigError for a folder of something else."""
    state, plan = _open(folder)
    manifests = finished(plan, state)
    numbers = {key: number for number, key in enumerate(plan.keys)}
    marks = state.under_way(numbers.keys() - manifests.keys())
    variants = Counter(manifest.variant for manifest in manifests.values())
    usual = plan.work.variant or next(iter(variants), "")
    errors = [error for key in plan.keys if key in manifests for error in manifests[key].errors]
    return Status(
        folder=str(folder),
        command=plan.work.command,
        blocks=len(plan.blocks),
        done=len(manifests),
        rows=sum(manifest.rows for manifest in manifests.values()),
        rows_planned=plan.rows,
        errors=len(errors),
        under_way=[_told(plan, numbers[key], mark) for key, mark in marks.items() if not _is_dead(mark)],
        died=[_told(plan, numbers[key], mark) for key, mark in marks.items() if _is_dead(mark)],
        variants=dict(variants),
        other_variants=[manifest.part for manifest in manifests.values() if manifest.variant != usual],
        first_errors=errors[:5],
    )


def _told(plan: Plan, number: int, mark: Mapping[str, Any]) -> str:
    for_s = clock(time.time() - float(mark.get("since", 0)))
    return f"{plan.part(number)} by process {mark.get('pid')} on {mark.get('host')}, for {for_s}"


def _is_dead(mark: Mapping[str, Any]) -> bool:
    """Whether the process of a mark has ended; of another machine nobody here knows."""
    if mark.get("host") != socket.gethostname() or os.name == "nt":
        return False
    try:
        os.kill(int(mark["pid"]), 0)
    except ProcessLookupError:
        return True
    except (PermissionError, KeyError, ValueError):
        pass
    return False


def merge_folder(folder: Path, out: Path, *, excel: bool = False) -> int:
    """Make one file of a finished run, in the order of the input; returns the number of its rows.

    Raises:
        ConfigError: blocks are missing, or the file is there.
    """
    state, plan = _open(folder)
    manifests = finished(plan, state)
    missing = [plan.part(number) for number, key in enumerate(plan.keys) if key not in manifests]
    if missing:
        raise ConfigError(
            f"{folder} lacks {len(missing):,} of {len(plan.keys):,} blocks ({shorten(missing)}); run the command that "
            "made it again, and 'bertkit predict-status' to see how far it is"
        )
    without = None if any(manifest.errors for manifest in manifests.values()) else own_name(ERROR, plan.taken)
    with claimed(out):
        parts = [folder / manifests[key].part for key in plan.keys]
        merge_parts(parts, out, plan.taken, excel=excel, without=without)
    return sum(manifest.rows for manifest in manifests.values())
