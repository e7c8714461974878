"""All of GLUE with one command: a run for each task that is there, one table, and the files of a submission."""

from __future__ import annotations

import statistics
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertkit.errors import ConfigError, DataError
from bertkit.inference.runs import Classifier, load_run
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import clock, say
from bertkit.system.json_files import write_json
from bertkit.tasks import Example, Examples, TextTask, load_split, splits_of
from bertkit.tasks.reading.splits import beside, own_folder
from bertkit.tasks.run_rows import read_rows
from bertkit.tasks.text.glue import DIAGNOSTIC, MNLI, STSB, WHOLE_GLUE, WNLI
from bertkit.tasks.workflow import workflow_of
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_results import FinetuneResult
from bertkit.training.finetuning.finetune_settings import FinetuneConfig

#: Name of each file of a submission, as the GLUE server wants it.
SUBMISSION_FILES: Mapping[str, str] = {
    "cola": "CoLA.tsv",
    "sst2": "SST-2.tsv",
    "mrpc": "MRPC.tsv",
    "stsb": "STS-B.tsv",
    "qqp": "QQP.tsv",
    "mnli": "MNLI-m.tsv",
    "mnli mismatched": "MNLI-mm.tsv",
    "qnli": "QNLI.tsv",
    "rte": "RTE.tsv",
    "wnli": "WNLI.tsv",
    "ax": "AX.tsv",
}

#: The metrics of each task whose mean is its score in the average, as on GLUE's leaderboard: of CoLA Matthews alone.
COUNTED: Mapping[str, tuple[str, ...]] = {
    "cola": ("matthews",),
    "sst2": ("accuracy",),
    "mrpc": ("f1", "accuracy"),
    "stsb": ("pearson", "spearman"),
    "qqp": ("f1", "accuracy"),
    "mnli": ("accuracy", "accuracy_mismatched"),
    "qnli": ("accuracy",),
    "rte": ("accuracy",),
    "wnli": ("accuracy",),
}

#: Why a submission file is not there.
NO_TEST_FILE, NOT_RUN = "no test file", "was not run"

#: Names under which the diagnostic set is found.
DIAGNOSTIC_FILES = ("AX.tsv", "diagnostic.tsv", "test.tsv")


@dataclass(frozen=True, slots=True)
class GlueResult:
    """What a run of the whole benchmark found.

    results: by task, in the benchmark's order, those that ran.
    missing: why the others did not, by task.
    submission: names of the submission files that were written, and why others were not.
    """

    folder: Path
    results: dict[str, FinetuneResult]
    missing: dict[str, str]
    submission: tuple[str, ...] = ()
    not_submitted: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The content of ``glue.json``; each task's own folder has its ``metrics.json``."""
        return {
            "tasks": {name: _row_of(result) for name, result in self.results.items()},
            "missing": self.missing,
            "macro_average": self.macro_average(with_wnli=True),
            "macro_average_without_wnli": self.macro_average(with_wnli=False),
            "tasks_in_average": len(self.results),
            "submission": list(self.submission),
            "not_submitted": self.not_submitted,
        }

    def macro_average(self, *, with_wnli: bool) -> float | None:
        """Mean over the tasks that ran of :func:`task_score`."""
        scores = [task_score(result) for name, result in self.results.items() if with_wnli or name != WNLI.name]
        return statistics.fmean(scores) if scores else None

    def render(self) -> str:
        """One table for people, then what is missing."""
        head = ("task", "train", "dev", "metric", "BERT", "baseline", "time")
        rows = [head]
        for name, result in self.results.items():
            data, known = result.protocol["data"], (result.baseline or {"metrics": {}})["metrics"]
            spent = clock(sum(seed.seconds for seed in (*result.seeds, *result.replaced)))
            for number, metric in enumerate(metric for metric in result.mean if metric != "loss"):
                base = f"{known[metric]:.4f}" if metric in known else ""
                held = " (held out)" if data["dev_held_out_of_train"] else ""
                first = (
                    (name, f"{data['train_rows']:,}", f"{data['dev_rows']:,}{held}") if number == 0 else ("", "", "")
                )
                rows.append((*first, metric, result.score_line(metric), base, spent if number == 0 else ""))
        widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*lines, *self._averages(), *self._absent(), str(self.folder)])

    def _averages(self) -> list[str]:
        told = []
        for with_wnli, words in ((True, "with WNLI"), (False, "without WNLI")):
            count = sum(with_wnli or name != WNLI.name for name in self.results)
            average = self.macro_average(with_wnli=with_wnli)
            if average is not None:
                whole = len(WHOLE_GLUE) - (not with_wnli)
                told.append(f"macro average {words}: {average:.4f} ({count} of {whole} tasks, dev, mean of the seeds)")
        return told

    def _absent(self) -> list[str]:
        told = [f"not run: {name}: {why}" for name, why in self.missing.items()]
        if self.submission:
            told.append(f"submission files: {', '.join(self.submission)}")
        for name, why in self.not_submitted.items():
            if self.submission or not why.endswith((NO_TEST_FILE, NOT_RUN)):  # no test files: no submission is wanted
                told.append(f"no submission file {SUBMISSION_FILES[name]}: {why}")
        return told


