"""Score a run folder, or any checkpoint with the head of a task, on labelled data."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.errors import CheckpointError, ConfigError, DataError, MissingExtraError, counted
from bertkit.inference.protocol import model_hash, versions
from bertkit.inference.run_files import read_facts
from bertkit.inference.runs import Run, finished, open_run
from bertkit.metrics.intervals import interval_text
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import say
from bertkit.system.device import Device, hardware
from bertkit.system.json_files import printable, read_json, write_json
from bertkit.system.rendered import Rendered
from bertkit.tasks.examples import SPLITS, Examples
from bertkit.tasks.own_files import files_of
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.reading.given_rows import Data, Given, given_data
from bertkit.tasks.reading.splits import SPLIT_NAMES, split_of
from bertkit.tasks.registry import Task, form_of
from bertkit.tasks.run_rows import TRAINED_ON, examples_hash, held_out_again, score_set, text_hashes
from bertkit.tasks.workflow import AnyWorkflow, Predicted, workflow_of
from bertkit.visualize.figures import save_figure


@dataclass(frozen=True, slots=True)
class Evaluation(Rendered):
    """Scores on one split, with their protocol; ``predictions`` has a row for each example of the split.

    split: train, dev, test or a further set of the task; of a whole file whose name says none of these, that name.
    interval: of the main metric: 95 % of its values when examples are drawn with replacement.
    table: more for people, such as scores by class.
    classes: precision, recall, F1 and support by class (``by_class``), and their means; None for other kinds.
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
    classes: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Without the predictions: the content of ``evaluation-NAME.json``."""
        names = ("task", "split", "scores", "interval", "num_rows", "notes", "protocol")
        found = {name: getattr(self, name) for name in names}
        return found if self.classes is None else {**found, "classes": self.classes}

    def render(self) -> str:
        """A few lines a person can read."""
        scores = ", ".join(f"{name} {value:.4f}" for name, value in self.scores.items())
        lines = [f"{self.task}, {self.split} ({counted(self.num_rows, 'row')})", f"  {scores}"]
        if self.interval is not None:
            main = self.protocol["main_metric"]
            lines.append(f"  {main}: 95 % interval {interval_text(self.interval)} (examples resampled)")
        lines += [f"  {line}" for line in self.table.splitlines()]
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)


def evaluate_run(
    task: str | Task,
    data: Data,
    run: str | Path | Run,
    split: str = "dev",
    *,
    device: Device = None,
    revision: str | None = None,
    write: bool = True,
    on_error: OnError = "raise",
) -> Evaluation:
    """Score a run folder (or any checkpoint with the task's head) on a labelled split.

    task: its labels must be the model's, in the same order.
    data: files, or rows in memory, as for :func:`bertkit.finetune`.
    split: train, dev or test; or the name of a further labelled set of the task (``mismatched`` of MNLI). Where the
        task has no dev file and the run held dev out of these data, "dev" is those same rows again; of another file
        whose name says no split, "dev" is all of it.
    write: keep ``evaluation-NAME.json``, ``evaluation-predictions-NAME.jsonl`` and ``evaluation-errors-NAME.jsonl`` in
        the folder. The name is that of the split; of a file that is not the run's data, the file's, and of rows in
        memory "data", with a hash of the examples. The next evaluation of the same examples replaces them; other
        examples of the same name get the hash, too. What the run itself wrote of its dev rows stays.
    """
    data = given_data(data, None, SPLIT_NAMES)
    data = data if isinstance(data, Path) else Path(data)
    if isinstance(task, str):
        place = run.path if isinstance(run, Run) else run
        own = files_of(form_of(task))()
        task = own.task_for(task, data, on_error, finished(place, data, revision=revision))
    loaded = run if isinstance(run, Run) else open_run(run, task, device=device, revision=revision)
    workflow = workflow_of(task)
    workflow.check_model(loaded.engine, str(loaded.path))
    examples, split = _split_of(workflow, data, split, loaded, on_error)
    if bad := examples.bad:
        say(f"left out {counted(len(bad), 'bad row')}; the first: {bad[0].message}")
    if examples.left_out:
        listed = [f"{counted(rows, 'row')} of {label}" for label, rows in examples.left_out.items()]
        say(f"left out as in training: {', '.join(listed)}")
    if not workflow.has_labels(examples):
        raise DataError(f"{examples.path} has no labels, so there is nothing to score; use predict for its rows")
    encoded = workflow.encode(examples, loaded.tokenizer, loaded.config, labelled=True)
    seen = _seen(workflow, examples, loaded.path)
    outputs = workflow.outputs(loaded.engine, encoded, label=f"scoring {split}")
    found = Predicted(examples, encoded, outputs, loaded.decision)
    content = examples_hash(workflow, examples)
    name = _name_of(loaded, data, split, content)
    scored = score_set(workflow, found, name, worst=loaded.config.worst)
    result = Evaluation(
        task=task.name,
        split=split,
        scores=scored.scores,
        num_rows=len(examples),
        table=scored.table,
        classes=scored.classes,
        protocol={
            "split": split,
            "metrics": list(task.metrics),
            "main_metric": task.main_metric,
            "file": "" if examples.path is None else examples.path.name,
            "data_sha256": content,
            "bad_rows_left_out": len(examples.bad),
            **({"labels_left_out": examples.left_out} if examples.left_out else {}),
            **({} if seen is None else {"rows_trained_on": seen}),
            "model_sha256": model_hash(loaded.path),
            "max_length": loaded.max_length,
            "truncated_share": round(float(encoded.truncated.mean()), 6),
            "decision": dict(scored.decision),
            "versions": versions(),
            "hardware": hardware(loaded.engine.device),
        },
        predictions=scored.rows,
        interval=scored.interval,
        notes=[*([_told(seen, len(examples))] if seen else []), *scored.remarks],
    )
    if write and loaded.settings:  # never into somebody else's checkpoint or the Hub cache
        for file, text in scored.files.items():
            write_atomically(loaded.path / f"evaluation-{file}", text)
        write_json(loaded.path / f"evaluation-{name}.json", result.to_dict())
        _draw(workflow, loaded.path, name)
    return result


def _draw(workflow: AnyWorkflow, folder: Path, name: str) -> None:
    """The pictures of an evaluation, where the extra is there."""
    try:
        for kind, figure in workflow.draw(folder, name, "evaluation-").items():
            save_figure(figure, folder / f"evaluation-{kind}-{name}.png")
    except MissingExtraError:
        return  # the scores are what was asked for


def _seen(workflow: AnyWorkflow, examples: Examples[Any], run: Path) -> int | None:
    """How many examples have the texts of rows that a run was trained on; None for what does not say."""
    file = run / TRAINED_ON
    if not file.exists():
        return None
    try:
        return int(np.isin(text_hashes(workflow, examples), np.load(file, allow_pickle=False)).sum())
    except (OSError, ValueError, EOFError) as error:
        raise CheckpointError(f"{file} is damaged: {error}. Remove it to evaluate without it") from None


def _told(seen: int, total: int) -> str:
    has = "has the text" if seen == 1 else "have the texts"
    return (
        f"TRAINED ON: {seen:,} of {counted(total, 'row')} ({100 * seen / total:.1f} %) {has} of rows that this run was "
        "trained on, so that these scores are better than those of new texts"
    )


def _name_of(loaded: Run, data: Path, split: str, content: str) -> str:
    """What the files of an evaluation are called: never as those of other examples (``content`` is a hash of these)."""
    if isinstance(data, Given):
        return f"{split}-{content[:8]}"
    if data.is_file() and not loaded.learned_from(data):
        return f"{printable(data.name)[:50]}-{content[:8]}"
    before = loaded.path / f"evaluation-{split}.json"
    try:
        known = read_json(before, dict[str, Any])["protocol"]["data_sha256"] if before.exists() else content
    except (CheckpointError, LookupError, TypeError):
        known = ""
    return split if known == content else f"{split}-{content[:8]}"


def _split_of(
    workflow: AnyWorkflow, data: Path, split: str, loaded: Run, on_error: OnError
) -> tuple[Examples[Any], str]:
    if split not in SPLITS:
        more = workflow.read_more(data, on_error=on_error)
        if split in more:
            return more[split], split
        others = "".join(f", {name}" for name in more)
        raise ConfigError(f"unknown split {split!r}: use train, dev, test{others}")
    if split == "dev" and "dev" not in workflow.splits(data) and loaded.settings:
        return _dev_of(workflow, data, loaded, on_error)
    unnamed = data.is_file() and split_of(data) is None and not loaded.learned_from(data)
    return workflow.read(data, split, on_error=on_error), data.name if unnamed else split


def _dev_of(workflow: AnyWorkflow, path: Path, loaded: Run, on_error: OnError) -> tuple[Examples[Any], str]:
    """Dev of data without a dev file: what the run held out of it, or a whole file that names no split."""
    facts = read_facts(loaded.path)
    dev = held_out_again(workflow, path, loaded.config, facts)
    if dev is not None:
        say(f"task {workflow.task.name} has no dev file: using the rows that this run held out of train")
        return dev, "dev"
    same = loaded.learned_from(path)
    if facts.get("dev_is_train") and same:
        raise DataError(
            f"{loaded.path} was trained on all rows of {path}, and what its metrics.json says of dev was found by "
            "cross-validation; give labelled rows that it has not seen, or ask for split train to score them all"
        )
    if facts.get("dev_held_out_of_train") and same:
        raise DataError(
            f"{path} is not, or is not read as, what {loaded.path} was trained on, so the rows that it held out "
            "cannot be found; give labelled rows that it has not seen, or ask for split train to score them all"
        )
    if path.is_dir() or (path.is_file() and split_of(path) is not None):
        raise DataError(
            f"{path} has no dev file, only {', '.join(workflow.splits(path))}, and {loaded.path} held no rows out of "
            "it; give the file of the labelled rows to score, or ask for another split"
        )
    examples = workflow.read(path, "dev", on_error=on_error)
    say(f"scoring all {counted(len(examples), 'row')} of {path}")
    return examples, "data" if isinstance(path, Given) else path.name
