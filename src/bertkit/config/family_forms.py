"""Settings that files of a family give in several forms, and which values fit each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bertkit.config.families import FAMILIES, Family
from bertkit.errors import ConfigError
from bertkit.system.untrusted_files import Json

FULL, SLIDING = "full_attention", "sliding_attention"
#: The field for the base of the rotary positions of each type of layer, and the keys of a file's newer form.
THETAS = {FULL: "global_rope_theta", SLIDING: "local_rope_theta"}
_ROPE_KEYS = {"rope_type", "type", "rope_theta"}


def canonical(values: Mapping[str, Json]) -> dict[str, Json]:
    """The content of a ``config.json`` with the forms that :class:`~bertkit.config.bert_config.BertConfig` has."""
    found = dict(values)
    if found.get("model_type", "bert") == "bert" and found.get("is_decoder") is True:
        del found["is_decoder"]
        if found.setdefault("attention_direction", "left-to-right") != "left-to-right":
            raise ConfigError(
                f"is_decoder is true, but attention_direction is {found['attention_direction']!r:.80}; leave one out"
            )
    if found.get("model_type") == "modernbert":
        _rope_to_thetas(found)
        _layer_types_to_rule(found)
    elif found.get("model_type") == "deberta-v2":
        for key, default in (("relative_attention", False), ("pos_att_type", [])):  # of files without these keys
            found.setdefault(key, default)
        if isinstance(names := found.get("pos_att_type"), str):
            found["pos_att_type"] = [name.strip() for name in names.lower().split("|") if name.strip() != "none"]
        _follows(found, "pooler_hidden_size")
        _follows(found, "embedding_size")
        _follows(found, "attention_head_size", parts="num_attention_heads")
        if isinstance(norm := found.get("norm_rel_ebd"), str):
            found["norm_rel_ebd"] = norm.lower().strip()
    return found


def under_other_keys(family: Family, values: Mapping[str, Any]) -> set[str]:
    """Fields that are given by another key of a file only, as ``hidden_size`` by ``dim``."""
    names = {key: name for name, key in family.keys.items()} | {"is_decoder": "attention_direction"}
    return {name for key, name in names.items() if key in values and name not in values}


def _rope_to_thetas(found: dict[str, Json]) -> None:
    scaling = found.pop("rope_scaling", None)
    if scaling is not None and not _is_plain(scaling):
        raise ConfigError(f"rope_scaling is {scaling!r:.80}; bertkit only supports rope_scaling=None")
    if "local_rope_theta" in found and found["local_rope_theta"] is None:  # the first files: one base for both
        found["local_rope_theta"] = found.get("global_rope_theta")
    given = found.pop("rope_parameters", None)
    if given is None:
        return
    if not isinstance(given, dict) or not given.keys() <= THETAS.keys():
        raise ConfigError(f"rope_parameters must be an object with {' and '.join(THETAS)}, got {given!r:.80}")
    for kind, settings in given.items():
        if settings is None:
            continue
        if not _is_plain(settings):
            raise ConfigError(
                f"rope_parameters has {settings!r:.80} for {kind}; bertkit only supports rope_type='default' with a "
                "rope_theta"
            )
        if (theta := settings.get("rope_theta")) is None:
            continue
        other = found.setdefault(THETAS[kind], theta)
        if other != theta:
            raise ConfigError(
                f"rope_parameters has rope_theta {theta!r:.40} for {kind}, but {THETAS[kind]} is {other!r:.40}"
            )


def _is_plain(settings: Json) -> bool:
    """Whether rotary positions are the published ones, without stretching."""
    return (
        isinstance(settings, dict)
        and settings.keys() <= _ROPE_KEYS
        and settings.get("rope_type", settings.get("type", "default")) == "default"
    )


def _layer_types_to_rule(found: dict[str, Json]) -> None:
    types = found.get("layer_types")
    if not isinstance(types, list) or len(types) != _given(found, "num_hidden_layers"):
        return  # the number of layers is checked with all else
    given, seen = found.get("global_attn_every_n_layers"), types.index(FULL, 1) if FULL in types[1:] else len(types)
    rules = (every for every in (given, seen) if isinstance(every, int) and every >= 1)
    every = next((every for every in rules if list(layer_types(len(types), every)) == types), None)
    found["global_attn_every_n_layers"] = every
    if every is not None:
        del found["layer_types"]


def layer_types(num_layers: int, every: int) -> Sequence[str]:
    """The type of each layer, where one in ``every`` attends to all tokens."""
    return [SLIDING if number % every else FULL for number in range(num_layers)]


def _given(found: Mapping[str, Json], name: str) -> Json:
    """A value of the file, or the family's default."""
    return found.get(name, FAMILIES[str(found["model_type"])].defaults[name])


def _follows(found: dict[str, Json], key: str, parts: str = "") -> None:
    """Drop a width that must be ``hidden_size``, divided by the number of ``parts`` if there is such a field."""
    value, whole, number = found.pop(key, None), _given(found, "hidden_size"), _given(found, parts) if parts else 1
    if not number:
        return  # refused with all else
    if value is not None and isinstance(whole, int) and isinstance(number, int) and value != whole / number:
        what = f"hidden_size / {number} heads" if parts else "hidden_size"
        raise ConfigError(f"{key} is {value!r:.80}; bertkit only supports {key}={what}, here {whole / number:g}")


def _check_buckets(config: Any) -> None:
    """Refuse buckets of distances that the logarithm cannot give: those of far ones would not rise with them."""
    buckets, farthest = config.position_buckets or 0, config.farthest_distance
    if buckets == 1:
        raise ValueError("position_buckets is 1; expected 2 or more, or -1: a vector for each distance")
    # Where no text has distances above buckets // 2, each is a bucket of its own.
    if buckets > 0 and farthest - 1 <= buckets // 2 < config.max_position_embeddings - 1:
        raise ValueError(
            f"max_relative_positions is {farthest}; with position_buckets={buckets} it must be above "
            f"{buckets // 2 + 1}, or -1: max_position_embeddings"
        )


def check_family(config: Any) -> None:
    """Refuse (ValueError) values that do not fit each other in a family."""
    if config.layer_types is not None and len(config.layer_types) != config.num_hidden_layers:
        raise ValueError(
            f"layer_types names {len(config.layer_types)} layers, num_hidden_layers is {config.num_hidden_layers}"
        )
    if config.model_type == "deberta-v2" and not config.pos_att_type:
        raise ValueError(
            "pos_att_type is empty: bertkit's DeBERTa attends to positions; give 'c2p', 'p2c' or both, as 'c2p|p2c'"
        )
    _check_buckets(config)
    if config.family.scores == "rotary" and config.head_size % 2:
        raise ValueError(
            f"rotary positions need heads of an even width, got hidden_size / num_attention_heads = {config.head_size}"
        )
    if config.model_type == "mpnet" and config.pad_token_id != 1:
        raise ValueError(
            f"pad_token_id is {config.pad_token_id}; in the mpnet family bertkit only supports pad_token_id=1: other "
            "software counts the positions of MPNet from there whatever its config says. Use a vocabulary in which "
            "[PAD] has the id 1"
        )