def task_score(result: FinetuneResult) -> float:
    """One number for a task: the mean of the metrics that GLUE counts (:data:`COUNTED`), each the mean over the seeds.

    MNLI without a mismatched dev file counts with the matched one alone.
    """
    return statistics.fmean(result.mean[metric] for metric in COUNTED[result.task] if metric in result.mean)


def finetune_glue(
    data: str | Path,
    model: str | Path,
    out: str | Path,
    config: FinetuneConfig | None = None,
    *,
    resume: bool = False,
    device: str | None = None,
    revision: str | None = None,
    cache: str | Path | None = "auto",
) -> GlueResult:
    """Fine-tune on every task of GLUE whose files are there.

    Args:
        data: a folder with the tasks' folders (``CoLA``, ``SST-2`` ...). A task without a train file is left out and
            named; one without a dev file has rows held out of train, and the table says so.
        model: start checkpoint; every task starts from it.
        out: gets a run folder for each task, ``glue.json``, and in ``submission`` the predictions for the test files.
        config: settings of every task; None means all defaults.
        resume: go on; finished tasks are taken as they are.
        device: ``"cpu"`` (default) or ``"cuda"``.
        revision: branch, tag or commit of a Hub checkpoint.
        cache: folder for the features of a frozen encoder, see :func:`bertkit.training.finetuning.finetune.finetune`.

    Raises:
        DataError: no task is there, or a train or dev file is wrong; nothing was trained. What is wrong with a test
            file is said before training, and costs its submission file alone.
        ConfigError: a setting that one of the tasks has no use for; nothing was trained.
        as :func:`bertkit.training.finetuning.finetune.finetune`.
    """
    config, out = config or FinetuneConfig(), Path(out)
    if out.exists() and any(out.iterdir()) and not resume:
        raise ConfigError(f"{out} is not empty: add --resume to go on, or choose another --out")
    tasks, missing = _present(Path(data))
    if not tasks:
        raise DataError(f"{data} has no task of GLUE to train: {'; '.join(f'{k}: {v}' for k, v in missing.items())}")
    for task in tasks:
        workflow = workflow_of(task)
        workflow.check_settings(config)
        read_rows(workflow, data, config)
    for name, why in missing.items():
        say(f"not run: {name}: {why}")
    for key, why in _unreadable_tests(data, {task.name for task in tasks}).items():
        say(f"there will be no submission file {SUBMISSION_FILES[key]}: {why}")
    results: dict[str, FinetuneResult] = {}
    for task in tasks:
        say(f"--- {task.name} ({len(results) + 1} of {len(tasks)}): {task.about}")
        results[task.name] = finetune(
            task, data, model, out / task.name, config, resume=resume, device=device, revision=revision, cache=cache
        )
        write_json(out / "glue.json", GlueResult(out, results, missing).to_dict())
    written, absent = write_submission(out, data, {name: out / name for name in results}, device=device)
    result = GlueResult(out, results, missing, written, absent)
    write_json(out / "glue.json", result.to_dict())
    write_atomically(out / "README.md", f"# GLUE\n\n```\n{result.render()}\n```\n")
    return result


