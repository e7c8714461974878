"""Fine-tuning with LoRA adapters, beyond what every kind of run shows: every kind of task and use of the result."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import bertkit
from adapter_helpers import PREFIX, by_hand
from bertkit import pipeline
from bertkit.checkpoints.sentence_folder import is_sentence_folder
from bertkit.cli import main
from bertkit.config.bert_config import BertConfig
from bertkit.config.encoder_decoder_config import BartConfig, T5Config
from bertkit.errors import CheckpointError
from bertkit.inference.evaluate import evaluate_run
from bertkit.inference.runs import open_run
from bertkit.tasks import csv_task
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.model_card import _ADAPTERS
from finetune_data import BAD, GOOD, QUICK, labelled_texts, tiny_start, write_heads_data, write_splits
from kinds_data import LISTED, encoder_decoder

LORA: dict[str, Any] = {**QUICK, "lora": 4, "learning_rate": 1e-2}
KIND = "adapters"
TEXTS = ["the film was good and lovely", "a sad day", "it is a book"]


def answers(model: Path) -> list[dict[str, Any]]:
    found = pipeline("text-classification", model=model, device="cpu", precision="fp32")(TEXTS)
    assert isinstance(found, list)
    return found


def same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    return all(
        a["label"] == b["label"] and abs(a["score"] - b["score"]) < 1e-5 for a, b in zip(one, other, strict=True)
    )


# ------------------------------------------------------------------------------------- a run and its uses


def test_a_run_says_what_was_trained(run: Path, start: Path) -> None:
    tensors = load_file(run / "adapter_model.safetensors")
    assert all(name.endswith((".lora_A.weight", ".lora_B.weight")) for name in tensors if "classifier" not in name)
    trained = sum(tensor.numel() for tensor in tensors.values())
    protocol = json.loads((run / "metrics.json").read_text())["protocol"]
    assert protocol["what_is_trained"].startswith(f"LoRA of rank 4 on all linear layers, and the head: {trained:,} of ")
    card = (run / "README.md").read_text()
    assert protocol["what_is_trained"] in card
    assert _ADAPTERS in card
    assert json.loads((run / "adapter_config.json").read_text())["base_model_name_or_path"] == str(start)


def test_every_use_of_a_model_takes_the_run(run: Path, data: Path, tmp_path: Path) -> None:
    """Merged, asked in C and in torch; the control is the start checkpoint with the run's head."""
    scores = json.loads((run / "metrics.json").read_text())["scores"]
    assert main(["convert", str(run), str(tmp_path / "merged"), "-q"]) == 0
    assert same(answers(tmp_path / "merged"), answers(run))
    merged = evaluate_run(csv_task(data), data, tmp_path / "merged")
    assert merged.scores["loss"] == pytest.approx(scores["loss"], abs=1e-5)
    assert open_run(tmp_path / "merged").max_length == open_run(run).max_length
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(TEXTS) + "\n")
    for command in (
        ["predict", str(lines), "--model", str(run), "--out", str(tmp_path / "o.jsonl")],
        ["inspect", str(run)],
    ):
        assert main([*command, *(["-q"] if command[0] != "inspect" else [])]) == 0, command
    plain = bertkit.BertForSequenceClassification.from_pretrained(run)
    without = bertkit.BertForSequenceClassification.from_pretrained(
        json.loads((run / "adapter_config.json").read_text())["base_model_name_or_path"], num_labels=2
    )
    without.classifier.load_state_dict(plain.classifier.state_dict())
    given = bertkit.AutoTokenizer.from_pretrained(run)(TEXTS, padding=True, return_tensors="pt")
    assert float((without(**given).logits - plain(**given).logits).abs().max()) > 0.1


