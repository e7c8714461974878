"""A small sentence encoder that gives the vectors of a large one, over a file of texts without labels.

Reimers & Gurevych 2020, section 3, with one language. The folder::

    OUT/
        distill.json   settings, teacher and result; written at the start, completed at the end
        student/       the model that training began with, where it was made of the teacher
        teacher/       the teacher's vectors
        log.jsonl      one line per step and per epoch
        model/         the student: a folder that bertkit and sentence-transformers load
        metrics.json   the result; written last
        checkpoints/   training state while the run is unfinished

The same command continues an interrupted run.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.batch import Batch, collate
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import config_path
from bertkit.config.file_columns import Columns
from bertkit.config.sentence_config import Dense, SentenceConfig
from bertkit.data.examples.masking import MaskVocabulary
from bertkit.engine.backend import Check
from bertkit.engine.closeness import Closeness, closeness, nearest_other
from bertkit.errors import DataError, counted
from bertkit.inference.protocol import model_hash, versions
from bertkit.inference.run_files import METRICS
from bertkit.inference.sentence_encoder import SentenceEncoder
from bertkit.metrics.nearest import directions
from bertkit.model.models import BertForMaskedLM
from bertkit.model.sentence_model import SentenceModel
from bertkit.ragged import Floats, Ragged
from bertkit.system.console import quiet, say
from bertkit.system.device import Device, find_device, hardware
from bertkit.system.interrupts import Interrupted
from bertkit.system.json_files import parsed, printable, read_json, write_json
from bertkit.system.model_sources import resolve
from bertkit.system.rendered import Rendered
from bertkit.system.untrusted_files import Json
from bertkit.tasks.embeddings.vectors import VectorEngine
from bertkit.tasks.reading.text_rows import read_texts
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.features import featurize_texts
from bertkit.training.distillation.distill_run import (
    MODEL,
    OUTPUTS,
    DistillRun,
    distilling,
    recipe_of,
    rendered,
    teacher_facts,
)
from bertkit.training.distillation.distill_settings import DistillRecipe, VectorDistillation, VectorTraining
from bertkit.training.distillation.model_costs import Costs, Measurable, costs_of, costs_table
from bertkit.training.distillation.students import shape_of
from bertkit.training.distillation.taught_vectors import (
    VECTORS,
    MaskedTexts,
    TaughtVectors,
    WordMeans,
    ends_normalized,
    fit_linear,
    has_own_layers,
    masked_words,
    narrowing,
    num_to_learn,
    student_head,
    student_model,
)
from bertkit.training.distillation.teachers import PART, kept_outputs
from bertkit.training.trainer.assembly import make_trainer, options_in, run_trainer
from bertkit.training.trainer.batch_plan import EpochPlan, epoch_order
from bertkit.training.trainer.generators import seeded
from bertkit.training.trainer.run_folder import CHECKPOINTS


@dataclass(frozen=True, slots=True)
class VectorsResult(Rendered):
    """What :func:`distill_vectors` found.

    student, start: how near the vectors of held-out texts are to the teacher's, of the student and of the model that it
        began with. Nearest neighbours are compared with the teacher's whole vectors.
    kept: share of the squared length of the teacher's vectors that the student's width can hold.
    masked_lm: see :func:`masked_words`, of held-out texts; None without a masked-LM head.
    """

    folder: Path
    student: Closeness
    start: Closeness
    kept: float
    costs: dict[str, Costs]
    texts: dict[str, int]
    masked_lm: dict[str, float] | None = None

    def to_dict(self) -> dict[str, Json]:
        """Plain data for JSON."""
        return {**asdict(self), "folder": printable(self.folder)}

    def render(self) -> str:
        """The outcome for people."""
        rows = [("held-out texts", "student", "before training")]
        rows += [
            (name, f"{getattr(self.student, field):.4f}", f"{getattr(self.start, field):.4f}")
            for field, name in (
                ("cosine_mean", "cosine with the teacher"),
                ("cosine_p1", "1st percentile"),
                ("same_neighbour", "same nearest text"),
            )
        ]
        kept = "" if self.kept == 1 else f"; the teacher's vectors are cut to {self.kept:.1%} of their squared length"
        words = "masked words found: {accuracy:.1%}; always the most frequent one: {most_frequent:.1%}"
        lines = [] if self.masked_lm is None else [words.format(**self.masked_lm)]
        headline = (
            f"vectors: a student of {counted(self.texts['train'], 'text')}, scored on {self.texts['dev']:,}{kept}"
        )
        return rendered(headline, [rows, costs_table(self.costs)], lines, self.folder / MODEL)


def distill_vectors(
    teacher: str | Path,
    data: str | Path | Sequence[str],
    out: str | Path,
    recipe: DistillRecipe | str | Path = "vectors",
    *,
    outputs: str | Path | None = None,
    device: Device = None,
) -> VectorsResult:
    """Train a small encoder to give a large one's vectors. Each reads a text with its own tokenizer.

    Args:
        teacher: any model of :class:`bertkit.SentenceEncoder`; texts are read with its default prompt, if it has one,
            which the student does not need.
        data: a file with one text per line, or a table with a column ``text``; or texts.
        out: the folder; new, or that of the same call, which is continued.
        recipe: of method ``vectors``, or its name or file.
        outputs: where the teacher's vectors are kept; None: in ``out``. Calls with other students may share it.
        device: None is the CPU.
    """
    given = recipe_of(recipe, "vectors")
    place, config = str(find_device(device, "cpu")), given.training
    texts = _texts_of(data, config)
    facts: dict[str, Json] = {
        "texts": hashlib.sha256("\n".join(texts).encode()).hexdigest(),
        "teacher": teacher_facts(teacher, model_hash(teacher)),
    }
    with distilling(out, given, teacher, place, facts) as run:
        if run.folder.is_finished:
            say(f"{run.path} is finished; nothing to do")
            return _read_result(run.path)
        encoder = SentenceEncoder(teacher, device=place)
        head = _head_of_student(given, teacher, encoder)
        run.begin()
        kept = run.path / OUTPUTS if outputs is None else Path(outputs)
        try:
            vectors = _ask(encoder, texts, kept, str(facts["teacher"]))
        except Interrupted as stop:
            raise Interrupted(f"{stop}; the vectors so far are kept. {run.folder.how_to_resume}", stop.signum) from None
        name = "BertForMaskedLM" if given.distillation.masked_lm_weight else "BertModel"
        return _Job(run, encoder, texts, vectors, run.start(name, name), head).finish()


def _head_of_student(given: DistillRecipe, teacher: str | Path, encoder: SentenceEncoder) -> SentenceConfig:
    """From configurations alone: what cannot be is refused before anything is computed."""
    student, settings = given.begins_with(), given.distillation
    assert isinstance(settings, VectorDistillation)
    start = None if student.model is None else resolve(student.model)
    shape = shape_of(student, teacher) if start is None else BertConfig.from_json_file(config_path(start))
    most = num_to_learn(teacher, encoder.width, settings)
    return student_head(start, shape.hidden_size, encoder.config, most, settings, given.training)


@dataclass(frozen=True, slots=True)
class _Job:
    """What training needs to know: the teacher, and texts with its vectors, dev first."""

    run: DistillRun
    encoder: SentenceEncoder
    texts: Sequence[str]
    vectors: Floats
    start: Path
    head: SentenceConfig

    @property
    def num_dev(self) -> int:
        return min(self.config.dev_texts, len(self.texts) // 10)

    @property
    def settings(self) -> VectorDistillation:
        """Of the method."""
        found: VectorDistillation = self.run.recipe.distillation
        return found

    @property
    def config(self) -> VectorTraining:
        """Of the training."""
        found: VectorTraining = self.run.recipe.training
        return found

    def finish(self) -> VectorsResult:
        """Train, save, measure, report."""
        config, settings, device = self.config, self.settings, self.run.device
        tokenizer = AutoTokenizer.from_pretrained(self.start)
        words = BertForMaskedLM.from_pretrained(self.start) if settings.masked_lm_weight else None
        means = self._word_means()
        sentences = student_model(self.start, self.head, config.seed, words)
        fits = isinstance(next(iter(self.head.steps), None), Dense) and not has_own_layers(self.start)
        head = None if words is None else words.cls.predictions
        taught = TaughtVectors(sentences, settings.loss, head, settings.masked_lm_weight).to(device)
        sentences.encoder.embeddings.word_embeddings.requires_grad_(not config.freeze_word_embeddings)
        width, dev = sentences.head.width, slice(0, self.num_dev)
        targets, kept = self._targets(means, settings.embedding_weight, width)
        length = min(config.max_length, tokenizer.model_max_length, sentences.encoder.config.max_input_length)
        rows = featurize_texts(self.texts, None, tokenizer, max_length=length)
        dev_rows = rows.select(range(self.num_dev))
        before = self._score(sentences, dev_rows, targets[dev])
        some = range(self.num_dev, min(len(rows), self.num_dev + settings.pca_texts))
        if fits:
            fit_linear(sentences, rows.select(some), targets[some.start : some.stop])
        vocabulary = None if words is None else MaskVocabulary.of_tokenizer(tokenizer)
        self._train(taught, rows, targets, vocabulary)
        if settings.final_embedding_weight is not None:
            targets, kept = self._targets(means, settings.final_embedding_weight, width)
            fit_linear(sentences, rows.select(some), targets[some.start : some.stop])
        after = self._score(sentences, dev_rows, targets[dev])
        sentences.save_pretrained(self.run.path / MODEL, tokenizer, words)
        student = SentenceEncoder(self.run.path / MODEL, device=device)
        with quiet():
            given = {"teacher": self.encoder, "student": student}
            costs = costs_of({name: _measurable(each, self.texts[dev]) for name, each in given.items()})
        counts = {"train": len(self.texts) - self.num_dev, "dev": self.num_dev}
        found = (
            None
            if words is None or vocabulary is None
            else masked_words(words.eval(), dev_rows, vocabulary, config.max_tokens)
        )
        result = VectorsResult(self.run.path, after, before, kept, costs, counts, found)
        protocol = {"versions": versions(), "hardware": hardware(device)}
        write_json(self.run.path / METRICS, {**result.to_dict(), "settings": self.run.facts, **protocol})
        shutil.rmtree(self.run.path / CHECKPOINTS, ignore_errors=True)
        return result

    def _word_means(self) -> WordMeans | None:
        settings, config = self.settings, self.config
        if not (settings.embedding_weight or settings.final_embedding_weight):
            return None
        some = slice(self.num_dev, self.num_dev + settings.pca_texts)
        return WordMeans.of(self.run.teacher, self.texts[some], self.vectors[some], config.max_length)

    def _targets(self, means: WordMeans | None, weight: float, width: int) -> tuple[Floats, float]:
        """The teacher's vectors, with ``weight`` times the words beside them, cut to ``width``; the share kept."""

        def wanted(chosen: slice) -> Floats:
            if means is None or not weight:
                return self.vectors[chosen]
            return means.beside(self.vectors[chosen], self.texts[chosen], weight)

        sample = wanted(slice(self.num_dev, self.num_dev + self.settings.pca_texts))
        directions_DW, kept = narrowing(sample, width)
        parts = (wanted(slice(at, at + PART)) for at in range(0, len(self.texts), PART))
        targets = np.concatenate([part if directions_DW is None else part @ directions_DW for part in parts])
        return (directions(targets) if ends_normalized(self.encoder.config) else targets), kept

    def _score(self, sentences: SentenceModel, rows: Ragged, targets: Floats) -> Closeness:
        """Cosines with the targets, and neighbours as in the teacher's whole vectors."""
        found = VectorEngine(sentences).shown_vectors(rows, label="scoring")
        near = closeness(found, targets)
        ours, theirs = (directions(vectors) for vectors in (found, self.vectors[: len(found)]))
        same = float((nearest_other(ours @ ours.T) == nearest_other(theirs @ theirs.T)).mean())
        return Closeness(near.cosine_mean, near.cosine_p1, near.near_neighbour, same)

    def _train(self, taught: TaughtVectors, rows: Ragged, targets: Floats, vocabulary: MaskVocabulary | None) -> None:
        config = self.config
        train, sentences = np.arange(self.num_dev, len(rows)), taught.sentences
        dev_rows = rows.select(range(self.num_dev))

        def evaluate(check: Callable[[], None]) -> dict[str, float]:
            found = VectorEngine(sentences).shown_vectors(dev_rows, check=check, label="evaluating")
            cosine = float((directions(found) * directions(targets[: self.num_dev])).sum(axis=1).mean())
            return {"cosine": cosine, "loss": float(((found - targets[: self.num_dev]) ** 2).sum(axis=1).mean())}

        lengths = rows.lengths[train].tolist()
        options: Any = {"step_size": config.batch_size, "max_tokens": config.max_tokens, "seed": config.seed}

        def batch(numbers: list[int]) -> Batch:
            return collate(rows, train[numbers], {VECTORS: targets})

        plan = EpochPlan(lengths, batch, **options)
        if vocabulary is not None:
            share = self.settings.masked_texts
            plan = MaskedTexts(lengths, batch, share=share, vocabulary=vocabulary, **options)
        about = self.run.path, self.run.facts, "distilling", self.run.folder.how_to_resume
        with seeded(config.seed), options_in(*about) as options:
            loop = options.loop(config, config.epochs * plan.steps_per_epoch, config.learning_rate)
            loop = replace(loop, monitor="cosine", patience=config.patience)
            trainer = make_trainer(taught, plan, config, loop, evaluate=evaluate)
            run_trainer(trainer, options)
            trainer.restore_best()


