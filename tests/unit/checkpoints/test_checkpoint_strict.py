"""Three outcomes of loading: exact, a new head that was asked for, or an error with the whole table."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import bertkit
from bertkit import (
    BertConfig,
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForNextSentencePrediction,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    BertTokenizer,
)
from bertkit.cli import main
from bertkit.errors import CheckpointError, ConfigError, InputError
from everyday import some

CONFIG = BertConfig(
    vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
    max_position_embeddings=16,
)  # fmt: skip
Change = Callable[[dict[str, Tensor]], object]


def saved(model: bertkit.BertModel, folder: Path) -> Path:
    """A checkpoint whose every tensor is random."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    model.save_pretrained(folder)
    return folder


def edit(folder: Path, change: Change) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    return saved(BertModel(CONFIG), tmp_path / "bare")


@pytest.fixture
def full(tmp_path: Path) -> Path:
    """Pooler, masked-LM and next-sentence head, as the published pre-trained weights."""
    return saved(BertForPreTraining(CONFIG), tmp_path / "full")


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    labels = {0: "bad", 1: "so-so", 2: "good"}
    return saved(BertForSequenceClassification(CONFIG.replace(id2label=labels)), tmp_path / "tuned")


# --- exact -----------------------------------------------------------------------------------------------------------


