"""What lies beside the parts of a run: its plan, a manifest for each finished block, and marks of those under way."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bertkit.bulk.plan import Plan, read_plan
from bertkit.errors import ConfigError
from bertkit.system.atomic_files import held_lock, make_folder, replace_file, try_lock

#: In the output folder; readers of data sets pass over names that begin so.
STATE = "_bertkit"


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

    def errors(self, index: int = 1, count: int = 1) -> Path:
        """The file of rows without a result, of a shard."""
        return self.out / ("_errors.jsonl" if count == 1 else f"_errors-{index}-of-{count}.jsonl")

    def make(self) -> None:
        """Create the folders; ResourceError where that is not allowed."""
        for folder in (self.out, self.folder, self.blocks, self.running):
            make_folder(folder)

    def plan(self) -> Plan | None:
        """The plan, if there is one."""
        return read_plan(self.plan_path) if self.plan_path.exists() else None

    def manifests(self) -> dict[str, Manifest]:
        """By key, of the blocks whose commits are there; a damaged one counts as none."""
        with contextlib.suppress(FileNotFoundError):
            keys = [name[:-5] for name in os.listdir(self.blocks) if name.endswith(".json")]
            return {key: manifest for key in keys if (manifest := self.manifest(key)) is not None}
        return {}

    def manifest(self, key: str) -> Manifest | None:
        """That of a block, if its commit is there and whole."""
        with (
            contextlib.suppress(FileNotFoundError, ValueError, TypeError),
            open(f"{self.blocks}/{key}.json", "rb") as file,
        ):
            return Manifest(**json.loads(file.read()))
        return None

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

    def deaths(self, keys: Collection[str]) -> dict[str, int]:
        """Of each of these blocks at which a process was killed, how often, by its key."""
        return {key: int(mark.get("deaths", 0)) + 1 for key, mark in self.under_way(keys).items()}

    def end(self, key: str) -> None:
        """Take the mark away."""
        (self.running / f"{key}.json").unlink(missing_ok=True)

    def under_way(self, keys: Collection[str]) -> dict[str, dict[str, Any]]:
        """The marks of these blocks by key, those of killed processes among them."""
        found = {}
        with contextlib.suppress(FileNotFoundError):
            for path in self.running.glob("*.json"):
                if path.stem in keys:
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
