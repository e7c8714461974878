"""A model as a graph of tensors only, for export: padded or packed, all axes dynamic.

The encoder and its heads are those of :mod:`bertkit.model`; only what needs Python numbers has another form here, in
which everything is a tensor: the layout of a batch, the attention kernel, and pooling over tokens.

Axes: B sequences, S the longest of them, T tokens, N heads, H width of one head, D width of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.batch import Batch
from bertkit.errors import ConfigError
from bertkit.model.attention import SelfAttention
from bertkit.model.biased_attention import BiasedAttention
from bertkit.model.disentangled_attention import DisentangledAttention
from bertkit.model.kernels.disentangled_scores import Distances
from bertkit.model.kernels.linear import Linear
from bertkit.model.output import ModelOutput
from bertkit.model.padded import PackedModel
from bertkit.model.rotary_attention import RotaryAttention

#: Added to the scores of masked keys. Not -inf: a row without any key would become NaN.
FORBIDDEN = torch.finfo(torch.float32).min


class GraphLayout:
    """What the model needs of a :class:`bertkit.batch.Layout`, and what :func:`attend` needs.

    first: row of each sequence's first token, int64 ``(B,)``.
    bias: what is added to the scores of attention, ``(B, 1, 1, S)``.
    """

    num_sequences: int
    first: Tensor
    bias: Tensor
    #: A graph takes batches of any shape.
    fill = None

    @property
    def max_seqlen(self) -> int:
        """S."""
        return self.bias.shape[-1]

    def first_rows(self, device: torch.device | None = None) -> Tensor:
        return self.first

    def gather(self, x: Tensor) -> Tensor:
        """``(T, ...)`` to ``(B, S, ...)``."""
        raise NotImplementedError

    def give_back(self, x: Tensor) -> Tensor:
        """``(B, S, ...)`` to ``(T, ...)``."""
        raise NotImplementedError


class PaddedLayout(GraphLayout):
    """Rows of a padded batch with a mask ``(B, S)``, 1 at real tokens; padding is computed, but not attended to."""

    def __init__(self, mask: Tensor) -> None:
        self.shape, self.num_sequences = mask.shape, mask.shape[0]
        # The first real token, not the first column: there may be padding before it.
        self.first = torch.arange(mask.shape[0]) * mask.shape[1] + (mask != 0).long().argmax(dim=1)
        self.bias = torch.where(mask[:, None, None, :] != 0, 0.0, FORBIDDEN)

    def gather(self, x: Tensor) -> Tensor:
        return x.unflatten(0, self.shape)  # type: ignore[no-any-return]

    def give_back(self, x: Tensor) -> Tensor:
        return x.flatten(0, 1)


class PackedLayout(GraphLayout):
    """Sequences end to end; only attention pads them to the longest. ``cu_seqlens``: 0 and the end of each sequence."""

    def __init__(self, cu_seqlens: Tensor, num_tokens: int) -> None:
        self.first = cu_seqlens[:-1]
        self.num_sequences = self.first.shape[0]
        lengths_B = cu_seqlens[1:] - self.first
        longest = lengths_B.max().item()
        torch._check(longest >= 1)
        column_1S = torch.arange(longest)[None, :]
        real_BS = column_1S < lengths_B[:, None]
        self.rows_BS = torch.where(real_BS, self.first[:, None] + column_1S, self.first[:, None])
        self.bias = torch.where(real_BS, 0.0, FORBIDDEN)[:, None, None, :]
        row_T = torch.arange(num_tokens)
        owner_T = (row_T[:, None] >= cu_seqlens[None, 1:]).long().sum(dim=1)
        self.positions = row_T - self.first[owner_T]
        self.places_T = owner_T * longest + self.positions

    def gather(self, x: Tensor) -> Tensor:
        # An embedding lookup is the simplest gather of rows, which every runtime has.
        return F.embedding(self.rows_BS, x.flatten(1)).unflatten(-1, x.shape[1:])  # type: ignore[no-any-return]

    def give_back(self, x: Tensor) -> Tensor:
        rows = F.embedding(self.places_T, x.flatten(0, 1).flatten(1))
        return rows.unflatten(-1, x.shape[2:])  # type: ignore[no-any-return]


def attend(qkv_T3NH: Tensor, layout: GraphLayout, p: float, rows: None = None) -> Tensor:
    """The attention kernel of the graph, ``(T, N, H)``: without dropout, at all rows."""
    return _attend(qkv_T3NH, layout, qkv_T3NH.shape[-1] ** -0.5, lambda scores, q, k: scores)


@dataclass(frozen=True)
class GraphWindow:
    """:class:`bertkit.model.rotary_attention.Windowed` of the graph; it computes all scores, and hides the others."""

    half: int

    def __call__(self, qkv_T3NH: Tensor, layout: GraphLayout, p: float, rows: None = None) -> Tensor:
        """As :func:`attend`."""

        def hidden(scores_BNSS: Tensor, q: Tensor, k: Tensor) -> Tensor:
            return torch.where(away(scores_BNSS).abs() > self.half, FORBIDDEN, scores_BNSS)

        return _attend(qkv_T3NH, layout, qkv_T3NH.shape[-1] ** -0.5, hidden)


def attend_biased(qkv_T3NH: Tensor, layout: GraphLayout, p: float, rows: None = None, *, bias_ND: Tensor) -> Tensor:
    """:func:`bertkit.model.kernels.bucketed_attention.attend_bucketed` of the graph, with a bias."""

    def biased(scores_BNSS: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return scores_BNSS + bias_ND[:, away(scores_BNSS) + scores_BNSS.shape[-1] - 1]

    return _attend(qkv_T3NH, layout, qkv_T3NH.shape[-1] ** -0.5, biased)


def attend_disentangled(qkv_T3NH: Tensor, layout: GraphLayout, p: float, rows: None, distances: Distances) -> Tensor:
    """:func:`bertkit.model.kernels.disentangled_scores.attend_disentangled` of the graph."""

    def with_distances(scores_BNSS: Tensor, q_BNSH: Tensor, k_BNSH: Tensor) -> Tensor:
        index_SS = distances.rows(-away(scores_BNSS))  # query minus key
        index_BNSS = index_SS.expand(scores_BNSS.shape)
        if distances.keys is not None:
            scores_BNSS = scores_BNSS + (q_BNSH @ distances.keys.permute(1, 2, 0)).gather(-1, index_BNSS)
        if distances.queries is not None:
            products_BNSE = (k_BNSH * distances.scale) @ distances.queries.permute(1, 2, 0)
            scores_BNSS = scores_BNSS + products_BNSE.gather(-1, index_BNSS.mT).mT
        return scores_BNSS

    return _attend(qkv_T3NH, layout, distances.scale, with_distances)


def away(scores_BNSS: Tensor) -> Tensor:
    """The distance of each key from each query, ``(S, S)``, above 0 for keys behind it."""
    place_S = torch.arange(scores_BNSS.shape[-1])
    return place_S[None, :] - place_S[:, None]


def _attend(
    qkv_T3NH: Tensor, layout: GraphLayout, scale: float, changed: Callable[[Tensor, Tensor, Tensor], Tensor]
) -> Tensor:
    """Attention with scores as ``changed`` gives them back, from themselves, scaled queries, and keys."""
    q_BNSH, k_BNSH, v_BNSH = layout.gather(qkv_T3NH).permute(2, 0, 3, 1, 4).unbind(0)
    q_BNSH = q_BNSH * scale
    scores_BNSS = changed(q_BNSH @ k_BNSH.mT + layout.bias, q_BNSH, k_BNSH)
    return layout.give_back((scores_BNSS.softmax(dim=-1) @ v_BNSH).transpose(1, 2))


#: The attribute with the kernel of each kind of attention, and its form here; None: it depends on the window.
KERNELS: dict[type[SelfAttention], tuple[str, Any]] = {
    SelfAttention: ("attend", attend),
    BiasedAttention: ("attend_biased", attend_biased),
    DisentangledAttention: ("attend_distances", attend_disentangled),
    RotaryAttention: ("attend", None),
}


def kernel_of(attention: SelfAttention) -> tuple[str, Any]:
    """The attribute of an attention module that holds its kernel, and what replaces it in the graph."""
    if type(attention) not in KERNELS:
        raise ConfigError(
            f"{type(attention).__name__} cannot be exported, only attention to both sides of bertkit's own kinds; use "
            "the model as it is"
        )
    name, kernel = KERNELS[type(attention)]
    if isinstance(attention, RotaryAttention):
        kernel = attend if attention.reach is None else GraphWindow(attention.reach)
    return name, kernel


def pool(x_TD: Tensor, layout: GraphLayout, pooling: str) -> Tensor:
    """:func:`bertkit.model.pooling.pool_tokens` of the graph."""
    x_BSD = layout.gather(x_TD)
    real_BS1 = (layout.bias == 0).flatten(1).unsqueeze(-1)
    if pooling == "max":
        return torch.where(real_BS1, x_BSD, FORBIDDEN).amax(dim=1)
    return torch.where(real_BS1, x_BSD, 0.0).sum(dim=1) / real_BS1.sum(dim=1)


class Graph(nn.Module):
    """A model that takes positional tensors and returns a tuple of tensors."""

    #: The input with the boundaries of the sequences.
    bounds: str

    def __init__(self, model: PackedModel) -> None:
        super().__init__()
        self.model = model
        self.has_segments = model.config.type_vocab_size > 0
        self.outputs = output_names(model)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, in the order of the arguments of ``forward``."""
        return ("input_ids", self.bounds, *(("token_type_ids",) if self.has_segments else ()))

    def _run(
        self, ids: Tensor, segments: Tensor | None, positions: Tensor, layout: GraphLayout, rows: Tensor | None = None
    ) -> list[Tensor]:
        types = torch.zeros_like(ids) if segments is None else segments
        batch = Batch(ids, types, positions, layout, logit_rows=rows)  # type: ignore[arg-type]
        # Asking for all states avoids the shortcuts that need Python numbers; unused outputs are pruned.
        out = self.model.forward_packed(batch, output_hidden_states=True)
        # A packed batch has the scores of multiple choice in one row; here there is one per sequence.
        return [out[name].flatten() if kind_of(self.model) == "choice" else out[name] for name in self.outputs]


