"""Multiple choice, beyond what every kind of run shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertkit.tasks import get_task
from bertkit.tasks.choices.task import ChoiceExample
from bertkit.tasks.workflow import workflow_of
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from kind_runs import Made
from kinds_data import write_choices
from pipeline_helpers import Command

KIND = "choices"


def test_what_a_run_says_of_its_answers(made: Made) -> None:
    assert made.told()["baseline"]["chance"] == 0.5
    rows = made.rows()
    assert all(sum(row["probabilities"]) == pytest.approx(1) for row in rows)
    worst = json.loads((made.run / "errors-dev.jsonl").read_text().splitlines()[0])
    lowest = min(rows, key=lambda row: row["probabilities"][row["gold"]])
    assert worst["context"] == lowest["context"]


def test_text_to_adapt_to_does_not_tell_the_label() -> None:
    workflow = workflow_of(get_task("swag"))
    texts = [workflow.texts_of(ChoiceExample("He ran.", "She", ("sat", "slept"), label)) for label in (0, 1, None)]
    assert texts == [("He ran.",)] * 3


def test_dev_is_held_out_by_context(tmp_path: Path) -> None:
    from bertkit.tasks.run_rows import read_rows

    path = write_choices(tmp_path / "train.csv", 60, seed=3)
    rows = read_rows(workflow_of(get_task("swag")), path, FinetuneConfig(dev_share=0.3))
    assert rows.held_out
    assert not {row.context for row in rows.train} & {row.context for row in rows.dev}
    assert len(rows.train) + len(rows.dev) == 60


@pytest.mark.parametrize(
    ("task", "files", "options", "dev_rows"),
    [
        ("swag", "codah", "", 556),
        *(
            pytest.param(*case, marks=pytest.mark.campaign)
            for case in (
                ("codah", "codah", "", 556),
                ("swag", "arc/arc_easy", "--dev-share 0.3 --no-baseline", 548),
                ("swag", "swag_sample/sample.jsonl", "--dev-share 0.3 --no-baseline", 4),
            )
        ),
    ],
)
def test_the_command_on_real_files(
    task: str, files: str, options: str, dev_rows: int, start: Path, shared: Path, tmp_path: Path, command: Command
) -> None:
    where = ["--data", shared / "data" / files, "--model", start, "--out", tmp_path / "run", *options.split()]
    quick = "--epochs 1 --max-train-rows 16 --max-length 16 --device cpu --json -q".split()
    code, out, err = command("finetune", task, *where, *quick)
    assert code == 0, err
    told = json.loads(out)
    assert told["task"] == task
    assert 0 < told["scores"]["accuracy"] < 1 or dev_rows < 10
    assert told["protocol"]["data"]["dev_rows"] == dev_rows
