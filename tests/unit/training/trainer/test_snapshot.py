"""Checkpoints are whole or not there: damage is found, full disks and kills leave the one before intact."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from bertkit.errors import CheckpointError
from bertkit.training.trainer import snapshot
from bertkit.training.trainer.parallel import Parallel
from bertkit.training.trainer.snapshot import (
    MANIFEST,
    STATE,
    TENSORS,
    Snapshot,
    check,
    load_snapshot,
    newest_whole,
    remove_remains,
    save_snapshot,
    step_folders,
    step_name,
)
from forked_interpreter import Forked, run_forked
from training_helpers import ToyData, tiny_model, toy_trainer

SNAPSHOT = Snapshot({"a": torch.arange(6.0).view(2, 3), "step": torch.tensor(3.0)}, {"step": 3, "x": [1, 2.5, None]})


def test_round_trip(tmp_path: Path) -> None:
    folder = save_snapshot(tmp_path, step_name(3), SNAPSHOT)
    again = load_snapshot(folder)
    assert again.values == SNAPSHOT.values
    assert all(torch.equal(again.tensors[key], value) for key, value in SNAPSHOT.tensors.items())
    assert sorted(path.name for path in folder.iterdir()) == sorted([TENSORS, STATE, MANIFEST])


def test_nothing_in_it_is_a_pickle(tmp_path: Path) -> None:
    folder = save_snapshot(tmp_path, "step-00000001", SNAPSHOT)
    for path in folder.iterdir():
        data = path.read_bytes()
        assert not data.startswith(b"\x80")
        assert b"PK\x03\x04" not in data[:4]


def test_a_name_that_is_taken_is_not_overwritten(tmp_path: Path) -> None:
    names = [save_snapshot(tmp_path, step_name(7), SNAPSHOT).name for _ in range(3)]
    assert names == ["step-00000007", "step-00000007.1", "step-00000007.2"]
    assert [folder.name for folder in step_folders(tmp_path)] == names[::-1]
    assert newest_whole(tmp_path).path == tmp_path / names[2]


def test_newest_is_by_number_not_by_time_or_text(tmp_path: Path) -> None:
    for step in (100_000_000, 99_999_999, 5):
        save_snapshot(tmp_path, step_name(step), SNAPSHOT)
    assert newest_whole(tmp_path).path == tmp_path / "step-100000000"


def damage(folder: Path, kind: str) -> None:
    if kind == "flipped bit":
        data = bytearray((folder / TENSORS).read_bytes())
        data[-1] ^= 1
        (folder / TENSORS).write_bytes(data)
    elif kind == "cut short":
        os.truncate(folder / TENSORS, (folder / TENSORS).stat().st_size - 1)
    elif kind == "no manifest":
        (folder / MANIFEST).unlink()
    elif kind == "no tensors":
        (folder / TENSORS).unlink()
    elif kind == "changed state":
        (folder / STATE).write_text((folder / STATE).read_text().replace("2.5", "2.6"))
    elif kind == "manifest is not JSON":
        (folder / MANIFEST).write_text("{")
    elif kind == "other format":
        values = json.loads((folder / MANIFEST).read_text())
        (folder / MANIFEST).write_text(json.dumps({**values, "format_version": 99}))
    elif kind == "empty":
        shutil.rmtree(folder)
        folder.mkdir()


KINDS = [
    "flipped bit",
    "cut short",
    "no manifest",
    "no tensors",
    "changed state",
    "manifest is not JSON",
    "other format",
    "empty",
]


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_checkpoint_is_skipped_and_named(tmp_path: Path, kind: str) -> None:
    good = save_snapshot(tmp_path, step_name(1), SNAPSHOT)
    bad = save_snapshot(tmp_path, step_name(2), SNAPSHOT)
    assert check(bad) is None
    damage(bad, kind)
    found = newest_whole(tmp_path)
    assert found.path == good
    assert found.damaged == (bad,)
    assert len(found.skipped) == 1
    assert "step-00000002" in found.skipped[0]
    with pytest.raises(CheckpointError, match="step-00000002"):
        load_snapshot(bad)


def test_only_damaged_checkpoints_are_an_error_not_a_new_beginning(tmp_path: Path) -> None:
    damage(save_snapshot(tmp_path, step_name(1), SNAPSHOT), "cut short")
    with pytest.raises(CheckpointError, match=r"no checkpoint in .* can be used"):
        newest_whole(tmp_path)
    assert newest_whole(tmp_path / "nowhere").path is None


def test_remains_of_a_killed_write_are_ignored_and_removed(tmp_path: Path) -> None:
    good = save_snapshot(tmp_path, step_name(1), SNAPSHOT)
    remains = tmp_path / f".writing-{step_name(2)}-123"
    shutil.copytree(good, remains)
    assert newest_whole(tmp_path).path == good
    remove_remains(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [good.name]


def test_a_value_json_cannot_hold_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        save_snapshot(tmp_path, step_name(1), Snapshot({}, {"loss": float("nan")}))
    assert list(tmp_path.iterdir()) == []


# -------------------------------------------------------------------------------------------------- full disk


DISK_FULL = """
import resource, signal, sys, torch
from pathlib import Path
from bertkit.errors import ResourceError
from bertkit.training.trainer.snapshot import Snapshot, newest_whole, save_snapshot
folder = Path(sys.argv[1])
save_snapshot(folder, "step-00000001", Snapshot({"a": torch.ones(10)}, {}))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    save_snapshot(folder, "step-00000002", Snapshot({"a": torch.ones(1_000_000)}, {}))
except ResourceError as error:
    print(error)