def test_a_fine_tuned_classifier_loads_with_its_labels(tuned: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(tuned)
    assert model.config.id2label == {0: "bad", 1: "so-so", 2: "good"}
    assert model.load_report.new == model.load_report.unused == ()
    assert len(model.load_report.exact) == len(model.state_dict())
    assert not model.training
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_the_same_number_of_labels_loads_the_head_of_the_file(tuned: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(tuned, num_labels=3)
    assert model.load_report.new == ()
    assert model.config.id2label[2] == "good"
    renamed = BertForSequenceClassification.from_pretrained(tuned, id2label={"0": "a", "1": "b", "2": "c"})
    assert renamed.load_report.new == ()
    assert renamed.config.label2id == {"a": 0, "b": 1, "c": 2}
    assert torch.equal(renamed.classifier.weight, model.classifier.weight)


def test_heads_without_a_place_are_listed(full: Path) -> None:
    assert BertModel.from_pretrained(full).load_report.unused == (
        "cls.predictions.bias",
        "cls.predictions.transform.LayerNorm.bias",
        "cls.predictions.transform.LayerNorm.weight",
        "cls.predictions.transform.dense.bias",
        "cls.predictions.transform.dense.weight",
        "cls.seq_relationship.bias",
        "cls.seq_relationship.weight",
    )
    masked = BertForMaskedLM.from_pretrained(full).load_report
    assert masked.new == ()
    assert "bert.pooler.dense.weight" in masked.unused
    assert "cls.seq_relationship.weight" in masked.unused
    assert BertForNextSentencePrediction.from_pretrained(full).load_report.new == ()


def test_a_head_nobody_knows_is_listed_too(bare: Path) -> None:
    edit(bare, lambda t: t.update({"crf.transitions": torch.ones(3, 3)}))
    assert BertModel.from_pretrained(bare).load_report.unused == ("crf.transitions",)


def test_without_pooler_the_encoder_has_none(bare: Path) -> None:
    edit(bare, lambda t: [t.pop(name) for name in list(t) if name.startswith("pooler.")])
    model = BertModel.from_pretrained(bare)
    assert model.pooler is None
    assert model(torch.ones(1, 3, dtype=torch.long)).pooler_output is None
    assert model.load_report.new == ()


def test_buffers_and_tied_copies_are_read_past(full: Path) -> None:
    expected = BertForMaskedLM.from_pretrained(full).state_dict()

    def add(tensors: dict[str, Tensor]) -> None:
        tensors["bert.embeddings.position_ids"] = torch.arange(16)[None]
        tensors["bert.embeddings.token_type_ids"] = torch.zeros(1, 16, dtype=torch.long)
        tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
        tensors["cls.predictions.decoder.bias"] = tensors["cls.predictions.bias"].clone()

    edit(full, add)
    again = BertForMaskedLM.from_pretrained(full).state_dict()
    assert all(torch.equal(expected[name], again[name]) for name in expected)
    edit(full, lambda t: t.pop("cls.predictions.bias"))  # a file may keep only the copy
    assert torch.equal(
        BertForMaskedLM.from_pretrained(full).state_dict()["cls.predictions.bias"], expected["cls.predictions.bias"]
    )


def test_old_names_and_bare_names(full: Path) -> None:
    expected = BertForMaskedLM.from_pretrained(full).state_dict()

    def rename(tensors: dict[str, Tensor]) -> None:
        for name in list(tensors):
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[old.removeprefix("bert.")] = tensors.pop(name)

    edit(full, rename)
    again = BertForMaskedLM.from_pretrained(full).state_dict()
    assert all(torch.equal(expected[name], again[name]) for name in expected)


def test_a_loaded_model_can_be_copied_and_pickled(tuned: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(tuned)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin.load_report.exact == model.load_report.exact
        assert torch.equal(twin.classifier.weight, model.classifier.weight)


# --- a new head, asked for -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", [BertForSequenceClassification, BertForTokenClassification])
def test_labels_ask_for_a_classifier(head: Any, full: Path) -> None:
    model = head.from_pretrained(full, id2label={0: "x", 1: "y", 2: "z"})
    assert model.load_report.new == ("classifier.weight", "classifier.bias")
    assert model.classifier.weight.shape == (3, 8)
    assert model.config.label2id == {"x": 0, "y": 1, "z": 2}
    assert head.from_pretrained(full, label2id={"x": 0}).config.num_labels == 1


def test_new_head_asks_for_the_others(bare: Path) -> None:
    for head in (BertForQuestionAnswering, BertForMaskedLM, BertForNextSentencePrediction, BertForMultipleChoice):
        model = head.from_pretrained(bare, new_head=True)
        assert model.load_report.new
        assert all(name.startswith(head.head_prefixes) for name in model.load_report.new)


def test_a_new_head_takes_a_new_pooler_along_where_there_is_none(bare: Path) -> None:
    edit(bare, lambda t: [t.pop(name) for name in list(t) if name.startswith("pooler.")])
    model = BertForSequenceClassification.from_pretrained(bare, num_labels=2)
    assert model.load_report.new == (
        "bert.pooler.dense.weight", "bert.pooler.dense.bias", "classifier.weight", "classifier.bias",
    )  # fmt: skip
    assert BertForTokenClassification.from_pretrained(bare, num_labels=2).load_report.new == (
        "classifier.weight", "classifier.bias",
    )  # fmt: skip


def test_the_seed_decides_the_new_head_and_nothing_else_is_drawn(bare: Path) -> None:
    torch.manual_seed(1)
    state = torch.random.get_rng_state()
    heads = [
        BertForSequenceClassification.from_pretrained(bare, num_labels=2, seed=seed).classifier for seed in (0, 0, 1)
    ]
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(heads[0].weight, heads[1].weight)
    assert not torch.equal(heads[0].weight, heads[2].weight)
    assert heads[0].weight.abs().max() <= 2 * CONFIG.initializer_range
    assert heads[0].weight.std() > 0.3 * CONFIG.initializer_range
    assert not heads[0].bias.any()


def test_new_head_replaces_one_that_fits(tuned: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(tuned, new_head=True)
    assert model.load_report.new == ("classifier.weight", "classifier.bias")
    assert model.load_report.unused == ("classifier.bias", "classifier.weight")
    assert model.config.num_labels == 3


def test_another_number_of_labels_needs_new_head(tuned: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        BertForSequenceClassification.from_pretrained(tuned, num_labels=5)
    said = str(caught.value)
    assert "classifier.weight  the file has [3, 8], the config asks for [5, 8]" in said
    assert "new_head=True" in said
    assert "own config names 3" in said
    model = BertForSequenceClassification.from_pretrained(tuned, num_labels=5, new_head=True)
    assert model.classifier.weight.shape == (5, 8)
    assert model.config.num_labels == 5


def test_a_classifier_of_another_task_is_not_taken_for_ours(tuned: Path) -> None:
    """Token and sequence classifiers have the same names and shapes, but mean different things."""
    with pytest.raises(CheckpointError, match=r"is a text classifier .*, not a tagger"):
        BertForTokenClassification.from_pretrained(tuned)
    model = BertForTokenClassification.from_pretrained(tuned, num_labels=3)
    assert model.load_report.new == ("classifier.weight", "classifier.bias")


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, "float64"])
def test_dtype(kind: Any, bare: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(bare, num_labels=2, dtype=kind)
    wanted = getattr(torch, kind) if isinstance(kind, str) else kind
    assert {parameter.dtype for parameter in model.parameters()} == {wanted}
    model.save_pretrained(bare.parent / "again")
    assert BertForSequenceClassification.from_pretrained(bare.parent / "again").dtype == torch.float32


# --- an error with the whole table -----------------------------------------------------------------------------------


def refusal(load: Callable[[], Any]) -> str:
    with pytest.raises(CheckpointError) as caught:
        load()
    return str(caught.value)


def test_a_head_that_is_not_there_tells_how_to_ask(bare: Path) -> None:
    said = refusal(lambda: BertForSequenceClassification.from_pretrained(bare))
    assert "BertForSequenceClassification.from_pretrained(..., num_labels=N" in said
    said = refusal(lambda: BertForMaskedLM.from_pretrained(bare))
    assert "BertForMaskedLM.from_pretrained(..., new_head=True)" in said
    edit(bare, lambda t: t.pop("encoder.layer.1.output.dense.bias"))  # then it is not only of another kind
    said = refusal(lambda: BertForSequenceClassification.from_pretrained(bare))
    assert "missing (3)" in said
    assert "classifier.weight  [2, 8]" in said
    assert "classifier.bias  [2]" in said
    assert "BertForSequenceClassification.from_pretrained(..., num_labels=N" in said


KINDS = {
    BertModel: ("an encoder without a head", "embed"),
    BertForMaskedLM: ("a masked language model", "fill-mask"),
    BertForSequenceClassification: ("a text classifier", "classify"),
    BertForTokenClassification: ("a tagger", "tag"),
    BertForQuestionAnswering: ("a question-answering model", "answer"),
    BertForNextSentencePrediction: ("a next-sentence model", "next-sentence"),
}


@pytest.mark.parametrize("wanted", [kind for kind in KINDS if kind is not BertModel])
@pytest.mark.parametrize("own", some(KINDS, (BertModel, BertForSequenceClassification)))
def test_a_model_of_another_kind_is_called_by_its_name(own: Any, wanted: Any, tmp_path: Path) -> None:
    """One sentence that says what it is and which command takes it, not a list of tensors."""
    folder = saved(own(CONFIG), tmp_path / "m")
    if own is wanted:
        assert wanted.from_pretrained(folder)
        return
    what, command = KINDS[own]
    said = refusal(lambda: wanted.from_pretrained(folder))
    assert f"is {what} ({own.__name__}), not {KINDS[wanted][0]}" in said
    assert f"Use 'bertkit {command}'" in said
    assert "\n" not in said
    assert "weight" not in said


def test_the_command_line_names_the_command_that_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = saved(BertForTokenClassification(CONFIG), tmp_path / "m")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
    BertTokenizer({token: number for number, token in enumerate(tokens)}).save_pretrained(folder)
    assert main(["classify", "--model", str(folder), "a"]) == 4
    assert "is a tagger (BertForTokenClassification), not a text classifier" in (said := capsys.readouterr().err)
    assert "Use 'bertkit tag'" in said


def test_labels_do_not_ask_for_anything_else(bare: Path) -> None:
    edit(bare, lambda t: t.pop("encoder.layer.1.output.dense.bias"))
    said = refusal(lambda: BertForSequenceClassification.from_pretrained(bare, num_labels=2, new_head=True))
    assert "missing (1):\n    encoder.layer.1.output.dense.bias  [8]" in said


def test_half_a_head_is_no_head(tuned: Path) -> None:
    edit(tuned, lambda t: t.pop("classifier.bias"))
    said = refusal(lambda: BertForSequenceClassification.from_pretrained(tuned, num_labels=3))
    assert "missing (1):\n    classifier.bias  [3]" in said


def test_half_a_pooler_is_no_pooler(bare: Path) -> None:
    edit(bare, lambda t: t.pop("pooler.dense.bias"))
    assert "missing (1):\n    pooler.dense.bias" in refusal(lambda: BertModel.from_pretrained(bare))


def test_a_missing_layer(full: Path) -> None:
    edit(full, lambda t: [t.pop(name) for name in list(t) if ".layer.1." in name])
    said = refusal(lambda: BertForMaskedLM.from_pretrained(full))
    assert "missing (16)" in said
    assert "bert.encoder.layer.1.attention.self.query.weight" in said
    assert "num_hidden_layers=2, but the file has 1 layer" in said


def test_a_layer_too_many(bare: Path) -> None:
    config = json.loads((bare / "config.json").read_text())
    (bare / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    said = refusal(lambda: BertModel.from_pretrained(bare))
    assert "unexpected (16)" in said
    assert "num_hidden_layers=1, but the file has 2 layers" in said


def test_near_names_are_suggested(bare: Path) -> None:
    edit(bare, lambda t: t.update({"encoder.layer.0.output.dens.bias": t.pop("encoder.layer.0.output.dense.bias")}))
    said = refusal(lambda: BertModel.from_pretrained(bare))
    assert "encoder.layer.0.output.dense.bias  [8]   <- looks like encoder.layer.0.output.dens.bias" in said
    assert "unexpected (1):\n    encoder.layer.0.output.dens.bias  [8]   <- looks like" in said


def test_every_difference_is_listed_layers_together(bare: Path) -> None:
    def spoil(tensors: dict[str, Tensor]) -> None:
        for layer in range(2):
            tensors[f"encoder.layer.{layer}.intermediate.dense.weight"] = torch.ones(11, 8)
        tensors["embeddings.word_embeddings.weight"] = torch.ones(29, 8)
        tensors["embeddings.LayerNorm.bias"] = torch.ones(8, dtype=torch.int32)
        tensors["encoder.extra"] = torch.ones(1)
        del tensors["pooler.dense.weight"]

    edit(bare, spoil)
    said = refusal(lambda: BertModel.from_pretrained(bare))
    for line in (
        "missing (1):\n    pooler.dense.weight  [8, 8]",
        "mis-shaped (3):\n    embeddings.word_embeddings.weight  the file has [29, 8], the config asks for [30, 8]",
        "encoder.layer.{0-1}.intermediate.dense.weight  the file has [11, 8], the config asks for [12, 8]",
        "of a wrong type (1):\n    embeddings.LayerNorm.bias  the file has I32",
        "unexpected (1):\n    encoder.extra  [1]",
    ):
        assert line in said


def test_another_family(bare: Path) -> None:
    def rename(tensors: dict[str, Tensor]) -> None:
        for name in list(tensors):
            tensors["roberta." + name] = tensors.pop(name)

    edit(bare, rename)
    assert "another kind of model" in refusal(lambda: BertModel.from_pretrained(bare))


def test_the_same_tensor_under_two_names(bare: Path) -> None:
    edit(bare, lambda t: t.update({"bert.pooler.dense.bias": torch.ones(8)}))
    said = refusal(lambda: BertModel.from_pretrained(bare))
    assert "a second name for" in said


def test_a_decoder_of_its_own(full: Path) -> None:
    edit(full, lambda t: t.update({"cls.predictions.decoder.weight": torch.ones(30, 8)}))
    said = refusal(lambda: BertForMaskedLM.from_pretrained(full))
    assert "'cls.predictions.decoder.weight' differs from 'bert.embeddings.word_embeddings.weight'" in said
    assert "cls.predictions.decoder.weight" in BertModel.from_pretrained(full).load_report.unused
    edit(full, lambda t: t.update({"cls.predictions.decoder.weight": torch.ones(31, 8)}))
    assert "mis-shaped (1):\n    cls.predictions.decoder.weight" in refusal(
        lambda: BertForMaskedLM.from_pretrained(full)
    )


def test_arguments_that_make_no_sense(bare: Path) -> None:
    with pytest.raises(InputError, match="BertModel has no labels, got num_labels"):
        BertModel.from_pretrained(bare, num_labels=2)
    with pytest.raises(InputError, match="dtype must be float32"):
        BertModel.from_pretrained(bare, dtype=torch.int8)
    with pytest.raises(InputError, match="dtype must be float32"):
        BertModel.from_pretrained(bare, dtype="float99")
    with pytest.raises(ConfigError, match="num_labels=3"):
        BertForSequenceClassification.from_pretrained(bare, num_labels=3, id2label={0: "a"})
    with pytest.raises(ConfigError, match="num_labels must be"):
        BertForSequenceClassification.from_pretrained(bare, num_labels=0)
    with pytest.raises(InputError, match="AutoModel is not a model"):
        bertkit.AutoModel()


def test_keywords_of_other_software(bare: Path) -> None:
    for load in (BertModel.from_pretrained, bertkit.AutoModel.from_pretrained):
        assert load(bare, torch_dtype=torch.float16).dtype is torch.float16
        assert load(bare, torch_dtype="bfloat16", dtype=None).dtype is torch.bfloat16
        with pytest.raises(InputError, match="torch_dtype is another name for dtype; give one"):
            load(bare, torch_dtype=torch.float16, dtype=torch.float16)
        for keywords, said in (
            ({"force_download": True}, "has no .force_download.; write hf cache delete once, and load it again"),
            ({"quantization_config": {"bits": 8}}, "write bertkit quantize"),
            ({"device_map": "cpu", "device": "cpu"}, "device_map is another name for device"),
            ({"device_map": {"": "cpu", "pooler": "cuda:0"}}, "names 2 devices"),
            (
                {"num_label": 3},
                "has no 'num_label' \\(did you mean 'num_labels'\\?\\); it takes name_or_path, num_lab",
            ),
        ):
            with pytest.raises((InputError, ConfigError), match=said):
                load(bare, **keywords)
        assert load(bare, hidden_dropout_prob=0.3, attn_implementation="sdpa").config.hidden_dropout_prob == 0.3
        assert load(bare, cache_dir=None, local_files_only=False, device_map={"": "cpu"}).device.type == "cpu"


def test_auto_classes_choose_the_class(full: Path) -> None:
    asked = {"SequenceClassification": {"num_labels": 2}, "TokenClassification": {"num_labels": 2}}
    for head in ("PreTraining", "MaskedLM", "NextSentencePrediction", "SequenceClassification", "TokenClassification",
                 "QuestionAnswering", "MultipleChoice"):  # fmt: skip
        options = asked.get(head, {"new_head": head in ("QuestionAnswering", "MultipleChoice")})
        model = getattr(bertkit, f"AutoModelFor{head}").from_pretrained(full, **options)
        assert type(model) is getattr(bertkit, f"BertFor{head}")
    assert type(bertkit.AutoModel.from_pretrained(full)) is BertModel


def test_auto_tokenizer(full: Path) -> None:
    (full / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\n")
    assert bertkit.AutoTokenizer.from_pretrained(full)("Hello")["input_ids"] == [2, 5, 3]
    with pytest.raises(InputError, match="AutoTokenizer is not a tokenizer"):
        bertkit.AutoTokenizer()
