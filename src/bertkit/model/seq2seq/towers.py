"""The encoder and the decoder of an encoder-decoder; the encoder reads packed sequences, without padding.

Axes, in the order of the suffix letters::

    B sequences   S tokens of the decoder   T tokens of the encoder, flat   M longest sequence of the encoder
    N heads   D model width   R rows that are written: B inputs times K beams
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bertkit.batch import Layout
from bertkit.config.tower import Tower
from bertkit.habit_table import no_attribute
from bertkit.model.generation.decoder_cache import DecoderCache, LayerCache
from bertkit.model.kernels.dropout import Dropout
from bertkit.model.published_tensors import PublishedTensors
from bertkit.model.seq2seq.seq2seq_layers import (
    CausalAttention,
    CrossAttention,
    DistanceTable,
    EncoderAttention,
    FeedForward,
    Residual,
    Words,
    norm_of,
)
from bertkit.model.seq2seq.trace import NO_TRACE, Trace

#: Inputs of a group in the memory of the decoder, and from which share of padding on there is more than one group.
GROUP, MUCH_LONGER = 8, 1.25


class PackedLayer(nn.Module):
    """A layer of the encoder: self-attention, feed-forward."""

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        self.attention, self.around_attention = EncoderAttention(tower), Residual(tower)
        self.ffn, self.around_ffn = FeedForward(tower), Residual(tower)

    def forward(self, x_TD: Tensor, layout: Layout, bias_ND: Tensor | None, trace: Trace) -> Tensor:
        x_TD = self.around_attention(x_TD, lambda x: self.attention(x, layout, bias_ND, trace))
        normed_TD: Tensor = self.around_ffn(x_TD, self.ffn)
        return normed_TD


class DecoderLayer(nn.Module):
    """A layer of the decoder: causal self-attention, attention to the memory, feed-forward."""

    def __init__(self, tower: Tower) -> None:
        super().__init__()
        self.attention, self.around_attention = CausalAttention(tower), Residual(tower)
        self.cross, self.around_cross = CrossAttention(tower), Residual(tower)
        self.ffn, self.around_ffn = FeedForward(tower), Residual(tower)

    def forward(
        self, x_BSD: Tensor, bias: Tensor, cache: LayerCache, hidden: list[Tensor | None], trace: Trace, keep: bool
    ) -> Tensor:
        """``keep``: whether the tokens are added to the cache, which is read in any case."""
        x_BSD = self.around_attention(x_BSD, lambda x: self.attention(x, bias, cache if keep else None, trace))
        inputs = sum(len(k) for k, _ in cache.memory)
        if len(x_BSD) != inputs:  # the beams of one input read the same memory, as more tokens of one sequence would
            x_BSD = x_BSD.view(inputs, -1, x_BSD.shape[-1])
        x_BSD = self.around_cross(x_BSD, lambda x: self.cross(x, cache.memory, hidden, trace))
        normed: Tensor = self.around_ffn(x_BSD, self.ffn)
        return normed


class _Tower(nn.Module):
    """Embeddings, layers, and T5's and mBART's norm behind them; ``gradient_checkpointing`` as in an ``Encoder``."""

    gradient_checkpointing: bool = False
    #: Our name of each parameter, and those in published files, from here on.
    published: Sequence[tuple[str, tuple[str, ...]]] = ()

    def __init__(self, tower: Tower, layer: Callable[[Tower], nn.Module], decoder: bool) -> None:
        super().__init__()
        self.words = Words(tower)
        self.distances = DistanceTable(tower, decoder) if tower.buckets else None
        self.layer = nn.ModuleList(layer(tower) for _ in range(tower.layers))
        self.norm = norm_of(tower) if tower.pre_norm else None
        # Only T5 drops vectors behind its last norm.
        self.dropout = Dropout(0.0 if tower.biases else tower.dropout)

    def __getattr__(self, name: str) -> Any:
        """Also parameters by their names in published files, which a model puts here."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("_"):
                raise
        found = PublishedTensors.below(self, name, self.published)
        if found is None:
            raise no_attribute(self, "model.", name, self._modules)
        return found

    def _run(self, layer: nn.Module, *args: Any) -> Tensor:
        out: Tensor
        if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
            out = checkpoint(layer, *args, use_reentrant=False)
        else:
            out = layer(*args)
        return out

    def _finished(self, x: Tensor, trace: Trace) -> Tensor:
        out: Tensor = self.dropout(x if self.norm is None else self.norm(x))
        trace.add_state(out)
        return out


