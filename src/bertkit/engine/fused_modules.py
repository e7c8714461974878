"""Modules that compute in the C library what a model's embeddings and its encoder compute in torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from bertkit.batch import Batch, Layout
from bertkit.config.bert_config import BertConfig
from bertkit.engine.backend import Pack
from bertkit.engine.closeness import NEAR_ENOUGH, closeness
from bertkit.engine.fused_positions import scores_of, tables_of
from bertkit.engine.module_views import Watch, computing_parts, hooks_of, module_view
from bertkit.engine.native.library import NativeLibrary, WeightType
from bertkit.engine.native.native_encoder import (
    ACTIVATIONS,
    ByteMatrix,
    ByteTable,
    FloatMatrix,
    Layer,
    NativeEmbeddings,
    NativeEncoder,
    PositionTables,
    Shape,
)
from bertkit.errors import ConfigError
from bertkit.model.attention import SelfAttention
from bertkit.model.biased_attention import BiasedAttention, DistanceBias
from bertkit.model.configured_model import ConfiguredModel
from bertkit.model.disentangled_attention import DisentangledAttention, DistanceVectors
from bertkit.model.embeddings import Embeddings
from bertkit.model.encoder import Encoder, EncoderLayer
from bertkit.model.gated_layer import GatedLayer
from bertkit.model.kernels.bucketed_attention import attend_bucketed
from bertkit.model.kernels.byte_linear import WEIGHT_STEPS, ByteEmbedding, ByteLinear
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.kernels.dropout import Dropout
from bertkit.model.kernels.linear import Linear
from bertkit.model.kernels.varlen_attention import attend_packed
from bertkit.model.models import BertModel
from bertkit.model.padded import PackedModel
from bertkit.model.pooling import pool_tokens
from bertkit.model.rotary_attention import RotaryAttention, RotaryPositions, kernel_of
from bertkit.ragged import Floats, Ids, Ints

ModelT = TypeVar("ModelT", bound=ConfiguredModel)
#: What the embeddings and the encoder consist of.
PARTS = {
    *(Embeddings, Encoder, EncoderLayer, SelfAttention, Dropout),
    *(GatedLayer, RotaryAttention, RotaryPositions, BiasedAttention, DistanceBias),
    *(DisentangledAttention, DistanceVectors, nn.Identity),
    *(Linear, ByteLinear, ByteEmbedding, nn.Embedding, nn.LayerNorm, nn.ModuleList),
}


class FusedEncoder(nn.Module):
    """In place of an :class:`~bertkit.model.encoder.Encoder`, for inference on a CPU in float32."""

    def __init__(
        self,
        native: NativeEncoder,
        num_threads: Callable[[], int],
        tables_for: Callable[[int], PositionTables] | None = None,
    ) -> None:
        super().__init__()
        self.native = native
        self.num_threads = num_threads
        self.tables_for = tables_for

    def forward(
        self,
        x_TD: Tensor,
        layout: Layout,
        rows: ChosenRows | None = None,
        *,
        position_ids: Tensor | None = None,
        **unused: bool,
    ) -> tuple[Tensor, list[Tensor], list[list[Tensor]]]:
        assert not any(unused.values()), "only the top layer is available"
        chosen = chosen_starts = None
        if rows is not None:
            chosen = rows.rows.numpy().astype(np.int32)
            chosen_starts = np.concatenate([[0], np.cumsum(rows.lengths)]).astype(np.int32)
        return torch.from_numpy(self.compute(x_TD.numpy(), layout.boundaries, chosen, chosen_starts)), [], []

    def compute(
        self, x_TD: Floats, boundaries: tuple[int, ...], chosen: Ids | None = None, chosen_starts: Ids | None = None
    ) -> Floats:
        """The same for arrays; see :class:`~bertkit.engine.native.native_encoder.NativeEncoder`."""
        starts = np.array(boundaries, np.int32)
        tables = None
        if self.tables_for is not None:
            tables = self.tables_for(max(end - start for start, end in pairwise(boundaries)))
        return self.native(x_TD, starts, chosen, chosen_starts, threads=self.num_threads(), positions=tables)


class FusedEmbeddings(nn.Module):
    """In place of :class:`~bertkit.model.embeddings.Embeddings`, whose tables it reads."""

    def __init__(self, plain: Embeddings, library: NativeLibrary) -> None:
        super().__init__()
        tables = {
            "input_ids": plain.word_embeddings,
            "position_ids": plain.position_embeddings,
            "token_type_ids": plain.token_type_embeddings,
        }
        self.names = [name for name, table in tables.items() if table is not None]
        self.plain, self.first_position = plain, plain.first_position
        self.word_embeddings = plain.word_embeddings  # which a masked-LM head reads as well
        self._embed = NativeEmbeddings(
            library,
            [_table(table) for table in tables.values() if table is not None],
            _norm(plain.LayerNorm),
            plain.LayerNorm.eps,
        )

    def forward(self, batch: Batch) -> Tensor:
        x_TD = self.compute(batch.input_ids.numpy(), batch.position_ids.numpy(), batch.token_type_ids.numpy())
        return self.plain(batch) if x_TD is None else torch.from_numpy(x_TD)

    def compute(self, ids_T: Ints, positions_T: Ints, segments_T: Ints) -> Floats | None:
        """The same for arrays; None if a number is not in its table."""
        positions_T = positions_T + self.first_position if self.first_position else positions_T
        found = {"input_ids": ids_T, "position_ids": positions_T, "token_type_ids": segments_T}
        return self._embed([found[name] for name in self.names])


class FusedModel(NamedTuple):
    """The two parts of a fused :class:`~bertkit.model.models.BertModel`, without the modules around them.

    What torch does around the library's two calls takes a fifth of the time of a short text.
    """

    embeddings: FusedEmbeddings
    encoder: FusedEncoder

    @classmethod
    def of(cls, model: nn.Module) -> Self | None:
        """Those of a model, if it is such an encoder and the library computes both."""
        if not isinstance(model, BertModel):
            return None
        embeddings: nn.Module = model.embeddings
        encoder: nn.Module = model.encoder
        if isinstance(embeddings, FusedEmbeddings) and isinstance(encoder, FusedEncoder):
            return cls(embeddings, encoder)
        return None

    def hidden(self, pack: Pack, *, first_token: bool) -> Floats | None:
        """The last hidden vectors ``(T, D)``, or of the first tokens ``(B, D)``; None: the modules say why not."""
        x_TD = self.embeddings.compute(pack.ids, pack.positions, pack.token_type_ids)
        if x_TD is None or 0 in pack.lengths:
            return None
        if not first_token:
            return self.encoder.compute(x_TD, pack.boundaries)
        firsts = np.array(pack.boundaries, np.int32)
        return self.encoder.compute(x_TD, pack.boundaries, firsts[:-1], np.arange(len(firsts), dtype=np.int32))


class Fused(NamedTuple):
    """A view of a model with the library's encoder; ``parts``: those of an encoder that the library computes alone."""

    view: ConfiguredModel
    watch: Watch | None
    parts: FusedModel | None

    def is_current(self) -> bool:
        """Whether the model has not changed since."""
        return self.watch is None or self.watch.unchanged()


