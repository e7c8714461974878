"""Open a run folder, or any checkpoint with the head of a kind of task, and answer with it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertkit.checkpoints.huggingface import is_int8
from bertkit.config.any_config import AnyConfig, read_any_config
from bertkit.config.config_file import checkpoint_folder, config_path
from bertkit.config.decision import read_decision
from bertkit.config.reading_settings import ReadingSettings
from bertkit.engine.backend import Precision
from bertkit.engine.export_folder import is_export
from bertkit.engine.rows import QUESTIONS, TEXTS, ItemT, draw_windows
from bertkit.errors import ConfigError, InputError
from bertkit.inference.run_files import METRICS, SETTINGS, read_facts, read_settings, read_task
from bertkit.system.console import quiet
from bertkit.system.device import Device
from bertkit.system.json_files import parsed
from bertkit.system.model_sources import resolve
from bertkit.tasks.answering import ColumnType, Predicted
from bertkit.tasks.examples import Example
from bertkit.tasks.own_files import Finished
from bertkit.tasks.reading.given_rows import Given
from bertkit.tasks.registry import Task
from bertkit.tasks.task_settings import TaskSettings
from bertkit.tasks.text.task import TextTask
from bertkit.tasks.workflow import AnyWorkflow, workflow_of
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.features import Text, Truncation
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer


@dataclass(frozen=True, slots=True)
class Run:
    """A loaded run folder, or any checkpoint with the head of a kind of task.

    workflow: of the kind; its task is the run's, where that is known.
    config: how the run read its data, ``max_length`` as in training.
    settings: the run's ``finetune.json``; empty for a checkpoint that bertkit did not train.
    decision: what was chosen on dev when it was trained.
    """

    path: Path
    workflow: AnyWorkflow
    engine: Any
    tokenizer: PreTrainedTokenizer
    config: ReadingSettings
    shape: AnyConfig
    settings: dict[str, Any] = field(default_factory=dict)
    decision: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> Any:
        """The model object; InputError for an exported model, which has none."""
        return self.engine.model

    @property
    def task(self) -> Any:
        """The task it was fine-tuned on; None for a checkpoint that bertkit did not train."""
        return self.workflow.task if self.settings else None

    @property
    def max_length(self) -> int:
        """Tokens of the longest input."""
        assert self.config.max_length is not None
        return self.config.max_length

    def answer_columns(self) -> dict[str, ColumnType]:
        """The columns of :meth:`answers` in a table, beside the input's."""
        return self.workflow.answer_columns(self.shape)

    def learned_from(self, data: str | Path) -> bool:
        """Whether it was trained on these files, as far as it says what on."""
        return _learned_from(self.settings, data)

    def answers(
        self, examples: Sequence[Any], *, label: str = "predicting", truncation: Truncation = "longest_first"
    ) -> list[dict[str, Any]]:
        """What is answered to each example; no answer depends on the others. ``truncation``: if not as in training."""
        config = (
            self.config if truncation == "longest_first" else self.config.model_copy(update={"long_texts": truncation})
        )
        encoded = self.workflow.encode(examples, self.tokenizer, config, labelled=False)
        outputs = self.workflow.outputs(self.engine, encoded, label=label)
        return self.workflow.decode(Predicted(examples, encoded, outputs, self.decision), self.shape)

    def answered(
        self,
        items: Iterable[ItemT],
        example_of: Callable[[ItemT], Any] = lambda item: item,
        truncation: Truncation = "longest_first",
    ) -> Iterator[tuple[list[ItemT], list[dict[str, Any]]]]:
        """The items window by window, as they are drawn, with the answer to the example that is made of each."""

        def weight(item: ItemT) -> int:
            return sum(map(len, self.workflow.texts_of(example_of(item))))

        for window in draw_windows(items, TEXTS if self.workflow.reads_texts else QUESTIONS, weight=weight):
            with quiet():
                answers = self.answers(list(map(example_of, window)), truncation=truncation)
            yield window, answers


def open_run(
    run: str | Path,
    task: Task | None = None,
    *,
    device: Device = None,
    revision: str | None = None,
    precision: Precision | None = None,
    threads: int | None = None,
) -> Run:
    """Load a run folder of any kind of task, or a checkpoint (also of the Hub) that has the head for one.

    ``task`` says what a checkpoint is that bertkit did not train; None means a sequence classifier. ``precision`` None
    means fp32, or 8 bits for a model that is in 8 bits, and for an export its own: what is scored is the model as it is
    saved.
    """
    path = resolve(run, revision=revision)
    folder = checkpoint_folder(path)
    settings = read_settings(folder)
    known = read_task(folder) or task or TextTask.of_model(read_any_config(config_path(path)))
    workflow = workflow_of(known)
    shape = workflow.read_shape(path)
    return Run(
        path=folder,
        workflow=workflow,
        engine=workflow.open_engine(
            path,
            device="cpu" if device is None else device,
            precision=precision or ("auto" if is_export(folder) else "int8" if is_int8(folder) else "fp32"),
            threads=threads,
        ),
        tokenizer=AutoTokenizer.from_pretrained(folder),
        config=_reading(folder, settings, workflow, shape),
        shape=shape,
        settings=settings,
        decision=read_decision(folder),
    )


