"""The config is strict, frozen and torch-free; the presets have the published sizes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
import transformers
from pydantic import ValidationError

from bertkit import (
    BartConfig,
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    CheckpointError,
    ConfigError,
    ResourceError,
)
from bertkit.checkpoints.inspect import inspect
from bertkit.config.any_config import read_any_config
from bertkit.config.presets import PRESETS, count_parameters, preset
from bertkit.model.activations import ACTIVATIONS
from bertkit.model.seq2seq.conditional_generation import WRITERS
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.pretraining.pretrain_settings import PretrainConfig


def test_unknown_field_is_an_error_with_a_suggestion():
    with pytest.raises(ConfigError, match=r"'num_attention_head' \(did you mean 'num_attention_heads'\?\)"):
        BertConfig(num_attention_head=12)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_size": 10**9}, "less than or equal to 65536"),
        ({"num_hidden_layers": -1}, "num_hidden_layers = -1"),
        ({"vocab_size": "many"}, "vocab_size = 'many'"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob = 1.0"),
        ({"hidden_act": "swish"}, "hidden_act = 'swish'"),
        ({"pad_token_id": 99, "vocab_size": 99}, "outside the vocabulary"),
        ({"id2label": {0: "a", 2: "b"}}, r"0 \.\.\. n-1"),
        ({"id2label": {0: "a", 1: "a"}}, "a label twice"),
        ({"num_labels": 3, "id2label": {0: "a", 1: "b"}}, "num_labels=3 but id2label names 2"),
        ({"num_labels": 3, "id2label": {0: "LABEL_0"}}, "num_labels=3 but id2label names 1"),
        ({"num_labels": 0}, "num_labels must be"),
        ({"num_labels": True}, "num_labels must be"),
        ({"label2id": ["a"]}, r"label2id must be an object, got \['a'\]"),
        ({"label2id": {"a": [1]}}, r"number of the label 'a' must be a whole number, got \[1\]"),
        ({"label2id": {"a": 0, "b": 0}}, "two labels have the same number"),
        ({"id2label": {"0": "a", "00": "b"}}, "two labels have the same number"),
        ({"id2label": 5, "num_labels": 2}, "id2label must be an object, got 5"),
        ({"id2label": {0: ["a"]}, "label2id": {"a": 0}}, r"id2label\.0 = \['a'\]"),
        (
            {"id2label": {0: "a", 1: "b"}, "label2id": {"b": 0, "a": 1}},
            "0 'a', but label2id gives it the number 1",
        ),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps"),
        ({"layer_norm_eps": True}, "layer_norm_eps = True: expected a number, got a boolean"),
        ({"attention_probs_dropout_prob": False}, "attention_probs_dropout_prob = False"),
        ({"hidden_act": True}, "hidden_act = True: expected one of gelu, gelu_new, relu, got a boolean"),
        ({"problem_type": False}, "problem_type = False: expected one of regression, single_"),
        ({"num_hidden_layers": True}, "num_hidden_layers = True"),
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
    for name in ("num_labels", "id2label", "label2id"):
        assert config.replace(**{name: None}).id2label == config.id2label


@pytest.mark.parametrize("label2id", [{"LABEL_0": 0, "LABEL_1": 1}, {"no": "0", "yes": "1"}, {"no": 0, "No": 0}, {}])
def test_labels_that_say_nothing_else_are_no_contradiction(label2id):
    """Published files have the default numbering beside real names, numbers as text, and several spellings."""
    assert BertConfig(id2label={"0": "no", "1": "yes"}, label2id=label2id).label2id == {"no": 0, "yes": 1}


def test_the_default_labels_in_files_of_transformers_2():
    """Beside another number of labels they say nothing, as in today's transformers."""
    values = {"num_labels": 50, "id2label": {"0": "LABEL_0", "1": "LABEL_1"}, "label2id": {"LABEL_0": 0, "LABEL_1": 1}}
    found = BertConfig.from_dict(values)
    assert found.num_labels == transformers.BertConfig.from_dict(values).num_labels == 50
    assert found.id2label[49] == "LABEL_49"
    with pytest.raises(ConfigError, match="num_labels=50 but id2label names 2 labels"):
        BertConfig.from_dict({**values, "id2label": {"0": "LABEL_1", "1": "LABEL_0"}, "label2id": None})


