"""Kinds of tasks with a teacher are found by their folders."""

from __future__ import annotations

import pytest

from bertkit.errors import ConfigError
from bertkit.tasks import get_task
from bertkit.tasks.taught_workflow import Lesson, taught_workflow
from bertkit.tasks.workflow import workflow_of


@pytest.mark.parametrize("name", ["sst2", "stsb", "squad", "swag"])
def test_a_student_reads_as_its_kind_does(name: str) -> None:
    task = get_task(name)
    taught = taught_workflow(task, Lesson(2.0, 0.7))
    assert isinstance(taught, type(workflow_of(task)))
    assert taught.task is task


@pytest.mark.parametrize("name", ["rerank", "summarize", "pairs", "sparse-pairs"])
def test_a_kind_without_such_a_module_cannot_be_taught(name: str) -> None:
    with pytest.raises(ConfigError, match=f"task {name} cannot be taught .* of kind text, span, token, choice$"):
        taught_workflow(get_task(name), Lesson(2.0, 0.7))
