"""The config is strict, frozen and torch-free; the presets have the published sizes."""

from __future__ import annotations

import json

import pytest
import torch
from pydantic import ValidationError

from bertkit import BertConfig, BertModel, CheckpointError, ConfigError
from bertkit.presets import PRESETS, count_parameters, preset
from bertkit.training.pretrain_settings import PretrainConfig
from bertkit.training.settings import FinetuneConfig


def test_unknown_field_is_an_error_with_a_suggestion():
    with pytest.raises(ConfigError, match=r"'num_attention_head' \(did you mean 'num_attention_heads'\?\)"):
        BertConfig(num_attention_head=12)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_size": 30, "num_attention_heads": 4}, "multiple of num_attention_heads, got 30 and 4"),
        ({"hidden_size": 10**9}, "less than or equal to 65536"),
        ({"num_hidden_layers": -1}, "num_hidden_layers = -1"),
        ({"vocab_size": "many"}, "vocab_size = 'many'"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob = 1.0"),
        ({"hidden_act": "swish"}, "hidden_act = 'swish'"),
        ({"pad_token_id": 99, "vocab_size": 99}, "outside the vocabulary"),
        ({"id2label": {0: "a", 2: "b"}}, r"0 \.\.\. n-1"),
        ({"id2label": {0: "a", 1: "a"}}, "a label twice"),
        ({"num_labels": 3, "id2label": {0: "a", 1: "b"}}, "num_labels=3 but id2label names 2"),
        ({"num_labels": 0}, "num_labels must be"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps"),
    ],
)
def test_wrong_values_name_the_field(values, message):
    with pytest.raises(ConfigError, match=message):
        BertConfig(**values)


def test_labels_in_every_form():
    assert BertConfig(num_labels=3).id2label == {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}
    assert BertConfig(label2id={"no": 0, "yes": 1}).id2label == {0: "no", 1: "yes"}
    config = BertConfig(id2label={0: "no", 1: "maybe", 2: "yes"})
    assert config.num_labels == 3
    assert config.label2id["yes"] == 2
    assert config.replace(num_labels=2).num_labels == 2
    assert config.replace(hidden_size=24).id2label == config.id2label


def test_config_cannot_be_changed_in_place():
    with pytest.raises(Exception, match="frozen"):
        BertConfig().hidden_size = 3


def test_json_round_trip(tmp_path):
    config = BertConfig(hidden_size=24, num_attention_heads=3, id2label={0: "x", 1: "y", 2: "z"})
    config.to_json_file(tmp_path / "config.json")
    assert BertConfig.from_json_file(tmp_path / "config.json") == config


def test_shape_of_a_checkpoint_by_folder_or_file(tmp_path):
    config = BertConfig(hidden_size=24, num_attention_heads=3)
    config.save_pretrained(tmp_path / "new")
    assert BertConfig.from_pretrained(tmp_path / "new") == config
    assert BertConfig.from_pretrained(str(tmp_path / "new" / "config.json"), num_labels=5).num_labels == 5
    with pytest.raises(CheckpointError, match="no folder or file"):
        BertConfig.from_pretrained(tmp_path / "nowhere" / "at" / "all")
    with pytest.raises(ConfigError, match="num_hidden_layers"):
        BertConfig.from_pretrained(tmp_path / "new", num_hiden_layers=2)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not a readable JSON file"),
        ("[1]", "holds a list"),
        ("[" * 100_000, "not a readable JSON file"),
        ('{"model_type": "gpt2"}', "model_type is 'gpt2'"),
        ('{"position_embedding_type": "relative_key"}', "position_embedding_type is 'relative_key'"),
        ('{"hiden_size": 3}', "did you mean 'hidden_size'"),
        ('{"hidden_size": 1e400}', "hidden_size"),
    ],
)
def test_bad_config_file_names_the_file(tmp_path, content, message):
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        BertConfig.from_json_file(path)
    assert "config.json" in str(caught.value)


def test_every_key_of_the_field_s_own_config_is_known():
    import transformers

    values = json.loads(transformers.BertConfig(num_labels=3).to_json_string(use_diff=False))
    assert BertConfig.from_dict(values).num_labels == 3


@pytest.mark.parametrize("name", PRESETS)
def test_preset_has_the_published_number_of_parameters(name):
    published = PRESETS[name]
    assert count_parameters(published.config) == published.num_parameters
    with torch.device("meta"):
        model = BertModel(published.config)
    assert model.num_parameters() == published.num_parameters


def test_unknown_preset_suggests_one():
    with pytest.raises(ConfigError, match="did you mean 'bert-base-cased'"):
        preset("bert-base-case")


@pytest.mark.parametrize(
    ("settings", "typo", "field"),
    [
        (BertConfig, "hiden_size", "hidden_size"),
        (FinetuneConfig, "learning_rat", "learning_rate"),
        (PretrainConfig, "max_step", "max_steps"),
    ],
)
def test_settings_suggest_a_field_of_their_own(settings, typo, field):
    with pytest.raises(ConfigError, match=rf"'{typo}' \(did you mean '{field}'\?\)"):
        settings(**{typo: 1})
    with pytest.raises(ValidationError, match="frozen"):
        setattr(settings(), field, 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_settings_are_finite(value):
    with pytest.raises(ConfigError, match=r"learning_rate = (nan|inf): .*finite"):
        PretrainConfig(learning_rate=value)
