"""The parts of a layer by the names that they have in ``transformers`` and in published files: views, made when asked.

They stand beside the model, not in ``bertkit.habits``, because they are attributes of its modules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, NoReturn, Self

import torch
from torch import Tensor, nn

from bertkit.batch import pack_padded, padded_positions
from bertkit.errors import InputError
from bertkit.model.activations import ACTIVATIONS
from bertkit.model.kernels.dropout import Dropout
from bertkit.model.kernels.linear import Linear
from bertkit.model.output import ModelOutput


class PublishedParts:
    """Some modules of a layer under other names; it can be read and called, not changed.

    place: what was typed. ours: what to type instead for all else. parts: name to what it is. compute: a call.
    """

    def __init__(
        self, place: str, ours: str, parts: Mapping[str, Callable[[], object]], compute: Callable[..., Tensor]
    ) -> None:
        vars(self).update(_place=place, _ours=ours, _parts=parts, _compute=compute)

    def __getattr__(self, name: str) -> Any:
        if name in vars(self).get("_parts", ()):
            return self._parts[name]()
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(f"layer.{self._place} has no {name!r}; write layer.{self._ours}", name=name)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise InputError(f"layer.{self._place}.{name} cannot be assigned; change layer.{self._ours}")

    def __call__(self, *inputs: Tensor) -> Tensor:
        computed: Tensor = self._compute(*inputs)
        return computed

    def __dir__(self) -> list[str]:
        return list(self._parts)

    def __repr__(self) -> str:
        return f"<layer.{self._place}: {', '.join(self._parts)} of layer.{self._ours}>"


class MatrixRows(Tensor):
    """Rows of a weight or bias: writing into them changes it. What would be lost without a word is an error."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    whole: Tensor
    part: slice

    @classmethod
    def of(cls, whole: Tensor | None, part: slice) -> MatrixRows | None:
        """Some rows of a tensor; None without one."""
        if whole is None:
            return None
        rows: MatrixRows = whole[part].as_subclass(cls)
        rows.whole, rows.part = whole, part
        return rows

    @property
    def grad(self) -> Tensor | None:  # type: ignore[override]
        """The gradient of these rows."""
        return None if self.whole.grad is None else self.whole.grad[self.part]

    @property
    def data(self) -> Tensor:
        """The values, which may be written into."""
        return self.whole.data[self.part]

    @data.setter
    def data(self, value: Tensor) -> None:
        raise InputError(
            "query, key and value are one matrix here: write into its rows, query.weight.data.copy_(values) or .data[:]"
        )

    @property
    def requires_grad(self) -> bool:
        """Whether the matrix is trained."""
        return self.whole.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        raise InputError(
            f"query, key and value are one matrix here: write layer.attention.qkv.requires_grad_({value}) for all three"
        )


def _rows(attention: AttentionParts, name: str, number: int) -> PublishedParts:
    qkv: nn.Module = attention.qkv
    width = attention.out.in_features
    part = slice(number * width, (number + 1) * width)
    if not isinstance(qkv, Linear):
        raise InputError(f"query, key and value of this {type(qkv).__name__} are one matrix: layer.attention.qkv")
    ours = f"attention.qkv, one matrix of query, key and value: outputs {part.start} to {part.stop} are the {name}"
    parts = {
        "weight": lambda: MatrixRows.of(qkv.weight, part),
        "bias": lambda: MatrixRows.of(qkv.bias, part),
        "in_features": lambda: qkv.in_features,
        "out_features": lambda: part.stop - part.start,
    }
    return PublishedParts(f"attention.self.{name}", ours, parts, lambda x: qkv.rows(x, part))


def _normed(place: str, ours: str, dense: nn.Module, norm: nn.Module, dropout: nn.Module) -> PublishedParts:
    """A linear layer, dropout, residual and norm, called with what the linear layer reads and the residual."""
    parts = {"dense": lambda: dense, "LayerNorm": lambda: norm, "dropout": lambda: dropout}
    return PublishedParts(place, ours, parts, lambda x, residual: norm(dropout(dense(x)) + residual))


class HasPublishedParts(nn.Module):
    """A module some of whose attributes are such views; ``published``: their names, and what to assign to instead."""

    published: ClassVar[Mapping[str, str]] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.published:
            raise InputError(f"{name!r} of a layer cannot be assigned; change {self.published[name]}")
        super().__setattr__(name, value)


