"""Settings of a pre-training run, and recipes, which are runs as TOML files.

A recipe has two tables. ``[model]`` has a preset (``preset = "bert-mini"``), fields of
:class:`~bertkit.config.bert_config.BertConfig` (or of the config of its ``model_type``, if that is an encoder-decoder),
or both; the vocabulary comes from the token store.
``[training]`` has fields of :class:`PretrainConfig`. Unknown keys are errors.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from bertkit.config.any_config import AnyConfig, config_class
from bertkit.config.number_formats import Compile, Precision
from bertkit.config.presets import preset
from bertkit.data.examples.denoising import PUBLISHED, Denoising, DenoisingObjective
from bertkit.data.examples.masking import Unit
from bertkit.data.examples.pairs import Objective
from bertkit.errors import BertkitError, ConfigError, SettingsFileError, did_you_mean
from bertkit.habit_table import remedy
from bertkit.system.paths import user_path
from bertkit.system.settings_files import read_settings_file, settings_of_table
from bertkit.system.untrusted_files import Json
from bertkit.system.validated_settings import Field, Settings

#: Steps of a run without a limit of steps or time.
DEFAULT_STEPS = 10_000
#: More steps than any run takes: if only the clock ends it.
UNLIMITED_STEPS = 10**12
#: Settings that may change when a run is resumed. Of these ``max_tokens``, ``compile``, ``parallel`` and
#: ``deterministic`` affect rounding and dropout; with the others the run stays bit for bit the same.
FREE_SETTINGS = frozenset(
    "checkpoint_every_s keep_checkpoints curve tensorboard mlflow parallel gradient_checkpointing compile num_workers "
    "dev max_tokens deterministic".split()
)

#: Settings that do nothing without masked words, without an encoder, and without an encoder-decoder.
FOR_MASKED_WORDS = """masking masked_lm_prob max_predictions_per_seq mask_share random_share
dev_masked_lm_prob""".split()
FOR_ENCODERS = "short_seq_prob output_bias word_embeddings".split()
FOR_DENOISING = "noise_density mean_span_length".split()

AnyObjective = Literal[Objective, DenoisingObjective]
Optimizer = Literal["adamw", "adam-weight-decay", "lamb", "muon"]
Shape = Literal["linear", "polynomial", "trapezoid", "original"]


class Phase(NamedTuple):
    """One part of a run; ``num_steps`` is a maximum if the clock ends it, ``max_predictions`` None no limit."""

    max_seq_length: int
    max_predictions: int | None
    batch_size: int
    num_steps: int


class PretrainConfig(Settings):
    """Settings of one pre-training run. The defaults suit a small encoder on one machine."""

    objective: AnyObjective = Field(
        "mlm+nsp",
        description="mlm+nsp as BERT, mlm as RoBERTa, mlm+sop as ALBERT, span-corruption as T5, text-infilling as "
        "BART, next-word or previous-word where attention is one way; default: as the model's family, mlm for all "
        "encoders but BERT",
    )
    protocol: Literal["bertkit", "original"] = Field(
        "bertkit", description="original: fixed examples in memory, as in the 2018 code; for small corpora"
    )
    dupe_factor: int = Field(10, ge=1, le=1000, description="copies of the corpus (protocol original)")
    max_seq_length: int = Field(128, ge=8, description="maximum tokens of an example")
    short_seq_length: int | None = Field(
        None, ge=8, description="maximum tokens in the first part of the run; default: one length"
    )
    short_share: float = Field(
        0.9, gt=0, lt=1, description="share of the steps or time with short sequences; paper: 0.9"
    )
    short_batch_size: int | None = Field(None, ge=1, description="examples per step of that part; default: as later")
    batch_size: int = Field(256, ge=1, description="examples per optimizer step")
    max_tokens: int = Field(8192, ge=8, description="tokens in memory at once; affects only rounding and dropout")
    max_steps: int | None = Field(
        None, ge=1, description="optimizer steps; default 10,000, or as many as the time allows"
    )
    max_seconds: float | None = Field(None, gt=0, description="time budget; the rate falls to 0 at its end")
    optimizer: Optimizer = Field(
        "adamw",
        description="adam-weight-decay is the original's; lamb for large batches; muon for fewer tokens in small runs",
    )
    adam_beta2: float = Field(0.999, gt=0, lt=1, description="decay of the running mean of squared gradients")
    learning_rate: float = Field(1e-4, gt=0, le=1, description="peak rate")
    schedule: Shape = Field("linear", description="how the rate falls; original: as published, starting at exactly 0")
    warmup: float = Field(0.01, ge=0, lt=1, description="share of the run in which the rate rises")
    power: float = Field(1.0, gt=0, description="exponent of schedule polynomial")
    end_rate: float = Field(0.0, ge=0, lt=1, description="final share of the peak rate (schedule polynomial)")
    cooldown: float = Field(
        0.2, gt=0, le=1, description="share of the run in which the rate falls (schedule trapezoid)"
    )
    weight_decay: float = Field(0.01, ge=0, le=1, description="decay of weights, except LayerNorm and bias")
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are clipped to this norm")
    masking: Unit = Field("token", description="what is masked at a time")
    masked_lm_prob: float = Field(0.15, gt=0, lt=1, description="share of the tokens that are targets")
    # None, and not the shares of the paper: runs of earlier versions, which had no choice, can be resumed.
    mask_share: float | None = Field(
        None, ge=0, le=1, description="share of the targets replaced by [MASK]; default: 0.8"
    )
    random_share: float | None = Field(
        None, ge=0, le=1, description="share replaced by a random token, the rest stays as it is; default: 0.1"
    )
    max_predictions_per_seq: int | None = Field(
        None, ge=1, description="maximum targets of an example; default: no limit"
    )
    noise_density: float | None = Field(
        None, gt=0, lt=1, description="share of the tokens that T5 or BART must restore; default: 0.15 and 0.3"
    )
    mean_span_length: float | None = Field(
        None, ge=1, le=100, description="tokens that are removed together, on average; default: 3"
    )
    short_seq_prob: float = Field(0.1, ge=0, le=1, description="share of examples with a random shorter length")
    dev_masked_lm_prob: float = Field(0.15, gt=0, lt=1, description="masked share of the held-out text")
    dev_examples: int = Field(2048, ge=1, description="held-out examples per evaluation")
    eval_every_steps: int | None = Field(None, ge=1, description="steps between evaluations; default: after each epoch")
    seed: int = Field(0, ge=0, lt=2**31, description="of weights, pairs, masks, order, dropout")
    checkpoint_every_s: float = Field(120.0, ge=0, description="seconds between checkpoints")
    output_bias: Literal["zero", "unigram"] = Field(
        "zero", description="initial bias of a new masked-LM head; unigram: token frequencies"
    )
    word_embeddings: Literal["random", "cooccurrence"] = Field(
        "random", description="initial ones of a new model; cooccurrence: from co-occurrence counts"
    )
    dropout: float | None = Field(
        None, ge=0, lt=1, description="of hidden vectors and attention; default: that of the model"
    )
    precision: Precision | None = Field(
        None,
        description="number format of matrix products; default on a GPU bf16 (fp16 on older ones), on a CPU fp32, or "
        "bf16 for a trained encoder where that is measured to be faster; weights stay fp32",
    )
    gradient_checkpointing: bool = Field(
        False, description="recompute layers for the backward pass: less memory, more time, same result"
    )
    compile: Compile = Field(
        "auto", description="torch.compile for parts of the layers; auto: on a GPU, if the run is long enough to gain"
    )
    deterministic: bool = Field(
        False, description="on a GPU, kernels that give the same bits every time, which are slower; a CPU always does"
    )
    parallel: Literal["ddp", "fsdp"] | None = Field(
        None, description="under torchrun: whole weights on each device, or parts"
    )
    num_workers: int | None = Field(
        None, ge=0, le=64, description="threads that prefetch batches; default: 1 with a GPU, else 0"
    )
    curve: bool = Field(True, description="draw loss.png if matplotlib is installed")
    tensorboard: bool = Field(False, description="also write RUN/tensorboard; needs the extra tensorboard")
    mlflow: bool = Field(
        False, description="also log to MLflow (MLFLOW_TRACKING_URI, else mlruns); needs the extra mlflow"
    )
    keep_checkpoints: int = Field(2, ge=1, description="checkpoints kept; older ones are deleted")

    @classmethod
    def _prepared(cls, values: dict[str, Any]) -> dict[str, Any]:
        """``compile`` as earlier versions had it, a boolean."""
        if isinstance(given := values.get("compile"), bool):
            return {**values, "compile": "on" if given else "off"}
        return values

    @property
    def replaced(self) -> tuple[float, float]:
        """Shares of the targets that are replaced by [MASK], and by a random token."""
        return (
            0.8 if self.mask_share is None else self.mask_share,
            0.1 if self.random_share is None else self.random_share,
        )

    @property
    def num_steps(self) -> int:
        """Maximum optimizer steps."""
        if self.max_steps is not None:
            return self.max_steps
        return DEFAULT_STEPS if self.max_seconds is None else UNLIMITED_STEPS

    @property
    def phases(self) -> list[Phase]:
        """The parts of the run: two if there are two lengths, otherwise one."""
        whole = Phase(self.max_seq_length, self.max_predictions_per_seq, self.batch_size, self.num_steps)
        if self.short_seq_length is None or self.short_seq_length == self.max_seq_length:
            return [whole]
        short_steps = min(max(1, round(self.short_share * self.num_steps)), self.num_steps - 1)
        limit = self.max_predictions_per_seq
        if limit is not None:
            limit = math.ceil(limit * self.short_seq_length / self.max_seq_length)
        short = Phase(self.short_seq_length, limit, self.short_batch_size or self.batch_size, short_steps)
        return [short, whole._replace(num_steps=self.num_steps - short_steps)]

    @property
    def noise(self) -> Denoising | None:
        """What is removed for an encoder-decoder to restore; None: masked words are trained."""
        if (published := PUBLISHED.get(self.objective)) is None:
            return None
        return Denoising(self.noise_density or published.rate, self.mean_span_length or published.mean_span)

    def replace(self, **changes: Any) -> PretrainConfig:
        """A validated copy with some fields changed."""
        return PretrainConfig(**{**self.model_dump(include=self.model_fields_set), **changes})

    def check(self) -> None:
        """Refuse settings that contradict each other: not before a recipe and command-line options are combined."""
        if self.schedule == "trapezoid" and self.warmup + self.cooldown > 1 + 1e-9:
            raise ConfigError(f"warmup={self.warmup} and cooldown={self.cooldown} must be at most 1 together")
        if self.max_seconds is not None and self.schedule in ("original", "polynomial"):
            raise ConfigError(
                f"schedule {self.schedule!r} counts steps; with a time budget (max_seconds, --max-time) use linear or "
                "trapezoid"
            )
        if sum(self.replaced) > 1 + 1e-9:
            raise ConfigError(
                "mask_share={} and random_share={} must be at most 1 together; the paper has 0.8 and 0.1".format(
                    *self.replaced
                )
            )
        if self.protocol == "original" and self.replaced != (0.8, 0.1):
            raise ConfigError("protocol 'original' masks as the paper does; leave out mask_share and random_share")
        if self.protocol == "original" and (self.objective != "mlm+nsp" or self.masking == "span"):
            raise ConfigError(
                "protocol 'original' has the objective mlm+nsp and masks tokens or whole words, got "
                f"objective={self.objective!r}, masking={self.masking!r}"
            )
        if "objective" in self.model_fields_set:  # otherwise it depends on the model, and is checked once that is known
            self._check_objective()
        if len(self.phases) == 1:
            if self.short_batch_size is not None:
                raise ConfigError(
                    f"short_batch_size={self.short_batch_size} applies to the part of a run with short_seq_length; "
                    "give that too, or only batch_size"
                )
            return
        if (short := self.phases[0].max_seq_length) > self.max_seq_length:
            raise ConfigError(
                f"short_seq_length={short} is for the first part of the run and may be at most "
                f"max_seq_length={self.max_seq_length}; the paper has 128, then 512"
            )
        if self.num_steps < 2:
            raise ConfigError("two lengths (short_seq_length) need max_steps of at least 2, got 1")

    def _check_objective(self) -> None:
        """Refuse what would do nothing."""
        useless = [] if "mlm" in self.objective else FOR_MASKED_WORDS
        useless = [*useless, *(FOR_DENOISING if self.noise is None else FOR_ENCODERS)]
        for name in useless:
            if (value := getattr(self, name)) != type(self).model_fields[name].default:
                raise ConfigError(f"{name}={value!r} has no effect with objective={self.objective!r}; leave it out")
        if self.noise is not None and (self.compile == "on" or self.parallel == "fsdp"):
            given = "compile='on'" if self.compile == "on" else "parallel='fsdp'"
            raise ConfigError(f"{given} works on the layers of encoders only; leave it out for BART and T5")


#: Folder of the recipes of the package; ``recipes/`` in the repository links to it.
FOLDER = Path(__file__).resolve().parent.parent.parent / "recipes"
_TABLES = ("model", "training")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A pre-training run to repeat; the vocabulary of ``model`` is replaced by that of the store."""

    name: str
    summary: str
    model: AnyConfig
    training: PretrainConfig