class PackedEncoder(_Tower):
    """The encoder."""

    def __init__(self, tower: Tower) -> None:
        super().__init__(tower, PackedLayer, decoder=False)

    def forward(self, words_TD: Tensor, position_ids: Tensor, layout: Layout, trace: Trace = NO_TRACE) -> Tensor:
        """Vectors of words to those of the last layer, both ``(T, D)``; ``trace`` records the layers between."""
        x_TD = self.words(words_TD, position_ids)
        reach = layout.max_seqlen - 1
        bias_ND = None if self.distances is None else self.distances(-reach, reach).to(x_TD.dtype)
        for layer in self.layer:
            trace.add_state(x_TD)
            x_TD = self._run(layer, x_TD, layout, bias_ND, trace)
        return self._finished(x_TD, trace)


def input_groups(lengths: Sequence[int]) -> list[tuple[int, int]]:
    """First and end of the groups of neighbouring inputs whose keys are kept together; one, if lengths are alike."""
    if len(lengths) * max(lengths) <= MUCH_LONGER * sum(lengths):
        return [(0, len(lengths))]
    return [(first, min(first + GROUP, len(lengths))) for first in range(0, len(lengths), GROUP)]


class Decoder(_Tower):
    """The decoder."""

    def __init__(self, tower: Tower) -> None:
        super().__init__(tower, DecoderLayer, decoder=True)

    def remember(self, memory_TD: Tensor, layout: Layout) -> DecoderCache:
        """What :meth:`forward` needs of the encoder's output."""
        device = memory_TD.device
        groups: list[Tensor] = []
        hidden: list[Tensor | None] = []
        for first, end in input_groups(layout.lengths):
            lengths = layout.lengths[first:end]
            columns_M = torch.arange(max(lengths), device=device)
            lengths_B1 = torch.tensor(lengths, device=device)[:, None]
            starts_B1 = layout.first_rows(device)[first:end, None]
            groups.append(starts_B1 + torch.minimum(columns_M, lengths_B1 - 1))
            behind_BM = columns_M >= lengths_B1
            shut_BM = torch.zeros(behind_BM.shape, dtype=memory_TD.dtype, device=device)
            shut_BM.masked_fill_(behind_BM, -torch.inf)
            hidden.append(None if min(lengths) == max(lengths) else shut_BM[:, None, None, :])
        layers = []
        for layer in self.layer:
            assert isinstance(layer, DecoderLayer)
            layers.append(LayerCache(layer.cross.remember(memory_TD, groups)))
        return DecoderCache(layers, hidden)

    def forward(
        self,
        words_BSD: Tensor,
        cache: DecoderCache,
        mask_BS: Tensor | None = None,
        *,
        keep: bool = False,
        trace: Trace = NO_TRACE,
    ) -> Tensor:
        """Vectors of words to those of the last layer, both ``(B, S, D)``.

        words_BSD: of whole sequences, or with ``keep`` of what follows the tokens in the cache, which are added to it.
        mask_BS: 1 at tokens that later ones may see; None: all.
        """
        shape, first = words_BSD.shape, cache.length
        places_S = torch.arange(first, first + shape[1], device=words_BSD.device)
        x_BSD = self.words(words_BSD, places_S)
        bias = self._bias(first, shape[1], x_BSD)
        if mask_BS is not None:
            unseen_BS = torch.zeros(mask_BS.shape, dtype=x_BSD.dtype, device=x_BSD.device)
            bias = bias + unseen_BS.masked_fill(mask_BS == 0, torch.finfo(x_BSD.dtype).min)[:, None, None, :]
        for layer, layer_cache in zip(self.layer, cache.layers, strict=True):
            trace.add_state(x_BSD.view(shape))
            x_BSD = self._run(layer, x_BSD.view(shape), bias, layer_cache, cache.hidden, trace, keep)
        return self._finished(x_BSD.view(shape), trace)

    def _bias(self, first: int, tokens: int, like: Tensor) -> Tensor:
        """What is added to the scores of ``tokens`` tokens from place ``first`` on, ``(1, 1 or N, S, keys)``."""
        keys_K = torch.arange(first + tokens, device=like.device)
        away_SK = keys_K[None, :] - keys_K[first:, None]
        if self.distances is None:
            bias_NSK = torch.zeros((1, *away_SK.shape), dtype=like.dtype, device=like.device)
        else:
            biases_NK = self.distances(1 - len(keys_K), 0).to(like.dtype)
            bias_NSK = biases_NK[:, (away_SK + len(keys_K) - 1).clamp(max=len(keys_K) - 1)]
        return bias_NSK.masked_fill(away_SK > 0, -torch.inf)[None]
