"""``bertkit compare``: the scores of rows are those of the run, and changed answers are found."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from bertkit.errors import ConfigError
from bertkit.insight.run_comparison import compare_runs, mcnemar, paired_rows
from kind_runs import Made
from pipeline_helpers import Command

SCORED_BY_ROWS = ("texts", "labels by a bart", "tags", "choices", "answers", "answers or none")


def changed_copy(run: Path, folder: Path, change: Callable[[dict[str, Any], int], None]) -> Path:
    """A run with other predictions."""
    shutil.copytree(run, folder)
    file = folder / "predictions-dev.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for number, row in enumerate(rows):
        change(row, number)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.campaign
@pytest.mark.parametrize("name", SCORED_BY_ROWS)
def test_the_score_of_the_rows_is_that_of_the_run(name: str, kinds: Callable[[str], Made]) -> None:
    run = kinds(name).run
    found = compare_runs(run, run)
    metrics = json.loads((run / "metrics.json").read_text())
    assert found.scores == pytest.approx([metrics["scores"][metrics["main_metric"]]] * 2, abs=1e-6)
    assert found.difference == 0
    assert found.unpaired == (0, 0)
    assert found.num_rows == len((run / "predictions-dev.jsonl").read_text().splitlines())
    assert found.right is not None
    assert found.right.only_first == found.right.only_second == 0
    assert not found.settings
    assert "no difference can be told" in found.render()


def test_changed_answers_are_counted_and_listed(kinds: Callable[[str], Made], tmp_path: Path, command: Command) -> None:
    run = kinds("labels by a bart").run
    rows = [json.loads(line) for line in (run / "predictions-dev.jsonl").read_text().splitlines()]
    right = [row["gold"] == row["predicted"] for row in rows]

    def spoil(row: dict[str, Any], number: int) -> None:
        if number < len(rows) // 2:
            row["predicted"] = next(label for label in row["probabilities"] if label != row["gold"])

    other = changed_copy(run, tmp_path / "other", spoil)
    code, out, err = command("compare", run, other, "--json")
    assert code == 0, err
    found = json.loads(out)
    lost = sum(right[: len(rows) // 2])
    assert found["right"]["only_first"] == lost
    assert found["right"]["only_second"] == 0
    assert found["right"]["probability"] == pytest.approx(2 * 0.5**lost)
    assert [each["row"] for each in found["lost"]] == [place + 1 for place, yes in enumerate(right) if yes][:10]
    low, high = found["interval"]
    assert low < found["difference"] < high < 0
    assert "the first is better" in command("compare", run, other)[1]


def test_rows_of_one_run_alone_are_counted(kinds: Callable[[str], Made], tmp_path: Path) -> None:
    run = kinds("labels by a bart").run
    with pytest.raises(ConfigError, match="no predictions of 'test'"):
        compare_runs(run, run, "test")
    shared = changed_copy(run, tmp_path / "shared", lambda row, number: row.update(text="x") if number == 0 else None)
    found = compare_runs(run, shared)
    assert found.unpaired == (1, 1)
    assert "1 of the first alone, 1 of the second alone" in found.render()


def with_protocol(run: Path, folder: Path, **changed: Any) -> Path:
    """A copy of a run with other settings in its protocol."""
    shutil.copytree(run, folder)
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["protocol"].update(changed)
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


def test_settings_that_differ_are_told_apart(kinds: Callable[[str], Made], tmp_path: Path) -> None:
    """Parts of a setting each by itself, and values whole whose beginnings are the same."""
    run, same = kinds("labels by a bart").run, {"name": "model", "from_hub": False}
    long = "the same words at the beginning of both, "
    first = with_protocol(
        run,
        tmp_path / "first",
        start_checkpoint={**same, "sha256": "a1"},
        lora={"rank": 8, "alpha": 16, "dropout": {"rate": 0.1}},
        selection=long + "then one",
        seeds=[1, 2, 3, 4, 5, 6],
    )
    second = with_protocol(
        run,
        tmp_path / "second",
        start_checkpoint={**same, "sha256": "b2"},
        lora={"rank": 4, "alpha": 16, "dropout": {"rate": 0.2}},
        selection=long + "then another",
        seeds=[1, 2, 3, 4, 5, 7],
    )
    found = compare_runs(first, second)
    assert found.settings == {
        "selection": (long + "then one", long + "then another"),
        "seeds": ([1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 7]),
        "start_checkpoint sha256": ("a1", "b2"),
        "lora rank": (8, 4),
        "lora dropout rate": (0.1, 0.2),
    }
    said = found.render().partition("settings that differ (first, second):\n")[2]
    for line, values in zip(said.splitlines(), found.settings.values(), strict=True):
        assert str(values[0]) in line
        assert str(values[1]) in line
    assert not compare_runs(first, first).settings


@pytest.mark.campaign
def test_runs_of_different_kinds_are_refused(kinds: Callable[[str], Made]) -> None:
    with pytest.raises(ConfigError, match="one kind of task"):
        compare_runs(kinds("texts").run, kinds("tags").run)
    with pytest.raises(ConfigError, match="not scored row by row"):
        compare_runs(kinds("rerank").run, kinds("rerank").run)


@pytest.mark.parametrize("counts", [(0, 0), (1, 0), (3, 9), (40, 61), (500, 420)])
def test_mcnemar_is_the_exact_binomial_test(counts: tuple[int, int]) -> None:
    wanted = binomtest(counts[0], sum(counts)).pvalue if sum(counts) else 1.0
    assert mcnemar(*counts) == pytest.approx(wanted, rel=1e-9)


def test_equal_rows_are_paired_in_their_order() -> None:
    np.testing.assert_array_equal(paired_rows(["a", "b", "a", "c"], ["a", "a", "d", "b"]), [[0, 0], [1, 3], [2, 1]])
    assert paired_rows(["a"], ["b"]).shape == (0, 2)