@pytest.mark.campaign
def test_it_is_exported_and_trained_on(run: Path, data: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    assert main(["export", str(run), "--out", str(tmp_path / "graph"), "-q"]) == 0
    exported = pipeline("text-classification", model=tmp_path / "graph")(TEXTS)
    assert same(exported, answers(run))
    config = FinetuneConfig(**{**QUICK, "epochs": 1})
    result = finetune(csv_task(data), data, run, tmp_path / "more", config, cache=None)
    assert result.scores["accuracy"] > 0.8, "it begins where the adapters ended"
    assert (tmp_path / "more/model.safetensors").is_file()
    with pytest.raises(CheckpointError, match=r"is an adapter.*\n.*bertkit convert"):
        finetune(csv_task(data), data, run, tmp_path / "again", FinetuneConfig(**LORA), cache=None)


def test_a_run_without_its_start_checkpoint_says_what_is_missing(run: Path, start: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "moved")
    settings = json.loads((tmp_path / "moved/adapter_config.json").read_text())
    gone = {**settings, "base_model_name_or_path": str(tmp_path / "gone")}
    (tmp_path / "moved/adapter_config.json").write_text(json.dumps(gone))
    with pytest.raises(CheckpointError, match=r"which is not there.*change base_model_name_or_path in"):
        open_run(tmp_path / "moved")
    tiny_start(tmp_path / "gone", width=32)
    weights = tmp_path / "gone/model.safetensors"
    other = bertkit.BertModel.from_pretrained(tmp_path / "gone")
    torch.nn.init.normal_(other.encoder.layer[0].ffn_up.weight)
    other.save_pretrained(tmp_path / "gone")
    with pytest.raises(CheckpointError, match="trained on other weights"):
        open_run(tmp_path / "moved")
    shutil.copy(start / "model.safetensors", weights)
    assert same(answers(tmp_path / "moved"), answers(run))


# --------------------------------------------------------------------------------------------- training


def test_every_kind_of_task(start: Path, tmp_path: Path) -> None:
    write_heads_data(tmp_path)
    config = FinetuneConfig(**{**LORA, "epochs": 1, "batch_size": 8}, lora_targets="query, value", keep="all")
    heads = {"ner": "classifier", "squad": "qa_outputs", "swag": "classifier"}
    pipes = {"ner": "token-classification", "squad": "question-answering", "swag": "multiple-choice"}
    for name, head in heads.items():
        out = tmp_path / f"run-{name}"
        finetune(name, tmp_path / name, start, out, config, cache=None)
        names = set(load_file(out / "adapter_model.safetensors"))
        assert {f"{PREFIX}{head}.weight", f"{PREFIX}bert.encoder.layer.0.attention.self.value.lora_B.weight"} <= names
        assert not any("key" in each or "dense" in each for each in names)
        pipeline(pipes[name], model=out, device="cpu")


@pytest.mark.slow
def test_vectors_and_rerankers(start: Path, tmp_path: Path) -> None:
    """A sentence model is an encoder with adapters, and what follows it in files of its own; one of peft's has none."""
    pairs = [{"text": f"the {one} film", "text_pair": f"a {other} film"} for one in GOOD + BAD for other in GOOD[:2]]
    ranked = [
        {"query": f"{word} film", "positive": [f"a {word} film"], "negative": ["a book", "the day"]}
        for word in GOOD + BAD
    ]
    for name, rows in (("pairs", pairs), ("rerank", ranked)):
        for split in ("train", "dev"):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        config = FinetuneConfig(**{**LORA, "batch_size": 4})
        finetune(name, tmp_path / name, start, tmp_path / f"run-{name}", config, cache=None)
        assert (tmp_path / f"run-{name}/adapter_config.json").is_file()
    found = bertkit.SentenceEncoder(tmp_path / "run-pairs").encode(TEXTS)
    assert main(["convert", str(tmp_path / "run-pairs"), str(tmp_path / "merged"), "-q"]) == 0
    merged = bertkit.SentenceEncoder(tmp_path / "merged").encode(TEXTS)
    plain = bertkit.SentenceEncoder(start).encode(TEXTS)
    assert abs(found - merged).max() < 1e-5
    assert abs(found - plain).max() > 0.05
    shutil.copytree(tmp_path / "merged", tmp_path / "base")
    (tmp_path / "base/1_Pooling/config.json").write_text(
        '{"word_embedding_dimension": 32, "pooling_mode_max_tokens": true}'
    )
    by_hand(tmp_path / "peft", tmp_path / "base", modules={}, head={}, task_type="FEATURE_EXTRACTION")
    assert abs(bertkit.SentenceEncoder(tmp_path / "peft").encode(TEXTS) - merged).max() > 0.05, (
        "pools as its model does"
    )
    by_hand(tmp_path / "labels", tmp_path / "base", modules={}, head={})
    assert not is_sentence_folder(tmp_path / "labels")


@pytest.mark.slow
@pytest.mark.parametrize("family", [pytest.param("bart", marks=pytest.mark.campaign), "t5"])
def test_texts_to_texts(family: str, tmp_path: Path) -> None:
    words = LISTED[:6]
    folder = encoder_decoder(tmp_path / "start", words, family, width=16, ffn=24, layers=1, heads=2, longest=64)
    rows = "".join(json.dumps({"source": f"{a} {b}", "target": f"{b} {a}"}) + "\n" for a in words for b in words)
    for split in ("train", "dev"):
        (tmp_path / f"{split}.jsonl").write_text(rows)
    config = FinetuneConfig(lora=4, epochs=2, batch_size=8, max_target_length=8, baseline=False, precision="fp32")
    finetune("text2text", tmp_path, folder, tmp_path / "run", config, cache=None)
    assert {file.name for file in (tmp_path / "run").glob("*.safetensors")} == {"adapter_model.safetensors"}
    predicted = [json.loads(line) for line in (tmp_path / "run/predictions-dev.jsonl").read_text().splitlines()]
    pipe = pipeline("text2text-generation", model=tmp_path / "run", device="cpu")
    assert [row["generated_text"] for row in pipe([line["source"] for line in predicted[:6]])] == [
        line["predicted"] for line in predicted[:6]
    ]
    assert main(["convert", str(tmp_path / "run"), str(tmp_path / "merged"), "-q"]) == 0
    merged = pipeline("text2text-generation", model=tmp_path / "merged", device="cpu")
    assert merged(TEXTS[0]) == pipe(TEXTS[0])
    if family == "bart":  # which labels texts, too
        data = write_splits(tmp_path / "labelled", labelled_texts(24, 1), labelled_texts(8, 2))
        config = FinetuneConfig(**{**LORA, "epochs": 1})
        finetune(csv_task(data), data, folder, tmp_path / "labels", config, cache=None)
        modules = json.loads((tmp_path / "labels/adapter_config.json").read_text())["modules_to_save"]
        assert modules == ["classification_head"]
        answers(tmp_path / "labels")


def test_pooled_by_the_mean_no_other_software_finds_the_adapters(start: Path, data: Path, tmp_path: Path) -> None:
    config = FinetuneConfig(**{**LORA, "epochs": 1}, pooling="mean")
    finetune(csv_task(data), data, start, tmp_path / "run", config, cache=None)
    assert {file.name for file in (tmp_path / "run").glob("*.safetensors")} == {"adapter_model-pooled.safetensors"}
    assert main(["convert", str(tmp_path / "run"), str(tmp_path / "merged"), "-q"]) == 0
    assert same(answers(tmp_path / "merged"), answers(tmp_path / "run"))


# --------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("shape", "rate"),
    [
        (BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12), 1e-3),
        (BertConfig(), 3e-4),
        (BertConfig(hidden_size=1024, num_attention_heads=16), 2e-4),
        (BartConfig(), 3e-4),
        (T5Config(decoder_start_token_id=0), 1e-3),
    ],
)
def test_the_rate_is_ten_times_that_of_the_whole_model_and_no_more_than_was_ever_used(shape: Any, rate: float) -> None:
    head = "sequence" if isinstance(shape, BertConfig) else "text"
    found = FinetuneConfig(lora=8).resolved(model=shape, num_train_rows=100, head=head)
    assert found.learning_rate == pytest.approx(rate)


def test_an_unknown_layer_is_refused_before_anything_is_encoded(
    start: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--data", str(data), "--model", str(start), "--out", str(tmp_path / "run"), "--device", "cpu"]
    assert main(["finetune", "csv", *where, "--lora", "2", "--lora-targets", "query,valeu"]) == 2
    said = capsys.readouterr().err
    assert (
        "--lora-targets: no linear layer is called 'valeu' (did you mean 'value'?); this model has dense, key" in said
    )
    assert "data of task" not in said
    assert not (tmp_path / "run").exists()
