"""Every key of transformers' configs is read, refused by name, or listed as without effect on the arithmetic."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import CONFIG_MAPPING, PreTrainedConfig

from bertkit import BertConfig, ConfigError
from bertkit.config.families import FAMILIES, IGNORED_KEYS

#: Values to try for a key whose default is none of them; the first that differs from the default is taken.
TRIED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("relu",),
    "activation": ("relu",),
    "hidden_activation": ("relu",),
    "id2label": ({"0": "a", "1": "b", "2": "c"},),
    "label2id": ({"a": 0, "b": 1, "c": 2},),
    "architectures": (["BertModel"],),
    "problem_type": ("regression",),
    "classifier_dropout": (0.3,),
    "classifier_pooling": ("mean",),
    "classifier_activation": ("relu",),
    "layer_types": (["full_attention"] * 22,),
}


def keys_of(family: str) -> dict[str, Any]:
    """The keys that transformers writes for ``family`` and those of the class below, with their defaults."""
    return {**PreTrainedConfig().to_dict(), **CONFIG_MAPPING[family]().to_dict()}


def another(key: str, default: object) -> object:
    """A value for ``key`` that differs from ``default``, of its type where it has one."""
    for value in TRIED.get(key, ()):
        if value != default:
            return value
    if isinstance(default, bool):
        return not default
    if isinstance(default, int):
        return default + 1
    if isinstance(default, float):
        return default / 2 or 0.25
    return "something else"


def untreated(family: str, values: dict[str, Any]) -> list[str]:
    """The keys of ``values`` whose change is neither refused by name nor seen in the config, nor listed."""
    passive = IGNORED_KEYS | FAMILIES[family].ignored
    base: dict[str, Any] = {"model_type": family}
    if family == "deberta-v2":
        base |= {"relative_attention": True, "pos_att_type": "c2p|p2c"}
    before = BertConfig.from_dict(base)
    found = []
    for key, default in values.items():
        if key in passive or key == "model_type":
            continue
        try:
            changed = BertConfig.from_dict({**base, key: another(key, base.get(key, default))}) != before
        except ConfigError as error:
            changed = key in str(error)
        if not changed:
            found.append(key)
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_no_key_is_left_without_an_effect(family: str) -> None:
    assert untreated(family, keys_of(family)) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_the_walk_sees_a_key_that_is_skipped(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: a key that is dropped unread, though no list has it, is found."""
    read = BertConfig.from_dict

    def skipping(values: dict[str, Any]) -> BertConfig:
        return read({key: value for key, value in values.items() if key != "num_hidden_layers"})

    monkeypatch.setattr(BertConfig, "from_dict", skipping)
    assert untreated(family, {"num_hidden_layers": 7}) == ["num_hidden_layers"]


def test_mpnet_has_one_padding_id() -> None:
    """transformers counts MPNet's positions from 1 whatever the config says, so another id has other positions."""
    assert BertConfig(model_type="mpnet").pad_token_id == 1
    refused = r"pad_token_id is 0.*mpnet.*supports pad_token_id=1"
    with pytest.raises(ConfigError, match=refused):
        BertConfig(model_type="mpnet", pad_token_id=0)
    with pytest.raises(ConfigError, match=refused):
        BertConfig.from_dict({"model_type": "mpnet", "pad_token_id": 0})
    assert BertConfig(model_type="roberta", pad_token_id=0).pad_token_id == 0
