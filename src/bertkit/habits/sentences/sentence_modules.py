"""``models`` of sentence-transformers: the parts of ``SentenceTransformer(modules=[...])``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

from bertkit.checkpoints.sentence_folder import SentenceParts
from bertkit.config.any_config import read_any_config
from bertkit.config.config_file import config_path
from bertkit.config.sentence_config import POOLING_MODES, Activation, PoolingMode, SentenceConfig, Step
from bertkit.config.sentence_config import Dense as DenseStep
from bertkit.config.sentence_config import LayerNorm as LayerNormStep
from bertkit.config.sentence_config import Normalize as NormalizeStep
from bertkit.errors import InputError
from bertkit.inference.sentence_encoder import SentenceEncoder
from bertkit.model.sentence_model import SentenceHead
from bertkit.system.model_sources import resolve
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer


class Encoding(Protocol):
    """A ``SentenceTransformer``, as far as its first module asks it."""

    encoder: SentenceEncoder

    @property
    def tokenizer(self) -> PreTrainedTokenizer: ...
    @property
    def max_seq_length(self) -> int: ...


@dataclass(frozen=True)
class Transformer:
    """The encoder: a folder or a name on the Hub. max_seq_length: most tokens of a text."""

    model_name_or_path: str | Path
    max_seq_length: int | None = None
    do_lower_case: bool = False

    def get_embedding_dimension(self) -> int:
        """Numbers of a token vector."""
        return int(read_any_config(config_path(resolve(self.model_name_or_path))).hidden_size)

    get_word_embedding_dimension = get_embedding_dimension


@dataclass(frozen=True)
class FirstModule:
    """The encoder of a model that is there, as ``model[0]``; changes of it change nothing."""

    model: Encoding

    @property
    def auto_model(self) -> Any:
        """The model object."""
        return self.model.encoder.pipeline.model

    @property
    def tokenizer(self) -> PreTrainedTokenizer:
        """That of the model."""
        return self.model.tokenizer

    @property
    def max_seq_length(self) -> int:
        """Most tokens that are read of a text."""
        return self.model.max_seq_length

    def get_embedding_dimension(self) -> int:
        """Numbers of a token vector."""
        return int(self.model.encoder.pipeline.config.hidden_size)

    get_word_embedding_dimension = get_embedding_dimension


class Pooling:
    """How token vectors become one: ``pooling_mode``, one or several; or ``pooling_mode_mean_tokens=True``."""

    def __init__(
        self,
        embedding_dimension: int,
        pooling_mode: str | Sequence[str] | None = None,
        *,
        include_prompt: bool = True,
        **flags: bool,
    ) -> None:
        asked = [pooling_mode] if isinstance(pooling_mode, str) else list(pooling_mode or ())
        names = {f"pooling_mode_{mode}{tail}": mode for mode in POOLING_MODES for tail in ("", "_tokens", "_token")}
        names["pooling_mode_mean_sqrt_len_tokens"] = "mean_sqrt_len_tokens"
        if unknown := [flag for flag in flags if flag not in names]:
            raise InputError(f"Pooling has no {unknown[0]!r}; write pooling_mode= one of {', '.join(POOLING_MODES)}")
        asked += [names[flag] for flag, wanted in flags.items() if wanted]
        if not asked and flags.get("pooling_mode_mean_tokens", True):
            asked = ["mean"]
        self.width, self.include_prompt = embedding_dimension, include_prompt
        self.modes = tuple(cast(PoolingMode, mode) for mode in asked)

    def get_embedding_dimension(self) -> int:
        """Numbers of a vector."""
        return self.width * len(self.modes)

    get_sentence_embedding_dimension = get_embedding_dimension

    def get_config_dict(self) -> dict[str, Any]:
        """What ``1_Pooling/config.json`` says."""
        return {
            "embedding_dimension": self.width,
            "pooling_mode": self.modes[0] if len(self.modes) == 1 else list(self.modes),
            "include_prompt": self.include_prompt,
        }


def Dense(  # noqa: N802  (the name of a class there)
    in_features: int, out_features: int, bias: bool = True, activation_function: object = None
) -> Step:
    """A matrix and an activation (an object of ``torch.nn``; None: Tanh), with random weights."""
    activation = "Tanh" if activation_function is None else type(activation_function).__name__
    return DenseStep(
        in_features=in_features, out_features=out_features, bias=bias, activation=cast(Activation, activation)
    )


def LayerNorm(dimension: int) -> Step:  # noqa: N802
    """A normalization to mean 0 and variance 1."""
    return LayerNormStep(dimension=dimension)


def Normalize() -> Step:  # noqa: N802
    """Scaling to length 1."""
    return NormalizeStep()


SentenceModule: TypeAlias = "Transformer | Pooling | Step"


def joined(modules: Sequence[SentenceModule]) -> tuple[str | Path, SentenceParts]:
    """The encoder, and what follows it; InputError for another order."""
    first, pooling, *others = [*modules, None, None][: max(2, len(modules))]
    if not isinstance(first, Transformer) or not isinstance(pooling, Pooling):
        raise InputError(
            "modules must be a Transformer, then a Pooling, then any of Dense, LayerNorm and Normalize; got "
            f"{', '.join(type(each).__name__ for each in modules) or 'none'}"
        )
    config = SentenceConfig(
        pooling=pooling.modes,
        include_prompt=pooling.include_prompt,
        steps=cast("tuple[Step, ...]", tuple(others)),
        max_length=first.max_seq_length,
        lower_case=first.do_lower_case,
    )
    return first.model_name_or_path, SentenceHead(config, first.get_embedding_dimension()).parts()
