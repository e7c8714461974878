"""A student of fine-tuned teachers: trained on what they say of texts, and once without them, for comparison.

Hinton et al. 2015, "Distilling the Knowledge in a Neural Network", for any classifier or regression of texts and any
student. The folder::

    OUT/
        distill.json   settings, teachers and scores; written at the start, completed at the end
        student/       the model that both runs begin with, where it was made of the teacher
        teacher/       what the teachers said of each text
        augmented.jsonl  variants of the training texts, if asked for
        states/        the stage before, if asked for, in which the student's states follow the teacher's
        with/          the run with the teachers: load OUT/with like any checkpoint
        without/       the same student and settings with the labels alone

The same command continues an interrupted run.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.checkpoints.huggingface import checkpoint_folder, config_path
from bertkit.config.any_config import read_any_config
from bertkit.errors import ConfigError
from bertkit.inference.pipelines import pipeline
from bertkit.inference.protocol import short_name
from bertkit.inference.run_files import SETTINGS, read_facts, read_settings
from bertkit.inference.runs import Run, open_run
from bertkit.inference.sentence_encoder import SentenceEncoder
from bertkit.ragged import Floats, Ragged
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import aligned, quiet, say
from bertkit.system.device import Device, find_device
from bertkit.system.interrupts import Interrupted
from bertkit.system.json_files import printable, read_lines
from bertkit.system.model_sources import resolve
from bertkit.system.untrusted_files import Json
from bertkit.tasks import csv_task, task_of
from bertkit.tasks.examples import Example, Row
from bertkit.tasks.registry import Task
from bertkit.tasks.run_rows import Rows, held_out_again, read_rows, to_jsonl
from bertkit.tasks.text.task import TextTask
from bertkit.tasks.text.workflow import TextWorkflow, score_logits
from bertkit.training.distillation.augment import augmented
from bertkit.training.distillation.distill_settings import DistillRecipe, TaskDistillation, load_recipe
from bertkit.training.distillation.model_costs import HEADINGS, Costs, costs_of
from bertkit.training.distillation.students import start_of
from bertkit.training.distillation.taught_states import MODEL, StatePair, follow_states, open_pair
from bertkit.training.distillation.taught_texts import Lesson, TaughtTexts, read_unlabelled
from bertkit.training.distillation.teachers import Teacher, combined, open_teachers, task_of_teacher
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_results import FinetuneResult
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.trainer.run_folder import RunFolder

#: Most epochs of the run without a teacher that make up for texts without labels.
MOST_EPOCHS = 100
#: What makes the comparison with the teacher unfair.
SEEN = (
    "A TEACHER WAS TRAINED ON ROWS OF THIS DEV SET, so its score is too high, and the student knows of them through "
    "it; give data with a dev file that no teacher has seen"
)
STUDENT, OUTPUTS, AUGMENTED, STATES = "student", "teacher", "augmented.jsonl", "states"
WITH, WITHOUT = "with", "without"


class DistillFolder(RunFolder):
    """The folder of a distillation, which always continues what is there."""

    settings_file, states, how_to_resume = "distill.json", "*/checkpoints", "Run the same command to continue"

    def check(self, settings: Mapping[str, Any], *, resume: bool = True, free: Collection[str] = ()) -> None:
        """As :meth:`RunFolder.check`; results are no settings."""
        super().check(settings, resume=resume, free={*free, "result"})

    def _has_steps(self) -> bool:
        return any((self.path / name).exists() for name in (STUDENT, STATES, WITH))  # what the settings made


@dataclass(frozen=True, slots=True)
class TaughtResult:
    """The outcome of :func:`distill_task`.

    folder: see the module.
    taught: the run with the teachers. alone: the one without; None if not asked for.
    teacher: the teachers' own scores on the same dev rows.
    costs: of the (first) teacher and of the student.
    texts: training rows, and texts without labels.
    teacher_has_seen: whether a teacher was trained on dev rows, so that its score is too high.
    """

    folder: Path
    taught: FinetuneResult
    alone: FinetuneResult | None
    teacher: Mapping[str, float]
    costs: Mapping[str, Costs]
    texts: Mapping[str, int]
    teacher_has_seen: bool = False

    def to_dict(self) -> dict[str, Json]:
        """Plain data for JSON."""
        runs = {"with": self.taught, "without": self.alone}
        scores: dict[str, Json] = {
            name: {"mean": run.mean, "sd": run.sd, "seeds": [seed.seed for seed in run.seeds]}
            for name, run in runs.items()
            if run is not None
        }
        return {
            "task": self.taught.task,
            "main_metric": self.taught.main_metric,
            "teacher": dict(self.teacher),
            **scores,
            "costs": {name: costs.to_dict() for name, costs in self.costs.items()},
            "texts": dict(self.texts),
            "teacher_has_seen_dev": self.teacher_has_seen,
        }

    def render(self) -> str:
        """Scores and costs side by side, for people."""
        rows = [("metric", "teacher", "student", "share", "student alone")]
        for name, score, _ in self.taught.score_rows():
            top = self.teacher.get(name)
            share = f"{self.taught.mean[name] / top:.1%}" if top else ""
            alone = "not run" if self.alone is None else self.alone.score_line(name)
            rows.append((name, "" if top is None else f"{top:.4f}", score, share, alone))
        columns = [costs.cells() for costs in self.costs.values()]
        costs = [("costs", *self.costs), *zip(HEADINGS, *columns, strict=True)]
        trained = f"{self.texts['labelled']:,} labelled texts"
        if self.texts["unlabelled"]:
            trained += f" and {self.texts['unlabelled']:,} without labels"
        return "\n".join(
            [
                f"{self.taught.task} (dev): a student of {trained}",
                *(f"  {line}" for line in aligned(rows)),
                *(f"  {line}" for line in aligned(costs)),
                *([f"  note: {SEEN}"] if self.teacher_has_seen else []),
                f"  {printable(self.folder / WITH)}",
            ]
        )


def distill_task(
    teachers: Sequence[str | Path],
    data: str | Path | None,
    out: str | Path,
    recipe: DistillRecipe | str | Path = "task",
    *,
    task: str | Task | None = None,
    texts: Sequence[str | Path] = (),
    compare: bool = True,
    outputs: str | Path | None = None,
    device: Device = None,
) -> TaughtResult:
    """Train a student on what teachers say of the task's texts, and on its labels.

    Args:
        teachers: runs of ``finetune`` on texts or pairs, of any family and with any tokenizer, or other checkpoints
            with a classifier. Of several the mean is learned. Layers and shapes are taken of the first.
        data: labelled files of the task; None: those of the first teacher's run.
        out: the folder; new, or that of the same call, which is continued.
        recipe: a recipe of method ``task``, or its name or file.
        task: of the student; None: as the first teacher's run says.
        texts: files of texts without labels: ``.txt``, a text a line; or tables with the task's text columns.
        compare: also train the same student without the teachers.
        outputs: where what the teachers say is kept; None: in ``out``. Calls with other students may share it.
        device: see :func:`bertkit.system.device.find_device`; None is the CPU.

    Raises:
        ConfigError: ``out`` holds something else; teachers of another task or with other labels; settings that have no
            meaning.
        Everything that fine-tuning raises.
    """
    given = recipe if isinstance(recipe, DistillRecipe) else load_recipe(recipe)
    if not isinstance(given.distillation, TaskDistillation):
        raise ConfigError(f"recipe {given.name} is of method {given.method}, not of method task")
    if not teachers:
        raise ConfigError("there is no teacher: give at least one fine-tuned run")
    place, config = str(find_device(device, "cpu")), given.training
    config = config.model_copy(update={"precision": config.precision or "fp32"})
    files = _data_of(teachers[0], data)
    named = (csv_task(files) if task == "csv" else task_of(task, files)) if isinstance(task, str) else task
    learned = task_of_teacher(teachers[0], named)
    opened = open_teachers(teachers, learned, device=place)
    facts: dict[str, Json] = {
        "recipe": given.name,
        **given.to_dict(),
        "teachers": [
            {"name": short_name(path), "sha256": each.sha256} for path, each in zip(teachers, opened, strict=True)
        ],
        "task": learned.name,
        "data": printable(files),
        "texts": [printable(path) for path in texts],
    }
    TaughtTexts(learned, Lesson(given.distillation)).check_settings(config)
    run = DistillFolder(out)
    with run.claimed():
        run.check(facts)
        run.begin(facts)
        start = start_of(
            given.begins_with(), teachers[0], run.path / STUDENT, model_class=TextWorkflow.model_class, seed=config.seed
        )
        kept = run.path / OUTPUTS if outputs is None else Path(outputs)
        job = _Job(run, given, config, learned, files, opened, kept, start, place)
        result = job.run(facts["teachers"], texts, compare=compare)
        run.begin({**facts, "result": result.to_dict()})
    return result


@dataclass(frozen=True, slots=True)
class _Job:
    """What both runs share."""

    folder: DistillFolder
    recipe: DistillRecipe
    config: FinetuneConfig
    task: TextTask
    data: str | Path
    teachers: tuple[Teacher, ...]
    outputs: Path
    start: Path
    device: str

    def run(self, names: Json, texts: Sequence[str | Path], *, compare: bool) -> TaughtResult:
        """Train with and without the teachers, and measure; ``names`` says who these are."""
        pair = self._open_states()  # which may refuse them: before texts are varied and teachers asked
        rows = read_rows(TextWorkflow(self.task), self.data, self.config)
        known = [example for example in (*rows.train, *rows.dev) if isinstance(example, Example)]
        more = read_unlabelled(self.task, texts, known)
        more += self._varied(known[: len(rows.train)], {(each.text, each.text_pair) for each in (*known, *more)})
        read = "\n".join(f"{example.text}\t{example.text_pair}" for example in more)
        unlabelled: Row = {"texts": len(more), "sha256": hashlib.sha256(read.encode()).hexdigest()}
        about: Row = {**self.recipe.distillation.model_dump(), "teachers": names, "unlabelled": unlabelled}
        lesson = Lesson(self.recipe.distillation, more, self._ask, about)
        top = self._teachers_scores(rows)
        longer, alone = _lengths_of_runs(self.config, self.start, len(rows.train), len(rows.train) + len(more))
        start = self._with_states(pair, [*known[: len(rows.train)], *more], about)
        taught = self._finetune(WITH, start, longer, lesson)
        plain = self._finetune(WITHOUT, self.start, alone, None) if compare else None
        student = open_run(taught.folder, device=self.device)
        costs = {"teacher": _costs(self.teachers[0].run, rows), "student": _costs(student, rows)}
        counts = {"labelled": len(rows.train), "unlabelled": len(more)}
        seen = any(self._has_seen(rows, teacher.run) for teacher in self.teachers)
        return TaughtResult(self.folder.path, taught, plain, top, costs, counts, seen)

    def _has_seen(self, rows: Rows, teacher: Run) -> bool:
        """Whether rows that are held out here were not held out of what the teacher was trained on."""
        if not (rows.held_out and teacher.learned_from(self.data)):
            return False
        workflow = TextWorkflow(self.task)
        known = held_out_again(workflow, self.data, teacher.config, read_facts(teacher.path))
        held_out = {workflow.content(row) for row in known or () if isinstance(row, Example)}
        return not all(workflow.content(row) in held_out for row in rows.dev if isinstance(row, Example))

    def _varied(self, train: Sequence[Example], known: Collection[tuple[str, str | None]]) -> list[Example]:
        """Variants of the training texts, made once and kept in the folder."""
        settings: TaskDistillation = self.recipe.distillation
        if not settings.augment:
            return []
        file = self.folder.path / AUGMENTED
        if not file.exists():
            vectors = SentenceEncoder(settings.word_vectors or self.teachers[0].run.path, device=self.device)
            masked = pipeline("fill-mask", settings.masked_lm, device=self.device) if settings.masked_lm else None
            found = augmented(
                [(each.text,) if each.text_pair is None else (each.text, each.text_pair) for each in train],
                settings.augment,
                vectors=vectors,
                masked=masked,
                candidates=settings.augment_candidates,
                share=settings.augment_share,
                seed=self.config.seed,
            )
            rows: list[Row] = [dict(zip(("text", "text_pair"), texts, strict=False)) for texts in found]
            write_atomically(file, to_jsonl(rows))
        read = [(str(row["text"]), row.get("text_pair")) for row in read_lines(file)]
        say(f"{len(read):,} variants of {len(train):,} training texts ({printable(file)})")
        return [Example(text, pair, source=str(file)) for text, pair in read if (text, pair) not in known]

    def _open_states(self) -> StatePair | None:
        """Student and teacher of the stage before; None where it is not asked for or is finished."""
        settings: TaskDistillation = self.recipe.distillation
        if not settings.state_epochs or (self.folder.path / STATES / MODEL).is_dir():
            return None
        teacher = self.teachers[0].run.path
        return open_pair(teacher, self.start, settings, seed=self.config.seed, device=self.device)

    def _with_states(self, pair: StatePair | None, texts: Sequence[Example], about: Row) -> Path:
        """The student's first weights, after the stage of its states if that is asked for."""
        settings: TaskDistillation = self.recipe.distillation
        if pair is None:
            return self.folder.path / STATES / MODEL if settings.state_epochs else self.start
        shape = read_any_config(config_path(self.start))
        config = self.config.resolved(task=self.task.name, model=shape, num_train_rows=len(texts))
        rows = TextWorkflow(self.task).encode(texts, pair[1], config, labelled=False)
        assert isinstance(rows, Ragged), "windows were refused"
        return follow_states(
            *pair,
            self.folder.path / STATES,
            rows,
            settings,
            config,
            identity={"settings": config.model_dump(), "texts": len(texts), **about},
            how_to_resume=self.folder.how_to_resume,
        )

    def _ask(self, examples: Sequence[Example]) -> Floats:
        said = [teacher.logits(examples, self.outputs) for teacher in self.teachers]
        settings: TaskDistillation = self.recipe.distillation
        return combined(said, self.task, settings.ensemble, settings.temperature)

    def _teachers_scores(self, rows: Rows) -> dict[str, float]:
        """Of the teachers on dev."""
        examples = [example for example in rows.dev if isinstance(example, Example)]
        try:
            logits = self._ask(examples)
        except Interrupted as stop:
            said = f"{stop} before training; what the teacher has said is kept. {self.folder.how_to_resume}"
            raise Interrupted(said, stop.signum) from None
        found = score_logits(self.task, logits, self.task.label_array([example.label for example in examples]))
        say(f"teacher: dev {self.task.main_metric} {found[self.task.main_metric]:.4f}")
        return found

    def _finetune(self, name: str, start: Path, config: FinetuneConfig, lesson: Lesson | None) -> FinetuneResult:
        say("training the student with the teacher" if lesson else "training the same student without a teacher")
        more: dict[str, Any] = {}
        if lesson is not None:
            more = {"workflow_for": lambda task: TaughtTexts(task, lesson), "added": lesson.facts}
        out, advice = self.folder.path / name, self.folder.how_to_resume
        return finetune(
            self.task,
            self.data,
            start,
            out,
            config,
            resume=out.exists(),
            device=self.device,
            how_to_resume=advice,
            **more,
        )


