"""Any shape of model comes back bit for bit; any damage is refused or harmless, never a crash."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertkit import BertConfig, BertkitError
from bertkit.checkpoints.explain import ranges
from bertkit.checkpoints.inspect import inspect
from bertkit.checkpoints.names import TABLES
from bertkit.model.auto import MODEL_CLASSES

CONFIGS = st.builds(
    lambda heads, width, **sizes: {"num_attention_heads": heads, "hidden_size": heads * width, **sizes},
    heads=st.integers(1, 3),
    width=st.integers(1, 4),
    vocab_size=st.integers(2, 20),
    num_hidden_layers=st.integers(0, 12),
    intermediate_size=st.integers(1, 9),
    max_position_embeddings=st.integers(3, 9),
    type_vocab_size=st.integers(1, 3),
    num_labels=st.integers(1, 5),
)


#: Values that only some families have, or cannot choose.
OWN = {
    "distilbert": st.just({"type_vocab_size": 0}),
    "albert": st.fixed_dictionaries(
        {
            "embedding_size": st.integers(1, 5),
            "num_hidden_groups": st.integers(1, 3),
            "inner_group_num": st.integers(1, 2),
        }
    ),
    "electra": st.fixed_dictionaries({"embedding_size": st.integers(1, 5)}),
    "mpnet": st.just({"type_vocab_size": 0}),
    "deberta-v2": st.fixed_dictionaries(
        {
            "pos_att_type": st.sampled_from([["c2p"], ["p2c"], ["c2p", "p2c"]]),
            "share_att_key": st.booleans(),
            "position_biased_input": st.booleans(),
            "position_buckets": st.sampled_from([-1, 0, 2, 3, 4]),
            "norm_rel_ebd": st.sampled_from(["layer_norm", "none"]),
        }
    ),
    "modernbert": st.fixed_dictionaries(
        {
            "type_vocab_size": st.just(0),
            "num_attention_heads": st.just(1),
            "hidden_size": st.sampled_from([2, 4, 6]),
            "pad_token_id": st.integers(0, 1),
            "tie_word_embeddings": st.booleans(),
            **{name: st.booleans() for name in ("norm_bias", "attention_bias", "mlp_bias", "decoder_bias")},
            "classifier_bias": st.booleans(),
        }
    ),
}
#: (family, class) of all that there are; BERT's more often.
CLASSES = [(family, name) for family, table in TABLES.items() for name in table.classes] + [("bert", "BertModel")] * 9


@given(sizes=CONFIGS, case=st.sampled_from(CLASSES), seed=st.integers(0, 2**16), data=st.data())
def test_save_and_load_give_the_same_bits(
    sizes: dict[str, Any], case: tuple[str, str], seed: int, data: st.DataObject
) -> None:
    family, name = case
    own = data.draw(OWN.get(family, st.just({})))
    config = BertConfig(**{"model_type": family, **sizes, **own})
    model = MODEL_CLASSES[name](config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(generator=generator)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = MODEL_CLASSES[name].from_pretrained(folder)
        assert inspect(folder).num_parameters == model.num_parameters()
    assert again.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(tensor, again.state_dict()[key]) for key, tensor in model.state_dict().items())
    assert type(again) is type(model)
    two = name == "BertForQuestionAnswering" or case == ("albert", "BertForPreTraining")
    kept = config.replace(num_labels=2) if two and config.num_labels != 2 else config
    assert again.config == kept.replace(architectures=[name])


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    config = BertConfig(
        vocab_size=5, hidden_size=2, num_hidden_layers=1, num_attention_heads=1, intermediate_size=2,
        max_position_embeddings=4,
    )  # fmt: skip
    MODEL_CLASSES["BertForPreTraining"](config).save_pretrained(folder)
    return folder


DAMAGE = st.lists(
    st.tuples(st.integers(0, 10**6), st.sampled_from(["set", "insert", "delete"]), st.integers(0, 255)),
    min_size=1,
    max_size=4,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damage=DAMAGE, where=st.sampled_from(["model.safetensors", "config.json"]))
def test_damage_is_refused_or_harmless(checkpoint: Path, damage: list[tuple[int, str, int]], where: str) -> None:
    files = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    content = bytearray(files[where])
    for place, kind, value in damage:
        at = place % len(content)
        if kind == "delete":
            del content[at]
        elif kind == "insert":
            content.insert(at, value)
        else:
            content[at] = value
    with tempfile.TemporaryDirectory() as folder:
        for name, original in files.items():
            (Path(folder) / name).write_bytes(bytes(content) if name == where else original)
        for look in (MODEL_CLASSES["BertForPreTraining"].from_pretrained, inspect):
            with contextlib.suppress(BertkitError):
                assert look(folder) is not None


@given(st.sets(st.integers(0, 40), min_size=1))
def test_ranges_name_exactly_the_numbers(numbers: set[int]) -> None:
    named: set[int] = set()
    for part in ranges(numbers).strip("{}").split(","):
        first, _, last = part.partition("-")
        named.update(range(int(first), int(last or first) + 1))
    assert named == numbers