def can_fuse(model: ConfiguredModel) -> bool:
    """Whether the library computes just what the model's embeddings and its encoder do.

    Not if a part was replaced by one of another class, has hooks, or has a setting that the config does not name.
    """
    if not isinstance(model, PackedModel):
        return False  # an encoder-decoder
    config = model.config
    usual: dict[type, dict[str, object]] = {
        nn.LayerNorm: {"eps": config.layer_norm_eps},
        EncoderLayer: {"hidden_act": config.hidden_act},
        GatedLayer: {"hidden_act": config.hidden_act},
        SelfAttention: {"attend": attend_packed, "num_heads": config.num_attention_heads},
        BiasedAttention: {"attend_biased": attend_bucketed, "num_heads": config.num_attention_heads},
        DisentangledAttention: {"num_heads": config.num_attention_heads},
        RotaryAttention: {"num_heads": config.num_attention_heads},
    }
    return (
        config.hidden_act in ACTIVATIONS
        and config.num_hidden_layers > 0
        and all(
            type(part) in PARTS
            and not any(map(len, hooks_of(part)))
            and all(getattr(part, name) == value for name, value in usual.get(type(part), {}).items())
            and (not isinstance(part, RotaryAttention) or part.attend == kernel_of(part.reach))
            and all(p.dtype == torch.float32 for p in part.parameters(recurse=False))
            for part in computing_parts(model)
        )
    )


def fuse(
    model: ModelT,
    library: NativeLibrary,
    weight_type: WeightType,
    num_threads: Callable[[], int],
    *,
    release: bool = False,
) -> ModelT:
    """A second tree of modules over the model's parameters, in eval mode, whose encoder is the library's.

    ``release`` lets go of each layer's weights as soon as they are packed, so that they are never in memory twice; the
    model cannot be used any more then.
    """

    def replacement(module: nn.Module) -> nn.Module | None:
        if isinstance(module, Encoder):
            packed = pack_encoder(module, model.config, library, weight_type, release=release)
            return FusedEncoder(packed, num_threads, tables_of(module))
        if isinstance(module, Embeddings) and module.projection is None:
            return FusedEmbeddings(module, library)
        return None

    return module_view(model, replacement)


