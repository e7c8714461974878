"""Settings of distillation, and recipes, which are such runs as TOML files.

A recipe has three tables. ``[distillation]`` has the method and its settings: the fields of one of the classes of
:data:`METHODS`. ``[student]`` says with what the student begins: ``layers`` of the teacher, a new ``shape``, or a
``model``. ``[training]`` has the settings of the training loop that the method uses. Unknown keys are errors.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bertkit.config.sentence_config import PoolingMode
from bertkit.errors import ConfigError, did_you_mean
from bertkit.system.settings_files import settings_of_table
from bertkit.system.untrusted_files import Json
from bertkit.system.validated_settings import Field, Settings
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.pretraining.pretrain_settings import FOLDER as PRETRAINING
from bertkit.training.pretraining.pretrain_settings import PretrainConfig, read_recipe

#: Folder of the recipes of the package.
FOLDER = PRETRAINING / "distillation"
_TABLES = ("distillation", "student", "training")
#: Of [student], what says with what it begins; the rest is about new shapes.
_SAYS = ("layers", "shape", "model")


class Student(Settings):
    """What a student begins with: exactly one of these."""

    layers: int | tuple[int, ...] | None = Field(
        None, description="layers of the teacher, counted from 0; one number: that many, evenly from first to last"
    )
    shape: str | None = Field(
        None, pattern=r"^[1-9]\d*x[1-9]\d*$", description="new weights: layers x width, as in 2x128"
    )
    model: str | None = Field(None, description="any checkpoint: a folder or a name on the Hub")
    heads: int | None = Field(None, ge=1, description="with shape: attention heads; default one per 64 of width")
    feed_forward: int | None = Field(None, ge=1, description="with shape: width of the feed-forward; default 4 widths")
    initializer_range: float | None = Field(
        None, gt=0, le=1, description="with shape: deviation of new weights; default that of the teacher's config"
    )
    teacher_embeddings: bool = Field(
        False, description="with shape: start from the teacher's embeddings, reduced to the width by PCA"
    )
    mimetic: bool = Field(
        False,
        description="with shape: attention begins with queries that equal the keys, so that tokens attend to their "
        "like: for tasks of pairs of texts",
    )

    @classmethod
    def parse(cls, text: str) -> Student:
        """``3`` or ``0,2,5``: layers of the teacher; ``2x128``: new weights; anything else is a checkpoint."""
        if re.fullmatch(r"\d+", text):
            return cls(layers=int(text))
        if re.fullmatch(r"\d+(,\d+)*,?", text):
            return cls(layers=tuple(int(number) for number in text.rstrip(",").split(",")))
        return cls(shape=text) if re.fullmatch(r"[1-9]\d*x[1-9]\d*", text) else cls(model=text)

    def check(self) -> None:
        """Raise ConfigError unless it says one thing."""
        given = [name for name in _SAYS if getattr(self, name) is not None]
        own = [name for name in self.model_fields_set if name not in _SAYS]
        if self.shape is None and any(getattr(self, name) for name in own):
            raise ConfigError(f"{' and '.join(sorted(own))}: for a new shape only; leave it out, or give shape as well")
        if len(given) != 1:
            raise ConfigError(
                "a student begins with layers of the teacher (layers), with new weights (shape) or with a checkpoint "
                f"(model); give exactly one of them, got {' and '.join(given) or 'none'}"
            )


class StateLoss(Settings):
    """Attention and states of all layers: Jiao et al. 2020, section 3."""

    attention_weight: float = Field(1.0, ge=0, description="of the attention scores before softmax")
    state_weight: float = Field(1.0, ge=0, description="of embeddings and states, projected to the teacher's width")


class TaskDistillation(StateLoss):
    """Soft targets of a fine-tuned teacher: Hinton et al. 2015, section 2; before them, if asked for, its states."""

    method: Literal["task"] = "task"
    temperature: float = Field(2.0, gt=0, le=100, description="logits are divided by it before both softmaxes")
    soft_weight: float = Field(
        0.7, ge=0, le=1, description="share of the soft targets in the loss of a labelled text; the rest is its label"
    )
    ensemble: Literal["probabilities", "logits"] = Field(
        "probabilities", description="what is averaged over several teachers"
    )
    state_epochs: int = Field(
        0,
        ge=0,
        le=1000,
        description="passes in which attention and states learn the (first) teacher's, before the soft targets",
    )
    state_learning_rate: float = Field(5e-5, gt=0, le=1, description="peak rate of these")
    augment: int = Field(0, ge=0, le=1000, description="augmented variants per training text, labelled by the teachers")
    augment_candidates: int = Field(15, ge=1, description="candidate replacements per word")
    augment_share: float = Field(0.4, gt=0, le=1, description="probability that a word is replaced")
    masked_lm: str | None = Field(
        None, description="model with a masked-LM head that proposes words; default: the nearest words alone"
    )
    word_vectors: str | None = Field(
        None, description="encoder whose vectors say which words are near; default: the (first) teacher's"
    )


class VectorDistillation(Settings):
    """The vectors of a large sentence encoder: Reimers & Gurevych 2020, section 3."""

    method: Literal["vectors"] = "vectors"
    loss: Literal["mse", "cosine"] = Field("mse", description="squared distance of the vectors, or 1 - their cosine")
    pca_texts: int = Field(
        20_000, ge=1, description="texts whose vectors say what to keep where the student's are narrower"
    )
    pooling: tuple[PoolingMode, ...] | None = Field(
        None,
        description="how the student's states become a vector, such as cls and mean; default: as its folder says, or "
        "as the teacher's do",
    )
    dimensions: int | None = Field(
        None,
        ge=1,
        description="width of the student's vectors, which a linear layer produces; default: that of its pooled "
        "states, or of what is learned if that is smaller",
    )
    embedding_weight: float = Field(
        0.0,
        ge=0,
        le=100,
        description="weight of the mean of the teacher's word embeddings, which is learned beside its vector if not 0",
    )
    final_embedding_weight: float | None = Field(
        None,
        ge=0,
        le=100,
        description="the same for a last fit of the student's linear layer after training; default: no last fit",
    )
    masked_lm_weight: float = Field(
        0.0,
        ge=0,
        description="weight of the masked-LM loss, if the student learns masked words as well; 0: it has no such head",
    )
    masked_texts: float = Field(
        0.5, gt=0, le=1, description="with masked_lm_weight: share of the texts in which words are masked"
    )


class PredictionDistillation(Settings):
    """Predictions of words and directions of states on running text: Sanh et al. 2019, sections 2 and 3."""

    method: Literal["distilbert"] = "distilbert"
    temperature: float = Field(2.0, gt=0, le=100, description="logits are divided by it before both softmaxes")
    soft_weight: float = Field(5.0, ge=0, description="of the divergence from the teacher's predictions")
    masked_lm_weight: float = Field(2.0, ge=0, description="of the masked words themselves")
    cosine_weight: float = Field(1.0, ge=0, description="of 1 - cosine of the last states; widths must be equal")
    positions: Literal["all", "masked"] = Field("all", description="tokens at which predictions are compared")


class RelationDistillation(Settings):
    """Relations among queries, keys and values of one layer on running text: Wang et al. 2021, section 3."""

    method: Literal["minilmv2"] = "minilmv2"
    teacher_layer: int | None = Field(
        None, ge=1, description="layer of the teacher, counted from 1; default the last, of 24 layers the 21st"
    )
    relation_heads: int = Field(48, ge=1, description="parts that the vectors are cut into; 64 for large teachers")


class StateDistillation(StateLoss):
    """The same on running text."""

    method: Literal["tinybert"] = "tinybert"


class VectorTraining(Settings):
    """How a student of vectors is trained."""

    learning_rate: float = Field(1e-4, gt=0, le=1, description="peak rate")
    epochs: int = Field(3, ge=1, le=1000, description="passes over the texts")
    batch_size: int = Field(64, ge=1, le=65_536, description="texts in an optimizer step")
    max_texts: int | None = Field(
        None, ge=20, description="maximum number of distinct texts, drawn by seed; default: all"
    )
    max_tokens: int = Field(8192, ge=8, description="tokens in memory at once; larger batches are split")
    max_length: int = Field(128, ge=3, description="tokens of the longest text; the rest is cut off")
    warmup: float = Field(0.1, ge=0, lt=1, description="share of the steps in which the rate rises")
    weight_decay: float = Field(0.01, ge=0, le=1, description="decay of weights; never of LayerNorm and bias")
    freeze_word_embeddings: bool = Field(False, description="word embeddings stay as they are")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are clipped to this norm")
    dev_texts: int = Field(1000, ge=2, description="texts that are held out and scored; at most a tenth of all")
    patience: int | None = Field(None, ge=1, description="stop after this many epochs without a better score")
    seed: int = Field(0, ge=0, lt=2**31, description="of new weights, order and dropout")
    checkpoint_every_s: float = Field(120.0, ge=0, description="seconds between two saved training states")


class Method(NamedTuple):
    """The classes of a method's settings, and what it is in words."""

    distillation: type[Settings]
    training: type[Settings]
    about: str


