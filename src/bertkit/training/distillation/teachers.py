"""What fine-tuned teachers say of texts: computed once, kept on disk, and averaged over several teachers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from bertkit.checkpoints.huggingface import checkpoint_folder
from bertkit.config.any_config import AnyConfig
from bertkit.data.store.store_manifest import tokenizer_digest
from bertkit.engine.backend import Check
from bertkit.errors import ConfigError, shorten
from bertkit.inference.protocol import model_hash
from bertkit.inference.run_files import read_task
from bertkit.inference.runs import Run, open_run
from bertkit.metrics.probabilities import sigmoid, softmax
from bertkit.ragged import Floats
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import Progress, quiet
from bertkit.system.device import Device
from bertkit.system.interrupts import Interrupts
from bertkit.system.json_files import printable
from bertkit.system.model_sources import resolve
from bertkit.tasks.examples import Example
from bertkit.tasks.registry import Task
from bertkit.tasks.text.task import TextTask
from bertkit.training.finetuning.feature_cache import read_features

#: Texts whose outputs are written together: at most so many are computed again after a kill.
PART = 512


def kept_outputs(
    texts: Sequence[tuple[str, ...]],
    compute: Callable[[range, Check], Floats],
    folder: Path,
    *,
    key: str,
    width: int,
    label: str,
) -> Floats:
    """The outputs of all texts, float32 ``(N, width)``, of which those that ``folder`` has are not computed again.

    One file for each :data:`PART` texts, named by a hash of ``key``, which says whose outputs they are, and the texts.

    Args:
        texts: each a text or a pair; only for the names of the files.
        compute: from the numbers of some texts to their outputs; it calls what it gets regularly.
        folder: of the files.
        key: everything that the outputs depend on beside the texts.
        width: numbers of each output.
        label: of the progress bar.

    Raises:
        Interrupted: Ctrl-C or SIGTERM; the parts so far are kept.
    """
    found = [np.zeros((0, width), np.float32)]
    with Interrupts() as signals, Progress(len(texts), label=label, unit="texts") as bar:
        for start in range(0, len(texts), PART):
            numbers = range(start, min(start + PART, len(texts)))
            content = json.dumps([key, width, texts[numbers.start : numbers.stop]])
            file = folder / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.safetensors"
            part = read_features(file, (len(numbers), width))
            if part is None:
                signals.check()
                with quiet():
                    part = compute(numbers, signals.check)
                write_atomically(file, save({"vectors": part}))
            found.append(part)
            bar.advance(len(numbers))
    return np.concatenate(found)


@dataclass(frozen=True, slots=True)
class Teacher:
    """A fine-tuned run, or another checkpoint with a classifier, opened.

    places: for each output of the task, the number of the teacher's output with that name.
    """

    run: Run
    sha256: str
    places: tuple[int, ...]

    def logits(self, examples: Sequence[Example], folder: Path) -> Floats:
        """Its logits in the order of the task's labels, float32 ``(N, C)``; it reads texts as it was trained to."""
        run = self.run
        reading = run.config.model_dump(include={"max_length", "long_texts", "overlap"})
        key = json.dumps([self.sha256, tokenizer_digest(run.tokenizer), reading], sort_keys=True)

        def compute(numbers: range, check: Check) -> Floats:
            part = examples[numbers.start : numbers.stop]
            encoded = run.workflow.encode(part, run.tokenizer, run.config, labelled=False)
            found: Floats = run.workflow.outputs(run.engine, encoded, check=check, label="")
            return found

        texts = [(each.text,) if each.text_pair is None else (each.text, each.text_pair) for each in examples]
        label = f"asking {printable(run.path.name)}"
        found = kept_outputs(texts, compute, folder, key=key, width=len(self.places), label=label)
        return found[:, self.places]


def task_of_teacher(teacher: str | Path, task: Task | None) -> TextTask:
    """The task that students of a teacher learn: the given one, or that of the teacher's run.

    Raises:
        ConfigError: the teacher is no run of bertkit, and no task is given; it is of another kind of task.
    """
    known = task or read_task(checkpoint_folder(resolve(teacher)))
    if known is None:
        raise ConfigError(
            f"{printable(teacher)} is no run of 'bertkit finetune', so nothing says what its task is: give --task, "
            "such as sst2 or csv"
        )
    if not isinstance(known, TextTask):
        raise ConfigError(
            f"task {known.name} is not of one label, several labels or a score for each text, and only such tasks can "
            "be taught by another model's outputs so far"
        )
    return known


def open_teachers(paths: Sequence[str | Path], task: TextTask, *, device: Device = None) -> tuple[Teacher, ...]:
    """The teachers of a task.

    Raises:
        ConfigError: no teacher, one that reads pairs where the task has single texts, or the other way round, one that
            predicts other labels; labels in another order are put in order by their names.
    """
    if not paths:
        raise ConfigError("there is no teacher: give at least one fine-tuned run")
    return tuple(_open(path, task, device) for path in paths)


def _open(path: str | Path, task: TextTask, device: Device) -> Teacher:
    run = open_run(path, task, device=device)
    own = run.workflow.task
    if not isinstance(own, TextTask) or own.is_pair != task.is_pair:
        reads = "pairs of texts" if task.is_pair else "single texts"
        raise ConfigError(
            f"teacher {printable(path)} is of task {own.name}, whose rows are not {reads} as in {task.name}"
        )
    return Teacher(run, model_hash(path), _places(run.engine.config, task, printable(path)))


def _places(shape: AnyConfig, task: TextTask, name: str) -> tuple[int, ...]:
    theirs = list(shape.id2label.values())
    if task.labels is None:
        if len(theirs) != 1:
            raise ConfigError(f"teacher {name} has {len(theirs)} labels, and task {task.name} predicts a number")
        return (0,)
    if (
        sorted(theirs) != sorted(task.labels)
        or (shape.problem_type == "multi_label_classification") != task.multi_label
    ):
        several = " (any number of them)"
        raise ConfigError(
            f"teacher {name} predicts {shorten(theirs)}"
            f"{several if shape.problem_type == 'multi_label_classification' else ''}, task {task.name} has the labels "
            f"{shorten(task.labels)}{several if task.multi_label else ''}: a student cannot learn one from the other. "
            "Use a teacher that was trained on these labels"
        )
    return tuple(theirs.index(label) for label in task.labels)


def combined(logits: Sequence[Floats], task: TextTask, how: str, temperature: float) -> Floats:
    """The logits of an ensemble, ``(N, C)``: their mean, or those whose softened probabilities are the mean.

    Of ``how="probabilities"`` the softmax at ``temperature`` (of several labels the sigmoid) is the mean of the
    teachers'. Numbers are averaged.
    """
    if len(logits) == 1 or how == "logits" or task.labels is None:
        mean: Floats = np.stack(logits).mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean
    scaled_KNC = np.stack(logits).astype(np.float64) / temperature
    if task.multi_label:
        yes = sigmoid(scaled_KNC).mean(axis=0).clip(1e-12, 1 - 1e-12)
        mean_NC = np.log(yes) - np.log1p(-yes)
    else:
        mean_NC = np.log(softmax(scaled_KNC).mean(axis=0).clip(1e-30))
    found: Floats = (temperature * mean_NC).astype(np.float32)
    return found