def pack_encoder(
    encoder: Encoder, config: BertConfig, library: NativeLibrary, weight_type: WeightType, *, release: bool = False
) -> NativeEncoder:
    """The encoder's layers as the library computes them; see ``docs/decisions/0131-the-encoder-in-c.md``."""
    assert config.hidden_act in ACTIVATIONS
    shape = Shape(
        order=tuple(encoder.layer_order),
        width=config.hidden_size,
        heads=config.num_attention_heads,
        inner=config.intermediate_size,
        activation=config.hidden_act,
        eps=config.layer_norm_eps,
        gated=config.family.pre_norm,
    )
    layers = _layers(encoder, config, weight_type, release=release)
    return NativeEncoder(library, shape, layers, None if encoder.final_norm is None else _norm(encoder.final_norm))


def _layers(encoder: Encoder, config: BertConfig, weight_type: WeightType, *, release: bool) -> Iterator[Layer]:
    # The library wants scores as powers of two: softmax(x) is 2^(x log2 e), scaled.
    factor_3D = torch.ones(3 * config.hidden_size)
    for layer in encoder.layer:
        assert isinstance(layer, EncoderLayer)
        attention = layer.attention
        scale = attention.scale if isinstance(attention, DisentangledAttention) else config.head_size**-0.5
        factor_3D[: config.hidden_size] = math.log2(math.e) * scale
        matrices = [_matrix(attention.qkv, weight_type, factor_3D)]
        matrices += [_matrix(linear, weight_type) for linear in (attention.out, layer.ffn_up, layer.ffn_down)]
        norms = (layer.attention_norm, layer.ffn_norm)
        in_order = norms[::-1] if config.family.pre_norm else norms
        given = [None if isinstance(norm, nn.Identity) else _norm(norm) for norm in in_order]
        yield Layer(tuple(matrices), tuple(given), **scores_of(attention, encoder.positions))
        del matrices, given
        for part in layer.modules() if release else ():
            part._parameters.clear()
            part._buffers.clear()


def _matrix(linear: nn.Module, weight_type: WeightType, factor_N: Tensor | None = None) -> FloatMatrix | ByteMatrix:
    factors = torch.ones(1) if factor_N is None else factor_N
    if isinstance(linear, ByteLinear):
        return ByteMatrix(
            weight=linear.weight.numpy(),
            scale=_array(linear.scale * factors),
            bias=_array(linear.bias * factors),
            smooth=_array(linear.smooth),
            shift=None if linear.shift is None else _array(linear.shift),
            apart=linear.apart.numpy().astype(np.int32),
            apart_weights=_array(linear.apart_weight * factors),
            narrow=max(int(linear.weight.max()), -int(linear.weight.min())) <= WEIGHT_STEPS[7],
        )
    assert isinstance(linear, Linear)
    weight = linear.weight.detach()
    bias = weight.new_zeros(len(weight)) if linear.bias is None else linear.bias.detach()
    if factor_N is not None:
        weight, bias = weight * factor_N[:, None], bias * factor_N
    if weight_type in ("float32", "float24"):
        return FloatMatrix(_array(weight), _array(bias), weight_type)
    if weight_type == "bfloat16":
        return FloatMatrix(weight.to(torch.bfloat16).view(torch.int16).numpy(), _array(bias), weight_type)
    # In multiples of a power of two with which the largest weight is near the end of float16's range.
    largest = float(weight.abs().max())
    unit = 2.0 ** (math.frexp(largest)[1] - 15) if math.isfinite(largest) else 1.0
    return FloatMatrix((weight / unit).to(torch.float16).numpy(), _array(bias), weight_type, unit)


def _norm(norm: nn.Module) -> tuple[Floats, Floats]:
    assert isinstance(norm, nn.LayerNorm)
    return _array(norm.weight), _array(torch.zeros_like(norm.weight) if norm.bias is None else norm.bias)


def _table(table: nn.Module) -> Floats | ByteTable:
    if isinstance(table, ByteEmbedding):
        return ByteTable(table.weight.numpy(), _array(table.scale), _array(table.column_scale))
    assert isinstance(table, nn.Embedding)
    return _array(table.weight)


def _array(x: Tensor) -> Floats:
    array: Floats = x.detach().contiguous().numpy()
    return array


def check_closeness(model: ConfiguredModel, fused: ConfiguredModel, batch: Batch, precision: str) -> None:
    """Refuse (ConfigError) faster arithmetic for a model whose text vectors it changes, judged by the first pack."""
    vectors = []
    for network in (model, fused):
        encoder = network if isinstance(network, BertModel) else network.bert
        assert isinstance(encoder, BertModel)
        hidden_TD = encoder.encoder(encoder.embeddings(batch), batch.layout)[0]
        vectors.append(pool_tokens(hidden_TD, batch.layout, "mean").numpy())
    found = closeness(vectors[1], vectors[0])
    if found.cosine_mean < NEAR_ENOUGH.cosine_mean or found.cosine_p1 < NEAR_ENOUGH.cosine_p1:
        raise ConfigError(
            f"precision {precision!r} changes this model's answers too much: {found}, where cosines of "
            f"{NEAR_ENOUGH.cosine_mean} and {NEAR_ENOUGH.cosine_p1} are the least; use 'auto'"
        )