def _data_of(teacher: str | Path, data: str | Path | None) -> str | Path:
    if data is not None:
        return data
    folder = checkpoint_folder(resolve(teacher))
    if own := read_settings(folder).get("data"):
        return str(own)
    raise ConfigError(f"there is no data: give labelled files, because {folder} has no {SETTINGS} that names them")


def _lengths_of_runs(
    config: FinetuneConfig, start: Path, num_labelled: int, num_texts: int
) -> tuple[FinetuneConfig, FinetuneConfig]:
    """The settings with and without the teacher: as many updates, although the labelled texts may be few of all.

    Where the number of epochs is not given, each has what suits its texts.
    """
    if num_labelled == num_texts:
        return config, config
    if config.epochs is None:
        suits = config.resolved(task="", model=read_any_config(config_path(start)), num_train_rows=num_texts)
        return config.model_copy(update={"epochs": suits.epochs}), config
    size = config.batch_size * config.accumulation
    updates = config.epochs * math.ceil(num_texts / size)
    alone = min(MOST_EPOCHS, math.ceil(updates / math.ceil(num_labelled / size)))
    return config, config.model_copy(update={"epochs": max(config.epochs, alone)})


def _costs(run: Run, rows: Rows) -> Costs:
    """Of a model on some dev texts."""
    examples = rows.dev[:100]
    encoded = run.workflow.encode(examples, run.tokenizer, run.config, labelled=False)

    def compute(number: int) -> object:
        return run.workflow.outputs(run.engine, encoded.select([number]), label="")

    shape = run.engine.config
    whole = getattr(shape, "pooling", "cls") != "cls"
    with quiet():
        return costs_of(shape, run.model.num_parameters(), encoded.lengths.tolist(), compute, whole=whole)
