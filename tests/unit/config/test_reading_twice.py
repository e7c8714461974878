"""Values that have been read change nothing when they are read again: by a file, by a copy, by any names of classes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit import BartConfig, BertConfig, ConfigError, T5Config
from bertkit.config.config_file import ConfigFile
from bertkit.config.families import FAMILIES, IGNORED_KEYS
from family_helpers import SHAPES

CONFIGS: dict[str, ConfigFile] = {
    **{kind: BertConfig.from_dict({"model_type": family, **values}) for kind, (family, values) in SHAPES.items()},
    **{f"usual {family}": BertConfig(model_type=family) for family in FAMILIES},
    "another pooling": BertConfig(pooling="mean"),
    "from left to right": BertConfig(attention_direction="left-to-right"),
    "layers of no rule": BertConfig.from_dict(
        {"model_type": "modernbert", "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]}
    ),
    "bart": BartConfig(forced_eos_token_id=None, bos_token_id=None),
    "mbart": BartConfig(model_type="mbart", architectures=["BartForConditionalGeneration"]),
    "t5": T5Config(feed_forward_proj="gated-gelu"),
}
PREFIXES = [family.prefix for family in FAMILIES.values()]
NAMES = st.lists(
    st.text(max_size=12)
    | st.builds("{}{}".format, st.sampled_from([*PREFIXES, "My", "DebertaV3"]), st.sampled_from(["ForX", "Model", ""])),
    max_size=3,
)


@pytest.mark.parametrize("kind", CONFIGS)
def test_what_was_read_changes_nothing(kind: str) -> None:
    config = CONFIGS[kind]
    assert type(config).from_dict(json.loads(config.to_json_string())) == config
    assert config.replace() == config
    for key in sorted(IGNORED_KEYS - config.model_fields.keys()):
        if isinstance(config, BertConfig) and "sentence_transformers" not in key and "sbert" not in key:
            assert config.replace(**{key: True}) == config


@pytest.mark.parametrize("kind", [kind for kind in CONFIGS if isinstance(CONFIGS[kind], BertConfig)])
@given(names=NAMES)
def test_names_of_classes_change_nothing_else(kind: str, names: list[str]) -> None:
    config = CONFIGS[kind]
    assert isinstance(config, BertConfig)
    expected = [config.family.our_class(name) for name in names]
    changed = config.replace(architectures=names)
    assert changed.architectures == expected
    assert changed.replace(architectures=None) == config.replace(architectures=None)
    assert BertConfig.from_dict({**config.to_dict(), "architectures": names}) == changed


def test_a_file_that_lacks_what_it_must_say_is_refused() -> None:
    """Control: keys that files of DeBERTa must have are missed where the values are those of a file."""
    file = BertConfig(model_type="deberta-v2").to_dict()
    whole = {**file, "architectures": ["DebertaV2ForMaskedLM"]}
    assert BertConfig(**whole).architectures == ["BertForMaskedLM"]
    for values in (whole, {**file, "return_dict": True}, {**file, "model_type": "bertkit-deberta-v2"}):
        lacking = {name: value for name, value in values.items() if name != "relative_attention"}
        with pytest.raises(ConfigError, match="relative_attention is False"):
            BertConfig(**lacking)
    with pytest.raises(ConfigError, match="unknown field 'dim'"):  # a key of another family
        BertConfig.from_dict({**file, "dim": 3})


def test_a_rule_of_layers_beside_another_number() -> None:
    types = ["full_attention", "sliding_attention"] * 2
    values = {"model_type": "modernbert", "num_hidden_layers": 4, "layer_types": types}
    config = BertConfig.from_dict({**values, "global_attn_every_n_layers": 3})
    assert config == BertConfig.from_dict(values)
    assert config == BertConfig.from_dict(config.to_dict())
    assert (list(config.layer_kinds), config.layer_types, config.global_attn_every_n_layers) == (types, None, 2)


def test_a_copy_takes_the_keys_of_the_family() -> None:
    small = BertConfig(model_type="distilbert").replace(dim=64, n_heads=2, dropout=0.3)
    assert (small.hidden_size, small.num_attention_heads, small.hidden_dropout_prob) == (64, 2, 0.3)
    with pytest.raises(ConfigError, match="dim is 64 but hidden_size, another name for it, is 32"):
        small.replace(dim=64, hidden_size=32)
    one_way = BertConfig().replace(is_decoder=True)
    assert one_way.attention_direction == "left-to-right"
    assert one_way.replace(is_decoder=False) == BertConfig()
    with pytest.raises(ConfigError, match="is_decoder is True; bertkit only supports"):
        small.replace(is_decoder=True)
