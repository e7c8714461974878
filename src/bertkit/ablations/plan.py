"""A plan of an ablation: arms that differ in one thing, equal budgets and seeds, and what is measured of them.

A TOML file with the tables ``[plan]``, ``[corpus]``, ``[model]``, ``[training]``, ``[arms.NAME]`` and
``[measures.NAME]``. It is checked as a whole before anything runs; an unknown key is an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from bertkit.config.bert_config import BertConfig
from bertkit.config.presets import preset
from bertkit.errors import BertkitError, ConfigError, did_you_mean
from bertkit.system.settings_files import settings_of_table
from bertkit.system.untrusted_files import Json
from bertkit.system.validated_settings import Field, Settings
from bertkit.tasks.registry import form_of
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.pretraining.objectives import network_class
from bertkit.training.pretraining.pretrain_settings import FOLDER as RECIPES
from bertkit.training.pretraining.pretrain_settings import PretrainConfig, read_recipe

FOLDER = RECIPES / "ablations"
#: Data that is made of the held-out text: does the second text follow the first, and are two in their order?
MADE = ("next-sentence", "sentence-order")
#: The picture of held-out loss by step; no measure has this name.
CURVES = "curves"
_TABLES = ("plan", "corpus", "model", "training", "arms", "measures")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,60}", re.ASCII)
#: Multiplications and additions a second of one core, as training small models reached it.
_SPEED = 60e9

Values = Mapping[str, bool | int | float | str]
SettingsT = TypeVar("SettingsT", bound=Settings)


class Head(Settings):
    """What is asked, and what is known."""

    title: str = Field(description="heading of the page")
    claim: str = Field(description="what the paper found")
    source: str = Field(description="paper and table of the numbers of the arms")
    limits: str = Field(description="what this scale can and cannot say")
    base: str = Field(description="arm that the others are compared with")
    seeds: int = Field(3, ge=1, le=100, description="runs of each arm")


class Corpus(Settings):
    """Running text, paths in the folder of the data."""

    train: tuple[str, ...] = Field(min_length=1, description="files to pre-train on")
    dev: tuple[str, ...] = Field(min_length=1, description="held-out files")
    vocab_size: int = Field(8192, ge=100, le=1_000_000, description="of the vocabulary that is learned from train")


class Features(Settings):
    """A linear head on vectors that stay as they are, in place of fine-tuning."""

    layers: tuple[int, ...] = Field(min_length=1, description="0: embeddings; -1: the last layer")
    mix: Literal["concatenated", "summed", "weighted"] = Field(
        "concatenated", description="what is made of several layers; weighted: a sum with weights that are learned"
    )


class Arm(Settings):
    """One side of the comparison."""

    title: str = Field(description="its name on the page")
    model: Values = Field({}, description="fields that differ from [model]")
    training: Values = Field({}, description="fields that differ from [training]")
    start: str | None = Field(None, description="a finished model in place of pre-training")
    of: tuple[str, ...] = Field((), description="arms whose models are taken; of several the vectors are concatenated")
    features: Features | None = Field(None, description="vectors that are read, where nothing is fine-tuned")
    base: str | None = Field(
        None, description="arm that it is compared with, where that has the measure; else [plan]'s"
    )
    paper: Mapping[str, float] = Field({}, description="what the paper found, by measure")


class Measure(Settings):
    """What is scored: hidden words of held-out text, or a task that is fine-tuned."""

    kind: Literal["words", "task"]
    title: str = Field(description="its name on the page")
    metric: Literal["accuracy", "loss"] = Field("accuracy", description="of words")
    examples: int = Field(1024, ge=10, description="held-out examples whose words are guessed")
    task: str | None = Field(None, description="name of the task")
    data: str | None = Field(
        None, description=f"path in the folder of the data; {' or '.join(MADE)}: pairs made of the corpus"
    )
    settings: Values = Field({}, description="of fine-tuning")
    arms: tuple[str, ...] = Field((), description="arms that it is measured of; default: all")


class Cost(NamedTuple):
    """An estimate: trainings, tokens they see, and hours of one core."""

    trainings: int
    tokens: float
    hours: float


@dataclass(frozen=True, slots=True)
class Plan:
    """A checked plan.

    name: stem of its file. asked: its name or path as it was given. values: its tables as they were read, for
    ``[model]`` and ``[training]``. start: the model that replaces the plan's own.
    """

    name: str
    summary: str
    head: Head
    corpus: Corpus | None
    arms: Mapping[str, Arm]
    measures: Mapping[str, Measure]
    values: Mapping[str, Json]
    first_seed: int = 0
    start: str | None = None
    asked: str = ""

    @property
    def seeds(self) -> range:
        """The seed of each run of an arm."""
        return range(self.first_seed, self.first_seed + self.head.seeds)

    def sources(self, name: str) -> tuple[str, ...]:
        """The arms whose models an arm takes: itself, unless it says others."""
        return self.arms[name].of or (name,)

    def shape(self, name: str) -> BertConfig:
        """The config of an arm's model; its vocabulary is that of the corpus."""
        sizes = {**self._table("model"), **self.arms[name].model}
        named = sizes.pop("preset", None)
        base = BertConfig() if named is None else preset(str(named)).config
        if not isinstance(base, BertConfig):
            raise ConfigError(f"preset = {named!r} is an encoder-decoder; ablations are of encoders")
        return base.replace(**sizes)

    def training(self, name: str) -> PretrainConfig:
        """The pre-training of an arm, without its seed."""
        config = PretrainConfig(**{**self._table("training"), **self.arms[name].training})
        config.check()
        return config

    def measured(self, name: str) -> list[str]:
        """The measures of an arm."""
        return [key for key, measure in self.measures.items() if name in (measure.arms or self.arms)]

    def base_of(self, arm: str, measure: str) -> str:
        """The arm that another is compared with in a measure."""
        own = self.arms[arm].base
        return own if own is not None and measure in self.measured(own) else self.head.base

    def groups(self) -> list[list[str]]:
        """The arms, those together that share a pre-trained model."""
        found: list[set[str]] = []
        for name in self.arms:
            own = {name, *self.sources(name)}
            joined = [group for group in found if group & own]
            found = [group for group in found if not group & own] + [own.union(*joined)]
        order = list(self.arms)
        return sorted((sorted(group, key=order.index) for group in found), key=lambda group: order.index(group[0]))

    def pretrained(self) -> list[str]:
        """The arms that are pre-trained."""
        return [name for name, arm in self.arms.items() if not arm.of and arm.start is None]

    def cost(self) -> Cost:
        """What all seeds of all arms take, fine-tuning left out."""
        tokens = operations = 0.0
        for name in self.pretrained():
            shape, config = self.shape(name), self.training(name)
            seen = sum(phase.num_steps * phase.batch_size * 0.9 * phase.max_seq_length for phase in config.phases)
            width, inner = shape.hidden_size, shape.intermediate_size
            layers = shape.num_hidden_layers * (8 * width * width + 4 * width * inner)
            targets = config.masked_lm_prob if shape.attention_direction == "both" else 1.0
            words = targets * 2 * width * (self.corpus.vocab_size if self.corpus else shape.vocab_size)
            tokens, operations = tokens + seen, operations + 3 * seen * (layers + words)
        seeds = self.head.seeds
        return Cost(seeds * len(self.pretrained()), seeds * tokens, seeds * operations / _SPEED / 3600)

    def _table(self, name: str) -> dict[str, Json]:
        found = self.values.get(name, {})
        assert isinstance(found, dict)
        return dict(found)


