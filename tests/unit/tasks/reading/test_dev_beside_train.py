"""A file of held-out rows beside one for training is read as the same two files of a folder, by every kind of task."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertkit.config.reading_settings import ReadingSettings
from bertkit.tasks.reading.given_rows import given_data
from bertkit.tasks.reading.splits import SPLIT_NAMES
from bertkit.tasks.run_rows import read_rows
from bertkit.tasks.workflow import workflow_of
from kind_runs import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind(kind: str, tmp_path: Path) -> None:
    given, folder = KINDS[kind], tmp_path / "data"
    given.write_data(folder)
    expected = read_rows(workflow_of(given.task_of(folder)), folder, ReadingSettings())
    (train,) = (path for path in folder.iterdir() if path.stem == "train")
    beside = given_data(train.rename(tmp_path / f"texts{train.suffix}"), folder / given.dev[0], SPLIT_NAMES)
    assert isinstance(beside, Path)
    found = read_rows(workflow_of(given.task_of(beside)), beside, ReadingSettings())
    assert not found.held_out
    assert (len(found.dev), found.hashes) == (given.dev[1], expected.hashes)