print(newest_whole(folder).path.name, sorted(p.name for p in folder.iterdir()))
"""


@pytest.mark.slow
def test_a_disk_that_fills_up_while_writing(tmp_path: Path) -> None:
    """A limit on file sizes makes the system refuse the write in the middle, as a full disk does."""
    done = run_forked(DISK_FULL, str(tmp_path))
    assert "no room for checkpoint step-00000002" in done.stdout
    assert "step-00000001 ['step-00000001']" in done.stdout


# --------------------------------------------------------------------------------------------------- kill -9

WRITER = """
import sys, torch
from pathlib import Path
from bertkit.training.trainer.snapshot import Snapshot, save_snapshot, step_folders, step_name, remove_remains
import shutil
folder = Path(sys.argv[1])
remove_remains(folder)
first = max((int(p.name[5:13]) for p in step_folders(folder)), default=0) + 1
print("ready", flush=True)
for step in range(first, first + 100_000):
    save_snapshot(folder, step_name(step), Snapshot({"a": torch.full((200_000,), float(step))}, {"step": step}))
    for old in step_folders(folder)[2:]:
        shutil.rmtree(old, ignore_errors=True)
"""


def kill_and_look(folder: Path, delay_s: float) -> int:
    process = Forked(WRITER, str(folder), given="", env=None, cwd=".")
    while process.output() != "ready\n":
        assert process.is_running(), process.wait()
        time.sleep(0.01)
    time.sleep(delay_s)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait()[0] == -signal.SIGKILL
    found = newest_whole(folder)
    if found.path is None:
        return 0
    snapshot = load_snapshot(found.path)
    step = snapshot.values["step"]
    assert torch.equal(snapshot.tensors["a"], torch.full((200_000,), float(step)))
    # What is visible under its final name is whole: nothing is ever skipped but a folder that was being deleted.
    assert all("missing" in reason for reason in found.skipped)
    assert int(found.path.name[5:13]) == step
    return int(step)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_kill_nine_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    generator = random.Random(0)
    steps = [kill_and_look(tmp_path, 0.05 + 0.1 * generator.random()) for _ in range(2)]
    assert steps == sorted(steps)
    assert steps[-1] > 0


@pytest.mark.campaign
def test_kill_nine_campaign(tmp_path: Path) -> None:
    generator = random.Random(1)
    steps = [kill_and_look(tmp_path, 0.3 * generator.random()) for _ in range(100)]
    assert steps == sorted(steps)
    assert steps[-1] > 0


def test_a_checkpoint_that_rank_0_cannot_read_ends_the_other_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks in turn: what rank 0 sends, rank 1 gets."""
    sent: list[Any] = []

    class InTurn(Parallel):
        def from_first(self, value: Any) -> Any:
            if self.is_first:
                sent.append(value)
                return value
            return sent.pop(0)

    toy = toy_trainer(tiny_model(), ToyData(), num_steps=3, folder=tmp_path)
    toy.save()
    monkeypatch.setattr(snapshot, "load_file", lambda path: (_ for _ in ()).throw(OSError("unplugged")))
    for rank in (0, 1):
        trainer = toy_trainer(tiny_model(), ToyData(), num_steps=3, folder=tmp_path)
        trainer.parallel = InTurn(rank, 2)
        with pytest.raises(CheckpointError, match="unplugged"):
            trainer.resume()
    assert not sent
