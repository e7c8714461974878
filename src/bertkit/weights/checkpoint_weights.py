"""The weights of a checkpoint, as strictly as :mod:`bertkit.model.loading` reads them, without torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bertkit.checkpoints.fit import fit_checkpoint
from bertkit.checkpoints.huggingface import is_int8
from bertkit.checkpoints.match import Status
from bertkit.checkpoints.read_values import read_values
from bertkit.config.bert_config import BertConfig
from bertkit.weights.encoder_weights import Arrays, EncoderWeights
from bertkit.weights.head_weights import HEAD_ACTIVATIONS, KINDS, HeadWeights, head_activations, head_of
from bertkit.weights.parts import ACTIVATIONS

if TYPE_CHECKING:
    from bertkit.checkpoints.int8_folder import Quantization


class ModelWeights(NamedTuple):
    """An encoder with or without a head. facts: of a model in 8 bits, else None."""

    model_class: str
    config: BertConfig
    encoder: EncoderWeights
    head: HeadWeights | None
    facts: Quantization | None = None

    @classmethod
    def of(
        cls, model_class: str, config: BertConfig, arrays: Arrays, facts: Quantization | None = None
    ) -> ModelWeights:
        """From arrays by the names of a model's tensors."""
        base = "" if model_class == "BertModel" else "bert."
        own = {name.removeprefix(base): array for name, array in arrays.items() if name.startswith(base)}
        encoder = EncoderWeights(config, own, config.layer_order, read_once=True)
        return cls(model_class, config, encoder, head_of(model_class, config, arrays), facts)

    @classmethod
    def from_checkpoint(cls, path: Path, model_class: str, *, in_memory: bool = False) -> ModelWeights:
        """Of a folder, a ``.safetensors`` file or an ``.index.json``, for a class of ours.

        in_memory: read float weights at once, in place of mapping the file, so that it may change afterwards.

        Raises:
            CheckpointError: a missing, damaged, unsafe or unsuitable checkpoint; lists every tensor that differs.
            InputError: a model in 8 bits without the head of the class.
        """
        if is_int8(path):
            from bertkit.weights.byte_weights import read_byte_weights

            return cls.of(model_class, *read_byte_weights(path, model_class))
        fitted = fit_checkpoint(path, model_class, {})
        arrays = read_values(fitted.match, fitted.weights.tensors, in_memory=in_memory)
        arrays |= {row.ours: np.zeros(row.shape, np.float32) for row in fitted.match.of(Status.ZERO)}
        return cls.of(model_class, fitted.config, arrays)


def why_not_computed(config: BertConfig, model_class: str) -> str | None:
    """Why the C library does not compute such a model, in words that follow "because"; None: it does."""
    if model_class not in KINDS:
        return f"it has no {model_class}"
    if config.num_hidden_layers == 0:
        return "the model has no layers"
    if config.attention_direction != "both":
        return f"attention is {config.attention_direction}"
    others = {config.hidden_act} - ACTIVATIONS.keys() | head_activations(model_class, config) - {*HEAD_ACTIVATIONS}
    return f"it has no activation {min(others)}" if others else None