def plan_names() -> tuple[str, ...]:
    """The plans of the package."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load_plan(name_or_path: str | Path, *, start: str | None = None, first_seed: int = 0) -> Plan:
    """A plan of the package by name, or any file; ``start`` replaces the model that arms begin with.

    Raises:
        ConfigError: an unknown key or a wrong value, with the file, the table and the nearest name; arms, measures or
            settings that do not fit each other.
    """
    path, tables, summary = read_recipe(name_or_path, FOLDER, _TABLES)
    for needed in ("plan", "arms", "measures"):
        if not tables.get(needed):
            raise ConfigError(f"{path}: the table [{needed}] is missing or empty")
    for table in ("arms", "measures"):
        if wrong := [name for name in tables[table] if not _NAME.fullmatch(name)]:
            raise ConfigError(f"{path}, [{table}]: {wrong[0]!r:.80} names a folder; use letters, digits, - _ and .")

    def read(table: str, kind: type[SettingsT], values: Json) -> SettingsT:
        return settings_of_table(kind, values, f"{path}, [{table}]")

    head = read("plan", Head, tables["plan"])
    arms = {name: read(f"arms.{name}", Arm, values) for name, values in tables["arms"].items()}
    measures = {name: read(f"measures.{name}", Measure, values) for name, values in tables["measures"].items()}
    corpus = read("corpus", Corpus, tables["corpus"]) if "corpus" in tables else None
    if start is not None:
        if not any(arm.start for arm in arms.values()):
            raise ConfigError(f"{path}: every arm is pre-trained, none begins with a finished model: leave --model out")
        arms = {name: arm.model_copy(update={"start": start}) if arm.start else arm for name, arm in arms.items()}
    if not 0 <= first_seed < 2**31 - head.seeds:
        raise ConfigError(f"the seed must be from 0 to {2**31 - head.seeds - 1}, got {first_seed}")
    plan = Plan(path.stem, summary, head, corpus, arms, measures, tables, first_seed, start, str(name_or_path))
    try:
        _check(plan)
    except BertkitError as error:
        raise ConfigError(f"{path}, {error}") from None
    return plan


def _check(plan: Plan) -> None:
    """Refuse what would fail only after hours."""
    names = plan.arms.keys()
    _known(plan.head.base, names, "[plan]: base")
    for name, arm in plan.arms.items():
        where = f"[arms.{name}]"
        if arm.base is not None:
            _known(arm.base, names - {name}, f"{where}: base")
        for other in arm.of:
            _known(other, names, f"{where}: of")
            if plan.arms[other].of:
                raise ConfigError(
                    f"{where}: of = {other!r}, which takes the model of another arm itself; name that one"
                )
        if arm.of and (arm.model or arm.training or arm.start):
            raise ConfigError(
                f"{where}: an arm with of trains no model of its own; leave model, training and start out"
            )
        if not arm.of and arm.start is None:
            if plan.corpus is None:
                raise ConfigError(f"{where}: pre-training needs the table [corpus]; or give start, a finished model")
            try:
                network_class(plan.shape(name), plan.training(name))
            except BertkitError as error:
                raise ConfigError(f"{where}: {error}") from None
        for source in plan.sources(name):
            if plan.arms[source].start is None:
                check_layers(where, arm, plan.shape(source).num_hidden_layers)
            elif len(arm.of) > 1:
                raise ConfigError(f"{where}: of = {list(arm.of)}: {source!r} has a tokenizer of its own; name one arm")
        if not plan.measured(name) and not any(name in other.of for other in plan.arms.values()):
            raise ConfigError(f"{where}: nothing is measured of this arm")
    for name, measure in plan.measures.items():
        _check_measure(plan, f"[measures.{name}]", name, measure)


def check_layers(where: str, arm: Arm, depth: int) -> None:
    """Refuse (ConfigError) vectors of a layer that a model of this depth does not have."""
    wrong = [layer for layer in (arm.features.layers if arm.features else ()) if not -depth - 1 <= layer <= depth]
    if wrong:
        raise ConfigError(f"{where}: layer {wrong[0]} of a model with {depth} layers; give 0 (embeddings) to {depth}")


def _check_measure(plan: Plan, where: str, name: str, measure: Measure) -> None:
    for arm in measure.arms:
        _known(arm, plan.arms.keys(), f"{where}: arms")
    if measure.arms and plan.head.base not in measure.arms:
        raise ConfigError(f"{where}: arms lacks {plan.head.base!r}, which all are compared with")
    if name == CURVES:
        raise ConfigError(f"{where}: the picture of pre-training has this name; choose another")
    if (measure.kind == "words" or measure.data in MADE) and plan.corpus is None:
        raise ConfigError(f"{where}: it is made of held-out text, so the table [corpus] is needed")
    if measure.kind == "words":
        if measure.task or measure.data or measure.settings:
            raise ConfigError(f"{where}: task, data and settings are for kind = 'task'")
        for arm in (arm for arm in plan.arms if name in plan.measured(arm)):
            if any(plan.arms[source].start is not None for source in plan.sources(arm)):
                raise ConfigError(
                    f"{where}: arm {arm!r} begins with a model that has a vocabulary of its own; set arms"
                )
        return
    if measure.data is None or (measure.task is None and measure.data not in MADE):
        raise ConfigError(f"{where}: kind = 'task' needs task and data")
    try:
        form = "text" if measure.task is None else form_of(measure.task)
        FinetuneConfig(**measure.settings)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    for arm in (arm for arm in plan.arms if name in plan.measured(arm)):
        several, features = len(plan.sources(arm)) > 1, plan.arms[arm].features
        if several and features is None:
            raise ConfigError(f"[arms.{arm}]: several models are not fine-tuned together; give features")
        if features is not None and form != "token":
            raise ConfigError(f"{where}: arm {arm!r} has features, which tag words (task = 'ner') only; set arms")


def _known(name: str, known: Collection[str], where: str) -> None:
    if name not in known:
        raise ConfigError(f"{where} = {name!r} is unknown{did_you_mean(name, known)}; known: {', '.join(known)}")
