"""Linear layers and tables in 8 bits: what they compute, in plain torch.

This is the definition of the arithmetic, and what runs where the C library does not. Weights are whole numbers with a
scale for each output. Each row of inputs is rounded to whole numbers with a scale of its own (LLM.int8(): Dettmers et
al. 2022), after three precautions against the few inputs of BERT that are far larger than the others (Bondarenko et al.
2021): the largest are kept apart in float32, the others may be evened out by fixed factors (SmoothQuant: Xiao et al.
2023), and inputs with a least value, such as those behind GELU, use the whole range above it.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.errors import InputError

#: Largest whole numbers: of inputs with a sign and without, of weights in 8 bits and in 7.
SIGNED_STEPS, UNSIGNED_STEPS = 127.0, 255.0
WEIGHT_STEPS = {8: 127, 7: 63}


class ByteLinear(nn.Module):
    """``x W^T + b`` from 8 bits, and optionally GELU; for inference.

    weight: int8 ``(out, in)``, in multiples of ``scale``, ``(out,)``.
    bias: ``(out,)``; with ``shift`` less what the weights make of it.
    smooth: ``(in,)``, what inputs are multiplied with before they are rounded; 0 for those kept apart.
    shift: ``(in,)``, added to them then, so that none is negative; None: they may be.
    apart: int64 ``(k,)``, inputs that are not rounded, with weights ``apart_weight`` ``(k, out)``.
    """

    weight: Tensor
    scale: Tensor
    bias: Tensor
    smooth: Tensor
    shift: Tensor | None
    apart: Tensor
    apart_weight: Tensor

    def __init__(self, in_features: int, out_features: int, num_apart: int, *, one_sided: bool) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("weight", torch.zeros(out_features, in_features, dtype=torch.int8))
        self.register_buffer("scale", torch.zeros(out_features))
        self.register_buffer("bias", torch.zeros(out_features))
        self.register_buffer("smooth", torch.zeros(in_features))
        self.register_buffer("shift", torch.zeros(in_features) if one_sided else None)
        self.register_buffer("apart", torch.zeros(num_apart, dtype=torch.int64))
        self.register_buffer("apart_weight", torch.zeros(num_apart, out_features))

    def forward(self, x: Tensor, activation: Literal["none", "gelu"] = "none") -> Tensor:
        """``(..., in)`` to ``(..., out)``."""
        values = x * self.smooth
        if self.shift is None:
            step = values.abs().amax(dim=-1, keepdim=True) / SIGNED_STEPS
        else:
            values = (values + self.shift).clamp_min(0.0)
            step = values.amax(dim=-1, keepdim=True) / UNSIGNED_STEPS
        whole = torch.where(step > 0, values / step, 0.0).round()
        products = F.linear(whole, self.weight.to(whole.dtype)) * (step * self.scale)
        out = products + self.bias + x.index_select(-1, self.apart) @ self.apart_weight
        return F.gelu(out) if activation == "gelu" else out

    def train(self, mode: bool = True) -> ByteLinear:
        """Refuses (InputError) to be trained."""
        if mode:
            raise InputError("a model in 8 bits cannot be trained: train the original one, then quantize the result")
        super().train(mode)
        return self

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, apart={len(self.apart)}"


class ByteEmbedding(nn.Module):
    """A table in 8 bits: int8 in multiples of ``scale``, ``(rows,)``, times ``column_scale``, ``(width,)``."""

    weight: Tensor
    scale: Tensor
    column_scale: Tensor

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        super().__init__()
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.register_buffer("weight", torch.zeros(num_embeddings, embedding_dim, dtype=torch.int8))
        self.register_buffer("scale", torch.zeros(num_embeddings))
        self.register_buffer("column_scale", torch.zeros(embedding_dim))

    def forward(self, ids: Tensor) -> Tensor:
        """``(...)`` to ``(..., width)``, float32."""
        return self.weight[ids] * self.scale[ids].unsqueeze(-1) * self.column_scale
