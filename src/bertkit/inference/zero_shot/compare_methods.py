"""How well models do that saw no labelled text, beside what a simple one learns from the labels."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.errors import (
    BertkitError,
    CheckpointError,
    ConfigError,
    DataError,
    InputError,
    counted,
    did_you_mean,
    shorten,
)
from bertkit.inference.open_pipeline import METHODS, ZERO_SHOT, infer_task
from bertkit.inference.pipelines import pipeline
from bertkit.inference.zero_shot.candidate_labels import CandidateLabels
from bertkit.metrics.intervals import Sets, interval_text
from bertkit.metrics.scores import METRICS
from bertkit.ragged import Ints
from bertkit.system.console import aligned, say
from bertkit.system.json_files import printable
from bertkit.system.model_sources import resolve
from bertkit.tasks.examples import SPLITS, Example, Examples, Split
from bertkit.tasks.hold_out import deal
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.run_rows import sets_of
from bertkit.tasks.text.baseline import tfidf_predictions
from bertkit.tasks.text.task import TextTask
from bertkit.tasks.text.workflow import TextWorkflow

SCORES = ("accuracy", "macro_f1")
#: Parts of a file that TF-IDF is trained without, one after the other, where there is no training file.
PARTS = 5
#: Characters of a model's name, from its end.
MODEL_WIDTH = 40


@dataclass(frozen=True, slots=True)
class MethodScores:
    """What one method reached, one of :data:`bertkit.inference.open_pipeline.METHODS`, ``majority`` or ``tf-idf``.

    intervals: 95 % of the values when examples are drawn with replacement. seconds: for all rows, without opening the
        model. truncated: share of the texts that were cut.
    """

    method: str
    model: str
    scores: dict[str, float]
    intervals: dict[str, list[float] | None]
    seconds: float
    truncated: float = 0.0


@dataclass(frozen=True, slots=True)
class Comparison:
    """Methods on the same rows; ``labels`` has the words that stood for each label, ``notes`` what was left out."""

    task: str
    file: str
    num_rows: int
    labels: dict[str, list[str]]
    methods: list[MethodScores]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    def render(self) -> str:
        """A table for people."""
        rows = [["method", *(cell for name in SCORES for cell in (name, "95 % interval")), "seconds", "model"]]
        for found in self.methods:
            cells = [found.method]
            for name in SCORES:
                cells += [f"{found.scores[name]:.4f}", interval_text(found.intervals[name])]
            rows.append([*cells, f"{found.seconds:.1f}", found.model])
        rows_and_labels = f"({counted(self.num_rows, 'row')}), {counted(len(self.labels), 'label')}"
        head = f"{self.task}, {self.file} {rows_and_labels} without training"
        notes = [f"  note: {note}" for note in self.notes]
        return "\n".join([head, *(f"  {line}" for line in aligned(rows)), *notes])


def compare_methods(
    task: TextTask,
    data: str | Path,
    models: Sequence[str | Path],
    labels: CandidateLabels,
    split: str | None = None,
    *,
    templates: Sequence[str] = (),
    device: str | None = None,
    on_error: OnError = "raise",
) -> Comparison:
    """Score every zero-shot method that the models have, on labelled texts.

    Beside them stand two that learn from labels: always the most frequent label, and TF-IDF with a linear model. They
    are trained on the train file; where there is none, for each of :data:`PARTS` parts of the rows on the others, equal
    texts together.

    models: each is used in every way its head allows: any as an encoder.
    split: train, dev or test; None: dev of a folder, all of a file.
    templates: in place of a method's own: one with ``{}``, and one with ``{text}`` and ``{mask}``.
    """
    labels = _in_order(labels, task)
    chosen = _templates(templates)
    workflow = TextWorkflow(task)
    there = workflow.splits(data)
    name = _split_of(split, there)
    rows = workflow.read(data, name, on_error=on_error)
    if bad := rows.bad:
        say(f"left out {counted(len(bad), 'bad row')}; the first: {bad[0].message}")
    if not workflow.has_labels(rows):
        raise DataError(f"{rows.path} has no labels, so there is nothing to score")
    right = task.label_array([row.label for row in rows]).astype(np.int64)
    texts, found = [row.text for row in rows], []
    sets, faults = sets_of(workflow, rows), dict[str, BertkitError]()
    for model in models:
        for method in _methods_of(resolve(model)):
            try:
                found.append(_score(texts, right, labels, model, method, chosen, device, sets))
            except (InputError, CheckpointError) as error:  # a word that is no token, a head without entailment
                faults[f"{method} of {model}"] = error
    if not found:
        raise next(iter(faults.values()))
    notes = [f"{what} is left out: {error}" for what, error in faults.items()]
    train = workflow.read(data, "train", on_error=on_error) if "train" in there and name != "train" else None
    found += _baselines(task, rows, right, train, notes, sets)
    file = "" if rows.path is None else rows.path.name
    words = {label: list(given) for label, given in zip(labels.names, labels.words, strict=True)}
    return Comparison(task.name, file, len(rows), words, found, notes)


def _in_order(labels: CandidateLabels, task: TextTask) -> CandidateLabels:
    """The labels in the order of the task's, which must be the same ones."""
    known = task.labels_of_single_texts("labels without training")
    words = dict(zip(labels.names, labels.words, strict=True))
    for name in words:
        if name not in known:
            near = did_you_mean(name, known)
            raise ConfigError(f"{name!r} is no label of task {task.name}{near}; it has {shorten(known, limit=12)}")
    absent = [name for name in known if name not in words]
    if absent:
        raise ConfigError(f"task {task.name} also has the labels {shorten(absent)}; name all of them")
    return CandidateLabels(known, tuple(words[name] for name in known))