def write_submission(
    out: str | Path, data: str | Path, runs: Mapping[str, Path], *, device: str | None = None
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Predictions for the test files in the form that the GLUE server takes.

    Each file has the columns ``index`` and ``prediction``: label names of the data files, and scores from 0 to 5. When
    all eleven are there, ``submission.zip`` holds them.

    Args:
        out: files go to ``out/submission``.
        data: folder with the tasks' folders.
        runs: finished run folder of each task.
        device: where to predict.

    Returns:
        Names of the files written, and why others are not, by key of :data:`SUBMISSION_FILES`: no test file, a task
        that was not run, or what is wrong with a test file, of which no row may be left out.
    """
    folder = Path(out) / "submission"
    written, absent = [], {}
    for key, file in SUBMISSION_FILES.items():
        task, word = _task_and_word(key)
        trained = MNLI.name if task is DIAGNOSTIC else task.name
        try:
            test = None if trained not in runs else _test_file(task, word, data)
            if test is None:
                absent[key] = NO_TEST_FILE if trained in runs else f"{trained} {NOT_RUN}"
                continue
            examples = load_split(task, test, "test")
        except DataError as error:
            absent[key] = str(error)
            continue
        write_atomically(folder / file, submission_text(task, examples, load_run(runs[trained], device=device)))
        written.append(file)
    for key in absent:
        (folder / SUBMISSION_FILES[key]).unlink(missing_ok=True)
    (folder / "submission.zip").unlink(missing_ok=True)
    if not absent:
        with zipfile.ZipFile(folder / "submission.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for file in written:
                archive.write(folder / file, file)
    return tuple(written), absent


def submission_text(task: TextTask, examples: Examples[Example], run: Classifier) -> str:
    """One file of a submission, for all rows of a test file: were one left out, the answers would move."""
    predicted = [row["predicted"] for row in run.answers(examples, label=f"predicting {task.name}")]
    if task.is_regression:
        low, high = STSB.score_range or (0.0, 5.0)
        answers = [f"{min(max(value, low), high):.3f}" for value in predicted]
    else:
        written = dict(zip(task.labels or (), task.raw_labels or task.labels or (), strict=True))
        answers = [written[name] for name in predicted]
    lines = ["index\tprediction", *(f"{number}\t{answer}" for number, answer in enumerate(answers))]
    return "\n".join(lines) + "\n"


def _present(data: Path) -> tuple[list[TextTask], dict[str, str]]:
    """The tasks that can be trained, and why the others cannot."""
    tasks, missing = [], {}
    if not data.is_dir():
        raise DataError(f"data {data} is not a folder: task glue needs the folder that holds CoLA, SST-2, MRPC ...")
    for task in WHOLE_GLUE:
        try:
            splits = _own_splits(task, data)
        except DataError as error:
            missing[task.name] = str(error)
            continue
        if not splits:
            missing[task.name] = f"no files (looked for a folder {' or '.join(task.folders)})"
        elif "train" not in splits:
            missing[task.name] = f"no train file, only {', '.join(splits)}"
        else:
            tasks.append(task)
    return tasks, missing


def _own_splits(task: TextTask, data: Path) -> dict[Any, Path]:
    """The files in a folder of the task's own name; files beside those folders belong to no task."""
    folder = own_folder(task, data)
    return dict(splits_of(task, folder)) if folder is not None and any(folder.iterdir()) else {}


def _unreadable_tests(data: str | Path, trained: Collection[str]) -> dict[str, str]:
    """What is wrong with the test files of some tasks, by key of :data:`SUBMISSION_FILES`; absent ones are not."""
    wrong = {}
    for key in SUBMISSION_FILES:
        task, word = _task_and_word(key)
        if (MNLI.name if task is DIAGNOSTIC else task.name) not in trained:
            continue
        try:
            test = _test_file(task, word, data)
            if test is not None:
                load_split(task, test, "test")
        except DataError as error:
            wrong[key] = str(error)
    return wrong


def _task_and_word(key: str) -> tuple[TextTask, str]:
    """The task of a submission file, and what its test file has in place of ``matched``."""
    name, _, word = key.partition(" ")
    return next(task for task in (*WHOLE_GLUE, DIAGNOSTIC) if task.name == name), word


def _test_file(task: TextTask, word: str, data: str | Path) -> Path | None:
    """The test file; None where there is none.

    Raises:
        DataError: two files that claim to be it.
    """
    if task is DIAGNOSTIC:
        folder = own_folder(task, data)
        files = [] if folder is None else [folder / file for file in DIAGNOSTIC_FILES]
        return next((file for file in files if file.is_file()), None)
    return beside(task, data, "test", word) if word else _own_splits(task, Path(data)).get("test")


def _row_of(result: FinetuneResult) -> dict[str, Any]:
    data = result.protocol["data"]
    return {
        "score": task_score(result),
        "mean": result.mean,
        "sd": result.sd,
        "median": result.median,
        "interval": result.interval,
        "baseline": None if result.baseline is None else result.baseline["metrics"],
        "train_rows": data["train_rows"],
        "dev_rows": data["dev_rows"],
        "dev_held_out_of_train": data["dev_held_out_of_train"],
        "seconds": sum(seed.seconds for seed in (*result.seeds, *result.replaced)),
    }
