"""Attention over a packed batch on a GPU in 16 bits: one kernel for sequences of any lengths, without padding.

The kernel is ``torch.nn.attention.varlen``, FlashAttention (Dao 2023) behind it. It has no dropout and does not run
everywhere, so :func:`attend_packed` takes it where it fits, and the buckets elsewhere. See
``docs/decisions/0145-variable-length-attention-on-a-gpu.md``.

Axes, in the order of the suffix letters::

    T tokens of the batch, flat   R chosen rows   N heads   H width of one head
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec

import torch
from torch import Tensor

from bertkit.batch import Layout
from bertkit.model.kernels.bucketed_attention import attend_bucketed
from bertkit.model.kernels.chosen_rows import ChosenRows

#: What torch's kernel checks before it runs; anything else is an error there.
DTYPES = (torch.float16, torch.bfloat16)
HEAD_WIDTH_STEP, MAX_HEAD_WIDTH = 8, 256
MIN_CAPABILITY = (8, 0)


def attend_packed(qkv_T3NH: Tensor, layout: Layout, p: float, rows: ChosenRows | None = None) -> Tensor:
    """Attention (:data:`bertkit.model.attention.Kernel`) by the kernel that fits: variable-length, or buckets."""
    attend = attend_varlen if varlen_fits(qkv_T3NH, p) else attend_bucketed
    return attend(qkv_T3NH, layout, p, rows)


def varlen_fits(qkv_T3NH: Tensor, p: float) -> bool:
    """Whether :func:`attend_varlen` can compute this: 16 bits, a GPU that has it, a head width it takes, no dropout."""
    width = qkv_T3NH.shape[-1]
    return (
        p == 0.0
        and qkv_T3NH.dtype in DTYPES
        and width % HEAD_WIDTH_STEP == 0
        and width <= MAX_HEAD_WIDTH
        and has_varlen(qkv_T3NH.device)
    )


@lru_cache(maxsize=64)
def has_varlen(device: torch.device) -> bool:
    """Whether torch has the kernel for ``device``: an NVIDIA GPU, Ampere or newer, and FlashAttention built in.

    AMD's GPUs are called ``cuda`` too. Their kernel is another one, which bertkit was never tried with.
    """
    return (
        device.type == "cuda"
        and torch.version.cuda is not None
        and torch.backends.cuda.is_flash_attention_available()
        and find_spec("torch.nn.attention.varlen") is not None
        and torch.cuda.get_device_capability(device) >= MIN_CAPABILITY
    )


@lru_cache(maxsize=8)
@torch.inference_mode(False)  # training may reuse what an evaluation put in the cache, and must be able to save it
def cu_seqlens_on(lengths: tuple[int, ...], device: torch.device) -> Tensor:
    """Where sequences of these lengths begin and end, int32 ``(B + 1,)``: copied once a batch, not once a layer."""
    return Layout(lengths).cu_seqlens(device)


def attend_varlen(
    qkv_T3NH: Tensor,
    layout: Layout,
    p: float,
    rows: ChosenRows | None = None,
    *,
    window: tuple[int, int] = (-1, -1),
) -> Tensor:
    """Attention by torch's variable-length kernel, with its gradient; only what :func:`varlen_fits` accepts.

    See :data:`bertkit.model.attention.Kernel` for the arguments; ``p`` must be 0. ``window``: only
    to tokens at most so many before and behind, of all rows; -1: to all on that side.
    """
    assert rows is None or window == (-1, -1), "the kernel counts places of chosen queries from the end"
    from torch.nn.attention.varlen import varlen_attn  # here, because the import takes a second

    assert p == 0.0, "the variable-length kernel has no dropout"
    q_RNH, k_TNH, v_TNH = qkv_T3NH.unbind(1)
    queries = layout if rows is None else Layout(rows.lengths)
    if rows is not None:
        q_RNH = q_RNH.index_select(0, rows.rows)
    device = qkv_T3NH.device
    out_RNH = varlen_attn(
        q_RNH, k_TNH, v_TNH,
        cu_seq_q=cu_seqlens_on(queries.lengths, device), cu_seq_k=cu_seqlens_on(layout.lengths, device),
        max_q=queries.max_seqlen, max_k=layout.max_seqlen, window_size=window,
    )  # fmt: skip
    assert isinstance(out_RNH, Tensor), "a tuple comes back only where the log-sum-exp is asked for"
    return out_RNH
