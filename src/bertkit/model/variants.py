"""What a config puts into the encoder where it is not BERT's: attention, layers, and what they know of positions."""

from __future__ import annotations

from bertkit.config.bert_config import BertConfig
from bertkit.model.biased_attention import BiasedAttention, DistanceBias
from bertkit.model.disentangled_attention import DisentangledAttention, DistanceVectors
from bertkit.model.encoder import Encoder, EncoderLayer
from bertkit.model.gated_layer import GatedLayer, norm_of
from bertkit.model.one_way_attention import OneWayAttention
from bertkit.model.rotary_attention import RotaryAttention, RotaryPositions


def encoder_of(config: BertConfig) -> Encoder:
    """A new encoder of the config's family."""
    numbers = range(config.num_stored_layers)
    match config.family.scores:
        case "biased":
            layers = [EncoderLayer(config, BiasedAttention(config)) for _ in numbers]
            return Encoder(config, layers, DistanceBias(config))
        case "disentangled":
            layers = [EncoderLayer(config, DisentangledAttention(config)) for _ in numbers]
            return Encoder(config, layers, DistanceVectors(config))
        case "rotary":
            layers = [
                GatedLayer(config, RotaryAttention(config, kind), number)
                for number, kind in enumerate(config.layer_kinds)
            ]
            return Encoder(config, layers, RotaryPositions(config), norm_of(config))
        case _ if config.attention_direction != "both":
            return Encoder(config, [EncoderLayer(config, OneWayAttention(config)) for _ in numbers])
        case _:
            return Encoder(config)
