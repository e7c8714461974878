"""How much of a score may be lost, and when rows are too few to tell."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bertkit.checkpoints.int8_figures import DevScores
from bertkit.model.models import BertForQuestionAnswering
from bertkit.quantization.gate import read_dev
from bertkit.system.json_files import write_json
from bertkit.tasks.registry import get_task, task_to_dict
from finetune_data import tiny_start, write_heads_data


@pytest.mark.parametrize(
    ("quantized", "low", "high", "acceptable"),
    [
        (0.897, -0.002, -0.001, True),  # 0.3 points
        (0.896, -0.006, -0.001, False),  # 0.4, and not by chance
        (0.89, -0.03, 0.01, True),  # perhaps by chance
        (0.88, -0.05, 0.0, True),
        (0.87, -0.10, 0.04, False),  # too much, whatever the interval says
        (0.80, -0.25, 0.0, False),
        (0.95, 0.01, 0.09, True),
    ],
)
def test_a_loss_passes_if_it_is_small_or_perhaps_chance(
    quantized: float, low: float, high: float, acceptable: bool
) -> None:
    assert DevScores("accuracy", 0.90, quantized, low, high, rows=2000).acceptable() is acceptable
    of_100 = DevScores("f1", 90.0, 100 * quantized, 100 * low, 100 * high, rows=2000, point=1.0)
    assert of_100.acceptable() is acceptable


@pytest.mark.parametrize(
    ("low", "high", "rows", "too_few"),
    [(-0.001, 0.002, 2000, False), (-0.004, 0.004, 2000, True), (0.0, 0.0, 20, True), (0.0, 0.0, 1000, False)],
)
def test_few_rows_are_named(low: float, high: float, rows: int, too_few: bool) -> None:
    scores = DevScores("accuracy", 0.90, 0.90, low, high, rows=rows)
    assert (f"{rows:,} rows are too few to show a loss of 0.3 points" in str(scores)) is too_few


def test_a_point_is_a_hundredth_for_answers_as_well(tmp_path: Path) -> None:
    """Their scores go up to 1 like those of all kinds; the official ones, up to 100, are those of the script alone."""
    write_heads_data(tmp_path)
    folder = tiny_start(tmp_path / "model")
    torch.manual_seed(1)
    models = [BertForQuestionAnswering.from_pretrained(folder, new_head=True, seed=seed) for seed in (0, 1)]
    models[0].save_pretrained(folder)
    write_json(folder / "finetune.json", {"task": task_to_dict(get_task("squad")), "config": {}})
    scores = read_dev(folder, tmp_path / "squad", models[0]).compare(models[1])
    assert 0 <= scores.original <= 1
    assert scores.point == 0.01
