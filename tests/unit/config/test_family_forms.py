"""Settings of the families that come in several forms, or that bertkit does not have: read, or refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import transformers

from bertkit import BertConfig, ConfigError

MODERN: dict[str, Any] = {"model_type": "modernbert", "num_hidden_layers": 4}
DEBERTA: dict[str, Any] = {"model_type": "deberta-v2", "relative_attention": True, "pos_att_type": "c2p|p2c"}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {**MODERN, "rope_scaling": {"type": "yarn", "factor": 4.0}},
            r"rope_scaling is \{'type': 'yarn'.*only supports",
        ),
        (
            {**MODERN, "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.0}}},
            "rope_parameters has .*linear.* for full_attention; bertkit only supports rope_type='default'",
        ),
        (
            {**MODERN, "rope_parameters": {"rope_theta": 1.0}},
            "rope_parameters must be an object with full_attention and",
        ),
        (
            {**MODERN, "rope_parameters": {"full_attention": {"rope_theta": 5e4}}, "global_rope_theta": 1e4},
            "rope_theta 50000.0 for full_attention, but global_rope_theta is 10000.0",
        ),
        ({**MODERN, "layer_types": ["full_attention"]}, "layer_types names 1 layers, num_hidden_layers is 4"),
        ({**MODERN, "layer_types": ["chunked"] * 4}, "layer_types"),
        ({**MODERN, "hidden_size": 36, "num_attention_heads": 12}, "heads of an even width, got .*= 3"),
        ({**MODERN, "position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({**DEBERTA, "conv_kernel_size": 3}, "conv_kernel_size is 3; bertkit only supports conv_kernel_size=0"),
        ({**DEBERTA, "relative_attention": False}, "relative_attention is False; bertkit only supports"),
        ({"model_type": "deberta-v2"}, "relative_attention is False; bertkit only supports"),
        ({"model_type": "deberta-v2", "relative_attention": True}, "pos_att_type is empty.*c2p"),
        ({**DEBERTA, "pos_att_type": "c2p|p2p"}, "pos_att_type.*p2p"),
        (
            {**DEBERTA, "pooler_hidden_size": 5},
            "pooler_hidden_size is 5; bertkit only supports .*hidden_size, here 1536",
        ),
        (
            {**DEBERTA, "hidden_size": 768, "num_attention_heads": 12, "attention_head_size": 32},
            "attention_head_size is 32",
        ),
        ({**DEBERTA, "hidden_size": 768, "embedding_size": 128}, "embedding_size is 128; .*=hidden_size, here 768"),
        ({**DEBERTA, "pooler_hidden_act": "tanh"}, "pooler_hidden_act is 'tanh'"),
        ({"model_type": "mpnet", "relative_attention_num_buckets": 64}, "relative_attention_num_buckets is 64"),
        ({"model_type": "bert", "local_attention": 128}, "the bert family has no field local_attention, got 128"),
    ],
)
def test_what_is_not_supported_is_named(values: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BertConfig.from_dict(values)


def test_both_forms_of_rotary_positions_and_layers() -> None:
    new = {"full_attention": {"rope_type": "default", "rope_theta": 9e4}, "sliding_attention": {"rope_theta": 5e3}}
    types = ["full_attention", "sliding_attention", "full_attention", "sliding_attention"]
    one = BertConfig.from_dict({**MODERN, "rope_parameters": new, "layer_types": types})
    two = BertConfig.from_dict(
        {**MODERN, "global_rope_theta": 9e4, "local_rope_theta": 5e3, "global_attn_every_n_layers": 2}
    )
    assert one == two
    assert list(one.layer_kinds) == types
    assert BertConfig.from_dict({**MODERN, "global_rope_theta": 3e4, "local_rope_theta": None}).local_rope_theta == 3e4
    # No rule gives these; a copy with other values keeps them, and one with more layers says that they do not fit.
    odd = BertConfig.from_dict({**MODERN, "layer_types": types[1:] + types[:1]})
    assert odd.layer_kinds == (*types[1:], types[0])
    assert BertConfig.from_dict(odd.to_dict()) == odd
    with pytest.raises(ConfigError, match="layer_types names 4 layers"):
        odd.replace(num_hidden_layers=5)
    assert transformers.AutoConfig.for_model(**odd.to_dict()).layer_types == list(odd.layer_kinds)
    assert len(two.replace(num_hidden_layers=7).layer_kinds) == 7


def test_published_words_of_deberta() -> None:
    words = BertConfig.from_dict({**DEBERTA, "pos_att_type": "P2C|c2p", "norm_rel_ebd": "layer_norm"})
    assert words.pos_att_type == ["p2c", "c2p"]
    assert (words.distance_span, words.farthest_distance) == (512, 512)
    assert words.replace(position_buckets=256).distance_span == 256


@pytest.mark.parametrize(("buckets", "farthest", "positions"), [(64, 20, 512), (64, 33, 34), (65, 1, 40), (2, 2, 3)])
def test_buckets_that_the_farthest_distance_leaves_none_for(buckets: int, farthest: int, positions: int) -> None:
    values = {**DEBERTA, "position_buckets": buckets, "max_relative_positions": farthest}
    wanted = f"max_relative_positions is {farthest}; .*position_buckets={buckets} it must be above {buckets // 2 + 1}"
    with pytest.raises(ConfigError, match=wanted):
        BertConfig.from_dict({**values, "max_position_embeddings": positions})
    # Texts that are so short, as in models with few positions and the usual 256 buckets, have a bucket a distance.
    short = BertConfig.from_dict({**values, "max_position_embeddings": buckets // 2 + 1})
    assert short.distance_span == buckets
    assert BertConfig.from_dict({**values, "max_relative_positions": -1, "max_position_embeddings": positions})
    enough = {**values, "max_relative_positions": buckets // 2 + 2, "max_position_embeddings": positions}
    assert BertConfig.from_dict(enough).farthest_distance == buckets // 2 + 2


def test_one_bucket_is_refused() -> None:
    with pytest.raises(ConfigError, match="position_buckets is 1; expected 2 or more, or -1"):
        BertConfig.from_dict({**DEBERTA, "position_buckets": 1})
