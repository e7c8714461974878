"""Teachers, students and texts for the tests of distillation: tiny, and learned in seconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertkit.tasks import csv_task
from bertkit.training.distillation.distill_settings import DistillRecipe, Student, TaskDistillation
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.trainer.callbacks import Callback
from finetune_data import QUICK, labelled_texts, no_pictures, tiny_start, write_splits


class StopAt(Callback):
    """Kills a run after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, trainer: Any, record: Any) -> None:
        if record["step"] == self.step:
            raise KeyError("killed")


def make_teacher(folder: Path, *, seed: int = 0) -> Path:
    """A run that has learned the words of :func:`finetune_data.labelled_texts`; its data is in ``data``."""
    start = tiny_start(folder / "start", width=32)
    data = write_splits(folder / "data", labelled_texts(400, 1), labelled_texts(200, 2))
    config = FinetuneConfig(**{**QUICK, "epochs": 6, "seed": seed})
    with no_pictures():
        return finetune(csv_task(data / "train.csv"), data, start, folder / "teacher", config).folder


def small_data(folder: Path) -> tuple[Path, Path]:
    """24 labelled texts with a dev file, and 400 more without labels, a text per line."""
    data = write_splits(folder / "small", labelled_texts(24, 5), labelled_texts(200, 2))
    more = folder / "more.txt"
    more.write_text("\n".join(text for text, _ in labelled_texts(400, 9)) + "\n")
    return data, more


def task_recipe(student: str = "1x16", **training: Any) -> DistillRecipe:
    """Recipe task with settings for tiny models."""
    config = FinetuneConfig(**{**QUICK, "epochs": 4, **training})
    return DistillRecipe("test", "", TaskDistillation(), config, Student.parse(student))
