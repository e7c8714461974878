"""Use a run folder: score it on labelled data, predict for texts or for a whole file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from bertkit.checkpoints.huggingface import config_path
from bertkit.config import BertConfig
from bertkit.console import quiet, say
from bertkit.errors import ConfigError, DataError, InputError
from bertkit.features import Truncation, featurize, featurize_texts
from bertkit.files import write_atomically
from bertkit.model.bert import BertForSequenceClassification
from bertkit.sources import resolve
from bertkit.tasks import Examples, TextTask, get_task, load_split, splits_of
from bertkit.tasks.duplicates import carve
from bertkit.tasks.rows import OnError
from bertkit.tokenization import BertTokenizer
from bertkit.training.data import examples_hash
from bertkit.training.predictions import prediction_rows, to_jsonl, with_examples, with_texts
from bertkit.training.protocol import hardware, model_hash, versions
from bertkit.training.runfolder import METRICS, SETTINGS, read_json, write_json
from bertkit.training.scoring import predict_logits, score_logits
from bertkit.training.settings import LONG_TEXT_TASKS, FinetuneConfig

T = TypeVar("T")

#: Texts that are encoded and sorted by length together; what is in memory while a file of any size is predicted.
WINDOW = 2048


@dataclass(frozen=True, slots=True)
class Classifier:
    """A loaded run folder, or any checkpoint with a sequence classifier.

    settings: the run's ``finetune.json``; empty for a checkpoint that bertkit did not train.
    max_length: where texts are cut, as in training.
    """

    path: Path
    model: BertForSequenceClassification
    tokenizer: BertTokenizer
    max_length: int
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def task(self) -> TextTask | None:
        """The task it was fine-tuned on, where that is known."""
        return TextTask.from_dict(self.settings["task"]) if self.settings else None

    def predict(
        self, texts: Sequence[str], pairs: Sequence[str] | None, truncation: Truncation = "longest_first"
    ) -> list[dict[str, Any]]:
        """One dictionary a text; see :func:`predict_run`."""
        features = featurize_texts(texts, pairs, self.tokenizer, max_length=self.max_length, truncation=truncation)
        with quiet():
            logits = predict_logits(self.model, features)
        rows = prediction_rows(logits, self.model.config, features.truncated)
        return with_texts(rows, texts, pairs)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores on one split, with their protocol; ``predictions`` has a row for each row of the split."""

    task: str
    split: str
    scores: dict[str, float]
    num_rows: int
    protocol: dict[str, Any]
    predictions: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """Without the predictions: the content of ``evaluation-SPLIT.json``."""
        return {
            "task": self.task,
            "split": self.split,
            "scores": self.scores,
            "num_rows": self.num_rows,
            "protocol": self.protocol,
        }

    def render(self) -> str:
        """Two lines a person can read."""
        told = ", ".join(f"{name} {value:.4f}" for name, value in self.scores.items())
        return f"{self.task}, {self.split} ({self.num_rows:,} rows)\n  {told}"


def load_run(run: str | Path, *, device: str | None = None, revision: str | None = None) -> Classifier:
    """Load a run folder for prediction.

    Raises:
        CheckpointError: no model there, or one without a sequence classifier.
    """
    path = resolve(run, revision=revision)
    folder = path if path.is_dir() else path.parent
    shape = BertConfig.from_json_file(config_path(path))
    settings = read_json(folder / SETTINGS) if (folder / SETTINGS).exists() else {}
    model = BertForSequenceClassification.from_pretrained(path, device=device)
    tokenizer = BertTokenizer.from_pretrained(folder)
    max_length = shape.max_position_embeddings
    if (folder / METRICS).exists():
        max_length = read_json(folder / METRICS)["protocol"]["data"]["max_length"]
    elif settings:
        chosen = FinetuneConfig(**settings["config"]).max_length
        max_length = chosen or min(LONG_TEXT_TASKS.get(settings["task"]["name"], 128), max_length)
    return Classifier(folder, model, tokenizer, max_length, settings)


