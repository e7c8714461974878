"""The config of any kind of model, by the ``model_type`` in its file. Imports no torch."""

from __future__ import annotations

from pathlib import Path

from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import MAX_CONFIG_BYTES
from bertkit.config.encoder_decoder_config import ENCODER_DECODERS, EncoderDecoderConfig
from bertkit.system.untrusted_files import Json, read_object

AnyConfig = BertConfig | EncoderDecoderConfig


def config_class(model_type: Json) -> type[AnyConfig]:
    """The class for a ``model_type``; that of encoders for one that is unknown, which it refuses, or is not given."""
    return ENCODER_DECODERS.get(model_type, BertConfig) if isinstance(model_type, str) else BertConfig


def is_encoder_decoder(file: Path) -> bool:
    """Whether a ``config.json`` is that of an encoder-decoder; CheckpointError for a damaged file."""
    kind = read_object(file, max_bytes=MAX_CONFIG_BYTES).get("model_type")
    return isinstance(kind, str) and kind in ENCODER_DECODERS


def read_any_config(file: Path) -> AnyConfig:
    """The content of a ``config.json``: of an encoder-decoder, or of an encoder.

    Raises:
        CheckpointError: a damaged file, an unknown ``model_type``, or a setting that is not supported.
    """
    return config_class(read_object(file, max_bytes=MAX_CONFIG_BYTES).get("model_type")).from_json_file(file)
