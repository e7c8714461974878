"""What fine-tuned teachers say of examples, also without labels: computed once, kept, and averaged over teachers.

Letters of the array shapes: N examples, U units of them (see :mod:`taught_workflow`), C numbers of each, K teachers.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertkit.checkpoints.safetensors_format import write_arrays
from bertkit.config.config_file import checkpoint_folder
from bertkit.config.reading_settings import ReadingSettings
from bertkit.engine.backend import Check
from bertkit.errors import ConfigError, DataError, counted
from bertkit.inference.protocol import model_hash
from bertkit.inference.run_files import read_task
from bertkit.inference.runs import Run, open_run
from bertkit.metrics.probabilities import sigmoid, softmax
from bertkit.model.soft_targets import SEVERAL, SINGLE
from bertkit.ragged import Floats, Ints
from bertkit.system.console import Progress, quiet, say
from bertkit.system.device import Device
from bertkit.system.interrupts import Interrupts
from bertkit.system.json_files import printable
from bertkit.system.model_sources import resolve
from bertkit.tasks.registry import Task
from bertkit.tasks.taught_workflow import TaughtWorkflow
from bertkit.tokenization.digest import tokenizer_digest
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
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
    sizes: Ints | None = None,
) -> Floats:
    """The outputs of all texts, float32 ``(N, width)``, of which those that ``folder`` has are not computed again.

    One file for each :data:`PART` texts, named by a hash of the texts and of ``key``, everything else that the outputs
    depend on. ``compute`` gets the numbers of some texts, and what it has to call regularly. ``sizes`` says how many
    outputs each text has, int64 ``(N,)``, end to end in the result; None: one. An interrupt keeps the parts so far.
    """
    found = [np.zeros((0, width), np.float32)]
    with Interrupts() as signals, Progress(len(texts), label=label, unit="texts") as bar:
        for start in range(0, len(texts), PART):
            numbers = range(start, min(start + PART, len(texts)))
            content = json.dumps([key, width, texts[numbers.start : numbers.stop]])
            file = folder / f"{hashlib.sha256(content.encode()).hexdigest()[:32]}.safetensors"
            rows = len(numbers) if sizes is None else int(sizes[start : numbers.stop].sum())
            part = read_features(file, (rows, width))
            if part is None:
                signals.check()
                with quiet():
                    part = compute(numbers, signals.check)
                write_arrays(file, {"vectors": part})
            found.append(part)
            bar.advance(len(numbers))
    return np.concatenate(found)


def read_unlabelled(taught: TaughtWorkflow, files: Iterable[str | Path], known: Iterable[Any]) -> list[Any]:
    """The examples of files, of which no label is read.

    For a task of texts its text columns of tables, or each line of other files; for other kinds of tasks files as those
    that are trained on, where the answers may be missing. Left out are blank texts, those that are among the ``known``
    (train and dev), and repetitions.
    """
    seen: set[Hashable] = set(map(taught.texts, known))
    found: list[Any] = []
    for file in map(Path, files):
        fresh, count = taught.read_unlabelled(file, seen)
        if not fresh:
            raise DataError(f"{file}: there is no text that is not in the training or the dev file already")
        say(f"{file}: {counted(len(fresh), 'text')} without labels" + (f" of {count:,}" if len(fresh) < count else ""))
        seen.update(map(taught.texts, fresh))
        found += fresh
    return found


@dataclass(frozen=True, slots=True)
class Teacher:
    """An opened run or classifier; ``places``: for each output of the task, that of the teacher with its name."""

    run: Run
    sha256: str
    places: tuple[int, ...]

    def logits(
        self, taught: TaughtWorkflow, examples: Sequence[Any], sizes: Ints, reading: ReadingSettings, folder: Path
    ) -> Floats:
        """Its logits in the order of the task's labels, ``(U, C)``; it reads as in training, or as the student does."""
        run = self.run
        used = reading if taught.reads_alike else run.config
        how = used.model_dump(include=_READING)
        key = json.dumps([self.sha256, tokenizer_digest(run.tokenizer), how], sort_keys=True)

        def compute(numbers: range, check: Check) -> Floats:
            part = examples[numbers.start : numbers.stop]
            encoded = run.workflow.encode(part, run.tokenizer, used, labelled=False)
            return taught.said(run.workflow.outputs(run.engine, encoded, check=check, label=""), encoded)

        found = kept_outputs(
            [taught.texts(example) for example in examples],
            compute,
            folder,
            key=key,
            width=len(self.places),
            label=f"asking {printable(run.path.name)}",
            sizes=sizes,
        )
        return found[:, self.places]


