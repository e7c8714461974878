"""The sublayers of an encoder-decoder and what stands around them; Vaswani et al. 2017, section 3.

BART's layers normalize behind each sublayer, mBART's and T5's before it. T5 has no biases, does not scale its scores,
and adds to them a learned bias for the distance of key and query (Raffel et al. 2020, section 2.1).

Axes, in the order of the suffix letters::

    B sequences   S tokens of the decoder   T tokens of the encoder, flat   M longest sequence of the encoder
    N heads   H width of one head   D model width   L rows of a cache
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from bertkit.batch import Layout
from bertkit.config.tower import Tower
from bertkit.model.activations import ACTIVATIONS
from bertkit.model.generation.decoder_cache import LayerCache
from bertkit.model.kernels.bucketed_attention import attend_bucketed, attend_fused
from bertkit.model.kernels.dropout import Dropout, add_dropout
from bertkit.model.kernels.linear import Linear
from bertkit.model.kernels.relative_positions import square_bias, t5_buckets
from bertkit.model.kernels.varlen_attention import attend_packed
from bertkit.model.seq2seq.trace import NO_TRACE, Trace


def norm_of(tower: Tower) -> nn.LayerNorm | nn.RMSNorm:
    """The norm of a family: LayerNorm, or T5's root mean square (Zhang and Sennrich 2019)."""
    kind = nn.LayerNorm if tower.biases else nn.RMSNorm
    return kind(tower.width, eps=tower.eps)


class Residual(nn.Module):
    """Norm, dropout and residual around a sublayer: ``norm(x + f(x))``, or ``x + f(norm(x))``."""

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        self.norm = norm_of(tower)
        self.dropout = Dropout(tower.dropout)
        self.pre_norm = tower.pre_norm

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre_norm:
            return add_dropout(x, sublayer(self.norm(x)), self.dropout.rate())
        normed: Tensor = self.norm(add_dropout(x, sublayer(x), self.dropout.rate()))
        return normed


class FeedForward(nn.Module):
    """Two linear layers with an activation between; gated: the activation times another product (Shazeer 2020)."""

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        self.up = Linear(tower.width, tower.inner_width, bias=tower.biases)
        self.gate = Linear(tower.width, tower.inner_width, bias=False) if tower.gated else None
        self.down = Linear(tower.inner_width, tower.width, bias=tower.biases)
        self.activation = ACTIVATIONS[tower.activation]
        self.dropout = Dropout(tower.inner_dropout)
        self.up.init_scale, self.down.init_scale = tower.init_scale(tower.width), tower.init_scale(tower.inner_width)
        if self.gate is not None:
            self.gate.init_scale = self.up.init_scale

    def forward(self, x: Tensor) -> Tensor:
        inner = self.activation(self.up(x))
        if self.gate is not None:
            inner = inner * self.gate(x)
        down: Tensor = self.down(self.dropout(inner))
        return down


class _Attention(nn.Module):
    """What the three kinds of attention share; ``scale`` multiplies the scores, None: ``1 / sqrt(H)``."""

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        self.num_heads, self.width = tower.heads, tower.heads * tower.head_width
        self.scale = None if tower.biases else 1.0
        self.out = Linear(self.width, tower.width, bias=tower.biases)
        self.out.init_scale = tower.init_scale(self.width)
        self.dropout = Dropout(tower.attention_dropout)

    def _projection(self, tower: Tower, matrices: int) -> Linear:
        made = Linear(tower.width, matrices * self.width, bias=tower.biases)
        made.init_scale = tower.init_scale(tower.width)
        return made

    def _attend(self, q_BNSH: Tensor, k_BNMH: Tensor, v_BNMH: Tensor, bias: Tensor | None) -> Tensor:
        """``(B, N, S, H)``; ``bias`` is added to the scores."""
        return attend_fused(q_BNSH, k_BNMH, v_BNMH, bias, self.dropout.rate(), self.scale)

    def _probabilities(self, q_NSH: Tensor, k_NMH: Tensor, bias: Tensor | None) -> Tensor:
        """What values are weighted with before dropout, ``(..., N, S, M)``; rows sum to 1."""
        scores_NSM = (q_NSH @ k_NMH.mT) * (q_NSH.shape[-1] ** -0.5 if self.scale is None else self.scale)
        return (scores_NSM if bias is None else scores_NSM + bias).softmax(dim=-1)

    def _project(self, out_BNSH: Tensor) -> Tensor:
        out_BSD: Tensor = self.out(out_BNSH.transpose(1, 2).flatten(2))
        return out_BSD


class EncoderAttention(_Attention):
    """Self-attention of the encoder over packed sequences."""

    def __init__(self, tower: Tower) -> None:
        super().__init__(tower)
        self.qkv = self._projection(tower, 3)

    def forward(self, x_TD: Tensor, layout: Layout, bias_ND: Tensor | None, trace: Trace = NO_TRACE) -> Tensor:
        """``(T, D)`` to ``(T, D)``; ``bias_ND`` is for distances, as :func:`attend_bucketed` takes it."""
        qkv_T3NH = self.qkv(x_TD).unflatten(-1, (3, self.num_heads, -1))
        if bias_ND is None:
            out_TNH = attend_packed(qkv_T3NH, layout, self.dropout.rate())
        else:
            out_TNH = attend_bucketed(qkv_T3NH, layout, self.dropout.rate(), bias_ND=bias_ND, scale=self.scale)
        if trace.attentions is not None:
            trace.attentions.append([self._of_one(qkv_T3NH[start:end], bias_ND) for start, end in layout.spans()])
        out_TD: Tensor = self.out(out_TNH.flatten(1))
        return out_TD

    def _of_one(self, qkv_s3NH: Tensor, bias_ND: Tensor | None) -> Tensor:
        """The probabilities of one sequence, ``(N, s, s)``."""
        q_NsH, k_NsH, _ = qkv_s3NH.transpose(0, 2).unbind(1)
        return self._probabilities(q_NsH, k_NsH, None if bias_ND is None else square_bias(bias_ND, len(qkv_s3NH)))


