"""``modeling.py`` of google-research/bert, where constructing the encoder runs it.

There, a ``BertModel`` is part of a graph, and its weights are variables of the graph. Here a ``BertModel`` is one run
of a :class:`bertkit.BertModel`, which holds the weights and is passed as ``model``; padding is not computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bertkit.config import bert_config as settings
from bertkit.errors import ConfigError, InputError
from bertkit.model import models as bert
from bertkit.model.activations import ACTIVATIONS
from bertkit.model.padded import PackedModel
from bertkit.system.validated_settings import Field

__all__ = ["BertConfig", "BertModel", "gather_indexes", "gelu", "get_shape_list"]

#: The original's arguments, in its order.
_POSITIONAL = """
    vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size hidden_act hidden_dropout_prob
    attention_probs_dropout_prob max_position_embeddings type_vocab_size initializer_range
""".split()
#: What two configs may differ in if one's weights are to be the other's.
_NOT_OF_THE_SHAPE = ("hidden_dropout_prob", "attention_probs_dropout_prob", "initializer_range")


class BertConfig(settings.BertConfig):
    """:class:`bertkit.BertConfig` with the original's constructor: ``vocab_size`` first, and 16 segments by default.

    ``from_json_file`` reads a ``bert_config.json``. Its ``"gelu"`` is the erf form, as in the first release of the
    original and as published weights are usually read; later releases compute the tanh form, ``"gelu_new"``, for it.

    Raises:
        ConfigError: as :class:`bertkit.BertConfig`; no ``vocab_size``.
    """

    type_vocab_size: int = Field(16, ge=1, le=1024, description="segments (sentence A, sentence B)")

    def __init__(self, vocab_size: int | None = None, *shape: Any, **values: Any) -> None:
        if vocab_size is None:
            raise ConfigError("vocab_size is missing: how many word pieces are in the vocabulary?")
        if len(shape) >= len(_POSITIONAL):
            raise ConfigError(f"BertConfig takes {len(_POSITIONAL)} positional arguments, got {len(shape) + 1}")
        given = dict(zip(_POSITIONAL, (vocab_size, *shape), strict=False))
        if twice := given.keys() & values.keys():
            raise ConfigError(f"BertConfig is given {', '.join(sorted(twice))} twice")
        super().__init__(**given, **values)


class BertModel:
    """One run of the encoder over a padded batch; the ``get_...`` methods return its results.

    Args:
        config: the shape. With ``model`` it must be the model's.
        is_training: whether dropout is on. The model's own mode is restored afterwards.
        input_ids: integers ``(B, S)``, a tensor or lists.
        input_mask: ``(B, S)``, 1 at real tokens; None: all are real.
        token_type_ids: ``(B, S)``; None: all 0.
        use_one_hot_embeddings: accepted, no effect: another way to the same values, for TPUs.
        scope: accepted, no effect: tensors are not looked up by name here.
        model: whose weights are used: a :class:`bertkit.BertModel`, or a model with a head. None draws new ones, as the
            original does without a checkpoint; they are in :attr:`model`.

    Gradients flow from every result to the weights. Deviates: results are 0 at padding, which is never computed.

    Raises:
        ConfigError: ``config`` is not the shape of ``model``.
        InputError: shapes that do not agree, or ids outside their tables.
    """

    def __init__(
        self,
        config: settings.BertConfig,
        is_training: bool,
        input_ids: Tensor | Sequence[Sequence[int]],
        input_mask: Tensor | Sequence[Sequence[int]] | None = None,
        token_type_ids: Tensor | Sequence[Sequence[int]] | None = None,
        use_one_hot_embeddings: bool = False,
        scope: str | None = None,
        *,
        model: PackedModel | None = None,
    ) -> None:
        encoder = bert.BertModel(config) if model is None else getattr(model, "bert", model)
        if not isinstance(encoder, bert.BertModel):
            raise InputError(
                f"model must be a bertkit.BertModel or a model with one inside, got {type(model).__name__}"
            )
        differing = [
            f"{name} is {getattr(config, name)!r} in the config and {getattr(encoder.config, name)!r} in the model"
            for name in _POSITIONAL
            if name not in _NOT_OF_THE_SHAPE and getattr(config, name) != getattr(encoder.config, name)
        ]
        if differing:
            raise ConfigError(f"the config does not match the model: {'; '.join(differing)}. Pass model.config")
        self.model = encoder
        device = encoder.device
        tensors = [None if x is None else torch.as_tensor(x, device=device) for x in (input_mask, token_type_ids)]
        before = encoder.training
        encoder.train(is_training)
        try:
            out = encoder(torch.as_tensor(input_ids, device=device), *tensors, output_hidden_states=True)
        finally:
            encoder.train(before)
        self.embedding_output: Tensor = out.hidden_states[0]
        self.all_encoder_layers: list[Tensor] = list(out.hidden_states[1:])
        self.sequence_output: Tensor = out.last_hidden_state
        self.pooled_output: Tensor | None = out.pooler_output

    def get_pooled_output(self) -> Tensor:
        """The vector of [CLS] after the pooler, a linear layer and tanh, ``(B, D)``.

        Raises:
            InputError: the model has no pooler.
        """
        if self.pooled_output is None:
            raise InputError("this model has no pooler; use get_sequence_output()[:, 0], the vector of [CLS] itself")
        return self.pooled_output

    def get_sequence_output(self) -> Tensor:
        """The top layer, ``(B, S, D)``."""
        return self.sequence_output

    def get_all_encoder_layers(self) -> list[Tensor]:
        """The output of each of the L layers, ``(B, S, D)``, the lowest first; the embeddings are not among them."""
        return self.all_encoder_layers

    def get_embedding_output(self) -> Tensor:
        """Sum of the three embeddings after LayerNorm and dropout, ``(B, S, D)``: what the lowest layer reads."""
        return self.embedding_output

    def get_embedding_table(self) -> Tensor:
        """Word embeddings, ``(V, D)``."""
        return self.model.embeddings.word_embeddings.weight


def gather_indexes(sequence_tensor: Tensor, positions: Tensor | Sequence[Sequence[int]]) -> Tensor:
    """The vectors at the given positions of each sequence, one sequence after another.

    Args:
        sequence_tensor: ``(B, S, D)``.
        positions: integers ``(B, P)``, counted from the start of each sequence.

    Returns:
        ``(B * P, D)``.

    Raises:
        InputError: the wrong number of axes, or a position outside ``0 ... S - 1``.
    """
    batch_size, seq_length, _ = get_shape_list(sequence_tensor, expected_rank=3, name="sequence_tensor")
    positions_BP = torch.as_tensor(positions, device=sequence_tensor.device).long()
    if get_shape_list(positions_BP, expected_rank=2, name="positions")[0] != batch_size:
        raise InputError(f"positions has {len(positions_BP)} rows, sequence_tensor {batch_size} sequences")
    outside = (positions_BP < 0) | (positions_BP >= seq_length)
    if outside.any():
        raise InputError(f"position {int(positions_BP[outside][0])} is outside 0 ... {seq_length - 1}")
    offsets_B1 = torch.arange(batch_size, device=positions_BP.device)[:, None] * seq_length
    return sequence_tensor.flatten(0, 1).index_select(0, (positions_BP + offsets_B1).flatten())


def gelu(x: Tensor) -> Tensor:
    """The tanh form, as in the last release of the original; ``hidden_act="gelu_new"`` computes it in a model."""
    return ACTIVATIONS["gelu_new"](x)


def get_shape_list(tensor: Tensor, expected_rank: int | Sequence[int] | None = None, name: str = "tensor") -> list[int]:
    """The shape as a list.

    Raises:
        InputError: an unexpected number of axes.
    """
    shape = list(tensor.shape)
    expected = [expected_rank] if isinstance(expected_rank, int) else expected_rank
    if expected is not None and len(shape) not in expected:
        wanted = " or ".join(map(str, expected))
        raise InputError(f"{name} must have {wanted} axes, got {len(shape)}: shape {tuple(shape)}")
    return shape