def _split_of(given: str | None, there: Mapping[Split, Path]) -> Split:
    if given is None:
        return "dev" if "dev" in there else next(iter(there))
    for split in SPLITS:
        if split == given:
            return split
    raise ConfigError(f"unknown split {given!r}: use {', '.join(SPLITS)}")


def _templates(given: Sequence[str]) -> dict[bool, str]:
    """Whether it is a pattern -> the template."""
    found: dict[bool, str] = {}
    for template in given:
        is_pattern = "{mask}" in template
        if is_pattern in found:
            raise ConfigError(
                f"two templates of a kind, {found[is_pattern]!r} and {template!r}; give one with {{}} "
                "and perhaps one with {text} and {mask}"
            )
        found[is_pattern] = template
    return found


def _methods_of(path: Path) -> Iterator[str]:
    """What the head of a model allows; any model has vectors."""
    try:
        head = infer_task(path)
    except BertkitError:
        head = ""
    for method, (_, needed) in METHODS.items():
        if method == "embedding" or needed == head:
            yield method


def _score(
    texts: Sequence[str],
    right: Ints,
    labels: CandidateLabels,
    model: str | Path,
    method: str,
    templates: Mapping[bool, str],
    device: str | None,
    sets: Sets,
) -> MethodScores:
    pipe = pipeline(ZERO_SHOT, model=model, method=method, device=device)
    template = templates.get(method == "pattern")
    options = {} if template is None else {"hypothesis_template": template}
    words = dict(zip(labels.names, labels.words, strict=True))
    started = time.perf_counter()
    answers = pipe(list(texts), words, truncation=True, **options)
    seconds = time.perf_counter() - started
    number = {name: place for place, name in enumerate(labels.names)}
    predicted = np.array([number[answer["labels"][0]] for answer in answers], dtype=np.int64)
    cut = float(np.mean([answer["truncated"] for answer in answers]))
    name = printable(model)
    shown = name if len(name) <= MODEL_WIDTH else f"...{name[3 - MODEL_WIDTH :]}"
    return _scored(method, shown, predicted, right, seconds, sets, round(cut, 6))


def _scored(
    method: str, model: str, predicted: Ints, right: Ints, seconds: float, sets: Sets, truncated: float = 0.0
) -> MethodScores:
    scores = {name: METRICS[name](predicted, right) for name in SCORES}
    drawn = {name: [METRICS[name](predicted[draw], right[draw]) for draw in sets.draws] for name in SCORES}
    intervals = {name: sets.interval(drawn[name], (0.0, 1.0) if name == "accuracy" else None) for name in SCORES}
    return MethodScores(method, model, scores, intervals, round(seconds, 3), truncated)


def _baselines(
    task: TextTask, rows: Examples[Example], right: Ints, train: Examples[Example] | None, notes: list[str], sets: Sets
) -> list[MethodScores]:
    """Majority and TF-IDF, trained on a file of their own or on the other parts of the rows."""
    if train is not None:
        how, halves = f"trained on {counted(len(train), 'labelled row')}", [(list(train), np.arange(len(rows)))]
    else:
        part, how = np.array(deal(rows, PARTS, seed=0)), f"trained on the other {PARTS - 1} of {PARTS} parts"
        mine = [np.flatnonzero(part == number) for number in np.unique(part)]
        halves = [([rows[row] for row in np.flatnonzero(part != part[held[0]])], held) for held in mine]
    majority, linear = np.zeros_like(right), np.zeros_like(right)
    started, fault = time.perf_counter(), ""
    for learned, held in halves:
        labels = task.label_array([row.label for row in learned]).astype(np.int64)
        majority[held] = np.bincount(labels).argmax() if len(labels) else 0
        try:
            linear[held] = tfidf_predictions(learned, [rows[row] for row in held], task)[0]
        except DataError as error:
            fault = str(error)
    seconds = time.perf_counter() - started
    found = [_scored("majority", f"the most frequent label, {how}", majority, right, 0.0, sets)]
    if fault:
        notes.append(f"tf-idf is left out: {fault}")
        return found
    return [*found, _scored("tf-idf", f"TF-IDF and logistic regression, {how}", linear, right, seconds, sets)]
