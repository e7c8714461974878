"""All of GLUE with one command: a run per task, one table, and the files of a submission."""

from __future__ import annotations

import statistics
import zipfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bertkit.errors import ConfigError, DataError
from bertkit.inference.runs import Run, load_run
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import aligned, clock, say
from bertkit.system.device import Device
from bertkit.system.json_files import printable, write_json
from bertkit.system.rendered import Rendered
from bertkit.system.untrusted_files import Json
from bertkit.tasks.examples import Example, Examples
from bertkit.tasks.reading.splits import beside, own_folder, splits_of
from bertkit.tasks.run_rows import read_rows
from bertkit.tasks.text.glue import DIAGNOSTIC, MNLI, STSB, WHOLE_GLUE, WNLI
from bertkit.tasks.text.reading import load_split
from bertkit.tasks.text.task import TextTask
from bertkit.tasks.workflow import workflow_of
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_results import FinetuneResult
from bertkit.training.finetuning.finetune_settings import FinetuneConfig

#: Name of each submission file, as the GLUE server expects it.
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

#: The metrics whose mean is a task's score in the average, as on the GLUE leaderboard.
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

#: Of the data of each task, what ``glue.json`` repeats.
DATA_FACTS = ("train_rows", "dev_rows", "dev_held_out_of_train")

#: Why a submission file is missing.
NO_TEST_FILE, NOT_RUN = "no test file", "was not run"

#: File names of the diagnostic set.
DIAGNOSTIC_FILES = ("AX.tsv", "diagnostic.tsv", "test.tsv")