class CausalAttention(_Attention):
    """Self-attention of the decoder, in which no token sees a later one."""

    def __init__(self, tower: Tower) -> None:
        super().__init__(tower)
        self.qkv = self._projection(tower, 3)

    def forward(self, x_BSD: Tensor, bias: Tensor, cache: LayerCache | None, trace: Trace = NO_TRACE) -> Tensor:
        """``(B, S, D)`` to ``(B, S, D)``.

        bias: added to the scores, ``(1 or B, 1 or N, S, keys)``, -inf where a token must not be seen.
        cache: of the layer; keys are then those in it, and of the S new tokens, which are added.
        """
        qkv_BS3NH = self.qkv(x_BSD).unflatten(-1, (3, self.num_heads, -1))
        q_BNSH, k_BNSH, v_BNSH = qkv_BS3NH.transpose(1, 3).unbind(2)
        if cache is not None:
            k_BNSH, v_BNSH = cache.append(k_BNSH, v_BNSH)
        if trace.attentions is not None:
            trace.attentions.append(list(self._probabilities(q_BNSH, k_BNSH, bias)))
        return self._project(self._attend(q_BNSH, k_BNSH, v_BNSH, bias))


class CrossAttention(_Attention):
    """Attention of the decoder to the output of the encoder, the memory."""

    def __init__(self, tower: Tower) -> None:
        super().__init__(tower)
        self.q = self._projection(tower, 1)
        self.kv = self._projection(tower, 2)

    def remember(self, memory_TD: Tensor, groups: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of the memory, ``(B, N, M, H)`` each, by group of rows of the sequences in it, ``(B, M)``."""
        kv_T2NH = self.kv(memory_TD).unflatten(-1, (2, self.num_heads, -1))
        found = []
        for rows_BM in groups:
            kv_BM2NH = kv_T2NH.index_select(0, rows_BM.flatten()).unflatten(0, rows_BM.shape)
            k_BNMH, v_BNMH = kv_BM2NH.permute(2, 0, 3, 1, 4).contiguous().unbind(0)  # each head is read as a whole
            found.append((k_BNMH, v_BNMH))
        return found

    def forward(
        self,
        x_BSD: Tensor,
        memory: Sequence[tuple[Tensor, Tensor]],
        hidden: Sequence[Tensor | None],
        trace: Trace = NO_TRACE,
    ) -> Tensor:
        """``(B, S, D)`` to ``(B, S, D)``; ``memory`` and ``hidden`` as the cache has them, group by group."""
        q_BNSH = self.q(x_BSD).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        queries = q_BNSH.split([len(k) for k, _ in memory])
        groups = [(q, k, v, bias) for q, (k, v), bias in zip(queries, memory, hidden, strict=True)]
        if trace.cross is not None:
            trace.cross.append([row for q, k, _, bias in groups for row in self._probabilities(q, k, bias)])
        found = [self._attend(*group) for group in groups]
        return self._project(found[0] if len(found) == 1 else torch.cat(found))


class DistanceTable(nn.Embedding):
    """T5's learned biases: one for each head and distance of key and query, shared by the layers of a tower."""

    def __init__(self, tower: Tower, decoder: bool) -> None:
        super().__init__(tower.buckets, tower.heads)
        self.init_scale = tower.init_scale(tower.width)
        self.decoder = decoder
        self.max_distance = tower.max_distance

    def forward(self, first: int, last: int) -> Tensor:  # type: ignore[override]  # distances in place of rows
        """The biases of the distances ``first ... last`` of the key from the query, ``(N, last - first + 1)``."""
        distances = torch.arange(first, last + 1, device=self.weight.device)
        rows = t5_buckets(distances, self.num_embeddings, self.max_distance, bidirectional=not self.decoder)
        return super().forward(rows).t()


class Words(nn.Module):
    """Embeddings of a tower: words, whose table is the model's, and BART's learned positions with a norm behind."""

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        self.positions = nn.Embedding(tower.positions + OFFSET, tower.width) if tower.positions else None
        self.norm = norm_of(tower) if tower.positions else None
        self.scale = tower.word_scale
        self.dropout = Dropout(tower.dropout)

    def forward(self, words: Tensor, position_ids: Tensor) -> Tensor:
        """``(..., D)``; positions count from 0."""
        x = words if self.scale == 1.0 else words * self.scale
        if self.positions is not None and self.norm is not None:
            x = self.norm(x + self.positions(position_ids + OFFSET))
        dropped: Tensor = self.dropout(x)
        return dropped


#: Rows of BART's position table before that of position 0, left over from fairseq.
OFFSET = 2
