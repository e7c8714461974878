"""``bertkit evaluate``: score a finished run on labelled text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from bertkit.cli.common_options import Common
from bertkit.cli.task_options import FileColumns, Task, in_encoding
from bertkit.cli.zero_shot_options import ZeroShotModels, words_of
from bertkit.errors import ConfigError

if TYPE_CHECKING:
    from bertkit.inference.evaluate import Evaluation
    from bertkit.inference.runs import Run
    from bertkit.tasks import Task as AnyTask
    from bertkit.tasks.reading.bad_rows import OnError


def evaluate(
    task: Task,
    /,
    *,
    data: Annotated[Path, Parameter(help="Folder of the task's files, or one labelled file.")],
    model: Annotated[str, Parameter(alias="-m", help="Run folder, or folder or Hub name of a classifier.")],
    split: Annotated[
        str | None,
        Parameter(
            help="train, dev or test; mnli also has mismatched. Default: dev of a folder; all of a file, or the "
            "rows that the run held out of it."
        ),
    ] = None,
    vectors: Annotated[
        bool,
        Parameter(
            negative=(),
            help="Score the model's vectors of labelled texts, not its labels: by neighbours, a linear classifier and "
            "clusters, beside TF-IDF.",
        ),
    ] = False,
    columns: FileColumns = FileColumns(),
    zero_shot: ZeroShotModels = ZeroShotModels(),
    on_error: Annotated[
        Literal["raise", "skip"], Parameter(help="Stop at the first bad row, or skip and report bad rows.")
    ] = "raise",
    common: Common = Common(),
) -> None:
    """Score a finished run on labelled text.

    The run folder keeps the scores and their protocol in evaluation-NAME.json, and
    every prediction in evaluation-predictions-NAME.jsonl. NAME is the split, or for
    another file its name and a hash.

    With --labels, scores models that were not trained on these labels, by every
    method that their heads allow, next to the majority class and TF-IDF, which learn
    from them.

    For example:

        bertkit evaluate sst2 --data SST-2 --model run
        bertkit evaluate csv --data new-reviews.csv --model run
        bertkit evaluate csv --data new.csv --model nli --labels "good, bad"
        bertkit evaluate pairs --data questions.csv --model sentence-run
        bertkit evaluate csv --data tickets.csv --model sentence-run --vectors
    """
    common.begin()
    if zero_shot.labels is not None:
        _compare(task, data, model, split, columns, zero_shot, on_error, common)
        return
    if zero_shot.template or zero_shot.beside:
        raise ConfigError(
            "--template and --beside go with --labels, which names the labels; give it, or leave them out"
        )
    from bertkit.inference.evaluate import evaluate_run
    from bertkit.inference.runs import open_run, task_for_run
    from bertkit.system.device import find_device

    device = str(find_device(common.device))
    encoding, given = columns.table.encoding, columns.given(task)
    if vectors:
        common.report(_of_vectors(task, data, model, split, columns, on_error, device))
        return
    if task == "ner":
        chosen: AnyTask = task_for_run(task, model, data, on_error=on_error, encoding=encoding, **given)
        run = open_run(model, chosen, device=device)
    else:
        known = None if task == "csv" else columns.task(task, data, on_error)
        run = open_run(model, known, device=device)
        chosen = _task_of_run(task, data, run, columns, on_error)
    common.report(evaluate_run(chosen, data, run, split or _split_of(data, run), device=device, on_error=on_error))


def _compare(
    name: str,
    data: Path,
    model: str,
    split: str | None,
    columns: FileColumns,
    given: ZeroShotModels,
    on_error: OnError,
    common: Common,
) -> None:
    """Score models that were not trained on the labels."""
    from bertkit.inference.zero_shot.candidate_labels import read_labels
    from bertkit.inference.zero_shot.compare_methods import compare_methods
    from bertkit.tasks import TextTask

    labels = read_labels(words_of(given.labels or ""))
    if name == "csv":
        columns.given(name)
        task: AnyTask = columns.table.task(data, labels=labels.names, on_error=on_error)
    else:
        task = columns.task(name, data, on_error)
    if not isinstance(task, TextTask):
        raise ConfigError(f"--labels is for texts with one label each; task {name} is another kind")
    common.report(
        compare_methods(
            task,
            data,
            (model, *given.beside),
            labels,
            split,
            templates=given.template,
            device=common.device,
            on_error=on_error,
        )
    )


def _of_vectors(
    name: str, data: Path, model: str, split: str | None, columns: FileColumns, on_error: OnError, device: str
) -> Evaluation:
    from bertkit.config.reading_settings import ReadingSettings
    from bertkit.inference.vector_evaluation import evaluate_vectors
    from bertkit.tasks import TextTask

    task = columns.task(name, data, on_error)
    if not isinstance(task, TextTask) or split not in (None, "dev", "test"):
        raise ConfigError(f"--vectors scores labelled texts, of dev or test; got task {name} and split {split}")
    settings = ReadingSettings(on_error=on_error)
    return evaluate_vectors(task, data, model, split or "dev", device=device, settings=settings)  # type: ignore[arg-type]


def _task_of_run(name: str, data: Path, run: Run, columns: FileColumns, on_error: OnError) -> AnyTask:
    """The task to score: for ``csv`` with the run's columns unless others are given, and always with its labels."""
    from bertkit.tasks import TextTask

    known = run.task
    if known is not None and known.name == name and not columns.given(name):
        if isinstance(known, TextTask) and not run.learned_from(data):
            # By the encoding of another file UTF-8 would be misread without an error.
            known = replace(known, columns=replace(known.columns, encoding=None))
        return in_encoding(known, columns.table.encoding)
    if name != "csv":
        return columns.task(name, data, on_error)
    config = run.engine.config
    if config.problem_type == "regression" or config.num_labels == 1:
        return columns.table.task(data, problem="regression", on_error=on_error)
    problem = "multi_label" if config.problem_type == "multi_label_classification" else "classification"
    labels = list(config.id2label.values())
    return columns.table.task(data, problem=problem, labels=labels, on_error=on_error)


def _split_of(data: Path, run: Run) -> Literal["train", "dev", "test"]:
    """Which rows to score: dev of a folder; the whole of a file, unless the run was trained on a part of it."""
    from bertkit.tasks.reading.splits import split_of

    if not data.is_file() or run.learned_from(data) or split_of(data) is None:
        return "dev"
    return next(iter(run.workflow.splits(data)))