def recipe_names() -> tuple[str, ...]:
    """Names of the recipes of the package."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load_recipe(name_or_path: str | Path) -> Recipe:
    """A recipe of the package by name, or any file. An error names the file, and the key where one is to blame."""
    path, tables, summary = read_recipe(name_or_path, FOLDER, _TABLES)
    model, training = (tables.get(name, {}) for name in _TABLES)
    if not model:
        raise ConfigError(f'{path}: the table [model] is missing or empty; give preset = "bert-mini" or sizes')

    def checked(**settings: Any) -> PretrainConfig:
        config = PretrainConfig(**settings)
        config.check()
        return config

    config = settings_of_table(checked, training, f"{path}, [training]")
    return Recipe(path.stem, summary, _model(path, model), config)


def read_recipe(
    name_or_path: str | Path, folder: Path, known: Collection[str]
) -> tuple[Path, dict[str, dict[str, Json]], str]:
    """The file of a recipe in ``folder`` by name, or any; its tables, all of them ``known``; its first comment."""
    name, names = str(name_or_path), sorted(path.stem for path in folder.glob("*.toml"))
    path = folder / f"{name}.toml" if name in names else user_path(name)
    if not path.is_file():
        near = did_you_mean(name, names)
        raise ConfigError(f"there is no recipe {name!r}{near}: give a TOML file, or one of {', '.join(names)}")
    values, text = read_settings_file(path)
    tables: dict[str, dict[str, Json]] = {}
    for key, value in values.items():
        if key not in known or not isinstance(value, dict):
            raise SettingsFileError(
                f"{path}: unknown key {key!r}{remedy('settings', key, known)}; a recipe has the tables "
                + " and ".join(f"[{table}]" for table in known)
            )
        tables[key] = value
    first = text.lstrip().partition("\n")[0]
    return path, tables, first.lstrip("# ").rstrip() if first.startswith("#") else ""


def _model(path: Path, table: dict[str, Json]) -> AnyConfig:
    sizes = dict(table)
    named = sizes.pop("preset", None)
    try:
        if named is not None and not isinstance(named, str):
            raise ConfigError(f'preset = {named!r}: give a name, for example "bert-mini"')
        if named is None:
            return config_class(sizes.get("model_type"))(**sizes)
        return preset(named).config.replace(**sizes)
    except BertkitError as error:
        raise ConfigError(f"{path}, [model]: {error}") from None
