"""``bertkit evaluate``: score a finished run on labelled text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from bertkit.cli.common_options import Common
from bertkit.cli.file_options import FileColumns
from bertkit.cli.task_options import TaskName
from bertkit.cli.zero_shot_options import ZeroShotModels, words_of
from bertkit.errors import ConfigError

if TYPE_CHECKING:
    from bertkit.inference.evaluate import Evaluation
    from bertkit.inference.runs import Run
    from bertkit.tasks.own_files import OwnFiles
    from bertkit.tasks.reading.bad_rows import OnError


def evaluate(
    task: TaskName,
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
    from bertkit.inference.runs import finished, open_run
    from bertkit.system.device import find_device

    device, files = str(find_device(common.device)), columns.of(task)
    if vectors:
        common.report(_of_vectors(task, data, model, split, files, on_error, device))
        return
    chosen = files.task_for(task, data, on_error, finished(model, data))
    run = open_run(model, chosen, device=device)
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
    from bertkit.inference.zero_shot.candidate_labels import read_labels
    from bertkit.inference.zero_shot.compare_methods import compare_methods
    from bertkit.tasks.text.columns import text_task

    labels = read_labels(words_of(given.labels or ""))
    refusal = f"--labels is for texts with one label each; task {name} is another kind"
    task = text_task(columns.of(name), name, data, on_error, refusal=refusal, labels=labels.names)
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
    name: str, data: Path, model: str, split: str | None, files: OwnFiles, on_error: OnError, device: str
) -> Evaluation:
    from bertkit.config.reading_settings import ReadingSettings
    from bertkit.inference.vector_evaluation import evaluate_vectors
    from bertkit.tasks.text.columns import text_task

    refusal = f"--vectors scores labelled texts, of dev or test; got task {name} and split {split}"
    if split not in (None, "dev", "test"):
        raise ConfigError(refusal)
    task = text_task(files, name, data, on_error, refusal=refusal)
    settings = ReadingSettings(on_error=on_error)
    return evaluate_vectors(task, data, model, split or "dev", device=device, settings=settings)  # type: ignore[arg-type]


def _split_of(data: Path, run: Run) -> Literal["train", "dev", "test"]:
    """Which rows to score: dev of a folder; the whole of a file, unless the run was trained on a part of it."""
    from bertkit.tasks.reading.splits import split_of

    if not data.is_file() or run.learned_from(data) or split_of(data) is None:
        return "dev"
    return next(iter(run.workflow.splits(data)))
