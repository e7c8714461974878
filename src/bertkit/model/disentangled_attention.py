"""Disentangled attention: content attends to content, to positions, and positions to content (DeBERTa, He et al. 2021).

Axes, in the order of the suffix letters::

    T all tokens of the batch, flat   R chosen rows   N heads   H width of one head   D = N * H
    E rows of the table of distances   s length of one sequence
"""

from __future__ import annotations

import math

from torch import Tensor, nn

from bertkit.batch import Layout
from bertkit.config.bert_config import BertConfig
from bertkit.model.attention import SelfAttention
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.kernels.disentangled_scores import Distances, attend_disentangled, disentangled_probabilities
from bertkit.model.kernels.dropout import Dropout
from bertkit.model.kernels.linear import Linear
from bertkit.model.kernels.relative_positions import log_buckets


class DistanceVectors(nn.Module):
    """One table for all layers: a vector for each distance to either side, or for each bucket of far ones."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(2 * config.distance_span, config.hidden_size)
        norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) if config.has_distance_norm else None
        self.LayerNorm = norm

    def forward(self, x_TD: Tensor, layout: Layout, position_ids: Tensor | None = None) -> Tensor:
        """The vectors ``(E, D)``. Distances count the tokens of a sequence; ``position_ids`` do not change them."""
        return self.vectors()

    def vectors(self) -> Tensor:
        """The same vectors for any batch."""
        vectors_ED = self.table.weight
        return vectors_ED if self.LayerNorm is None else self.LayerNorm(vectors_ED)


class DisentangledAttention(SelfAttention):
    """Scores are ``q k + q K[d] + k Q[d]``, with keys K and queries Q made of the vectors of distances d."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        width = config.hidden_size
        kinds = config.pos_att_type or []
        self.to_position, self.from_position = "c2p" in kinds, "p2c" in kinds
        self.position_key = Linear(width, width) if config.has_position_keys else None
        self.position_query = Linear(width, width) if config.has_position_queries else None
        self.position_dropout = Dropout(config.hidden_dropout_prob)
        self.attend_distances = attend_disentangled
        self.scale = 1 / math.sqrt(config.head_size * (1 + self.to_position + self.from_position))
        self.span, self.num_buckets = config.distance_span, config.position_buckets or -1
        self.max_distance = config.farthest_distance

    def forward(  # type: ignore[override]  # the layer hands over what DistanceVectors gives
        self, x_TD: Tensor, layout: Layout, rows: ChosenRows | None, want_probs: bool, vectors_ED: Tensor
    ) -> tuple[Tensor, list[Tensor] | None]:
        qkv_T3NH = self.qkv(x_TD).unflatten(-1, (3, self.num_heads, -1))
        distances = self.distances(self.position_dropout(vectors_ED))
        out_RNH = self.attend_distances(qkv_T3NH, layout, self.dropout.rate(), rows, distances)
        probs = None
        if want_probs:
            probs = [disentangled_probabilities(qkv_T3NH[start:end], distances) for start, end in layout.spans()]
        return self.out(out_RNH.flatten(1)), probs

    def distances(self, vectors_ED: Tensor) -> Distances:
        """What scores know of distances, made of their vectors."""
        width = vectors_ED.shape[1]
        keys = queries = None
        if self.to_position:
            keys = self._through(self.position_key, vectors_ED, slice(width, 2 * width))
        if self.from_position:
            queries = self._through(self.position_query, vectors_ED, slice(0, width))
        return Distances(keys, queries, self.scale, self.rows)

    def _through(self, own: nn.Module | None, vectors_ED: Tensor, part: slice) -> Tensor:
        """Through a matrix of its own, or through that of the content's keys or queries: ``(E, N, H)``."""
        made_ED: Tensor
        made_ED = self.qkv.rows(vectors_ED, part) if own is None else own(vectors_ED)
        made_ENH: Tensor = made_ED.unflatten(-1, (self.num_heads, -1))
        return made_ENH

    def rows(self, distances: Tensor) -> Tensor:
        """The row of the table for each distance, query minus key."""
        if self.num_buckets > 0:
            distances = log_buckets(distances, self.num_buckets, self.max_distance)
        return (distances + self.span).clamp(0, 2 * self.span - 1)