def test_config_cannot_be_changed_in_place():
    with pytest.raises(ConfigError, match="cannot be set"):
        BertConfig().hidden_size = 3
    for config in (BertConfig(), BartConfig()):
        for name in ("id2label", "label2id"):
            with pytest.raises(ConfigError, match=rf"config\.{name} = None: the {config.num_labels} labels need names"):
                setattr(config, name, None)
        config.label2id = {f"n{number}": number for number in range(config.num_labels)}
        assert config.label2id["n1"] == 1
        assert config.id2label[1] == "n1"


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
        ('{"hidden_size": 1e400}', "it holds 1e400, which is too large for a number"),
        ('{"self": 1}', "unknown field 'self'"),
        ('{"vocab_size": %s}' % ("9" * 5000), "whole number of 5,000 digits"),
        ('{"hidden_act": "relu", "hidden_act": "gelu"}', "has 'hidden_act' more than once"),
        ('{"id2label": {"0": "\\ud800"}}', "half of a character"),
        ('{"architectures": [[1]]}', "architectures.0"),
        (" " * 4_000_001, "at most 4,000,000"),
    ],
)
def test_bad_config_file_names_the_file(tmp_path, content, message):
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        BertConfig.from_json_file(path)
    assert "config.json" in str(caught.value)


def test_a_config_that_is_no_file_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match=r"config\.json is not a regular file"):
        BertConfig.from_json_file(tmp_path / "config.json")


#: What transformers 2.4 and 2.5 wrote beside the shape.
OF_2020 = {
    "bos_token_id": 0, "do_sample": False, "eos_token_ids": 0, "finetuning_task": None, "is_decoder": False,
    "length_penalty": 1.0, "max_length": 20, "num_beams": 1, "num_labels": 3, "num_return_sequences": 1,
    "output_attentions": False, "output_hidden_states": False, "output_past": True, "pruned_heads": {},
    "repetition_penalty": 1.0, "temperature": 1.0, "top_k": 50, "top_p": 1.0, "torchscript": False,
    "use_bfloat16": False, "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072, "num_attention_heads": 12,
    "num_hidden_layers": 12, "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"},
    "label2id": {"LABEL_0": 0, "LABEL_1": 1, "LABEL_2": 2},
}  # fmt: skip
OF_2020_BY_FAMILY = {
    "bert": {
        "architectures": ["BertForSequenceClassification"], "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
        "pad_token_id": 0, "type_vocab_size": 2, "vocab_size": 30522,
    },
    "roberta": {
        "architectures": ["RobertaForSequenceClassification"], "layer_norm_eps": 1e-05, "max_position_embeddings": 514,
        "pad_token_id": 1, "type_vocab_size": 1, "vocab_size": 50265,
    },
}  # fmt: skip


@pytest.mark.parametrize("family", OF_2020_BY_FAMILY)
def test_a_whole_config_of_2020(tmp_path, family):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": family, **OF_2020, **OF_2020_BY_FAMILY[family]}))
    config = BertConfig.from_json_file(path)
    assert (config.num_labels, config.max_input_length) == (3, 512)
    assert config.architectures == ["BertForSequenceClassification"]


@pytest.mark.parametrize(
    ("name", "same"),
    [("gelu_python", "gelu"), *((f"gelu_{form}", "gelu_new") for form in ("pytorch_tanh", "fast", "accurate"))],
)
def test_activations_under_another_name(name, same):
    from transformers.activations import ACT2FN

    assert BertConfig.from_dict({"hidden_act": name}).hidden_act == same
    assert BertConfig.from_dict({"model_type": "distilbert", "activation": name}).hidden_act == same
    x = torch.linspace(-6, 6, 1001, dtype=torch.float64)
    torch.testing.assert_close(ACT2FN[name](x), ACT2FN[same](x), rtol=0, atol=1e-9)
    torch.testing.assert_close(ACTIVATIONS[same](x), ACT2FN[name](x), rtol=0, atol=1e-9)


def test_a_word_table_that_is_not_tied_matters_to_masked_lm_only(tmp_path):
    shape = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 9}
    config = BertConfig.from_dict({"tie_word_embeddings": False, **shape})
    BertForSequenceClassification(config).save_pretrained(tmp_path)
    assert BertModel.from_pretrained(tmp_path).config.tie_word_embeddings is False
    report = inspect(tmp_path)
    assert (report.classes["BertForSequenceClassification"], report.classes["BertForMaskedLM"]) == ("exact", "no")
    with pytest.raises(ConfigError, match=r"tie_word_embeddings is False.*load the encoder or a classifier"):
        BertForMaskedLM.from_pretrained(tmp_path, new_head=True)
    assert "tie_word_embeddings" not in BertConfig.from_dict({"tie_word_embeddings": None}).to_dict()