def evaluate_run(
    task: str | TextTask,
    data: str | Path,
    run: str | Path,
    split: str = "dev",
    *,
    device: str | None = None,
    revision: str | None = None,
    write: bool = True,
    on_error: OnError = "raise",
) -> Evaluation:
    """Score a run folder (or any classifier checkpoint) on a labelled split.

    Args:
        task: a name or a task; its labels must be the model's, in the same order.
        data: as in :func:`bertkit.training.finetune.finetune`.
        run: the folder.
        split: train, dev or test. Where the task has no dev file and the run held dev out of train, "dev" is those
            same rows again.
        device: ``"cpu"`` (default) or ``"cuda"``.
        revision: branch, tag or commit of a Hub checkpoint.
        write: keep ``evaluation-SPLIT.json`` and ``predictions-SPLIT.jsonl`` in the folder.
        on_error: "skip" leaves bad rows out and says how many.

    Raises:
        DataError: no such split, or one without labels.
        ConfigError: the model's labels are not the task's.
    """
    task = get_task(task) if isinstance(task, str) else task
    classifier = load_run(run, device=device, revision=revision)
    _check_labels(task, classifier)
    examples = _split_of(task, data, split, classifier, on_error)
    if examples.skipped:
        say(f"left out {len(examples.skipped):,} bad rows; the first: {examples.skipped[0].message}")
    if examples[0].label is None:
        raise DataError(f"{examples.path} has no labels, so there is nothing to score; use predict for its rows")
    features = featurize(examples, classifier.tokenizer, classifier.max_length)
    assert features.labels is not None
    logits = predict_logits(classifier.model, features)
    rows = prediction_rows(logits, classifier.model.config, features.truncated)
    result = Evaluation(
        task=task.name,
        split=split,
        scores=score_logits(task, logits, features.labels),
        num_rows=len(examples),
        protocol={
            "split": split,
            "metrics": list(task.metrics),
            "file": "" if examples.path is None else examples.path.name,
            "data_sha256": examples_hash(examples),
            "bad_rows_left_out": len(examples.skipped),
            "model_sha256": model_hash(classifier.path),
            "max_length": classifier.max_length,
            "truncated_share": round(float(features.truncated.mean()), 6),
            "versions": versions(),
            "hardware": hardware(device),
        },
        predictions=with_examples(rows, examples, task.id2label),
    )
    if write and classifier.settings:  # never into somebody else's checkpoint or the Hub cache
        write_atomically(classifier.path / f"predictions-{split}.jsonl", to_jsonl(result.predictions))
        write_json(classifier.path / f"evaluation-{split}.json", result.to_dict())
    return result


def predict_run(
    run: str | Path | Classifier,
    texts: Iterable[str] | Iterable[tuple[str, str]],
    *,
    truncation: Truncation = "longest_first",
    device: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Predict for any number of texts, lazily and in their order.

    Args:
        run: a run folder, or one that :func:`load_run` gave.
        texts: texts, or pairs of texts; read as they are needed, :data:`WINDOW` at a time.
        truncation: how a text longer than in training is cut; ``"error"`` refuses it.
        device: ``"cpu"`` (default) or ``"cuda"``.

    Yields:
        ``text``, ``text_pair`` (pairs), ``predicted`` (label name, or number), ``probabilities`` (label name to
        probability), ``truncated``.

    Raises:
        InputError: single texts and pairs mixed, something that is not text, one text given as a plain string.
    """
    if isinstance(texts, str):
        raise InputError("texts must be a list or another iterable of texts, got one string: put it in a list")
    classifier = run if isinstance(run, Classifier) else load_run(run, device=device)
    rest = iter(texts)
    first = next(rest, None)
    if first is None:
        return
    for window in windows(chain([first], rest), WINDOW):
        yield from classifier.predict(*_columns(window, pairs=not isinstance(first, str)), truncation)


def windows(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """Runs of ``size`` items, the last one with the rest; read as they are needed."""
    source = iter(items)
    while window := tuple(islice(source, size)):
        yield window


def _columns(window: Sequence[Any], *, pairs: bool) -> tuple[list[str], list[str] | None]:
    for row in window:
        parts = row if pairs and isinstance(row, (tuple, list)) else (row,)
        if len(parts) != 1 + pairs or not all(isinstance(part, str) for part in parts):
            expected = "a pair of texts, as the first was" if pairs else "a text, as the first was"
            raise InputError(f"expected {expected}, got {row!r:.80}")
    if not pairs:
        return list(window), None
    return [row[0] for row in window], [row[1] for row in window]


def _check_labels(task: TextTask, classifier: Classifier) -> None:
    theirs = classifier.model.config.id2label
    if task.is_regression and len(theirs) == 1:
        return
    if theirs != task.id2label:
        raise ConfigError(
            f"{classifier.path} predicts {list(theirs.values())[:10]}, task {task.name} has the labels "
            f"{list(task.id2label.values())[:10]}; both must be the same, in the same order"
        )


def _split_of(task: TextTask, data: str | Path, split: str, classifier: Classifier, on_error: OnError) -> Examples:
    if split not in ("train", "dev", "test"):
        raise ConfigError(f"unknown split {split!r}: use train, dev or test")
    if split == "dev" and "dev" not in splits_of(task, data) and classifier.settings:
        config = FinetuneConfig(**classifier.settings["config"])
        say(f"task {task.name} has no dev file: using the rows that this run held out of train")
        train = load_split(task, data, "train", on_error=config.on_error)
        return carve(train, config.dev_share, config.seed)[1]
    return load_split(task, data, split, on_error=on_error)  # type: ignore[arg-type]