@dataclass(frozen=True, slots=True)
class GlueResult(Rendered):
    """The outcome of the whole benchmark: results by task, and why others did not run or have no submission file."""

    folder: Path
    results: dict[str, FinetuneResult]
    missing: dict[str, str]
    submission: tuple[str, ...] = ()
    not_submitted: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Json]:
        """The content of ``glue.json``; the folder of each task has its own ``metrics.json``."""
        return {
            "tasks": {
                name: {
                    "score": task_score(result),
                    "mean": result.mean,
                    "sd": result.sd,
                    "median": result.median,
                    "interval": result.interval,
                    "baseline": result.baseline_scores or None,
                    **{key: result.protocol["data"][key] for key in DATA_FACTS},
                    "seconds": _seconds(result),
                }
                for name, result in self.results.items()
            },
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
        """One table, then what is missing."""
        rows: list[tuple[str, ...]] = [("task", "train", "dev", "metric", "BERT", "baseline", "time")]
        for name, result in self.results.items():
            data = result.protocol["data"]
            held = " (held out)" if data["dev_held_out_of_train"] else ""
            facts, spent = (name, f"{data['train_rows']:,}", f"{data['dev_rows']:,}{held}"), clock(_seconds(result))
            for scores in result.score_rows():
                rows.append((*facts, *scores, spent))
                facts, spent = ("", "", ""), ""
        lines = aligned(rows)
        for with_wnli, words in ((True, "with WNLI"), (False, "without WNLI")):
            average = self.macro_average(with_wnli=with_wnli)
            if average is not None:
                count = sum(with_wnli or name != WNLI.name for name in self.results)
                whole = len(WHOLE_GLUE) - (not with_wnli)
                lines.append(f"macro average {words}: {average:.4f} ({count} of {whole} tasks, dev, mean over seeds)")
        lines += [f"not run: {name}: {why}" for name, why in self.missing.items()]
        if self.submission:
            lines.append(f"submission files: {', '.join(self.submission)}")
        for name, why in self.not_submitted.items():
            # Without test files no submission is wanted.
            if self.submission or not why.endswith((NO_TEST_FILE, NOT_RUN)):
                lines.append(f"no submission file {SUBMISSION_FILES[name]}: {why}")
        return "\n".join([*lines, printable(self.folder)])


def task_score(result: FinetuneResult) -> float:
    """One number per task: the mean of the metrics that GLUE counts (:data:`COUNTED`), each averaged over the seeds.

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
    device: Device = None,
    cache: str | Path | None = "auto",
) -> GlueResult:
    """Fine-tune on every GLUE task that has files.

    Args:
        data: a folder with the tasks' folders (``CoLA``, ``SST-2`` ...). A task without a train file is skipped and
            named; for one without a dev file, rows are held out of train, and the table says so. A wrong test file is
            reported before training and costs only its submission file.
        model: start checkpoint of every task.
        out: gets a run folder per task, ``glue.json``, and in ``submission`` the predictions for the test files.
        config: settings of every task; one that a task does not have is refused before training.
        resume: continue; finished tasks are kept.
        device: None is the CPU.
        cache: as of :func:`finetune`.
    """
    config, out = config or FinetuneConfig(), Path(out)
    if out.exists() and any(out.iterdir()) and not resume:
        raise ConfigError(f"{out} is not empty: add --resume to continue, or choose another --out")
    tasks, missing = _present(Path(data))
    if not tasks:
        raise DataError(f"{data} has no task of GLUE to train: {'; '.join(f'{k}: {v}' for k, v in missing.items())}")
    for task in tasks:
        workflow = workflow_of(task)
        workflow.check_settings(config)
        read_rows(workflow, data, config)
    for name, why in missing.items():
        say(f"not run: {name}: {why}")
    trained = {task.name for task in tasks}
    for key in SUBMISSION_FILES:
        try:
            _test_examples(key, data, trained)
        except DataError as error:
            say(f"there will be no submission file {SUBMISSION_FILES[key]}: {error}")
    results: dict[str, FinetuneResult] = {}
    for task in tasks:
        say(f"--- {task.name} ({len(results) + 1} of {len(tasks)}): {task.about}")
        results[task.name] = finetune(
            task, data, model, out / task.name, config, resume=resume, device=device, cache=cache
        )
        write_json(out / "glue.json", GlueResult(out, results, missing).to_dict())
    written, absent = write_submission(out, data, {name: out / name for name in results}, device=device)
    result = GlueResult(out, results, missing, written, absent)
    write_json(out / "glue.json", result.to_dict())
    write_atomically(out / "README.md", f"# GLUE\n\n```\n{result.render()}\n```\n")
    return result


def write_submission(
    out: str | Path, data: str | Path, runs: Mapping[str, Path], *, device: Device = None
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Predictions for the test files in the format of the GLUE server, in ``out/submission``; a zip when all are there.

    Columns ``index`` and ``prediction``: label names as in the data files, or scores from 0 to 5. Returns the names of
    the files written, and why others were not, by key of :data:`SUBMISSION_FILES`.
    """
    folder = Path(out) / "submission"
    written: list[str] = []
    absent: dict[str, str] = {}
    for key, file in SUBMISSION_FILES.items():
        task, name, _ = _parts_of(key)
        try:
            examples = _test_examples(key, data, runs)
        except DataError as error:
            absent[key] = str(error)
            continue
        if examples is None:
            absent[key] = NO_TEST_FILE if name in runs else f"{name} {NOT_RUN}"
            continue
        write_atomically(folder / file, submission_text(task, examples, load_run(runs[name], device=device)))
        written.append(file)
    for key in absent:
        (folder / SUBMISSION_FILES[key]).unlink(missing_ok=True)
    (folder / "submission.zip").unlink(missing_ok=True)
    if not absent:
        with zipfile.ZipFile(folder / "submission.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for file in written:
                archive.write(folder / file, file)
    return tuple(written), absent


def submission_text(task: TextTask, examples: Examples[Example], run: Run) -> str:
    """One file of a submission, for all rows of a test file: skipping one would shift the answers."""
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


def _own_splits(task: TextTask, data: Path) -> dict[str, Path]:
    """The files in the task's own folder; files next to those folders belong to no task."""
    folder = own_folder(task, data)
    if folder is None or not any(folder.iterdir()):
        return {}
    return {str(name): file for name, file in splits_of(task, folder).items()}


def _parts_of(key: str) -> tuple[TextTask, str, str]:
    """Of a submission file: its task, the task that is trained for it, and the word in its test file's name."""
    name, _, word = key.partition(" ")
    task = next(task for task in (*WHOLE_GLUE, DIAGNOSTIC) if task.name == name)
    return task, MNLI.name if task is DIAGNOSTIC else name, word


def _test_examples(key: str, data: str | Path, trained: Collection[str]) -> Examples[Example] | None:
    """The rows of a submission file; None without a test file, or if its task is not trained."""
    task, name, word = _parts_of(key)
    if name not in trained:
        return None
    if task is DIAGNOSTIC:
        folder = own_folder(task, data)
        files = [] if folder is None else [folder / file for file in DIAGNOSTIC_FILES]
        test = next((file for file in files if file.is_file()), None)
    else:
        test = beside(task, data, "test", word) if word else _own_splits(task, Path(data)).get("test")
    return None if test is None else load_split(task, test, "test")


def _seconds(result: FinetuneResult) -> float:
    return sum(seed.seconds for seed in (*result.seeds, *result.replaced))