def test_every_key_of_the_field_s_own_config_is_known():
    import transformers

    values = json.loads(transformers.BertConfig(num_labels=3).to_json_string(use_diff=False))
    assert BertConfig.from_dict(values).num_labels == 3


@pytest.mark.parametrize("name", PRESETS)
def test_preset_has_the_published_number_of_parameters(name):
    published = PRESETS[name]
    assert count_parameters(published.config) == published.num_parameters
    writer = WRITERS.get(published.config.model_type, BertModel)
    with torch.device("meta"):
        model = writer(published.config)
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
    with pytest.raises((ConfigError, ValidationError), match=r"frozen|cannot be set"):
        setattr(settings(), field, 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_settings_are_finite(value):
    with pytest.raises(ConfigError, match=r"learning_rate = (nan|inf): .*finite"):
        PretrainConfig(learning_rate=value)


@pytest.mark.parametrize("field", ["hidden_size", "hidden_dropout_prob", "tie_word_embeddings", "layer_norm_eps"])
def test_text_in_the_place_of_a_number_is_refused(field: str) -> None:
    value = str(BertConfig().model_dump()[field])
    with pytest.raises(ConfigError, match=f"{field} = '{value}': expected a value without quotes, got text"):
        BertConfig.from_dict({field: value})


def test_no_padding_id_means_the_default() -> None:
    assert BertConfig.from_dict({"pad_token_id": None}).pad_token_id == 0
    assert BertConfig.from_dict({"model_type": "roberta", "pad_token_id": None}).pad_token_id == 1


def test_heads_that_do_not_divide_the_width_are_refused_by_the_model(tmp_path: Path) -> None:
    """The original's own config test has such a shape."""
    config = BertConfig(vocab_size=99, hidden_size=37)
    assert json.loads(config.to_json_string())["hidden_size"] == 37
    with pytest.raises(ConfigError, match=r"hidden_size must be a multiple.*37 and 12 \(remainder 1\)"):
        BertModel(config)
    config.to_json_file(tmp_path / "config.json")
    with pytest.raises(CheckpointError, match=r"config\.json: hidden_size must be a multiple"):
        BertConfig.from_json_file(tmp_path / "config.json")


def test_a_config_is_not_saved_into_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match="file is a file; give the name of a folder"):
        BertConfig().save_pretrained(tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_config_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("bertkit.config.config_file.write_atomically", refuse)
    with pytest.raises(ResourceError, match=r"config\.json cannot be written: Permission denied"):
        BertConfig().save_pretrained(tmp_path)


@pytest.mark.parametrize("kind", ["bert", "bart"])
def test_numbers_as_names_of_labels_are_their_texts(kind, tmp_path):
    """As scripts write them; transformers loads such files."""
    small = (
        {"d_model": 8, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
        if kind == "bart"
        else {"hidden_size": 8, "num_attention_heads": 2}
    )
    values = (BartConfig if kind == "bart" else BertConfig)(**small).to_dict()
    for id2label, label2id in (
        ({"0": 0, "1": 10}, {"0": 0, "10": 1}),
        ({"0": 0, "1": 10}, None),
        (None, {0: 0, 10: 1}),
    ):
        given = {key: value for key, value in (("id2label", id2label), ("label2id", label2id)) if value is not None}
        written = {**{key: value for key, value in values.items() if key not in ("id2label", "label2id")}, **given}
        file = tmp_path / "config.json"
        file.write_text(json.dumps(written))
        found = read_any_config(file)
        assert found.id2label == {0: "0", 1: "10"}
        assert type(found).from_dict(json.loads(json.dumps(found.to_dict()))) == found
        theirs = transformers.AutoConfig.from_pretrained(tmp_path)
        if id2label is not None:
            assert {number: str(name) for number, name in theirs.id2label.items()} == found.id2label
    assert BertConfig(id2label={0: 0.5, 1: 1}).id2label == {0: "0.5", 1: "1"}
    for wrong in (True, None, ["a"]):
        with pytest.raises(ConfigError, match=r"id2label\.0 = .*: expected text"):
            BertConfig(id2label={0: wrong, 1: "b"})
    with pytest.raises(ConfigError, match="a label twice"):
        BertConfig(id2label={0: 1, 1: "1"})
