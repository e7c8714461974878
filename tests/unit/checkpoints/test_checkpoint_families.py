"""Strict loading of every family: exact, a new head that was asked for, or an error with the whole table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertkit import CheckpointError
from bertkit.checkpoints.inspect import inspect
from bertkit.checkpoints.names import TABLES
from bertkit.config.families import FAMILIES
from bertkit.model.auto import MODEL_CLASSES
from family_helpers import SHAPES, their_model

#: One shape of each family.
SHAPE = {family: next(shape for shape, (name, _) in SHAPES.items() if name == family) for family in FAMILIES}
DESCENDANTS = [family for family in FAMILIES if family != "bert"]
#: What a new sequence classifier brings along, by our names.
NEW = {
    "roberta": ("bert.pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight", "classifier.bias"),
    "albert": ("bert.pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight", "classifier.bias"),
    "modernbert": ("classifier.weight", "classifier.bias"),  # the layer before it is that of the masked LM
}  # fmt: skip
#: A tensor of the encoder in their file, of a model with a head.
INSIDE = {
    **dict.fromkeys(("roberta", "camembert", "xlm-roberta"), "roberta.encoder.layer.1.output.dense.bias"),
    "distilbert": "distilbert.transformer.layer.1.ffn.lin2.bias",
    "albert": "albert.encoder.albert_layer_groups.0.albert_layers.0.ffn_output.bias",
    "electra": "electra.embeddings_project.bias",
    "mpnet": "mpnet.encoder.layer.1.output.dense.bias",
    "deberta-v2": "deberta.encoder.layer.1.output.dense.bias",
    "modernbert": "model.layers.1.mlp_norm.weight",
}
Change = Callable[[dict[str, Tensor]], object]


def saved(family: str, head: str, folder: Path, **changes: Any) -> Path:
    their_model(SHAPE[family], head, num_hidden_layers=2, **changes).save_pretrained(folder)
    return folder


def edit(folder: Path, change: Change) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def load(head: str, folder: Path, **options: Any) -> Any:
    return MODEL_CLASSES[head].from_pretrained(folder, **options)


def refusal(head: str, folder: Path, **options: Any) -> str:
    with pytest.raises(CheckpointError) as caught:
        load(head, folder, **options)
    return str(caught.value)


@pytest.fixture(params=DESCENDANTS)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.slow
def test_what_a_pre_trained_file_gives(family: str, tmp_path: Path) -> None:
    folder = saved(family, "BertForMaskedLM", tmp_path)
    model = load("BertForMaskedLM", folder)
    assert model.load_report.new == model.load_report.unused == ()
    assert len(model.load_report.exact) == len(model.state_dict())
    bare = load("BertModel", folder)
    assert bare.pooler is None
    assert bare.load_report.new == ()
    assert bare.load_report.unused
    assert not any(name.startswith(TABLES[family].prefix) for name in bare.load_report.unused)
    said = refusal("BertForSequenceClassification", folder)
    assert "BertForSequenceClassification.from_pretrained(..., num_labels=N" in said
    assert "classifier" in said
    model = load("BertForSequenceClassification", folder, num_labels=4)
    assert sorted(model.load_report.new) == sorted(NEW.get(family, NEW["albert"]))
    assert model.classifier.weight.shape == (4, 32)
    assert model.classifier.weight.abs().max() <= 2 * model.config.initializer_range
    assert load("BertForTokenClassification", folder, num_labels=4).load_report.new == (
        "classifier.weight", "classifier.bias",
    )  # fmt: skip
    assert load("BertForQuestionAnswering", folder, new_head=True).load_report.new == (
        "qa_outputs.weight", "qa_outputs.bias",
    )  # fmt: skip


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tied_copy_is_shown_under_its_own_name(family: str, tmp_path: Path) -> None:
    """Names of a copy and its original may have different numbers of parts."""
    folder = saved(family, "BertForMaskedLM", tmp_path)
    ((copy, original), *_) = TABLES[family].ties
    edit(folder, lambda tensors: tensors.update({copy: tensors[TABLES[family].prefix + original].clone()}))
    (row,) = [line for line in inspect(folder).render().splitlines() if line.startswith("  tied")]
    assert row.endswith(f"<- {copy} tied to {TABLES[family].prefix}{original}")


def test_a_new_head_follows_its_seed(family: str, tmp_path: Path) -> None:
    folder = saved(family, "BertForMaskedLM", tmp_path)
    heads = [load("BertForSequenceClassification", folder, num_labels=2, seed=seed) for seed in (0, 0, 1)]
    poolers = [head.classifier.weight if head.layer else head.bert.pooler.dense.weight for head in heads]
    assert torch.equal(poolers[0], poolers[1])
    assert not torch.equal(poolers[0], poolers[2])
    assert not torch.equal(poolers[0], torch.zeros_like(poolers[0]))
    assert load("BertForMaskedLM", folder, new_head=True, dtype="bfloat16").dtype == torch.bfloat16


def test_a_fine_tuned_file(family: str, tmp_path: Path) -> None:
    folder = saved(family, "BertForSequenceClassification", tmp_path / "tuned", id2label={0: "a", 1: "b", 2: "c"})
    model = load("BertForSequenceClassification", folder, num_labels=3)
    assert model.load_report.new == model.load_report.unused == ()
    assert model.config.id2label == {0: "a", 1: "b", 2: "c"}
    said = refusal("BertForSequenceClassification", folder, num_labels=5)
    assert "new_head=True to replace it" in said
    replaced = load("BertForSequenceClassification", folder, num_labels=5, new_head=True)
    assert "classifier.weight" in replaced.load_report.new
    assert replaced.load_report.unused
    other = load("BertForTokenClassification", folder, num_labels=3)
    assert other.load_report.new == ("classifier.weight", "classifier.bias")
    assert refusal("BertForTokenClassification", folder)
    assert refusal("BertForMultipleChoice", folder)


def test_a_tagger_is_not_taken_for_a_classifier(family: str, tmp_path: Path) -> None:
    folder = saved(family, "BertForTokenClassification", tmp_path)
    assert refusal("BertForSequenceClassification", folder)
    model = load("BertForSequenceClassification", folder, num_labels=3)
    assert sorted(model.load_report.new) == sorted(NEW.get(family, NEW["albert"]))


def test_half_a_head_is_no_head(family: str, tmp_path: Path) -> None:
    """Also where labels are asked for: a trained layer must not end up under a random one."""
    folder = saved(family, "BertForSequenceClassification", tmp_path)
    names = [name for name in load_file(folder / "model.safetensors") if "classifier" in name]
    for name in names:
        before = (folder / "model.safetensors").read_bytes()
        edit(folder, lambda tensors, name=name: tensors.pop(name))
        said = refusal("BertForSequenceClassification", folder, num_labels=3)
        assert f"missing (1):\n    {name}" in said
        (folder / "model.safetensors").write_bytes(before)


def test_the_encoder_must_be_whole(family: str, tmp_path: Path) -> None:
    folder = saved(family, "BertForMaskedLM", tmp_path)
    name = INSIDE[family]
    edit(folder, lambda tensors: tensors.update({name + "s": tensors.pop(name)}))
    for head in ("BertModel", "BertForMaskedLM", "BertForTokenClassification"):
        said = refusal(head, folder, **({"num_labels": 2} if "Token" in head else {}))
        assert f"missing (1):\n    {name}  [32]" in said
        assert f"unexpected (1):\n    {name}s  [32]   <- looks like {name}" in said


def test_a_layer_too_few(family: str, tmp_path: Path) -> None:
    folder = saved(family, "BertForMaskedLM", tmp_path, **({"num_hidden_groups": 2} if family == "albert" else {}))
    edit(folder, lambda tensors: [tensors.pop(name) for name in list(tensors) if ".1." in name])
    said = refusal("BertForMaskedLM", folder)
    groups = "num_hidden_groups=2, but the file has 1 group of layers"
    assert (groups if family == "albert" else "num_hidden_layers=2, but the file has 1 layer") in said


def test_old_names_buffers_and_tied_copies(family: str, tmp_path: Path) -> None:
    folder = saved(family, "BertForMaskedLM", tmp_path)
    table = TABLES[family]
    expected = load("BertForMaskedLM", folder).state_dict()

    def add(tensors: dict[str, Tensor]) -> None:
        tensors[table.prefix + "embeddings.position_ids"] = torch.arange(40)[None]
        for copy, original in table.ties:
            named = table.prefix + original if table.prefix + original in tensors else original
            tensors[copy] = tensors[named].clone()

    edit(folder, add)
    again = load("BertForMaskedLM", folder)
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in expected.items())
    assert not again.load_report.unused
    copy = table.ties[0][0]
    edit(folder, lambda tensors: tensors.update({copy: tensors[copy] + 1}))
    assert f"{copy!r} differs from" in refusal("BertForMaskedLM", folder)
    assert load("BertModel", folder).load_report.unused


def test_another_family_s_file(family: str, tmp_path: Path) -> None:
    folder = saved(family, "BertForMaskedLM", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(
        json.dumps({"model_type": "bert", "vocab_size": 97, "hidden_size": 32, "num_attention_heads": 4})
    )
    said = refusal("BertModel" if family == "deberta-v2" else "BertForMaskedLM", folder)  # whose heads share names
    assert "No tensor has a name of the bert family" in said
    (folder / "config.json").write_text(json.dumps({**config, "model_type": "gpt2"}))
    assert "model_type is 'gpt2'" in refusal("BertForMaskedLM", folder)


def test_inspect(family: str, tmp_path: Path) -> None:
    folder = saved(family, "BertForSequenceClassification", tmp_path, id2label={0: "a", 1: "b", 2: "c"})
    report = inspect(folder)
    assert report.loadable
    assert report.viewed_as == "BertForSequenceClassification"
    model = load("BertForSequenceClassification", folder)
    assert report.num_parameters == model.num_parameters()
    assert report.classes["BertForSequenceClassification"] == "exact"
    assert report.classes["BertForTokenClassification"] == "num_labels="
    assert report.classes.keys() == TABLES[family].classes.keys()
    assert report.labels == ("a", "b", "c")
    assert "unknown" not in report.parameters
    text = report.render()
    assert family in text
    assert "{0-1}" in text or family == "albert"
    assert "problem" not in text


def test_the_two_models_of_electra(tmp_path: Path) -> None:
    generator = saved("electra", "BertForMaskedLM", tmp_path / "generator")
    discriminator = saved("electra", "ElectraForPreTraining", tmp_path / "discriminator")
    assert "ElectraForPreTraining.from_pretrained(..., new_head=True)" in refusal("ElectraForPreTraining", generator)
    assert "BertForMaskedLM.from_pretrained(..., new_head=True)" in refusal("BertForMaskedLM", discriminator)
    assert load("ElectraForPreTraining", discriminator).load_report.unused == ()
    assert load("BertModel", discriminator).load_report.unused


def test_every_rule_is_that_of_the_model() -> None:
    """Names and shapes of the tables beside those of the classes, for every family and class."""
    from bertkit import BertConfig
    from bertkit.checkpoints.rules import sizes

    for family, table in TABLES.items():
        own = {} if family in ("distilbert", "roberta") else {"num_hidden_layers": 3}
        config = BertConfig(model_type=family, num_labels=2, **own)
        for name, spec in table.classes.items():
            with torch.device("meta"):
                model = MODEL_CLASSES[name](config)
            letters = sizes(config, spec)
            rules = {
                table.written_prefix(part, spec.base_prefix) + rule.ours: rule.our_shape(letters)
                for part in spec.parts
                for rule in table.rules(part, config)
            }
            assert rules == {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}, (family, name)
            assert spec.label_head or not MODEL_CLASSES[name].label_head