class AttentionParts(HasPublishedParts):
    """Of the attention in a layer."""

    published: ClassVar = {"self": "attention.qkv", "output": "attention.out and layer.attention_norm"}
    qkv: Linear
    out: Linear
    dropout: Dropout
    num_heads: int
    #: The norm and the dropout of the layer; empty where the layer is not BERT's.
    _after: tuple[nn.Module, ...] = ()

    @property
    def self(self) -> PublishedParts:
        """``query``, ``key`` and ``value``, each some rows of the one matrix."""
        heads, width = self.num_heads, self.out.in_features

        def refuse(*inputs: Tensor) -> NoReturn:
            raise InputError("layer.attention.self cannot be called; layer.attention(x, layout) reads a packed batch")

        parts: dict[str, Callable[[], object]] = {
            **{name: partial(_rows, self, name, number) for number, name in enumerate(("query", "key", "value"))},
            "num_attention_heads": lambda: heads,
            "attention_head_size": lambda: width // heads,
            "all_head_size": lambda: width,
            "dropout": lambda: self.dropout,
        }
        return PublishedParts("attention.self", "attention", parts, refuse)

    @property
    def output(self) -> PublishedParts:
        """What follows the attention."""
        if not self._after:
            raise AttributeError("output")
        return _normed("attention.output", "attention.out, layer.attention_norm", self.out, *self._after)


class LayerParts(HasPublishedParts):
    """Of a layer."""

    published: ClassVar = {"intermediate": "layer.ffn_up", "output": "layer.ffn_down and layer.ffn_norm"}
    ffn_up: Linear
    ffn_down: Linear
    ffn_norm: nn.LayerNorm
    dropout: Dropout
    hidden_act: str

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        linked = ("attention", "attention_norm", "attention_dropout")
        if name in linked and self.published and all(part in self._modules for part in linked):
            vars(self.attention)["_after"] = (self.attention_norm, self.attention_dropout)

    @property
    def intermediate(self) -> PublishedParts:
        """The upper half of the feed-forward."""
        self._check("intermediate")
        activation = ACTIVATIONS[self.hidden_act]
        parts = {"dense": lambda: self.ffn_up, "intermediate_act_fn": lambda: activation}
        return PublishedParts("intermediate", "ffn_up", parts, lambda x: activation(self.ffn_up(x)))

    @property
    def output(self) -> PublishedParts:
        """The lower half of the feed-forward and what follows it."""
        self._check("output")
        return _normed("output", "ffn_down, layer.ffn_norm", self.ffn_down, self.ffn_norm, self.dropout)

    def _check(self, name: str) -> None:
        """A class derived from BERT's layer may have other parts."""
        if name not in self.published:
            raise AttributeError(name)


class OutProjection(HasPublishedParts, Linear):
    """The classifier of RoBERTa, ELECTRA and MPNet, which there is one module with the layer before it."""

    published: ClassVar = {"dense": "model.base_model.pooler.dense", "out_proj": "model.classifier"}

    def follow(self, pooler: nn.Module) -> Self:
        """Remember the layer before; returns itself."""
        vars(self)["_before"] = pooler
        return self

    @property
    def dense(self) -> nn.Module:
        """The layer before."""
        return vars(self)["_before"].dense  # type: ignore[no-any-return]

    @property
    def out_proj(self) -> Self:
        """Itself."""
        return self


class PaddedEncoder(nn.Module):
    """Called with packed vectors, or as in ``transformers``."""

    def padded(self, x_BSD: Tensor, mask: Tensor | None = None) -> ModelOutput:
        """``(B, S, D)`` to ``last_hidden_state`` ``(B, S, D)``; ``mask`` is 1 or True at real tokens, ``(B, S)``."""
        if x_BSD.ndim != 3:
            raise InputError(f"expected vectors of shape (batch, sequence, width), got {tuple(x_BSD.shape)}")
        if mask is not None and mask.ndim != 2:
            raise InputError(
                f"attention_mask must have shape (batch, sequence), 1 at real tokens, got {tuple(mask.shape)}; the "
                "mask of the tokenizer is one"
            )
        ids = torch.zeros(x_BSD.shape[:2], dtype=torch.int64, device=x_BSD.device)
        batch, padding = pack_padded(ids, mask, inputs_embeds=x_BSD)
        return ModelOutput(last_hidden_state=padding.unpack(self(batch.inputs_embeds, batch.layout)[0]))


class PaddedEmbeddings(nn.Module):
    """Called with a packed batch, or as in ``transformers``."""

    word_embeddings: nn.Embedding
    first_position: int

    def padded(
        self,
        input_ids: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
    ) -> Tensor:
        """``(B, S)``, or vectors ``(B, S, E)``, to ``(B, S, D)``; every position is computed."""
        if input_ids is None:
            if inputs_embeds is None:
                raise InputError("give input_ids or inputs_embeds")
            input_ids = torch.zeros(inputs_embeds.shape[:2], dtype=torch.int64, device=inputs_embeds.device)
        pad = None if inputs_embeds is not None else self.word_embeddings.padding_idx
        positions = padded_positions(input_ids, None, position_ids, self.first_position, pad)
        batch, padding = pack_padded(input_ids, None, token_type_ids, positions, inputs_embeds)
        return padding.unpack(self(batch))