def _reading(folder: Path, settings: Mapping[str, Any], workflow: AnyWorkflow, shape: Any) -> ReadingSettings:
    """How a run read its data, ``max_length`` as in training; the other settings say how it was trained."""
    saved = {name: value for name, value in settings.get("config", {}).items() if name in TaskSettings.model_fields}
    config = workflow.settings_for(folder, parsed(saved, TaskSettings, str(folder / SETTINGS)))
    longest = shape.max_input_length
    if settings and (folder / METRICS).exists():  # of another trainer it says other things
        said = {"max_length": read_facts(folder).get("max_length")}
        longest = parsed(said, ReadingSettings, str(folder / METRICS)).max_length or longest
    elif settings or not workflow.reads_texts:
        longest = config.max_length or min(workflow.default_max_length, longest)
    return config.model_copy(update={"max_length": longest})


def how_to_read(folder: Path) -> tuple[AnyWorkflow, ReadingSettings] | None:
    """The workflow of a run folder's task, and how it reads; None for a checkpoint that bertkit did not train."""
    task = read_task(folder)
    if task is None:
        return None
    workflow = workflow_of(task)
    return workflow, _reading(folder, read_settings(folder), workflow, workflow.read_shape(folder))


def settings_for_use(folder: Path) -> dict[str, Any]:
    """Of a run folder what :func:`open_run` needs beside the model: the task, and how it reads. Empty for others."""
    found = how_to_read(folder)
    if found is None:
        return {}
    return {"task": read_settings(folder)["task"], "config": found[1].model_dump(exclude_defaults=True)}


def load_run(run: str | Path, *, device: Device = None, revision: str | None = None) -> Run:
    """:func:`open_run` for prediction; ConfigError for a run of a kind of task whose input is no text or pair."""
    loaded = open_run(run, device=device, revision=revision)
    if not loaded.workflow.reads_texts:
        raise ConfigError(
            f"{loaded.path} is a run of task {loaded.workflow.task.name}, whose input is not one text or a pair; "
            f"use predict_file, or the pipeline {loaded.workflow.card().pipeline!r}"
        )
    return loaded


def finished(run: str | Path, data: str | Path, *, revision: str | None = None) -> Finished:
    """What the task of some files depends on of a run folder or another checkpoint."""
    path = resolve(run, revision=revision)
    folder = checkpoint_folder(path)
    return Finished(path, read_task(folder), _learned_from(read_settings(folder), data))


def _learned_from(settings: Mapping[str, Any], data: str | Path) -> bool:
    if isinstance(data, Given):  # no name says which rows it has
        return False
    return "data" in settings and os.path.realpath(settings["data"]) == os.path.realpath(data)


def predict_run(
    run: str | Path | Run,
    texts: Iterable[str] | Iterable[tuple[str, str]],
    *,
    truncation: Truncation = "longest_first",
    device: Device = None,
) -> Iterator[dict[str, Any]]:
    """Predict for any number of texts or pairs, lazily and in their order; drawn some thousand at a time.

    ``truncation`` says how a text longer than in training is cut, if not as there; ``"error"`` refuses it. A text gives
    ``text``, ``text_pair`` (pairs), ``predicted`` (label name, or number), ``probabilities`` (label name to
    probability), ``truncated``. A text of nothing but white space has no label, as in training: ``predicted`` and the
    probabilities are None, and ``empty`` is true.
    """
    if isinstance(texts, str):
        raise InputError("texts must be a list or another iterable of texts, got one string: put it in a list")
    loaded = run if isinstance(run, Run) else load_run(run, device=device)
    for _, answers in loaded.answered(_checked(texts), lambda text: Example(*text), truncation):
        yield from answers


def _checked(rows: Iterable[Any]) -> Iterator[Text]:
    """Texts or pairs in one form; all must be of the kind of the first."""
    kinds = ("a text or a pair of texts", "a text, as the first was", "a pair of texts, as the first was")
    first = 0
    for number, row in enumerate(rows):
        parts = row if isinstance(row, tuple | list) and len(row) == 2 else [row]
        if not all(isinstance(part, str) for part in parts) or first not in (0, len(parts)):
            raise InputError(f"text {number} (counted from 0): expected {kinds[first]}, got {row!r:.80}")
        first = len(parts)
        yield parts[0], parts[1] if first == 2 else None
