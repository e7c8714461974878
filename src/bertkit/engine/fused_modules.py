"""Modules that compute in the C library what a model's embeddings and its encoder compute in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertkit.batch import Batch, Layout
from bertkit.config.bert_config import BertConfig
from bertkit.engine.backend import Pack
from bertkit.engine.module_views import Watch, computing_parts, hooks_of, module_view
from bertkit.engine.native.library import NativeLibrary
from bertkit.engine.native.packed_model import PackedEmbeddings, PackedEncoder, first_tokens
from bertkit.model.attention import SelfAttention
from bertkit.model.biased_attention import BiasedAttention, DistanceBias
from bertkit.model.configured_model import ConfiguredModel
from bertkit.model.disentangled_attention import DisentangledAttention, DistanceVectors
from bertkit.model.embeddings import Embeddings
from bertkit.model.encoder import Encoder, EncoderLayer
from bertkit.model.gated_layer import GatedLayer
from bertkit.model.kernels.bucketed_attention import attend_bucketed
from bertkit.model.kernels.byte_linear import ByteEmbedding, ByteLinear
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.kernels.dropout import Dropout
from bertkit.model.kernels.linear import Linear
from bertkit.model.kernels.varlen_attention import attend_packed
from bertkit.model.models import BertModel
from bertkit.model.padded import PackedModel
from bertkit.model.pooling import pool_tokens
from bertkit.model.rotary_attention import RotaryAttention, RotaryPositions, kernel_of
from bertkit.ragged import Floats
from bertkit.weights.encoder_weights import EncoderWeights
from bertkit.weights.parts import ACTIVATIONS, WeightType

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

    def __init__(self, packed: PackedEncoder, num_threads: Callable[[], int]) -> None:
        super().__init__()
        self.packed, self.num_threads = packed, num_threads

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
        found_TD = self.packed.compute(
            x_TD.numpy(), layout.boundaries, chosen, chosen_starts, threads=self.num_threads()
        )
        return torch.from_numpy(found_TD), [], []


class FusedEmbeddings(nn.Module):
    """In place of :class:`~bertkit.model.embeddings.Embeddings`, whose tables it reads."""

    def __init__(self, plain: Embeddings, config: BertConfig, library: NativeLibrary) -> None:
        super().__init__()
        self.plain = plain
        self.word_embeddings = plain.word_embeddings  # which a masked-LM head reads as well
        self.packed = PackedEmbeddings(EncoderWeights(config, arrays_of(plain, "embeddings."), ()), library)

    def forward(self, batch: Batch) -> Tensor:
        x_TD = self.packed.compute(batch.input_ids.numpy(), batch.position_ids.numpy(), batch.token_type_ids.numpy())
        return self.plain(batch) if x_TD is None else torch.from_numpy(x_TD)


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
        x_TD = self.embeddings.packed.compute(pack.ids, pack.positions, pack.token_type_ids)
        if x_TD is None or 0 in pack.lengths:
            return None
        chosen = first_tokens(pack) if first_token else (None, None)
        return self.encoder.packed.compute(x_TD, pack.boundaries, *chosen, threads=self.encoder.num_threads())


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


def fuse(model: ModelT, library: NativeLibrary, kept_as: WeightType, num_threads: Callable[[], int]) -> ModelT:
    """A second tree of modules over the model's parameters, in eval mode, whose encoder is the library's.

    See ``docs/decisions/0131-the-encoder-in-c.md``.
    """

    def replacement(module: nn.Module) -> nn.Module | None:
        if isinstance(module, Encoder):
            weights = EncoderWeights(model.config, arrays_of(module, "encoder."), tuple(module.layer_order))
            return FusedEncoder(PackedEncoder(weights, library, kept_as, threads=num_threads()), num_threads)
        if isinstance(module, Embeddings) and module.projection is None:
            return FusedEmbeddings(module, model.config, library)
        return None

    return module_view(model, replacement)


def arrays_of(module: nn.Module, prefix: str) -> dict[str, NDArray[Any]]:
    """The present weights of a module by name, not copied."""
    return {prefix + name: tensor.detach().numpy() for name, tensor in module.state_dict().items()}


def mean_vectors(model: ConfiguredModel, batch: Batch) -> Floats:
    """The mean of the tokens' vectors of each row, ``(B, D)``, by which faster arithmetic is judged."""
    encoder = model if isinstance(model, BertModel) else model.bert
    assert isinstance(encoder, BertModel)
    hidden_TD = encoder.encoder(encoder.embeddings(batch), batch.layout)[0]
    vectors: Floats = pool_tokens(hidden_TD, batch.layout, "mean").numpy()
    return vectors
