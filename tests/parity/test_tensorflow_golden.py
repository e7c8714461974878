"""Checkpoints that real TensorFlow wrote: every value bit for bit, and what TensorFlow computed with them."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from bertkit import (
    AutoTokenizer,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
)
from bertkit.checkpoints.tensorflow.bundle import BundleReader, open_bundle
from bertkit.checkpoints.tensorflow.variables import ArchiveReader, find_index, open_archive
from bertkit.errors import CheckpointError
from bertkit.model.convert import Overrides, convert
from tensorflow_helpers import GOLDEN, golden_script

SCRIPT = golden_script()
CONFIG = GOLDEN / "original" / "bert_config.json"
#: folder -> (index, heads, seed of its values)
FOLDERS = {
    "original": ("bert_model.ckpt.index", "pretraining", 1),
    "classifier": ("model.ckpt-7.index", "classifier", 3),
    "squad": ("model.ckpt-5.index", "squad", 4),
    "albert": ("model.ckpt-best.index", "albert", 6),
}


def read(index: Path) -> dict[str, np.ndarray]:
    """All tensors of a bundle that hold floats, under their own names."""
    bundle = open_bundle(index)
    found = {}
    with BundleReader(bundle) as reader:
        for name, info in bundle.tensors.items():
            raw = np.empty(info.end - info.start, np.uint8)
            reader.read(name, raw)
            if info.dtype == "F32":
                found[name] = raw.view("<f4").reshape(info.shape)
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_value_is_that_which_tensorflow_wrote(folder: str) -> None:
    index, heads, seed = FOLDERS[folder]
    assert find_index(GOLDEN / folder) == GOLDEN / folder / index
    found, wanted = read(GOLDEN / folder / index), SCRIPT.values(heads, seed)
    assert wanted.keys() == {name for name in found if not name.endswith(("/adam_m", "/adam_v"))}
    for name, value in wanted.items():
        assert np.array_equal(found[name].view(np.uint32), value.view(np.uint32)), name
    assert not np.array_equal(found["bert/pooler/dense/kernel"], found["bert/pooler/dense/kernel"].T)  # control


def test_a_saved_model_is_read_by_the_names_of_its_variables() -> None:
    archive = open_archive(GOLDEN / "hub" / "variables" / "variables.index")
    variables = SCRIPT.hub_variables(SCRIPT.values("pretraining", 5))
    assert {origin.variable for origin in archive.origins.values()} == variables.keys()
    with ArchiveReader(archive) as reader:
        for name, origin in archive.origins.items():
            assert np.array_equal(reader.variable(name), variables[origin.variable]), name


def outputs(model: torch.nn.Module) -> dict[str, np.ndarray]:
    expected = np.load(GOLDEN / "expected.npz")
    ids, segments = (torch.tensor(expected[name]) for name in ("ids", "segments"))
    with torch.inference_mode():
        found = model(ids, token_type_ids=segments, output_hidden_states=True)
    named = {f"hidden_{number}": state for number, state in enumerate(found.hidden_states)}
    names = {
        "pooled_output": "pooler_output",
        "prediction_logits": "prediction_logits",
        "relationship_logits": "seq_relationship_logits",
    }
    named |= {theirs: found[ours] for theirs, ours in names.items() if ours in found.keys()}  # noqa: SIM118
    return {name: value.numpy() for name, value in named.items()}


@pytest.mark.parametrize("zipped", [False, True])
def test_the_original_archive_computes_what_tensorflow_computed(zipped: bool, tmp_path: Path) -> None:
    source = GOLDEN / "original"
    if zipped:
        source = tmp_path / "uncased_L-2_H-8_A-2.zip"
        with zipfile.ZipFile(source, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in (GOLDEN / "original").iterdir():
                archive.write(file, f"uncased_L-2_H-8_A-2/{file.name}")
    done = convert(source, tmp_path / "bert")
    assert done.model == "BertForPreTraining"
    assert done.num_tensors == len(SCRIPT.shapes("pretraining"))
    found = outputs(BertForPreTraining.from_pretrained(tmp_path / "bert"))
    found |= outputs(BertModel.from_pretrained(tmp_path / "bert"))
    expected = np.load(GOLDEN / "expected.npz")
    assert len(found) == 6
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[f"original/{name}"], atol=1e-5, rtol=0, err_msg=name)
    assert BertTokenizer.from_pretrained(tmp_path / "bert").tokenize("The River") == ["the", "river"]


def test_a_saved_model_computes_what_tensorflow_computed(tmp_path: Path) -> None:
    done = convert(GOLDEN / "hub", tmp_path / "bert")
    assert any("gelu_new" in note for note in done.notes)
    assert any("lower-cases, as the checkpoint says" in note for note in done.notes)
    model = BertModel.from_pretrained(tmp_path / "bert")
    assert model.config.num_attention_heads == 2
    expected = np.load(GOLDEN / "expected.npz")
    for name, value in outputs(model).items():
        np.testing.assert_allclose(value, expected[f"hub/{name}"], atol=1e-5, rtol=0, err_msg=name)


def test_an_albert_computes_what_tensorflow_computed(tmp_path: Path, shared: Path) -> None:
    source = tmp_path / "albert_tiny"
    shutil.copytree(GOLDEN / "albert", source)
    done = convert(source, tmp_path / "without")
    assert any("no vocabulary" in note for note in done.notes)
    found = outputs(BertForPreTraining.from_pretrained(tmp_path / "without"))
    found |= outputs(BertModel.from_pretrained(tmp_path / "without"))
    expected = np.load(GOLDEN / "expected.npz")
    assert len(found) == 6
    for name, value in found.items():
        np.testing.assert_allclose(value, expected[f"albert/{name}"], atol=1e-5, rtol=0, err_msg=name)
    (source / "30k-clean.model").symlink_to(shared / "data" / "vocab" / "albert-spiece.model")
    with pytest.raises(CheckpointError, match="the tokenizer belongs to another model"):
        convert(source, tmp_path / "new")  # 30,000 pieces for 24 rows
    (source / "albert_config.json").rename(source / "bert_config.json")
    with pytest.raises(CheckpointError, match=r"no albert_config\.json in"):
        convert(source, tmp_path / "new")
    (tmp_path / "c.json").write_text('{"model_type": "bert"}')
    with pytest.raises(CheckpointError, match="for the bert family, the variables are of albert"):
        convert(source, tmp_path / "new", overrides=Overrides(config=tmp_path / "c.json"))


@pytest.mark.parametrize("place", ["vocab.txt", "vocab_chinese.txt", "given"])
def test_an_albert_with_a_list_of_word_pieces(place: str, tmp_path: Path) -> None:
    """As the Chinese models: ALBERT's variables, BERT's tokenizer."""
    source = tmp_path / "albert_tiny_zh"
    shutil.copytree(GOLDEN / "albert", source)
    words = GOLDEN / "original" / "vocab.txt"
    if place != "given":
        shutil.copy(words, source / place)
    done = convert(source, tmp_path / "new", overrides=Overrides(vocab=words if place == "given" else None))
    assert done.fingerprint.sentence is not None
    assert "the tokenizer lower-cases, because its vocabulary has no capitals" in done.notes
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "new")
    assert type(tokenizer) is BertTokenizer
    assert tokenizer.tokenize("The River") == ["the", "river"]


def test_a_zip_of_a_saved_model(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "hub.zip", "w") as archive:
        for file in sorted((GOLDEN / "hub").rglob("*")):
            archive.write(file, file.relative_to(GOLDEN / "hub"))
    assert convert(tmp_path / "hub.zip", tmp_path / "bert").num_tensors == 39


def test_a_fine_tuned_classifier_is_the_latest_one_without_its_optimizer(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no bert_config\.json in .*give --config"):
        convert(GOLDEN / "classifier", tmp_path / "c")
    done = convert(GOLDEN / "classifier", tmp_path / "c", overrides=Overrides(config=CONFIG))
    assert done.dropped == {"optimizer variables": 2 * 41, "bookkeeping variables": 1}
    model = BertForSequenceClassification.from_pretrained(tmp_path / "c")
    assert model.config.num_labels == 3
    assert np.array_equal(model.classifier.weight.detach(), SCRIPT.values("classifier", 3)["output_weights"])
    named = GOLDEN / "classifier" / "model.ckpt-0"
    convert(named, tmp_path / "first", overrides=Overrides(config=CONFIG, model_class="BertForTokenClassification"))
    weights = SCRIPT.values("classifier", 2)["output_weights"]
    from bertkit import BertForTokenClassification

    tagger = BertForTokenClassification.from_pretrained(tmp_path / "first")
    assert np.array_equal(tagger.classifier.weight.detach(), weights)
    with pytest.raises(CheckpointError, match=r"is a tagger .*, not a text classifier"):
        BertForSequenceClassification.from_pretrained(tmp_path / "first")


def test_a_fine_tuned_answerer(tmp_path: Path) -> None:
    convert(GOLDEN / "squad", tmp_path / "s", overrides=Overrides(config=CONFIG))
    model = BertForQuestionAnswering.from_pretrained(tmp_path / "s")
    assert np.array_equal(model.qa_outputs.weight.detach(), SCRIPT.values("squad", 4)["cls/squad/output_weights"])


def test_transformers_loads_the_result_equal(tmp_path: Path) -> None:
    import transformers

    convert(GOLDEN / "original", tmp_path / "bert")
    theirs = transformers.BertForPreTraining.from_pretrained(tmp_path / "bert").eval()
    ours = BertForPreTraining.from_pretrained(tmp_path / "bert")
    ids = torch.tensor(np.load(GOLDEN / "expected.npz")["ids"])
    with torch.inference_mode():
        torch.testing.assert_close(ours(ids).prediction_logits, theirs(ids).prediction_logits, atol=1e-5, rtol=0)


@pytest.mark.campaign
def test_tensorflow_writes_the_same_again(tmp_path: Path) -> None:
    """Needs BERTKIT_TENSORFLOW_PYTHON: an interpreter that has TensorFlow; see golden/tensorflow/write_golden.py."""
    python = os.environ.get("BERTKIT_TENSORFLOW_PYTHON")
    if python is None:
        pytest.skip("set BERTKIT_TENSORFLOW_PYTHON to an interpreter with TensorFlow")
    subprocess.run([python, str(GOLDEN / "write_golden.py"), str(tmp_path)], check=True, capture_output=True)
    for folder, (index, _, _) in {**FOLDERS, "hub": ("variables/variables.index", "", 0)}.items():
        again, kept = read(tmp_path / folder / index), read(GOLDEN / folder / index)
        assert again.keys() == kept.keys()
        assert all(np.array_equal(value, kept[name]) for name, value in again.items())
    again, kept = np.load(tmp_path / "expected.npz"), np.load(GOLDEN / "expected.npz")
    assert set(again) == set(kept)
    assert all(np.allclose(again[name], kept[name], atol=1e-5) for name in kept)
