"""Files of encoder-decoders: exact, with a new head, or an error that names what differs; nothing in between."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import bertkit
from bertkit.errors import CheckpointError, ConfigError, InputError

CONFIG = bertkit.BartConfig(
    vocab_size=50, d_model=16, encoder_layers=2, decoder_layers=3, encoder_attention_heads=2, decoder_attention_heads=2,
    encoder_ffn_dim=20, decoder_ffn_dim=24, max_position_embeddings=12,
)  # fmt: skip
WORDS = "model.shared.weight"
COPIES = ("lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight")
Edit = Callable[[dict[str, Tensor]], object]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bertkit.BartForConditionalGeneration(CONFIG).save_pretrained(tmp_path)
    return tmp_path


def change(folder: Path, edit: Edit) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda file: file.pop("model.decoder.layers.2.fc1.weight"),
            r"missing \(1\):\n.*decoder\.layers\.2\.fc1\.weight",
        ),
        (lambda file: file.update({WORDS: torch.zeros(49, 16)}), r"the config asks for \[50, 16\]"),
        (lambda file: file.update({"model.decoder.layers.3.fc1.bias": torch.zeros(24)}), r"unexpected \(1\):"),
        (lambda file: file.update({"lm_head.weight": torch.zeros(50, 16)}), r"'lm_head.weight' differs from"),
        (lambda file: file.update({COPIES[1]: torch.zeros(50, 16)}), r"embed_tokens.weight' differs from"),
        (lambda file: file.update({"model.encoder.layers.0.fc1.bias": torch.full((20,), torch.nan)}), "not finite"),
    ],
)
def test_files_that_do_not_fit(folder: Path, edit: Edit, message: str) -> None:
    change(folder, edit)
    with pytest.raises(CheckpointError, match=message):
        bertkit.BartForConditionalGeneration.from_pretrained(folder)


def test_copies_of_the_table_of_words(folder: Path) -> None:
    """Old files have all of them, or only the copies."""
    expected = load_file(folder / "model.safetensors")[WORDS]
    change(folder, lambda file: file.update({name: file[WORDS].clone() for name in COPIES}))
    for _ in range(2):
        found = bertkit.BartForConditionalGeneration.from_pretrained(folder)
        assert torch.equal(found.model.shared.weight, expected)
        change(folder, lambda file: file.pop(WORDS, None))


def test_a_new_head_is_asked_for(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"a model that writes .*no classifier .*'bertkit generate' .*; or train"):
        bertkit.BartForSequenceClassification.from_pretrained(folder)
    made = bertkit.BartForSequenceClassification.from_pretrained(folder, num_labels=5)
    assert made(torch.tensor([[5, 2]])).logits.shape == (1, 5)  # type: ignore[union-attr]
    assert made.load_report is not None
    assert made.load_report.new_parts == ("classifier",)
    spans = bertkit.BartForQuestionAnswering.from_pretrained(folder, new_head=True)
    assert spans.load_report is not None
    assert spans.load_report.new_parts == ("span head",)
    with pytest.raises(InputError, match="has no labels"):
        bertkit.BartForConditionalGeneration.from_pretrained(folder, num_labels=5)
    with pytest.raises(InputError, match="no option pooling"):
        bertkit.BartForSequenceClassification.from_pretrained(folder, pooling="mean")


def test_advice_that_can_be_followed(folder: Path, tmp_path: Path) -> None:
    """A decoder is no head that could be trained anew."""
    model = bertkit.BartForSequenceClassification.from_pretrained(folder, num_labels=2)
    model.save_pretrained(tmp_path / "labels")
    told = r"\. Use 'bertkit classify' or .*; or train a new head, after BartForQuestionAnswering"
    with pytest.raises(CheckpointError, match=told):
        bertkit.BartForQuestionAnswering.from_pretrained(tmp_path / "labels")
    bertkit.BartModel.from_pretrained(folder).save_pretrained(tmp_path / "bare")
    with pytest.raises(
        CheckpointError, match=r"is an encoder-decoder without a head \(BartModel\), not a text classifier"
    ):
        bertkit.BartForSequenceClassification.from_pretrained(tmp_path / "bare")
    small = {"vocab_size": 20, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    bertkit.T5EncoderModel(bertkit.T5Config(**small)).save_pretrained(tmp_path / "encoder")
    with pytest.raises(
        CheckpointError, match=r"has no decoder for .*\. Use 'bertkit embed' or pipeline\('feature-e.*\)$"
    ):
        bertkit.T5ForConditionalGeneration.from_pretrained(tmp_path / "encoder")


def test_another_family(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="model_type = 'bart'"):
        bertkit.T5ForConditionalGeneration.from_pretrained(folder)
    with pytest.raises(ConfigError, match="T5Model takes a T5Config, got a BartConfig"):
        bertkit.T5Model(CONFIG)
    (folder / "config.json").write_text(json.dumps({"model_type": "pegasus"}))
    with pytest.raises(CheckpointError, match="model_type is 'pegasus'; those that write are bart, mbart, t5"):
        bertkit.AutoModelForSeq2SeqLM.from_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": []}))
    with pytest.raises(CheckpointError, match=r"model_type is \[\]; those that write are"):
        bertkit.AutoModelForSeq2SeqLM.from_pretrained(folder)
    with pytest.raises(InputError, match="AutoModelForSeq2SeqLM is not a model"):
        bertkit.AutoModelForSeq2SeqLM()


def test_shards(folder: Path) -> None:
    expected = bertkit.BartForConditionalGeneration.from_pretrained(folder).state_dict()
    tensors = load_file(folder / "model.safetensors")
    names = {name: f"model-{number % 2 + 1:05}-of-00002.safetensors" for number, name in enumerate(tensors)}
    for file in set(names.values()):
        save_file({name: tensors[name] for name in tensors if names[name] == file}, folder / file, {"format": "pt"})
    (folder / "model.safetensors").unlink()
    index = {"metadata": {"total_size": sum(tensor.nbytes for tensor in tensors.values())}, "weight_map": names}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    found = bertkit.BartForConditionalGeneration.from_pretrained(folder).state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], values) for name, values in expected.items())


@pytest.mark.slow
def test_a_bias_of_words_that_no_file_needs(folder: Path, tmp_path: Path) -> None:
    """It is 0 in every BART; the files of the bare model, and of some mBARTs, leave it out."""
    change(folder, lambda file: file["final_logits_bias"].fill_(0.5))
    model = bertkit.BartForConditionalGeneration.from_pretrained(folder)
    assert bool((model.final_logits_bias == 0.5).all())
    bare = bertkit.BartModel.from_pretrained(folder)
    bare.save_pretrained(tmp_path / "bare")
    for source, options in (
        (tmp_path / "bare", {}),
        (tmp_path / "bare", {"new_head": True}),
        (folder, {"new_head": True}),
    ):
        made = bertkit.BartForConditionalGeneration.from_pretrained(source, **options)  # type: ignore[arg-type]
        assert not bool(made.final_logits_bias.any())
        assert torch.equal(made.model.shared.weight, bare.model.shared.weight)
        assert made.load_report is not None
        assert not made.load_report.new
    bertkit.BartForSequenceClassification.from_pretrained(folder, num_labels=3).save_pretrained(tmp_path / "labels")
    with pytest.raises(CheckpointError, match=r"a text classifier .*no lm head for BartForConditionalGeneration"):
        bertkit.BartForConditionalGeneration.from_pretrained(tmp_path / "labels")


def test_what_old_files_have_beside_the_weights(folder: Path, tmp_path: Path) -> None:
    change(folder, lambda file: file.update({"model.encoder.version": torch.tensor([3.0])}))
    assert bertkit.BartForConditionalGeneration.from_pretrained(folder)
    small = {"vocab_size": 20, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    bertkit.T5ForConditionalGeneration(bertkit.T5Config(**small)).save_pretrained(tmp_path / "t5")
    table = "decoder.block.{}.layer.1.EncDecAttention.relative_attention_bias.weight"
    change(tmp_path / "t5", lambda file: file.update({table.format(0): torch.zeros(32, 2)}))
    for kind in (bertkit.T5ForConditionalGeneration, bertkit.T5EncoderModel, bertkit.T5Model):
        assert kind.from_pretrained(tmp_path / "t5")
    change(tmp_path / "t5", lambda file: file.update({table.format(1): torch.zeros(32, 2)}))  # none of the files'
    with pytest.raises(CheckpointError, match=r"unexpected \(1\)"):
        bertkit.T5Model.from_pretrained(tmp_path / "t5")
