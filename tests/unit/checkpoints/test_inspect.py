"""``inspect`` tells what is in a file, also when it cannot be loaded, and without torch."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertkit import BertConfig, BertForPreTraining, BertForSequenceClassification, BertModel
from bertkit.checkpoints.inspect import inspect
from bertkit.errors import CheckpointError

CONFIG = BertConfig(
    vocab_size=30, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
    max_position_embeddings=16, id2label={0: "no", 1: "yes"},
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    BertForSequenceClassification(CONFIG).save_pretrained(tmp_path)
    return tmp_path


def test_real_weights(minilm: Path) -> None:
    report = inspect(minilm)
    assert report.loadable
    assert report.num_parameters == BertModel.from_pretrained(minilm).num_parameters() == 22_713_216
    assert report.parameters == {"embeddings": 11_918_592, "layers": 10_646_784, "pooler": 147_840}
    assert report.files[0].sha256 == hashlib.sha256((minilm / "model.safetensors").read_bytes()).hexdigest()
    assert report.classes["BertModel"] == "exact"
    assert report.classes["BertForSequenceClassification"] == "num_labels="
    assert report.classes["BertForQuestionAnswering"] == "new_head=True"
    assert [head for head, there in report.heads.items() if there] == ["pooler"]
    assert report.tokenizer is not None
    assert report.tokenizer["size"] == 30_522
    assert report.labels is None
    assert report.problems == ()


def test_real_weights_with_old_names(shared: Path) -> None:
    report = inspect(shared / "models" / "bert-tiny-splade-mlm")
    assert report.viewed_as == "BertForMaskedLM"
    assert report.classes["BertForMaskedLM"] == "exact"
    assert "embeddings.LayerNorm.weight" in report.render()
    assert "embeddings.LayerNorm.gamma" in report.render()


def test_the_text(folder: Path) -> None:
    text = inspect(folder).render()
    for said in (
        "BertForSequenceClassification",
        "2: no, yes",
        "encoder.layer.{0-1}.attention.self.{query,key,value}.weight",
        "24 x 8",
        "none beside the weights",
    ):
        assert said in text
    assert max(len(line) for line in text.splitlines()) < 240


def test_the_dict_is_json(folder: Path) -> None:
    plain = json.loads(json.dumps(inspect(folder).to_dict()))
    assert plain["labels"] == ["no", "yes"]
    assert plain["tensors"][0]["status"] == "exact"
    assert sum(len(row["theirs"]) for row in plain["tensors"]) == len(load_file(folder / "model.safetensors"))
    assert inspect(folder, hash_files=False).files[0].sha256 is None


def test_tied_copies_and_buffers_are_not_counted(tmp_path: Path) -> None:
    model = BertForPreTraining(CONFIG)
    model.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"].clone()
    tensors["bert.embeddings.position_ids"] = torch.arange(16)[None]
    save_file(tensors, tmp_path / "model.safetensors")
    report = inspect(tmp_path)
    assert report.num_parameters == model.num_parameters()
    assert {row.status.value for row in report.tensors} == {"exact", "tied", "ignored"}


def test_what_does_not_fit_is_shown(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["bert.pooler.dense.weight"] = torch.ones(3, 3)
    tensors["bert.mystery"] = torch.ones(2)
    save_file(tensors, folder / "model.safetensors")
    report = inspect(folder)
    assert not report.loadable
    assert report.classes["BertModel"] == "no"
    text = report.render()
    assert "can be loaded     no" in text or "no, see the problems below" in text
    assert "mis-shaped" in text
    assert "bert.mystery" in text


def test_values_that_are_not_finite_are_found(folder: Path) -> None:
    for kind in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        tensors = {name: tensor.to(kind) for name, tensor in load_file(folder / "model.safetensors").items()}
        save_file(tensors, folder / "model.safetensors")
        assert inspect(folder).loadable
        bad = {**tensors, "classifier.bias": torch.tensor([1.0, float("nan")], dtype=kind)}
        save_file(bad, folder / "model.safetensors")
        report = inspect(folder)
        assert not report.loadable
        assert report.problems == ("values that are not finite in classifier.bias",)
        save_file(tensors, folder / "model.safetensors")


def test_a_config_that_cannot_be_used(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    report = inspect(folder)
    assert not report.loadable
    assert report.config is None
    assert "model_type is 'gpt2'" in report.problems[0]
    assert "classifier.weight" in report.render()
    for hostile in ('{"vocab_size": %s}' % ("9" * 5000), '{"label2id": ["a"]}', '{"self": 1}'):
        (folder / "config.json").write_text(hostile)
        assert "config.json" in inspect(folder).problems[0]
    (folder / "config.json").unlink()
    assert "does not exist" in inspect(folder).render()


def test_a_vocabulary_too_large(folder: Path) -> None:
    (folder / "vocab.txt").write_text("x\n" * 31)
    report = inspect(folder)
    assert not report.loadable
    assert "31 tokens" in report.problems[0]


def test_an_unreadable_header_is_an_error(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 20)
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        inspect(folder)


def test_no_name_of_a_file_reaches_the_terminal_raw(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file({**tensors, "\x1b[31mred": torch.ones(1)}, folder / "model.safetensors")
    assert "\x1b" not in inspect(folder).render()


def test_no_torch(folder: Path) -> None:
    code = (
        "import sys; from bertkit.checkpoints.inspect import inspect; inspect(sys.argv[1]).render(); "
        "print('torch' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
