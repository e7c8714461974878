"""BART and T5 from a file to a run folder, its scores, and what is generated with it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

import bertkit
from bertkit import pipeline
from bertkit.cli import main
from bertkit.errors import CheckpointError, ConfigError
from bertkit.inference.evaluate import evaluate_run
from bertkit.model.seq2seq.seq2seq_layers import CrossAttention
from bertkit.tokenization import BertTokenizer
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig

WORDS = "ash bay cod dew elm fig gem hay ivy jam kit log map nut oak pea".split()
#: Rate and epochs with which each family learns to reverse lists of words.
LEARNING: dict[str, dict[str, Any]] = {
    "bart": {"learning_rate": 2e-3, "epochs": 10},
    "t5": {"learning_rate": 4.5e-3, "epochs": 12},
}
SMALL: dict[str, Any] = {"batch_size": 64, "max_target_length": 16, "precision": "fp32", "patience": 0}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lists of two or three words, and the same reversed; no list of dev is in train."""
    folder, chance = tmp_path_factory.mktemp("reversed"), random.Random(0)
    lists: set[tuple[str, ...]] = set()
    while len(lists) < 2100:
        lists.add(tuple(chance.sample(WORDS, chance.randint(2, 3))))
    rows = [{"words": " ".join(words), "reversed": " ".join(reversed(words))} for words in sorted(lists)]
    chance.shuffle(rows)
    for name, part in (("train", rows[:2000]), ("dev", rows[2000:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    return folder


def untrained(family: str, folder: Path) -> Path:
    """A model of two layers each with a tokenizer of whole words."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(names) + "\n")
    BertTokenizer(folder / "vocab.txt", model_max_length=512).save_pretrained(folder)
    shape = {"vocab_size": len(names), "d_model": 64, "pad_token_id": 0, "eos_token_id": 3}
    torch.manual_seed(0)
    if family == "t5":
        sizes = {"d_kv": 16, "d_ff": 256, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}
        bertkit.T5ForConditionalGeneration(bertkit.T5Config(**shape, **sizes)).save_pretrained(folder)
        return folder
    tower = {"layers": 2, "ffn_dim": 256, "attention_heads": 4}
    sizes = {f"{name}_{key}": value for name in ("encoder", "decoder") for key, value in tower.items()}
    ids = {"bos_token_id": 2, "decoder_start_token_id": 3, "forced_eos_token_id": 3, "max_position_embeddings": 64}
    bertkit.BartForConditionalGeneration(bertkit.BartConfig(**shape, **sizes, **ids)).save_pretrained(folder)
    return folder


def columns(task: str = "text2text", **more: Any) -> Any:
    from dataclasses import replace

    from bertkit.tasks import Columns, get_task

    return replace(get_task(task), columns=Columns(text=("words",), label=("reversed",)), **more)  # type: ignore[type-var]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained("bart", tmp_path_factory.mktemp("start") / "bart")


@pytest.fixture(scope="module")
def run(start: Path, data: Path, once: Callable[..., Any]) -> Path:
    """A BART that has learned to reverse lists of words, by the command."""
    folder: Path = once("reverses-lists", lambda folder: learn(start, data, folder / "run"))
    return folder


def learn(start: Path, data: Path, out: Path) -> Path:
    rate, epochs = LEARNING["bart"].values()
    options = ["--learning-rate", rate, "--epochs", epochs, "--batch-size", 64, "--max-target-length", 16]
    where = ["--data", data, "--model", start, "--out", out, "--source", "words", "--target", "reversed"]
    assert main(["finetune", "text2text", *map(str, [*where, *options]), "--quiet"]) == 0
    return out


@pytest.mark.slow
def test_a_bart_learns_to_reverse_lists_that_it_has_not_seen(run: Path, data: Path) -> None:
    told = json.loads((run / "metrics.json").read_text())
    assert told["main_metric"] == "exact_match"
    assert told["mean"]["exact_match"] > 0.95
    assert told["baseline"]["metrics"]["exact_match"] < 0.05
    assert told["protocol"]["max_target_length"] == 16
    rows = [json.loads(line) for line in (run / "predictions-dev.jsonl").read_text().splitlines()]
    assert sum(row["gold"] == row["predicted"] for row in rows) / len(rows) == told["mean"]["exact_match"]
    again = evaluate_run(columns(), data, run, write=False)
    assert again.scores == pytest.approx(told["scores"], abs=1e-6)
    assert "pipeline" in (run / "README.md").read_text()


@pytest.mark.slow
def test_what_the_run_generates(run: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = pipeline(model=run)
    assert pipe(["oak pea", "ash bay cod"]) == [{"generated_text": "pea oak"}, {"generated_text": "cod bay ash"}]
    theirs = transformers.BartForConditionalGeneration.from_pretrained(run)
    ids = torch.tensor([pipe.tokenizer("ash bay cod")["input_ids"]])
    assert pipe.tokenizer.decode(theirs.generate(ids)[0], skip_special_tokens=True).strip() == "cod bay ash"
    assert theirs.generation_config.max_new_tokens == 16
    assert main(["generate", "--model", str(run), "oak pea"]) == 0
    assert capsys.readouterr().out == "pea oak\n"
    out = tmp_path / "out.jsonl"
    assert main(["predict", "--model", str(run), str(data / "dev.jsonl"), "--out", str(out)]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(rows) == 100
    assert sum(row["predicted"] == row["gold"] for row in rows) > 95


@pytest.mark.slow
def test_a_stopped_run_goes_on_and_ends_alike(start: Path, data: Path, tmp_path: Path) -> None:
    """Stopped after some steps and resumed, the weights are those of a run that was not."""
    config = FinetuneConfig(**{**SMALL, "epochs": 2, "learning_rate": 1e-3, "max_train_rows": 300, "num_beams": 2})
    finetune(columns(), data, start, tmp_path / "whole", config)

    class Stop(bertkit.training.trainer.callbacks.Callback):  # type: ignore[name-defined, misc]
        def on_step(self, trainer: Any, record: Any) -> None:
            if trainer.at.step == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        finetune(columns(), data, start, tmp_path / "parts", config, callbacks=[Stop()])
    finetune(columns(), data, start, tmp_path / "parts", config, resume=True)
    one, other = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "parts"))
    assert one == other


@pytest.mark.campaign
@pytest.mark.parametrize("family", ["bart", "t5"])
def test_without_cross_attention_nothing_is_learned(
    family: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T5 learns as BART does; a decoder that does not see the source only learns which words there are."""
    model = untrained(family, tmp_path / "start")
    config = FinetuneConfig(**SMALL, **LEARNING[family])
    if family == "t5":
        assert finetune(columns(), data, model, tmp_path / "run", config).mean["exact_match"] > 0.95
    right = CrossAttention.forward
    monkeypatch.setattr(CrossAttention, "forward", lambda self, *given, **more: 0 * right(self, *given, **more))
    blind = finetune(columns(), data, model, tmp_path / "blind", config)
    assert blind.mean["exact_match"] < 0.05


def test_what_makes_no_sense_is_refused(start: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    for settings, told in (
        ({"freeze_encoder": True}, "freeze_encoder is not for task text2text"),
        ({"layer_decay": 0.9}, "layer_decay is not for task text2text"),
        ({"class_weights": "balanced"}, "class_weights='balanced' has no effect"),
        ({"max_length": 65, "max_target_length": 64}, "max_length=65 but the model has 64 positions"),
        ({"max_target_length": 65}, "max_target_length=65 but the model has 64 positions"),
    ):
        with pytest.raises(ConfigError, match=told):
            finetune(columns(), data, start, out, FinetuneConfig(**settings))
    with pytest.raises(ConfigError, match="max_target_length=9 has no effect in task sst2"):
        finetune("sst2", data, start, out, FinetuneConfig(max_target_length=9))
    encoder = tmp_path / "encoder"
    shutil.copytree(start, encoder)
    (encoder / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(CheckpointError, match="task summarize needs a model that writes text"):
        finetune(columns("summarize"), data, encoder, out)
    assert not out.exists() or not any(out.iterdir())