METHODS: dict[str, Method] = {
    "task": Method(TaskDistillation, FinetuneConfig, "the labels that fine-tuned teachers give, softened"),
    "vectors": Method(VectorDistillation, VectorTraining, "the vectors of a sentence encoder"),
    "distilbert": Method(PredictionDistillation, PretrainConfig, "predictions of words and states, on running text"),
    "minilmv2": Method(RelationDistillation, PretrainConfig, "relations of one layer, on running text"),
    "tinybert": Method(StateDistillation, PretrainConfig, "attention and states of all layers, on running text"),
}


@dataclass(frozen=True, slots=True)
class DistillRecipe:
    """A distillation to repeat; without a ``student``, whoever uses it says what it begins with."""

    name: str
    summary: str
    distillation: Any
    training: Any
    student: Student | None = None

    @property
    def method(self) -> str:
        """Key of :data:`METHODS`."""
        return str(self.distillation.method)

    def changed(self, settings: Sequence[str] = (), student: str | None = None) -> DistillRecipe:
        """The recipe with another student, and with ``NAME=VALUE`` settings, values as in TOML or plain words."""
        start = self.student if student is None else Student.parse(student)
        parts = {"distillation": self.distillation, "training": self.training, "student": start or Student()}
        tables = {name: part.model_dump(exclude_unset=True) for name, part in parts.items()}
        known = {name: part for part in reversed(parts) for name in type(parts[part]).model_fields}
        for name in _SAYS:
            del known[name]
        for given in settings:
            name, mark, value = given.partition("=")
            place = known.get(name.strip().replace("-", "_"))
            if not mark or place is None or name.strip() == "method":
                own = ", ".join(part for part in type(self.distillation).model_fields if part != "method")
                raise ConfigError(
                    f"--set {given!r}{did_you_mean(name, known)}: write NAME=VALUE with a setting of recipe "
                    f"{self.name}; it has {own}; of training: {', '.join(type(self.training).model_fields)}; of the "
                    f"student: {', '.join(name for name in Student.model_fields if name not in _SAYS)}"
                )
            tables[place][name.strip().replace("-", "_")] = _value_of(value.strip())
        kind = METHODS[self.method]
        return replace(
            self,
            distillation=kind.distillation(**tables["distillation"]),
            training=kind.training(**tables["training"]),
            student=Student(**tables["student"]) if tables["student"] else None,
        )

    def begins_with(self) -> Student:
        """The student; ConfigError if neither the recipe nor its user says what it begins with."""
        if self.student is None:
            raise ConfigError(
                f"recipe {self.name} does not say what the student begins with: give --student 3 (so many layers of "
                "the teacher), 0,2,5 (these layers), 2x128 (a new model of 2 layers of 128), or a checkpoint"
            )
        self.student.check()
        return self.student

    def to_dict(self) -> dict[str, Json]:
        """What a resumed run must agree with."""
        return {
            "distillation": self.distillation.model_dump(),
            "training": self.training.model_dump(),
            "student": self.begins_with().model_dump(exclude_none=True),
        }


def recipe_names() -> tuple[str, ...]:
    """Names of the distillation recipes of the package."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load_recipe(name_or_path: str | Path) -> DistillRecipe:
    """A recipe of the package by name, or any file. A ConfigError names the file, and the key where one is to blame."""
    path, tables, summary = read_recipe(name_or_path, FOLDER, _TABLES)
    distillation, student, training = (tables.get(name, {}) for name in _TABLES)
    method = distillation.get("method")
    if not isinstance(method, str) or method not in METHODS:
        raise ConfigError(f"{path}, [distillation]: method = {method!r}: give one of {', '.join(map(repr, METHODS))}")
    kind = METHODS[method]
    settings = settings_of_table(kind.distillation, distillation, f"{path}, [distillation]")
    trained = settings_of_table(kind.training, training, f"{path}, [training]")

    def begins(**of_student: Any) -> Student:
        begun = Student(**of_student)
        begun.check()
        return begun

    start = settings_of_table(begins, student, f"{path}, [student]") if student else None
    return DistillRecipe(path.stem, summary, settings, trained, start)


def _value_of(text: str) -> Any:
    """A TOML value; text that is none is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
