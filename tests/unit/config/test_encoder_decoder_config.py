"""Every field of the configs of BART, mBART and T5: read, required to have one value, or without effect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bertkit import BartConfig, T5Config
from bertkit.config.encoder_decoder_config import EncoderDecoderConfig
from bertkit.errors import CheckpointError, ConfigError

transformers = pytest.importorskip("transformers")
PEERS: dict[str, tuple[type[EncoderDecoderConfig], Any]] = {
    "bart": (BartConfig, transformers.BartConfig),
    "mbart": (BartConfig, transformers.MBartConfig),
    "t5": (T5Config, transformers.T5Config),
}
#: Fields of which another value must come with others.
TOGETHER = {"id2label", "label2id", "encoder_layers", "feed_forward_proj"}


def changed(config: type[EncoderDecoderConfig], values: dict[str, Any]) -> EncoderDecoderConfig | str:
    """The config of some values, or what is said against them."""
    try:
        return config.from_dict(values)
    except ConfigError as error:
        return str(error)


@pytest.mark.parametrize("kind", PEERS)
def test_every_field_of_transformers_is_known(kind: str) -> None:
    """With another value each changes ours, or is refused by name, or is listed as having no effect."""
    from bertkit.config.encoder_decoder_config import NO_EFFECT

    ours, theirs = PEERS[kind]
    values = theirs().to_dict()
    usual = ours.from_dict(values)
    assert usual.model_type == kind
    for key, value in values.items():
        if key in TOGETHER or key == "model_type":
            continue
        other: Any = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else "odd"
        if isinstance(value, float):
            other = value / 2 + 0.25
        result = changed(ours, {**values, key: other})
        assert key in result if isinstance(result, str) else result != usual or key in NO_EFFECT


@pytest.mark.parametrize(
    ("config", "values", "message"),
    [
        (BartConfig, {"normalize_before": True}, "normalize_before is True"),
        (BartConfig, {"add_final_layer_norm": True}, "add_final_layer_norm is True"),
        (BartConfig, {"static_position_embeddings": True}, "static_position_embeddings is True"),
        (BartConfig, {"encoder_layerdrop": 0.1}, "encoder_layerdrop is 0.1"),
        (BartConfig, {"num_hidden_layers": 3}, "num_hidden_layers is 3; bertkit only supports num_hidden_layers=12"),
        (BartConfig, {"activation_function": "swish"}, "activation_function = 'swish'"),
        (BartConfig, {"scale_embeding": True}, "unknown field 'scale_embeding'.*scale_embedding"),
        (BartConfig, {"pad_token_id": 60_000}, "outside the vocabulary"),
        (T5Config, {"feed_forward_proj": "gated-silu"}, "feed_forward_proj = 'gated-silu'"),
        (T5Config, {"dense_act_fn": "gelu"}, "dense_act_fn is 'gelu'; bertkit only supports dense_act_fn='relu'"),
        (T5Config, {"is_gated_act": True}, "is_gated_act is True"),
        (T5Config, {"is_decoder": True}, "is_decoder is True"),
        (T5Config, {"relative_attention_num_buckets": 0}, "relative_attention_num_buckets = 0"),
        (T5Config, {"model_type": "mt5"}, "model_type = 'mt5'"),
    ],
)
def test_what_is_refused(config: type[EncoderDecoderConfig], values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config.from_dict(values)


def test_old_names() -> None:
    config = BartConfig.from_dict({"classif_dropout": 0.3, "force_bos_token_to_be_generated": True})
    assert (config.classifier_dropout, config.forced_bos_token_id) == (0.3, 0)
    assert BartConfig.from_dict({"model_type": "mbart", "normalize_before": True}).tower(decoder=True).pre_norm


@pytest.mark.parametrize("kind", PEERS)
def test_labels_that_are_none_stay(kind: str) -> None:
    config = PEERS[kind][0](model_type=kind, num_labels=7)
    for name in ("num_labels", "id2label", "label2id"):
        assert config.replace(**{name: None}) == config
    assert config.replace(num_labels=2).num_labels == 2


def test_what_cannot_be_saved_is_not_made() -> None:
    for make in (BartConfig, BartConfig().replace, lambda **values: BartConfig.from_dict(values)):
        with pytest.raises(ConfigError, match=r"tie_word_embeddings is False; bertkit only .*=True in a BART"):
            make(tie_word_embeddings=False)
    assert T5Config(tie_word_embeddings=False).has_own_output


def test_no_forced_end() -> None:
    """None is a value there, and the default another: files write it as null, as transformers does."""
    config = BartConfig(forced_eos_token_id=None)
    assert config.forced_eos_token_id is None
    assert config.to_dict()["forced_eos_token_id"] is None
    assert BartConfig.from_dict(config.to_dict()) == config
    assert transformers.BartConfig.from_dict(config.to_dict()).forced_eos_token_id is None
    assert BartConfig.from_dict({}).forced_eos_token_id == 2
    assert BartConfig.from_dict({"pad_token_id": None}).pad_token_id == 1


def test_heads_that_do_not_divide(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "bart", "encoder_attention_heads": 7}))
    with pytest.raises(CheckpointError, match=r"config.json: d_model must be a multiple .* 1024 and 7"):
        BartConfig.from_json_file(file)


def test_round_trip(tmp_path: Path) -> None:
    for config in (BartConfig(num_labels=5, scale_embedding=True), T5Config(feed_forward_proj="gated-gelu", d_kv=9)):
        config.to_json_file(tmp_path / "config.json")
        assert type(config).from_json_file(tmp_path / "config.json") == config


def test_classes_of_mbart_go_by_their_names_elsewhere() -> None:
    """One class here serves both families; other software has two, and chooses by what the file says."""
    file = {**transformers.MBartConfig().to_dict(), "architectures": ["MBartForConditionalGeneration"]}
    config = BartConfig.from_dict(file)
    assert config.architectures == ["BartForConditionalGeneration"]
    assert config.to_dict()["architectures"] == file["architectures"]
    assert BartConfig.from_dict({"architectures": ["BartModel"]}).to_dict()["architectures"] == ["BartModel"]


@pytest.mark.parametrize("kind", PEERS)
def test_labels_of_a_file_that_names_none(kind: str) -> None:
    """Files of transformers leave out what is the default of their family: three of BART, two of the others."""
    ours, theirs = PEERS[kind]
    assert ours.from_dict({"model_type": kind}).num_labels == theirs().num_labels
    assert ours(model_type=kind).num_labels == theirs().num_labels
    assert ours(model_type=kind, num_labels=5).num_labels == 5
    assert ours(model_type=kind, label2id={"a": 0}).num_labels == 1
