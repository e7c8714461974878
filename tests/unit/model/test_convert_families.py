"""``convert`` of every family's safetensors, under old names, in shards and with copies: the same model comes out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertkit.config.bert_config import BertConfig
from bertkit.errors import CheckpointError
from bertkit.model.auto import MODEL_CLASSES
from bertkit.model.convert import convert
from bertkit.model.fingerprint import differences, fingerprint

SIZES = {
    "vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12,
    "max_position_embeddings": 40,
}  # fmt: skip
#: family -> its own word for the head; the word embeddings, of which masked-LM files may hold a copy
COPIES = {
    "bert": ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
    "roberta": ("lm_head.decoder.weight", "roberta.embeddings.word_embeddings.weight"),
    "distilbert": ("vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"),
    "albert": ("predictions.decoder.weight", "albert.embeddings.word_embeddings.weight"),
    "electra": ("generator_lm_head.weight", "electra.embeddings.word_embeddings.weight"),
}


@pytest.fixture(params=COPIES)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A masked-LM checkpoint in two shards, with today's names, saved by bertkit."""
    torch.manual_seed(0)
    config = BertConfig(model_type=request.param, **SIZES)
    model = MODEL_CLASSES["BertForMaskedLM"](config)
    model.save_pretrained(tmp_path / "source")
    return tmp_path / "source"


def as_of_old(folder: Path) -> int:
    """Old endings, a buffer, the copy of a tied table, two shards; returns the number of tensors that should stay."""
    family = json.loads((folder / "config.json").read_text())["model_type"]
    tensors = load_file(folder / "model.safetensors")
    stay = len(tensors)
    copy, original = COPIES[family]
    tensors[copy] = tensors[original].clone()
    tensors[f"{original.partition('.')[0]}.embeddings.position_ids"] = torch.arange(40)[None]
    for new, old in ((".LayerNorm.weight", ".LayerNorm.gamma"), (".LayerNorm.bias", ".LayerNorm.beta")):
        tensors = {name.replace(new, old): value for name, value in tensors.items()}
    weight_map = {name: f"model-{1 + number % 2}.safetensors" for number, name in enumerate(sorted(tensors))}
    for shard in set(weight_map.values()):
        save_file({name: tensors[name] for name in tensors if weight_map[name] == shard}, folder / shard)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return stay


def test_the_same_model_comes_out(source: Path, tmp_path: Path) -> None:
    before, wanted = fingerprint(source), load_file(source / "model.safetensors")
    stay = as_of_old(source)
    done = convert(source, tmp_path / "new")
    assert done.num_tensors == stay
    assert done.dropped == {"buffers": 1, "copies of tied tensors": 1}
    assert any(line.startswith("outputs of BertForMaskedLM before and after") for line in done.compared)
    written = load_file(tmp_path / "new" / "model.safetensors")
    assert written.keys() == wanted.keys()
    assert all(torch.equal(value, wanted[name]) for name, value in written.items())
    assert differences(fingerprint(tmp_path / "new"), before) == []


def test_fewer_positions_than_the_sentence_has_tokens(tmp_path: Path) -> None:
    """RoBERTa's positions begin after the padding: 6 rows are 4 tokens."""
    config = BertConfig(model_type="roberta", pad_token_id=1, **{**SIZES, "max_position_embeddings": 6})
    assert config.max_input_length == 4
    MODEL_CLASSES["BertForMaskedLM"](config).save_pretrained(tmp_path / "m")
    assert len(convert(tmp_path / "m", tmp_path / "new").fingerprint.input_ids) == 4


def test_a_copy_that_differs_is_no_copy(tmp_path: Path) -> None:
    MODEL_CLASSES["BertForMaskedLM"](BertConfig(**SIZES)).save_pretrained(tmp_path / "m")
    tensors = load_file(tmp_path / "m" / "model.safetensors")
    tensors["cls.predictions.decoder.weight"] = tensors["bert.embeddings.word_embeddings.weight"] + 1
    save_file(tensors, tmp_path / "m" / "model.safetensors")
    with pytest.raises(CheckpointError, match="differs from"):
        convert(tmp_path / "m", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_old_and_new_name_of_one_tensor(tmp_path: Path) -> None:
    MODEL_CLASSES["BertModel"](BertConfig(**SIZES)).save_pretrained(tmp_path / "m")
    tensors = load_file(tmp_path / "m" / "model.safetensors")
    tensors["embeddings.LayerNorm.gamma"] = tensors["embeddings.LayerNorm.weight"].clone()
    save_file(tensors, tmp_path / "m" / "model.safetensors")
    with pytest.raises(CheckpointError, match="has a tensor twice"):
        convert(tmp_path / "m", tmp_path / "new")