#: Settings that say how a teacher reads.
_READING = {"max_length", "long_texts", "overlap", "doc_stride", "max_query_length", "max_answer_length"}


def task_of_teacher(teacher: str | Path, task: Task | None) -> Task:
    """The task that students of a teacher learn: the given one, or that of the teacher's run."""
    known = task or read_task(checkpoint_folder(resolve(teacher)))
    if known is None:
        raise ConfigError(
            f"{printable(teacher)} is no run of 'bertkit finetune', so nothing says what its task is: give --task, "
            "such as sst2 or csv"
        )
    return known


def open_teachers(paths: Sequence[str | Path], taught: TaughtWorkflow, *, device: Device = None) -> tuple[Teacher, ...]:
    """The teachers of a task, checked against it; labels in another order are matched by name."""
    return tuple(_open(path, taught, device) for path in paths)


def _open(path: str | Path, taught: TaughtWorkflow, device: Device) -> Teacher:
    run = open_run(path, taught.task, device=device)
    own, name = run.workflow.task, printable(path)
    if not isinstance(taught, type(run.workflow)):
        raise ConfigError(f"teacher {name} is of task {own.name}, which is of another kind than {taught.task.name}")
    return Teacher(run, model_hash(path), taught.places(own, run.engine.config, name))


def check_tokenizer(teacher: Teacher, taught: TaughtWorkflow, tokenizer: PreTrainedTokenizer) -> None:
    """Refuse (ConfigError) a student with another tokenizer, where what the teacher says is of single tokens."""
    if taught.reads_alike and tokenizer_digest(teacher.run.tokenizer) != tokenizer_digest(tokenizer):
        raise ConfigError(
            f"the student has another tokenizer than the teacher {printable(teacher.run.path)}, and what this says in "
            f"task {taught.task.name} is of single tokens; give a student with the teacher's tokenizer"
        )


def combined(
    logits: Sequence[Floats], problem: str, how: str, temperature: float, groups: Ints | None = None
) -> Floats:
    """The logits of an ensemble, ``(U, C)``: their mean, or those whose softened probabilities are the mean.

    ``problem`` is that of :func:`bertkit.model.soft_targets.soft_losses`.
    Of ``how="probabilities"`` the softmax at ``temperature`` (of several labels the sigmoid) is the mean of the
    teachers': over C, or of each of C over the units of a group (int64 ``(G + 1,)``). Numbers are averaged.
    """
    if len(logits) == 1 or how == "logits" or problem not in (SINGLE, SEVERAL):
        mean: Floats = np.stack(logits).mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean
    scaled_KUC = np.stack(logits).astype(np.float64) / temperature
    if problem == SEVERAL:
        yes = sigmoid(scaled_KUC).mean(axis=0).clip(1e-12, 1 - 1e-12)
        mean_UC = np.log(yes) - np.log1p(-yes)
    else:
        shares_KUC = softmax(scaled_KUC) if groups is None else _softmax_of_groups(scaled_KUC, groups)
        mean_UC = np.log(shares_KUC.mean(axis=0).clip(1e-30))
    found: Floats = (temperature * mean_UC).astype(np.float32)
    return found


def _softmax_of_groups(x_KUC: npt.NDArray[np.float64], groups: Ints) -> npt.NDArray[np.float64]:
    firsts, sizes = groups[:-1], np.diff(groups)
    masses = np.exp(x_KUC - np.repeat(np.maximum.reduceat(x_KUC, firsts, axis=1), sizes, axis=1))
    shares: npt.NDArray[np.float64] = masses / np.repeat(np.add.reduceat(masses, firsts, axis=1), sizes, axis=1)
    return shares