def _texts_of(data: str | Path | Sequence[str], config: VectorTraining) -> list[str]:
    """The different texts that are not blank, in an order drawn from the seed: those held out are the first."""
    read = (row.text for row in read_texts(Path(data), Columns(()))[1]) if isinstance(data, str | Path) else data
    texts = list(dict.fromkeys(text for text in read if text.strip()))
    if len(texts) < 20:
        raise DataError(
            f"{printable(data) if isinstance(data, str | Path) else 'the data'}: {len(texts)} different "
            "texts are too few to train on; give at least 20, better some ten thousand"
        )
    return [texts[number] for number in epoch_order(len(texts), config.seed, 0)[: config.max_texts]]


def _ask(encoder: SentenceEncoder, texts: Sequence[str], folder: Path, key: str) -> Floats:
    def compute(numbers: range, check: Check) -> Floats:
        check()
        found: Floats = encoder.encode(texts[numbers.start : numbers.stop], truncation=True)
        return found

    about = json.dumps([key, encoder.config.model_dump(mode="json")], sort_keys=True)
    label = "vectors of the teacher"
    return kept_outputs([(text,) for text in texts], compute, folder, key=about, width=encoder.width, label=label)


def _measurable(encoder: SentenceEncoder, texts: Sequence[str]) -> Measurable:
    some = texts[:100]
    rows = featurize_texts(some, None, encoder.tokenizer, max_length=encoder.tokenizer.model_max_length)
    shape: Any = encoder.pipeline.model.config
    parameters = sum(p.numel() for p in encoder.pipeline.model.parameters())

    def compute(number: int) -> object:
        return encoder.encode(some[number], truncation=True)

    lengths = [[tokens] for tokens in rows.lengths.tolist()]
    return Measurable(shape, parameters, lengths, compute, whole=encoder.config.pooling != ("cls",))


def _read_result(folder: Path) -> VectorsResult:
    path = folder / METRICS
    return parsed({**read_json(path, dict[str, Any]), "folder": folder}, VectorsResult, str(path))
