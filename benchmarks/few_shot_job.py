"""One training on a handful of labels, by bertkit or by SetFit, in a process of its own.

    python benchmarks/few_shot_job.py setfit JOB.json

For ``few_shot.py``, which writes the job and runs this with the Python that has the system. Prints one line of JSON:
``right``, the share of test texts with the right label; ``seconds`` from loaded rows to a trained model (without
imports and test), ``test_seconds``; of a selection the ``chosen`` method, and no score.
"""

from __future__ import annotations

import csv
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from job_file import JobFile

#: Pairs for each text: of SetFit so many iterations, each of which is a pair of one label and one of two.
ITERATIONS = 10
BATCH = 16


@dataclass(frozen=True)
class Job(JobFile):
    """Labelled texts, with labels from 0 on, and the texts to test on."""

    model: str
    texts: list[str]
    labels: list[int]
    test_texts: list[str]
    test_labels: list[int]
    num_labels: int
    length: int
    seed: int
    threads: int


def main() -> None:
    system, path = sys.argv[1:]
    job = Job.read(path)
    import torch

    torch.set_num_threads(job.threads)
    run = {"setfit": run_setfit, "tfidf": run_tfidf, "selection": run_selection}.get(system)
    print(json.dumps(run(job) if run else run_bertkit(job, system)))


def share_right(predicted: Any, job: Job) -> float:
    """Accuracy on the test texts."""
    return round(float((np.asarray(predicted) == np.asarray(job.test_labels)).mean()), 6)


def run_bertkit(job: Job, method: str) -> dict[str, Any]:
    """One method of few_shot; no other labelled rows are used."""
    from bertkit.tasks.workflow import workflow_of
    from bertkit.tokenization import AutoTokenizer
    from bertkit.training.finetuning.few_shot import fit_few_labels
    from bertkit.training.finetuning.finetune_settings import FinetuneConfig
    from bertkit.training.finetuning.fit import FitOptions, fit
    from bertkit.training.trainer.generators import seeded

    begin = time.perf_counter()
    task, rows = task_of(job), examples(job.texts, job.labels)
    workflow = workflow_of(task)
    settings = FinetuneConfig(
        few_shot=True, few_shot_method=method, few_shot_pairs=2 * ITERATIONS, max_length=job.length, seed=job.seed
    )
    with seeded(job.seed):
        tokenizer = AutoTokenizer.from_pretrained(job.model)
        model = workflow.new_model(job.model, seed=job.seed, device=None, settings=settings)
        train = workflow.encode(rows, tokenizer, settings, labelled=True)
        config = settings.resolved(task=task.name, model=model.config, num_train_rows=len(rows))
        if method == "finetune":
            model = fit(model, workflow, train, None, config, seed=job.seed).model
        else:
            options = FitOptions()
            model = fit_few_labels(model, workflow, rows, train, None, config, seed=job.seed, options=options).model
        seconds = time.perf_counter() - begin
        test = workflow.encode(examples(job.test_texts, job.test_labels), tokenizer, settings, labelled=False)
        logits = workflow.outputs(workflow.scoring_engine(model), test, label="test")
    whole = time.perf_counter() - begin
    right = share_right(logits.argmax(axis=1), job)
    return {"right": right, "seconds": round(seconds, 2), "test_seconds": round(whole - seconds, 2)}


def run_selection(job: Job) -> dict[str, Any]:
    """Which method ``finetune --few-shot`` chooses of the training rows, and how long the comparison takes."""
    from bertkit import finetune
    from bertkit.tasks import csv_task
    from bertkit.training.finetuning.finetune_settings import FinetuneConfig

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.csv"
        with file.open("w", newline="", encoding="utf-8") as stream:
            names = [f"label {label:03d}" for label in job.labels]
            csv.writer(stream).writerows([("text", "label"), *zip(job.texts, names, strict=True)])
        config = FinetuneConfig(few_shot=True, few_shot_pairs=2 * ITERATIONS, max_length=job.length, seed=job.seed)
        task = csv_task(file, text="text", label="label")
        begin = time.perf_counter()
        result = finetune(task, file, job.model, Path(folder) / "run", config, cache=None)
        seconds = time.perf_counter() - begin
    found = result.protocol["few_shot"]
    cells = {each["method"]: each["score"] for each in found["compared"]}
    return {"chosen": found["chosen"], "compared": cells, "seconds": round(seconds, 2)}


def run_tfidf(job: Job) -> dict[str, Any]:
    """The baseline of text tasks."""
    from bertkit.tasks.text.baseline import tfidf_predictions

    begin = time.perf_counter()
    rows, test = examples(job.texts, job.labels), examples(job.test_texts, job.test_labels)
    predicted, _ = tfidf_predictions(rows, test, task_of(job))
    seconds = round(time.perf_counter() - begin, 2)
    return {"right": share_right(predicted, job), "seconds": seconds, "test_seconds": 0.0}


def run_setfit(job: Job) -> dict[str, Any]:
    """The peer with its defaults, and as many pairs."""
    import datasets
    import setfit
    import transformers

    transformers.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    begin = time.perf_counter()
    model = setfit.SetFitModel.from_pretrained(job.model, device="cpu")
    model.model_body.max_seq_length = job.length
    rows = datasets.Dataset.from_dict({"text": job.texts, "label": job.labels})
    with tempfile.TemporaryDirectory() as scratch:
        arguments = setfit.TrainingArguments(
            output_dir=scratch, batch_size=BATCH, num_epochs=1, num_iterations=ITERATIONS, seed=job.seed,
            save_strategy="no", eval_strategy="no", report_to="none", show_progress_bar=False,
        )  # fmt: skip
        trainer = setfit.Trainer(model=model, args=arguments, train_dataset=rows)
        trainer.train()
    seconds = time.perf_counter() - begin
    predicted = model.predict(job.test_texts, batch_size=32, as_numpy=True)
    whole = time.perf_counter() - begin
    right = share_right(predicted, job)
    return {"right": right, "seconds": round(seconds, 2), "test_seconds": round(whole - seconds, 2)}


def examples(texts: list[str], labels: list[int]) -> list[Any]:
    """Rows as bertkit has them."""
    from bertkit.tasks.examples import Example

    return [Example(text, None, label, row) for row, (text, label) in enumerate(zip(texts, labels, strict=True))]


def task_of(job: Job) -> Any:
    """A task with these labels."""
    from bertkit.tasks import Columns, TextTask

    labels = tuple(f"label {number:03d}" for number in range(job.num_labels))
    return TextTask("few", labels, ("accuracy",), "accuracy", Columns(text=("text",)))


if __name__ == "__main__":
    main()
