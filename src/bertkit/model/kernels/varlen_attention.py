"""Attention over a packed batch on a GPU in 16 bits: one kernel for sequences of any lengths, without padding.

The kernel is FlashAttention (Dao 2023) as torch has it, with dropout. It does not run everywhere: :data:`BACKENDS` says
what computes which case, and :func:`attend_packed` goes by it. See ``docs/decisions/0320-attention-on-a-gpu.md``.

Axes, in the order of the suffix letters::

    T tokens of the batch, flat   R chosen rows   N heads   H width of one head
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from bertkit.batch import Layout, sent
from bertkit.model.kernels.bucketed_attention import attend_bucketed
from bertkit.model.kernels.chosen_rows import ChosenRows

#: The kernel takes head widths that are multiples of this; others are filled up with zeros, which change no score.
HEAD_WIDTH_STEP = 8

BackendName = Literal["variable-length", "fused buckets", "products"]


@dataclass(frozen=True, slots=True)
class Backend:
    """One way to compute attention, and what it takes. All take dropout.

    capability: the least compute capability of an NVIDIA GPU; None: not only for these.
    dtypes, max_head_width: None: any.
    bias: whether scores may have something added, as DeBERTa, MPNet and T5 do.
    why: what it does, or what stands against the one before.
    """

    name: BackendName
    capability: tuple[int, int] | None
    dtypes: tuple[torch.dtype, ...] | None
    max_head_width: int | None
    bias: bool
    why: str

    def takes(self, capability: tuple[int, int] | None, dtype: torch.dtype, width: int, *, bias: bool) -> bool:
        """Whether it computes this case; ``capability`` None: not an NVIDIA GPU with FlashAttention."""
        return (
            (self.capability is None or (capability is not None and capability >= self.capability))
            and (self.dtypes is None or dtype in self.dtypes)
            and (self.max_head_width is None or width <= self.max_head_width)
            and (self.bias or not bias)
        )


#: In the order of preference.
BACKENDS = (
    Backend("variable-length", (8, 0), (torch.float16, torch.bfloat16), 256, False, "no padding, one launch a layer"),
    Backend("fused buckets", (0, 0), None, None, True, "older GPUs, float32, wide heads, biased scores"),
    Backend("products", None, None, None, True, "a CPU; in evaluation of long texts its fused kernel"),
)


def backend_for(capability: tuple[int, int] | None, dtype: torch.dtype, width: int, *, bias: bool = False) -> Backend:
    """The first of :data:`BACKENDS` that takes the case."""
    return next(each for each in BACKENDS if each.takes(capability, dtype, width, bias=bias))


def attend_packed(qkv_T3NH: Tensor, layout: Layout, p: float, rows: ChosenRows | None = None) -> Tensor:
    """Attention (:data:`bertkit.model.attention.Kernel`) by the kernel that fits: variable-length, or buckets."""
    attend = attend_varlen if varlen_fits(qkv_T3NH) else attend_bucketed
    return attend(qkv_T3NH, layout, p, rows)


def varlen_fits(qkv_T3NH: Tensor) -> bool:
    """Whether :func:`attend_varlen` can compute this: 16 bits, a GPU that has it, a head width that it takes."""
    found = backend_for(varlen_capability(qkv_T3NH.device), qkv_T3NH.dtype, qkv_T3NH.shape[-1])
    return found.name == "variable-length"


@lru_cache(maxsize=64)
def varlen_capability(device: torch.device) -> tuple[int, int] | None:
    """The compute capability of an NVIDIA GPU, where torch has FlashAttention built in; else None.

    AMD's GPUs are called ``cuda`` too. Their kernel is another one, which bertkit was never tried with.
    """
    there = (
        device.type == "cuda" and torch.version.cuda is not None and torch.backends.cuda.is_flash_attention_available()
    )
    return torch.cuda.get_device_capability(device) if there else None


def attend_varlen(
    qkv_T3NH: Tensor,
    layout: Layout,
    p: float,
    rows: ChosenRows | None = None,
    *,
    window: tuple[int, int] = (-1, -1),
) -> Tensor:
    """Attention by torch's variable-length kernel, with its gradient; only what :func:`varlen_fits` accepts.

    See :data:`bertkit.model.attention.Kernel` for the arguments. ``window``: only to tokens at most so many before and
    behind, of all rows; -1: to all on that side. The kernel draws its own dropout mask, which depends on the place of a
    text in the batch.
    """
    assert rows is None or window == (-1, -1), "the kernel counts places of chosen queries from the end"
    q_RNH, k_TNH, v_TNH = qkv_T3NH.unbind(1)
    device, width = qkv_T3NH.device, qkv_T3NH.shape[-1]
    keys = Sequences.of(layout, device)
    queries = keys
    if rows is not None:
        q_RNH = q_RNH.index_select(0, rows.rows)
        queries = Sequences.of(Layout(rows.lengths), device)
    missing = -width % HEAD_WIDTH_STEP
    if missing:
        q_RNH, k_TNH, v_TNH = (F.pad(x, (0, missing)) for x in (q_RNH, k_TNH, v_TNH))
    # The jagged form knows no windows. Where these are asked for, a changed operator is torch's error to tell.
    attend = attend_flash if window != (-1, -1) or has_known_operator() else attend_jagged
    out_RNH = attend(q_RNH, k_TNH, v_TNH, queries, keys, p, width**-0.5, window)
    return out_RNH[..., :width] if missing else out_RNH


@dataclass(frozen=True, slots=True)
class Sequences:
    """Where queries or keys begin and end: int32 ``(B + 1,)`` on the device, and the longest of them."""

    boundaries: Tensor
    longest: int

    @classmethod
    def of(cls, layout: Layout, device: torch.device) -> Sequences:
        """Of a layout; copied to the device once a batch, not once a layer."""
        if layout.offsets is not None:
            return cls(layout.offsets, layout.longest)
        return cls(cu_seqlens_on(layout.attended, device), layout.longest)


@lru_cache(maxsize=8)
@torch.inference_mode(False)  # training may reuse what an evaluation put in the cache, and must be able to save it
def cu_seqlens_on(lengths: tuple[int, ...], device: torch.device) -> Tensor:
    """Where sequences of these lengths begin and end, int32 ``(B + 1,)`` on ``device``."""
    return sent(Layout(lengths).cu_seqlens(), device)


def attend_flash(
    q_RNH: Tensor,
    k_TNH: Tensor,
    v_TNH: Tensor,
    queries: Sequences,
    keys: Sequences,
    p: float,
    scale: float,
    window: tuple[int, int] = (-1, -1),
) -> Tensor:
    """The operator behind ``torch.nn.attention.varlen``, which has dropout though that function does not offer it."""
    out_RNH: Tensor = torch.ops.aten._flash_attention_forward(
        q_RNH, k_TNH, v_TNH, queries.boundaries, keys.boundaries, queries.longest, keys.longest, p, False, False,
        scale=scale, window_size_left=window[0], window_size_right=window[1],
    )[0]  # fmt: skip
    return out_RNH


def attend_jagged(
    q_RNH: Tensor,
    k_TNH: Tensor,
    v_TNH: Tensor,
    queries: Sequences,
    keys: Sequences,
    p: float,
    scale: float,
    window: tuple[int, int] = (-1, -1),
) -> Tensor:
    """The same kernel by torch's public way to it, jagged tensors: the way out if the operator is ever changed.

    It costs more on the host and takes no window.
    """
    assert window == (-1, -1), "jagged attention has no windows"
    q, k, v = (
        torch.nested.nested_tensor_from_jagged(
            x.contiguous(), each.boundaries, min_seqlen=0, max_seqlen=each.longest
        ).transpose(1, 2)
        for x, each in ((q_RNH, queries), (k_TNH, keys), (v_TNH, keys))
    )
    out = F.scaled_dot_product_attention(q, k, v, dropout_p=p, scale=scale).transpose(1, 2)
    values: Tensor = out.values()
    return values


#: The arguments that :func:`attend_flash` gives, as torch's schema writes them: by place, and by name.
_BY_PLACE = (
    "query", "key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p", "is_causal", "return_debug_mask",
)  # fmt: skip
_BY_NAME = ("scale", "window_size_left", "window_size_right")


@cache
def has_known_operator() -> bool:
    """Whether torch's private operator still takes what :func:`attend_flash` gives it."""
    found = getattr(torch.ops.aten, "_flash_attention_forward", None)
    if found is None:
        return False
    arguments = found.default._schema.arguments
    by_place = tuple(each.name for each in arguments if not each.kwarg_only)
    return by_place == _BY_PLACE and set(_BY_NAME) <= {each.name for each in arguments if each.kwarg_only}
