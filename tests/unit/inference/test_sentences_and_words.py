"""A folder that is two things: an encoder of sentences, and with its masked-LM head a model that guesses words.

It is stored in 16 bits and computed in 32. ``bertkit-tiny-en`` is such a folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from safetensors.torch import load_file, save_file

from bertkit import AutoTokenizer, BertForMaskedLM, BertModel, SentenceEncoder, pipeline
from bertkit.checkpoints.sentence_folder import MODULES
from bertkit.checkpoints.weight_files import POOLED_WEIGHTS
from bertkit.cli import main
from bertkit.config.sentence_config import Normalize
from bertkit.errors import CheckpointError
from bertkit.export.onnx_export import export_onnx, load_for_export
from bertkit.inference.zero_shot.label_vectors import LabelVectorsPipeline
from bertkit.inference.zero_shot.mask_pattern import MaskPatternPipeline
from bertkit.system import model_sources
from bertkit.tasks import get_task
from bertkit.tasks.workflow import workflow_of
from bertkit.training.distillation.shrink import shrink
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from finetune_data import no_pictures
from pipeline_helpers import save_tiny
from sentence_folders import pooling, sentence_folder

TEXTS = ["a good film", "it was dull"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("both") / "model"
    sentence_folder(made, [pooling("mean"), ("Normalize", {})], {"prompts": {}}, model_class=BertForMaskedLM)
    halves = {name: tensor.half() for name, tensor in load_file(made / "model.safetensors").items()}
    save_file(halves, made / "model.safetensors", {"format": "pt"})
    return made


def test_both_are_computed_in_32_bits(folder: Path) -> None:
    model = BertForMaskedLM.from_pretrained(folder)
    stored = load_file(folder / "model.safetensors")
    table = model.get_input_embeddings().weight
    assert {tensor.dtype for tensor in stored.values()} == {torch.float16}
    assert {tensor.dtype for tensor in model.parameters()} == {torch.float32}
    assert torch.equal(table, stored["bert.embeddings.word_embeddings.weight"].float())
    encoder, tokenizer = BertModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert encoder.load_report is not None
    assert encoder.load_report.unused, "the head is listed, not an error"
    found = SentenceEncoder(folder, precision="fp32").encode(TEXTS)
    for text, vector in zip(TEXTS, found, strict=True):
        ids = tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            states, logits = model.bert(**ids).last_hidden_state[0], model(**ids).logits[0]
        assert_allclose(vector, (states.mean(0) / states.mean(0).norm()).numpy(), atol=1e-6)
        assert logits.dtype == torch.float32
    (guess,) = pipeline("fill-mask", model=folder, precision="fp32")("a [MASK] film", top_k=1)
    ids = tokenizer("a [MASK] film", return_tensors="pt")
    with torch.inference_mode():
        chances = model(**ids).logits[0, 2].softmax(-1)
    assert (guess["token"], guess["score"]) == (int(chances.argmax()), pytest.approx(float(chances.max()), rel=1e-4))


def test_the_task_chooses_the_half(folder: Path) -> None:
    assert pipeline(model=folder).task == "fill-mask"
    assert isinstance(pipeline("zero-shot-classification", model=folder), LabelVectorsPipeline)
    assert isinstance(pipeline("zero-shot-classification", model=folder, method="pattern"), MaskPatternPipeline)


def test_it_stays_both_when_it_shrinks(folder: Path, tmp_path: Path) -> None:
    shrink(folder, tmp_path / "small", layers="1")
    shrunk = SentenceEncoder(tmp_path / "small", precision="fp32")
    assert shrunk.config.steps == (Normalize(),)
    encoder = BertForMaskedLM.from_pretrained(tmp_path / "small").bert
    with torch.inference_mode():
        states = encoder(**shrunk.tokenizer(TEXTS[0], return_tensors="pt")).last_hidden_state[0].mean(0)
    assert_allclose(shrunk.encode(TEXTS[0]), (states / states.norm()).numpy(), atol=1e-6)


@pytest.mark.campaign
@pytest.mark.slow
def test_an_export_is_one_of_the_two(folder: Path, tmp_path: Path) -> None:
    """A graph has the outputs of one class: words have nothing to pool."""
    assert load_for_export(folder, "feature-extraction").sentence is not None
    given = load_for_export(folder)
    export_onnx(given.model, given.tokenizer, tmp_path / "words", check=False, sentence=given.sentence)
    assert not (tmp_path / "words" / MODULES).exists()
    guesses = [pipeline("fill-mask", model=place)("a [MASK] film")[0] for place in (folder, tmp_path / "words")]
    assert guesses[0]["token"] == guesses[1]["token"]


def test_sparse_vectors_start_from_its_head(folder: Path) -> None:
    """Its modules make dense vectors, so they say nothing of sparse ones; only what was trained so makes those."""
    workflow = workflow_of(get_task("sparse-pairs"))
    settings = workflow.settings_for(folder, FinetuneConfig())
    model: Any = workflow.new_model(folder, seed=0, device=None, settings=settings)
    assert torch.equal(model.network.cls.predictions.bias, BertForMaskedLM.from_pretrained(folder).cls.predictions.bias)
    with pytest.raises(CheckpointError, match="lists the modules Transformer, Pooling, Normalize"):
        pipeline("sparse-encoding", model=folder)


@pytest.mark.slow
def test_training_from_it_is_in_32_bits(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "rows.csv"
    rows = [f"{text} {number},{label}" for number in range(6) for text, label in (("good", "a"), ("dull", "b"))]
    data.write_text("text,label\n" + "\n".join(rows) + "\n")
    given = ["--model", str(folder), "--data", str(data), "--epochs", "1", "--batch-size", "4", "--restarts", "0", "-q"]
    with no_pictures():
        assert main(["finetune", "csv", *given, "--out", str(tmp_path / "run")]) == 0
    trained = load_file(tmp_path / "run" / POOLED_WEIGHTS)
    assert {tensor.dtype for tensor in trained.values()} == {torch.float32}
    name = "bert.encoder.layer.0.output.dense.weight"
    before = load_file(folder / "model.safetensors")[name].float()
    change = (trained[name] - before).abs().max()
    assert 0 < change < 0.01, "it began with the stored weights, and its steps are finer than 16 bits have them"
    assert not torch.equal(trained[name].half().float(), trained[name])
    assert json.loads((tmp_path / "run" / "config.json").read_text())["pooling"] == "mean"


def test_without_a_model_the_included_one_is_taken_and_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(model_sources, "INCLUDED_FOLDER", folder)
    texts = (TEXTS[0], "a [MASK] film")
    for task, text in (("feature-extraction", texts[0]), ("fill-mask", texts[1])):
        found = pipeline(task)(text)
        said = capsys.readouterr().err
        assert said == f"no model given: using bertkit-tiny-en, the small included model, for {task}\n"
        assert_array_equal(np.asarray(found), np.asarray(pipeline(task, model="bertkit-tiny-en")(text)))
        assert capsys.readouterr().err == "", "control: nothing is said where a model is given"


def test_control_a_plain_encoder_has_no_words(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="masked-lm head"):
        pipeline("fill-mask", model=save_tiny(tmp_path / "encoder"))
