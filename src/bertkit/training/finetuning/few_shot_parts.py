"""What each way of learning says of labelled rows that it has not seen: part by part, kept in the run folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from bertkit.checkpoints.safetensors_format import write_arrays
from bertkit.ragged import Flags, Floats, Ints, Ragged, concatenate
from bertkit.system.console import quiet, say
from bertkit.system.interrupts import Interrupted
from bertkit.tasks.examples import Example, Examples, Located
from bertkit.tasks.hold_out import part
from bertkit.tasks.text.baseline import tfidf_predictions
from bertkit.tasks.text.task import TextTask
from bertkit.training.finetuning.feature_cache import read_features
from bertkit.training.finetuning.finetune_folder import PARTS
from bertkit.training.finetuning.fit import FitOptions
from bertkit.training.finetuning.pseudo_labels import read_unlabelled, sure_enough, with_pseudo_labels
from bertkit.training.finetuning.seed_run import Job, TaskData

#: The method whose models give pseudo-labels.
GIVES_LABELS = "contrastive"


class HeldOut:
    """The training rows of a job in parts, each answered by models of the others: logits ``said`` by method."""

    def __init__(self, job: Job, folds: Ints) -> None:
        self.job, self.folds = job, folds
        self.count = int(folds.max()) + 1
        self.said: dict[str, Floats] = {}
        self.seconds: dict[str, float] = {}
        self.rows = cast("Sequence[Example]", job.data.rows.train)
        self.encoded = cast(Ragged, job.data.train)
        self._unlabelled = _unlabelled(job, self.rows)
        self._opinions: list[Floats] = []  # of the unlabelled texts, by the models of each part

    def compare(self, method: str, advance: Callable[[], None]) -> None:
        """Add what a method says; "pseudo" comes after :data:`GIVES_LABELS`. ``advance`` is called after each part."""
        outputs: Floats = np.zeros((len(self.folds), self.job.workflow.task.num_labels), np.float32)
        began = time.monotonic()
        for fold in range(self.count):
            outside = np.flatnonzero(self.folds == fold)
            found = self._part(method, fold)
            outputs[outside] = found[: len(outside)]
            if method == GIVES_LABELS:
                self._opinions.append(found[len(outside) :])
            advance()
        self.said[method], self.seconds[method] = outputs, time.monotonic() - began

    def all_with_pseudo_labels(self) -> Ragged:
        """All training rows, and the texts of whose labels the models of all parts together are sure."""
        opinion: Floats = np.mean(self._opinions, axis=0, dtype=np.float32)
        return self._with_pseudo_labels(np.ones(len(self.folds), np.bool_), opinion)

    def _with_pseudo_labels(self, inside: Flags, opinion_UC: Floats) -> Ragged:
        assert self._unlabelled is not None, "the settings refuse pseudo-labels without texts"
        train = self.encoded.select(np.flatnonzero(inside))
        threshold = sure_enough(self.said[GIVES_LABELS][inside], np.asarray(train.labels))
        return with_pseudo_labels(train, self._unlabelled, opinion_UC, threshold)

    def _part(self, method: str, fold: int) -> Floats:
        """Logits of the rows of a part and, of the models that give labels, of the unlabelled texts behind them."""
        file = self.job.run.path / PARTS / f"{method}-{fold}.safetensors"
        opinions = 0 if method != GIVES_LABELS or self._unlabelled is None else len(self._unlabelled)
        rows = int((self.folds == fold).sum()) + opinions
        if (known := read_features(file, (rows, self.job.workflow.task.num_labels))) is not None:
            return known
        try:
            with quiet():
                found = self._predicted(method, fold)
        except Interrupted as stop:
            advice = self.job.run.how_to_resume
            reason = f"stopped while methods were compared; finished parts are kept. {advice}"
            raise Interrupted(reason, stop.signum) from None
        write_arrays(file, {"vectors": found})
        return found

    def _predicted(self, method: str, fold: int) -> Floats:
        task: TextTask = self.job.workflow.task
        outside = np.flatnonzero(self.folds == fold)
        inside = self.folds != fold
        stay, out = part(self.rows, set(outside.tolist()))
        if method == "tfidf":  # no logits: 1 for its answer
            labels, _ = tfidf_predictions(stay, out, task)
            answers: Floats = np.eye(task.num_labels, dtype=np.float32)[labels]
            return answers
        if method == "pseudo":
            seen = self._with_pseudo_labels(inside, self._opinions[fold])
        else:
            seen = self.encoded.select(np.flatnonzero(inside))
        rows = cast("Examples[Located]", stay)
        data = TaskData(replace(self.job.data.rows, train=rows, dev=rows), seen, seen, self.job.data.report)
        config = self.job.config.model_copy(update={"few_shot_method": method})
        own = replace(self.job, data=data, config=config, callbacks=())
        engine = own.workflow.scoring_engine(own.train(config.seed, FitOptions(cache=self.job.cache)).model)
        asked = self.encoded.select(outside)
        if method == GIVES_LABELS and self._unlabelled is not None:
            asked = concatenate([asked, self._unlabelled])
        logits: Floats = own.workflow.outputs(engine, asked, label="scoring")
        return logits


def _unlabelled(job: Job, rows: Sequence[Example]) -> Ragged | None:
    if (file := job.config.unlabelled) is None:
        return None
    scored = [*job.data.rows.dev, *(row for more in job.data.rows.more.values() for row in more)]
    examples = read_unlabelled(job.workflow.task, file, [*rows, *cast("Sequence[Example]", scored)])
    say(f"unlabelled texts beside: {len(examples):,} of {file}")
    encoded: Ragged = job.workflow.encode(examples, job.tokenizer, job.config, labelled=False)
    return encoded
