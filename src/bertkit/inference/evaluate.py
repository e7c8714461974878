"""Use a run folder: score it on labelled data, predict for texts or for a whole file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

from bertkit.checkpoints.huggingface import config_path
from bertkit.config.bert_config import BertConfig
from bertkit.errors import ConfigError, DataError, InputError
from bertkit.inference.protocol import hardware, model_hash, versions
from bertkit.inference.run_files import METRICS, SETTINGS, read_facts, read_settings, read_task
from bertkit.metrics.intervals import interval_of
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import quiet, say
from bertkit.system.json_files import parsed, write_json
from bertkit.system.model_sources import resolve
from bertkit.tasks import Examples, TextTask, get_task
from bertkit.tasks.decision_file import read_decision
from bertkit.tasks.examples import SPLITS, Columns
from bertkit.tasks.prediction_rows import prediction_rows, with_texts
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.reading.splits import split_of
from bertkit.tasks.registry import Task
from bertkit.tasks.text.decoding import LabelDecision
from bertkit.tasks.text.features import Truncation
from bertkit.tasks.text.workflow import TextWorkflow, encode_texts, text_logits
from bertkit.tasks.tokens.reading import ner_task
from bertkit.tasks.tokens.task import TokenTask, types_of
from bertkit.tasks.workflow import AnyWorkflow, workflow_of
from bertkit.tokenization import AutoTokenizer
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.seed_run import score_set
from bertkit.training.finetuning.task_data import examples_hash, held_out_again

T = TypeVar("T")

#: Texts that are encoded and sorted by length together; what is in memory while a file of any size is predicted.
WINDOW = 2048


@dataclass(frozen=True, slots=True)
class Run:
    """A loaded run folder, or any checkpoint with the head of a kind of task.

    workflow: of the kind; its task is the run's, where that is known.
    config: the run's settings, ``max_length`` among them as in training.
    settings: the run's ``finetune.json``; empty for a checkpoint that bertkit did not train.
    decision: what was chosen on dev when it was trained.
    """

    path: Path
    workflow: AnyWorkflow
    model: Any
    tokenizer: Any
    config: FinetuneConfig
    settings: dict[str, Any] = field(default_factory=dict)
    decision: dict[str, Any] = field(default_factory=dict)

    @property
    def task(self) -> Any:
        """The task it was fine-tuned on; None for a checkpoint that bertkit did not train."""
        return self.workflow.task if self.settings else None

    @property
    def max_length(self) -> int:
        """Tokens of the longest input."""
        assert self.config.max_length is not None
        return self.config.max_length


class Classifier(Run):
    """A run or a checkpoint that labels texts or pairs of texts."""

    def predict(
        self, texts: Sequence[str], pairs: Sequence[str] | None, truncation: Truncation = "longest_first"
    ) -> list[dict[str, Any]]:
        """One dictionary a text; see :func:`predict_run`."""
        encoded = encode_texts(texts, pairs, self.tokenizer, self.config, truncation)
        with quiet():
            logits = text_logits(self.model, encoded)
        decision = LabelDecision.of(self.decision, list(self.model.config.id2label.values()))
        rows = prediction_rows(logits, self.model.config, encoded.truncated, decision)
        return with_texts(rows, texts, pairs)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores on one split, with their protocol; ``predictions`` has a row for each example of the split.

    interval: of the main metric: 95 % of its values when examples are drawn with replacement; None where the kind of
        task tells none.
    table: more for people, such as scores by type; "" where there is no more.
    notes: what no score should hide, such as that all answers are the same.
    """

    task: str
    split: str
    scores: dict[str, float]
    num_rows: int
    protocol: dict[str, Any]
    predictions: list[dict[str, Any]]
    interval: list[float] | None = None
    table: str = ""
    notes: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Without the predictions: the content of ``evaluation-SPLIT.json``."""
        return {
            "task": self.task,
            "split": self.split,
            "scores": self.scores,
            "interval": self.interval,
            "num_rows": self.num_rows,
            "notes": list(self.notes),
            "protocol": self.protocol,
        }

    def render(self) -> str:
        """A few lines a person can read."""
        told = ", ".join(f"{name} {value:.4f}" for name, value in self.scores.items())
        file = self.protocol.get("file", "")
        whole = self.split != "dev" and file and split_of(Path(file)) is None  # a file whose name tells no split
        lines = [f"{self.task}, {file if whole else self.split} ({self.num_rows:,} rows)", f"  {told}"]
        if self.interval is not None:
            low, high = self.interval
            main = self.protocol["main_metric"]
            lines.append(f"  {main}: 95 % interval {low:.4f} to {high:.4f} (examples resampled)")
        lines += [f"  {line}" for line in self.table.splitlines()]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


def load_run(run: str | Path, *, device: str | None = None, revision: str | None = None) -> Classifier:
    """Load a run folder of a text task, or any checkpoint with a sequence classifier, for prediction.

    Raises:
        CheckpointError: no model there, or one without a sequence classifier.
        ConfigError: the run is of another kind of task.
    """
    loaded = open_run(run, device=device, revision=revision)
    if not isinstance(loaded, Classifier):
        raise ConfigError(
            f"{loaded.path} is a run of task {loaded.workflow.task.name}, whose input is not one text or a pair; "
            f"use predict_file, or the pipeline {loaded.workflow.card().pipeline!r}"
        )
    return loaded


def open_run(
    run: str | Path, task: Task | None = None, *, device: str | None = None, revision: str | None = None
) -> Run:
    """Load a run folder of any kind of task, or a checkpoint that has the head for one.

    Args:
        run: the folder, or a name on the Hub.
        task: says what a checkpoint is that bertkit did not train; None means a sequence classifier.
        device: ``"cpu"`` (default) or ``"cuda"``.
        revision: branch, tag or commit of a Hub checkpoint.

    Raises:
        CheckpointError: no model there, or one without the head.
    """
    path = resolve(run, revision=revision)
    folder = path if path.is_dir() else path.parent
    shape = BertConfig.from_json_file(config_path(path))
    settings = read_settings(folder)
    known = read_task(folder) or task or _any_texts(shape)
    workflow = workflow_of(known)
    config = parsed(settings["config"], FinetuneConfig, str(folder / SETTINGS)) if settings else FinetuneConfig()
    longest = shape.max_input_length
    if (folder / METRICS).exists():
        longest = parsed(read_facts(folder).get("max_length"), int, f"{folder / METRICS}: max_length")
    elif settings or not isinstance(workflow, TextWorkflow):
        longest = config.max_length or min(workflow.default_max_length, longest)
    kind = Classifier if isinstance(workflow, TextWorkflow) else Run
    return kind(
        path=folder,
        workflow=workflow,
        model=workflow.load_model(path, device=device),
        tokenizer=AutoTokenizer.from_pretrained(folder),
        config=config.model_copy(update={"max_length": longest}),
        settings=settings,
        decision=read_decision(folder),
    )


def _any_texts(shape: BertConfig) -> TextTask:
    """A task for the outputs of a classifier of which nothing is known but its labels."""
    regression = shape.problem_type == "regression" or shape.num_labels == 1
    labels = None if regression else tuple(shape.id2label.values())
    metric = "pearson" if regression else "accuracy"
    return TextTask("text", labels, (metric,), metric, Columns(text=("text", "sentence")))


def evaluate_run(
    task: str | Task,
    data: str | Path,
    run: str | Path,
    split: str = "dev",
    *,
    device: str | None = None,
    revision: str | None = None,
    write: bool = True,
    on_error: OnError = "raise",
) -> Evaluation:
    """Score a run folder (or any checkpoint with the task's head) on a labelled split.

    Args:
        task: a name or a task; its labels must be the model's, in the same order.
        data: as in :func:`bertkit.training.finetuning.finetune.finetune`.
        run: the folder.
        split: train, dev or test; or the name of a further labelled set of the task (``mismatched`` of MNLI). Where the
            task has no dev file and the run held dev out of these data, "dev" is those same rows again; of another file
            whose name tells no split, "dev" is all of it.
        device: ``"cpu"`` (default) or ``"cuda"``.
        revision: branch, tag or commit of a Hub checkpoint.
        write: keep ``evaluation-SPLIT.json``, ``evaluation-predictions-SPLIT.jsonl`` and
            ``evaluation-errors-SPLIT.jsonl`` in the folder; the next evaluation of a split replaces them. What the run
            itself wrote of its dev rows stays.
        on_error: "skip" leaves bad rows out and says how many.

    Raises:
        DataError: no such split, or one without labels; dev of data that have none, and of which the run held none out.
        ConfigError: the model's labels are not the task's.
    """
    if isinstance(task, str):
        task = ner_task_of(run, data, revision=revision, on_error=on_error) if task == "ner" else get_task(task)
    loaded = open_run(run, task, device=device, revision=revision)
    workflow = workflow_of(task)
    workflow.check_model(loaded.model, str(loaded.path))
    examples = _split_of(workflow, data, split, loaded, on_error)
    if examples.skipped:
        say(f"left out {len(examples.skipped):,} bad rows; the first: {examples.skipped[0].message}")
    if not workflow.has_labels(examples):
        raise DataError(f"{examples.path} has no labels, so there is nothing to score; use predict for its rows")
    encoded = workflow.encode(examples, loaded.tokenizer, loaded.config, labelled=True)
    scored = score_set(
        workflow, loaded.model, examples, encoded, split, worst=loaded.config.worst, decision=loaded.decision
    )
    result = Evaluation(
        task=task.name,
        split=split,
        scores=scored.scores,
        num_rows=len(examples),
        table=scored.table,
        protocol={
            "split": split,
            "metrics": list(task.metrics),
            "main_metric": task.main_metric,
            "file": "" if examples.path is None else examples.path.name,
            "data_sha256": examples_hash(workflow, examples),
            "bad_rows_left_out": len(examples.skipped),
            "model_sha256": model_hash(loaded.path),
            "max_length": loaded.max_length,
            "truncated_share": round(float(encoded.truncated.mean()), 6),
            "decision": scored.decision,
            "versions": versions(),
            "hardware": hardware(device),
        },
        predictions=scored.rows,
        interval=interval_of(scored.bootstrap),
        notes=scored.remarks,
    )
    if write and loaded.settings:  # never into somebody else's checkpoint or the Hub cache
        for name, text in scored.files.items():
            write_atomically(loaded.path / f"evaluation-{name}", text)
        write_json(loaded.path / f"evaluation-{split}.json", result.to_dict())
    return result


def ner_task_of(
    run: str | Path, data: str | Path, *, revision: str | None = None, on_error: OnError = "raise", **columns: Any
) -> TokenTask:
    """Task ``ner`` of some files, with the entity types that a model knows, read as its run read its own.

    Args:
        run: the model: a run folder, or any checkpoint that predicts tags.
        data: the files.
        revision: branch, tag or commit of a Hub checkpoint.
        on_error: see :func:`bertkit.tasks.ner_task`.
        columns: where words and tags stand, see :func:`bertkit.tasks.ner_task`; what is not named is as in the run's
            own files.
    """
    path = resolve(run, revision=revision)
    shape = BertConfig.from_json_file(config_path(path))
    known = read_task(path if path.is_dir() else path.parent)
    if isinstance(known, TokenTask):
        own = {"word_column": known.columns.word, "tag_column": known.columns.tag}
        columns = {**own, "delimiter": known.columns.delimiter, "joiner": known.joiner, **columns}
    return ner_task(data, types=types_of(shape.id2label.values()), on_error=on_error, **columns)


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


def _split_of(workflow: AnyWorkflow, data: str | Path, split: str, loaded: Run, on_error: OnError) -> Examples[Any]:
    if split not in SPLITS:
        more = workflow.read_more(data, on_error=on_error)
        if split in more:
            return more[split]
        others = "".join(f", {name}" for name in more)
        raise ConfigError(f"unknown split {split!r}: use train, dev, test{others}")
    if split == "dev" and "dev" not in workflow.splits(data) and loaded.settings:
        return _dev_of(workflow, data, loaded, on_error)
    return workflow.read(data, split, on_error=on_error)


def _dev_of(workflow: AnyWorkflow, data: str | Path, loaded: Run, on_error: OnError) -> Examples[Any]:
    """Dev of data without a dev file: what the run held out of it, or a whole file that names no split.

    Raises:
        DataError: neither; rows that the run was trained on are not dev.
    """
    facts = read_facts(loaded.path)
    dev = held_out_again(workflow, data, FinetuneConfig(**loaded.settings["config"]), facts)
    if dev is not None:
        say(f"task {workflow.task.name} has no dev file: using the rows that this run held out of train")
        return dev
    path = Path(data)
    if facts.get("dev_held_out_of_train") and Path(loaded.settings["data"]).resolve() == path.resolve():
        raise DataError(
            f"{data} is not, or is not read as, what {loaded.path} was trained on, so the rows that it held out cannot "
            "be told; give labelled rows that it has not seen, or ask for split train to score them all"
        )
    if path.is_dir() or (path.is_file() and split_of(path) is not None):
        raise DataError(
            f"{data} has no dev file, only {', '.join(workflow.splits(data))}, and {loaded.path} held no rows out of "
            "it; give the file of the labelled rows to score, or ask for another split"
        )
    examples = workflow.read(data, "dev", on_error=on_error)
    say(f"scoring all {len(examples):,} rows of {data}")
    return examples
