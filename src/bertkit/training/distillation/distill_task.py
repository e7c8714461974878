"""A student of fine-tuned teachers: trained on what they say of examples, and once without them, for comparison.

Hinton et al. 2015, "Distilling the Knowledge in a Neural Network", for labels and scores of texts, tags of words,
choices, and answers in a context, and for any student. The folder::

    OUT/
        distill.json   settings, teachers and scores; written at the start, completed at the end
        student/       the model that both runs begin with, where it was made of the teacher
        teacher/       what the teachers said of each example
        augmented-HASH.jsonl  variants of the training texts, if asked for
        states/        the stage before, if asked for, in which the student's states follow the teacher's
        with/          the run with the teachers: load OUT/with like any checkpoint
        without/       the same student and settings with the labels alone

The same command continues an interrupted run.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertkit.config.any_config import read_any_config
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import checkpoint_folder, config_path
from bertkit.config.reading_settings import ReadingSettings
from bertkit.errors import ConfigError, counted
from bertkit.inference.pipelines import pipeline
from bertkit.inference.run_files import SETTINGS, read_facts, read_settings
from bertkit.inference.runs import Run, open_run
from bertkit.inference.sentence_encoder import SentenceEncoder
from bertkit.ragged import Floats
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import quiet, say
from bertkit.system.device import Device, find_device
from bertkit.system.interrupts import Interrupted
from bertkit.system.json_files import printable, read_lines
from bertkit.system.model_sources import resolve
from bertkit.system.untrusted_files import Json
from bertkit.tasks.examples import Example, Row
from bertkit.tasks.own_files import task_of
from bertkit.tasks.registry import Task
from bertkit.tasks.run_rows import Rows, held_out_again, read_rows, to_jsonl
from bertkit.tasks.taught_workflow import Lesson, TaughtWorkflow, taught_workflow
from bertkit.tasks.workflow import Predicted
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.training.distillation.augment import augmented
from bertkit.training.distillation.distill_run import (
    MODEL,
    OUTPUTS,
    STATES,
    WITH,
    DistillRun,
    distilling,
    recipe_of,
    teacher_facts,
)
from bertkit.training.distillation.distill_settings import DistillRecipe, Student, TaskDistillation
from bertkit.training.distillation.model_costs import Measurable, costs_of
from bertkit.training.distillation.students import first_shape
from bertkit.training.distillation.taught_networks import check_pair
from bertkit.training.distillation.taught_result import TaughtResult
from bertkit.training.distillation.taught_states import StatePair, check_same_tokenizer, follow_states, open_pair
from bertkit.training.distillation.teachers import (
    Teacher,
    check_tokenizer,
    combined,
    open_teachers,
    read_unlabelled,
    task_of_teacher,
)
from bertkit.training.finetuning.finetune import finetune, resolved
from bertkit.training.finetuning.finetune_results import FinetuneResult
from bertkit.training.finetuning.finetune_settings import FinetuneConfig

#: Most epochs of the run without a teacher that make up for texts without labels.
MOST_EPOCHS = 100
AUGMENTED, WITHOUT = "augmented", "without"


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
    """Train a student on what teachers say of the task's examples, and on its labels.

    Args:
        teachers: runs of ``finetune``, of any family and with any tokenizer (on questions with a context, with the
            student's), or other checkpoints with such a head. Of several the mean is learned. Layers and shapes are
            taken of the first.
        data: labelled files of the task; None: those of the first teacher's run.
        out: the folder; new, or that of the same call, which is continued.
        recipe: of method ``task``, or its name or file.
        task: of the student; None: as the first teacher's run says.
        texts: files without labels, see :func:`read_unlabelled`.
        compare: also train the same student without the teachers.
        outputs: where what the teachers say is kept; None: in ``out``. Calls with other students may share it.
        device: None is the CPU.
    """
    given = recipe_of(recipe, "task")
    if not teachers:
        raise ConfigError("there is no teacher: give at least one fine-tuned run")
    place, config = str(find_device(device, "cpu")), given.training
    config = config.model_copy(update={"precision": config.precision or "fp32"})
    files = _data_of(teachers[0], data)
    named = task_of(task, files) if isinstance(task, str) else task
    learned = task_of_teacher(teachers[0], named)
    taught = taught_workflow(learned, Lesson(given.distillation.temperature, given.distillation.soft_weight))
    taught.check_settings(config)
    if given.distillation.augment and not taught.varies:
        raise ConfigError(
            f"augment={given.distillation.augment}: variants are made of texts and pairs with a label, not of the rows "
            f"of task {learned.name}; set augment=0, and give more examples without labels"
        )
    student = given.begins_with()
    if taught.compares_texts and student.shape is not None and not student.mimetic:
        say(
            f"hint: a new student of {student.shape} rarely learns to compare two texts; with --set mimetic=true, "
            "--set teacher_embeddings=true and tens of thousands of pairs in --texts it does"
        )
    _check_student(student, teachers[0], given.distillation)
    opened = open_teachers(teachers, taught, device=place)
    reads = AutoTokenizer.from_pretrained(checkpoint_folder(resolve(student.model or teachers[0])))
    for teacher in opened:
        check_tokenizer(teacher, taught, reads)
    facts: dict[str, Json] = {
        "teachers": [teacher_facts(path, each.sha256) for path, each in zip(teachers, opened, strict=True)],
        "task": learned.name,
        "data": printable(files),
        "texts": [printable(path) for path in texts],
    }
    with distilling(out, given, teachers[0], place, facts) as run:
        run.begin()
        kept = run.path / OUTPUTS if outputs is None else Path(outputs)
        job = _Job(run, config, taught, files, opened, kept, run.start(taught.model_class))
        return run.finished(job.result(texts, compare=compare))


@dataclass(frozen=True, slots=True)
class _Job:
    run: DistillRun
    config: FinetuneConfig
    taught: TaughtWorkflow
    data: str | Path
    teachers: tuple[Teacher, ...]
    outputs: Path
    start: Path

    @property
    def settings(self) -> TaskDistillation:
        """Of the method."""
        found: TaskDistillation = self.run.recipe.distillation
        return found

    def result(self, texts: Sequence[str | Path], *, compare: bool) -> TaughtResult:
        """Train with and without the teachers, and measure."""
        tokenizer = AutoTokenizer.from_pretrained(checkpoint_folder(self.start))
        pair = self._open_states()
        rows = read_rows(self.taught, self.data, self.config)
        train, known = list(rows.train), [*rows.train, *rows.dev]
        more = read_unlabelled(self.taught, texts, known)
        more += self._varied(train, {self.taught.texts(each) for each in (*known, *more)})
        read = json.dumps([self.taught.texts(each) for each in more])
        unlabelled: Row = {"texts": len(more), "sha256": hashlib.sha256(read.encode()).hexdigest()}
        about: Row = {**self.settings.model_dump(), "teachers": self.run.facts["teachers"], "unlabelled": unlabelled}
        lesson = replace(self.taught.lesson, unlabelled=more, ask=self._ask, facts=about)
        top = self._teachers_scores(rows, tokenizer)
        longer, alone = _lengths_of_runs(self.config, self.start, len(train), len(train) + len(more))
        start = self._with_states(pair, [*train, *more], about)
        taught = self._finetune(WITH, start, longer, lesson)
        plain = self._finetune(WITHOUT, self.start, alone, None) if compare else None
        student = open_run(taught.folder, device=self.run.device)
        measured = {"teacher": self.teachers[0].run, "student": student}
        with quiet():
            costs = costs_of({name: _measurable(run, self.taught, rows) for name, run in measured.items()})
        counts = {"labelled": len(train), "unlabelled": len(more)}
        seen = any(self._has_seen(rows, teacher.run) for teacher in self.teachers)
        return TaughtResult(self.run.path, taught, plain, top, costs, counts, seen)

    def _has_seen(self, rows: Rows, teacher: Run) -> bool:
        """Whether rows that are held out here were not held out of what the teacher was trained on."""
        if not (rows.held_out and teacher.learned_from(self.data)):
            return False
        known = held_out_again(self.taught, self.data, teacher.config, read_facts(teacher.path))
        held_out = {repr(self.taught.content(row)) for row in known or ()}
        return not all(repr(self.taught.content(row)) in held_out for row in rows.dev)

    def _resolved(self, num_rows: int) -> FinetuneConfig:
        return resolved(self.taught, self.taught.start_shape(self.start, self.config), self.config, num_rows)

    def _varied(self, train: Sequence[Any], known: Collection[tuple[str, ...]]) -> list[Any]:
        """Variants of the training texts, made once for the same texts and settings, and kept in the folder."""
        settings = self.settings
        if not settings.augment:
            return []
        texts = [self.taught.texts(each) for each in train]
        made_by = [texts, settings.model_dump(mode="json"), self.config.seed, self.teachers[0].sha256]
        digest = hashlib.sha256(json.dumps(made_by, sort_keys=True).encode()).hexdigest()
        file = self.run.path / f"{AUGMENTED}-{digest[:16]}.jsonl"
        if not file.exists():
            vectors = SentenceEncoder(settings.word_vectors or self.teachers[0].run.path, device=self.run.device)
            masked = pipeline("fill-mask", settings.masked_lm, device=self.run.device) if settings.masked_lm else None
            found = augmented(
                texts,
                settings.augment,
                vectors=vectors,
                masked=masked,
                candidates=settings.augment_candidates,
                share=settings.augment_share,
                seed=self.config.seed,
            )
            rows: list[Row] = [dict(zip(("text", "text_pair"), texts, strict=False)) for texts in found]
            write_atomically(file, to_jsonl(rows))
        read = [Example(str(row["text"]), row.get("text_pair"), source=str(file)) for row in read_lines(file)]
        say(f"{counted(len(read), 'variant')} of {counted(len(train), 'training text')} ({printable(file)})")
        return [example for example in read if self.taught.texts(example) not in known]

    def _open_states(self) -> StatePair | None:
        """Student and teacher of the stage before; None where it is not asked for or is finished."""
        if not self.settings.state_epochs or (self.run.path / STATES / MODEL).is_dir():
            return None
        teacher, seed = self.teachers[0].run.path, self.config.seed
        return open_pair(teacher, self.start, self.taught, self.settings, seed=seed, device=self.run.device)

    def _with_states(self, pair: StatePair | None, texts: Sequence[Any], about: Row) -> Path:
        """The student's first weights, after the stage of its states if that is asked for."""
        if pair is None:
            return self.run.path / STATES / MODEL if self.settings.state_epochs else self.start
        config = self._resolved(len(texts))
        rows = self.taught.sequences(self.taught.encode(texts, pair[1], config, labelled=False))
        return follow_states(
            pair,
            self.run.path / STATES,
            rows,
            self.settings,
            config,
            identity={"settings": config.model_dump(exclude={"compile"}), "texts": len(texts), **about},
            how_to_resume=self.run.folder.how_to_resume,
        )

    def _ask(self, examples: Sequence[Any], reading: ReadingSettings) -> Floats:
        units = self.taught.units(examples, self.teachers[0].run.tokenizer, reading)
        said = [teacher.logits(self.taught, examples, units.sizes, reading, self.outputs) for teacher in self.teachers]
        how, temperature = self.settings.ensemble, self.settings.temperature
        return combined(said, self.taught.problem, how, temperature, units.groups)

    def _teachers_scores(self, rows: Rows, tokenizer: PreTrainedTokenizer) -> dict[str, float]:
        """Of the teachers on dev, read and decided on as the student's answers are."""
        reading = self._resolved(len(rows.train))
        try:
            told = self._ask(rows.dev, reading)
        except Interrupted as stop:
            said = f"{stop} before training; what the teacher has said is kept. {self.run.folder.how_to_resume}"
            raise Interrupted(said, stop.signum) from None
        encoded = self.taught.encode(rows.dev, tokenizer, reading, labelled=True)
        given: Any = Predicted(rows.dev, encoded, self.taught.outputs_of(told, encoded), {})
        found = self.taught.score(replace(given, decision=self.taught.decide(given, reading)))
        main = self.taught.task.main_metric
        say(f"teacher: dev {main} {found[main]:.4f}")
        return found

    def _finetune(self, name: str, start: Path, config: FinetuneConfig, lesson: Lesson | None) -> FinetuneResult:
        say("training the student with the teacher" if lesson else "training the same student without a teacher")
        more: dict[str, Any] = {}
        if lesson is not None:
            more = {"workflow_for": lambda task: taught_workflow(task, lesson), "added": lesson.facts}
        out = self.run.path / name
        more |= {"resume": out.exists(), "device": self.run.device, "how_to_resume": self.run.folder.how_to_resume}
        return finetune(self.taught.task, self.data, start, out, config, **more)


def _check_student(student: Student, teacher: str | Path, settings: TaskDistillation) -> None:
    """Refuse (ConfigError) a student that cannot be made, or compared with its teacher, before anything is written."""
    ours = first_shape(student, teacher)
    if settings.state_epochs:
        theirs = read_any_config(config_path(resolve(teacher)))
        if isinstance(ours, BertConfig) and isinstance(theirs, BertConfig):
            check_pair(ours, theirs, settings)
        if student.model is not None:
            check_same_tokenizer(resolve(student.model), resolve(teacher), settings)


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
    """With and without the teacher: as many updates, or what suits the texts if the number of epochs is open."""
    if num_labelled == num_texts:
        return config, config
    if config.epochs is None:
        suits = config.resolved(model=read_any_config(config_path(start)), num_train_rows=num_texts)
        return config.model_copy(update={"epochs": suits.epochs}), config
    size = config.batch_size * config.accumulation
    updates = config.epochs * math.ceil(num_texts / size)
    alone = min(MOST_EPOCHS, math.ceil(updates / math.ceil(num_labelled / size)))
    return config, config.model_copy(update={"epochs": max(config.epochs, alone)})


def _measurable(run: Run, taught: TaughtWorkflow, rows: Rows) -> Measurable:
    examples = [run.workflow.encode([each], run.tokenizer, run.config, labelled=False) for each in rows.dev[:100]]

    def compute(number: int) -> object:
        return run.workflow.outputs(run.engine, examples[number], label="")

    shape = run.engine.config
    whole = getattr(run.model, "reads", "pooled") == "tokens"
    lengths = [taught.sequences(each).lengths.tolist() for each in examples]
    return Measurable(shape, run.model.num_parameters(), lengths, compute, whole)