class PaddedGraph(Graph):
    """``input_ids``, ``attention_mask``, ``token_type_ids``: int64 ``(B, S)``.

    At padding results are those of the model: 0, and of logits of places the smallest, so that no answer is there.
    """

    bounds = "attention_mask"

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """The results named in :attr:`outputs`; those of tokens ``(B, S, ...)``."""
        positions = self.model.positions(input_ids, attention_mask)
        assert positions is not None, "a mask gives them"
        segments = None if token_type_ids is None else token_type_ids.flatten()
        layout = PaddedLayout(attention_mask)
        found = self._run(input_ids.flatten(), segments, positions.flatten(), layout)

        def padded(x_T: Tensor, fill: float) -> Tensor:
            x_BS = x_T.unflatten(0, input_ids.shape)
            return torch.where((attention_mask != 0).unflatten(-1, (-1, *(1,) * (x_BS.ndim - 2))), x_BS, fill)

        fills = {**dict.fromkeys(self.model.token_fields, 0.0), **dict.fromkeys(self.model.place_fields, FORBIDDEN)}
        names = zip(self.outputs, found, strict=True)
        return tuple(padded(x, fills[name]) if name in fills else x for name, x in names)


class PackedGraph(Graph):
    """``input_ids``, ``token_type_ids``: int64 ``(T,)``; ``cu_seqlens``: int64 ``(B + 1,)``, 0 and each one's end.

    A model that predicts words takes ``logit_rows`` as well, int64 ``(R,)``: the tokens for which it does so. With all
    of the vocabulary for every token, most of its time would go there.
    """

    bounds = "cu_seqlens"

    @property
    def inputs(self) -> tuple[str, ...]:
        return (*super().inputs, *(("logit_rows",) if predicts_words(self.model) else ()))

    def forward(self, input_ids: Tensor, cu_seqlens: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
        """The results named in :attr:`outputs`; ``others`` are ``token_type_ids`` and ``logit_rows``, if any."""
        given = dict(zip(self.inputs[2:], others, strict=True))
        layout = PackedLayout(cu_seqlens, input_ids.shape[0])
        segments, rows = given.get("token_type_ids"), given.get("logit_rows")
        return tuple(self._run(input_ids, segments, layout.positions, layout, rows))


def output_names(model: PackedModel) -> tuple[str, ...]:
    """The outputs of a model, found by running it on two tokens."""
    with torch.inference_mode():
        out = model(torch.zeros((1, 1, 2) if kind_of(model) == "choice" else (1, 2), dtype=torch.int64))
    assert isinstance(out, ModelOutput)
    return tuple(out.keys())


def predicts_words(model: PackedModel) -> bool:
    """Whether the head of a model reads the tokens to predict."""
    return getattr(model, "reads", "") == "words"


def kind_of(model: PackedModel) -> str:
    """What the head of a model judges; see ``HeadModel.kind``. An encoder has none."""
    return str(getattr(model, "kind", ""))


@contextmanager
def traceable(model: PackedModel) -> Iterator[None]:
    """Inside the block, a model in eval mode uses :func:`attend` and :func:`pool`, and no prepacked weights."""
    attentions = [module for module in model.modules() if isinstance(module, SelfAttention)]
    replaced = [(module, *kernel_of(module)) for module in attentions]
    kept = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    pooling = getattr(model, "pool", None)
    for attention, name, kernel in replaced:
        setattr(attention, name, kernel)
    if pooling is not None:
        model.pool = pool  # type: ignore[assignment]
    try:
        with ExitStack() as unpacked:
            for module in model.modules():
                if isinstance(module, Linear):
                    unpacked.enter_context(module.unpacked())
            yield
    finally:
        for attention, name, kernel in kept:
            setattr(attention, name, kernel)
        if pooling is not None:
            model.pool = pooling
