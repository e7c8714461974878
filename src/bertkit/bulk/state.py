"""What lies beside the parts of a run: its plan, a manifest for each finished block, and marks of those under way."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bertkit.bulk.plan import Plan, read_plan
from bertkit.errors import ConfigError
from bertkit.system.atomic_files import held_lock, make_folder, replace_file, try_lock

#: In the output folder; readers of data sets pass over names that begin so.
STATE = "_bertkit"
ERRORS = "_errors.jsonl"


@dataclass(frozen=True, slots=True)
class Manifest:
    """The commit of a block: with it the block is done. errors: ``{"place", "error"}`` of the rows without a result.

    variant: what computed it. size: of the part, in bytes.
    """

    key: str
    part: str
    size: int
    rows: int
    truncated: int
    empty: int
    variant: str
    host: str
    seconds: float
    errors: list[dict[str, str]] = field(default_factory=list)


class State:
    """The folder ``_bertkit`` of a run."""

    def __init__(self, out: Path) -> None:
        self.out, self.folder = out, out / STATE
        self.blocks, self.running = self.folder / "blocks", self.folder / "running"
        self.plan_path = self.folder / "plan.json"

    def make(self) -> None:
        """Create the folders; ResourceError where that is not allowed."""
        for folder in (self.out, self.folder, self.blocks, self.running):
            make_folder(folder)

    def plan(self) -> Plan | None:
        """The plan, if there is one."""
        return read_plan(self.plan_path) if self.plan_path.exists() else None

    def manifests(self, known: Mapping[str, Manifest] = {}) -> dict[str, Manifest]:
        """By key, of the blocks whose commits are there; those that are ``known`` are not read again.

        A damaged one counts as none.
        """
        found = {**known}
        with contextlib.suppress(FileNotFoundError), os.scandir(self.blocks) as entries:
            for entry in entries:
                if entry.name.endswith(".json") and entry.name[:-5] not in known:
                    with open(entry.path, "rb") as file, contextlib.suppress(ValueError, TypeError):
                        manifest = Manifest(**json.loads(file.read()))
                        found[manifest.key] = manifest
        return found

    def commit(self, manifest: Manifest) -> None:
        """Write a manifest, after its part is on disk."""
        path = self.blocks / f"{manifest.key}.json"
        replace_file(path, json.dumps(asdict(manifest)).encode(), path.with_name(f".{path.name}.{os.getpid()}.tmp"))

    def forget(self, key: str) -> None:
        """Remove the manifest of a block."""
        (self.blocks / f"{key}.json").unlink(missing_ok=True)

    def begin(self, key: str, deaths: int) -> None:
        """Mark a block as under way, by this process."""
        about = {"host": socket.gethostname(), "pid": os.getpid(), "deaths": deaths, "since": time.time()}
        (self.running / f"{key}.json").write_text(json.dumps(about), encoding="utf-8")

    def deaths(self) -> dict[str, int]:
        """Of each block at which a process was killed, how often, by its key."""
        return {key: int(mark.get("deaths", 0)) + 1 for key, mark in self.under_way().items()}

    def end(self, key: str) -> None:
        """Take the mark away."""
        (self.running / f"{key}.json").unlink(missing_ok=True)

    def under_way(self) -> dict[str, dict[str, Any]]:
        """The marks by key, those of killed processes among them."""
        found = {}
        with contextlib.suppress(FileNotFoundError):
            for path in self.running.glob("*.json"):
                with contextlib.suppress(ValueError, FileNotFoundError):
                    found[path.stem] = json.loads(path.read_text(encoding="utf-8"))
        return found

    @contextlib.contextmanager
    def driven(self, index: int, count: int) -> Iterator[None]:
        """Be the only driver of a shard, while no run has another number of shards; ConfigError otherwise."""
        busy = f"another process is writing {self.out}"
        mine = self.folder / f"shard-{index}-of-{count}.lock"
        for path in self.folder.glob("shard-*.lock"):
            if path != mine and not path.name.endswith(f"-of-{count}.lock") and _is_held(path):
                raise ConfigError(f"{busy} with another number of shards ({path.stem}); wait for it")
        shard = "" if count == 1 else f", as shard {index}/{count}"
        with held_lock(mine, f"{busy}{shard}; wait for it, or choose another name for the output"):
            yield


def _is_held(path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError), path.open("ab") as file:
        return not try_lock(file)
    return False
