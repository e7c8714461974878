"""BART and T5 from text to a model that writes: they learn from their source, and every other command takes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers

from bertkit.cli import main
from bertkit.model.seq2seq.conditional_generation import AutoModelForSeq2SeqLM
from bertkit.tokenization import AutoTokenizer
from bertkit.training.pretraining.pretrain import pretrain
from denoising_runs import BLIND, blind, make_stores, settings, shape_of
from store_families import DOCUMENTS, write_corpus
from tokenizer_families import small

STEPS = {"t5": 80, "bart": 150, "mbart": 150}


def held_out_loss(family: str, folder: Path) -> tuple[float, float]:
    """After some seconds of training; and the unigram entropy."""
    train, dev = make_stores(family, folder, 2000)
    config = settings(family, max_steps=STEPS[family], dropout=0.0, checkpoint_every_s=60)
    result = pretrain(train, folder / "run", config, model=shape_of(family, train), dev=dev)
    return result.scores["denoising_loss"], result.unigram_entropy


@pytest.mark.campaign
@pytest.mark.parametrize("family", ["t5", "bart", "mbart"])
def test_it_learns_what_the_source_says(family: str, tmp_path: Path) -> None:
    loss, unigram = held_out_loss(family, tmp_path)
    assert loss < 0.7 * BLIND[family]
    assert loss < 0.33 * unigram


@pytest.mark.campaign
@pytest.mark.parametrize("family", ["t5", "bart"])
def test_without_cross_attention_it_does_not(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a decoder that does not see the source learns all that can be known without it, and no more."""
    blind(monkeypatch)
    loss, unigram = held_out_loss(family, tmp_path)
    assert 0.97 * BLIND[family] < loss < 0.8 * unigram


#: Small models as recipes.
RECIPES = {
    "t5": 'preset = "t5-efficient-tiny"\nd_model = 32\nd_ff = 64\nnum_layers = 1\nnum_heads = 2',
    "bart": 'preset = "bart-base"\nd_model = 32\nmax_position_embeddings = 64\n'
    + "\n".join(
        f"{half}_layers = 1\n{half}_attention_heads = 2\n{half}_ffn_dim = 64" for half in ("encoder", "decoder")
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", RECIPES)
def test_from_text_to_every_other_command(
    family: str, shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small("roberta" if family == "bart" else family, shared, tmp_path).save_pretrained(tmp_path / "tokenizer")
    text = write_corpus(tmp_path / "text.txt", DOCUMENTS * 6)
    (tmp_path / "mine.toml").write_text(f"# Small.\n[model]\n{RECIPES[family]}\n[training]\nmax_seq_length = 48\n")
    store, run, tuned = tmp_path / "store", tmp_path / "run", tmp_path / "tuned"
    data = tmp_path / "data.jsonl"
    data.write_text(
        "".join(json.dumps({"text": f"the river {n}", "summary": f"river {n % 2}"}) + "\n" for n in range(20))
    )

    def told(*words: object) -> str:
        assert main([*map(str, words), "--quiet"]) == 0, words
        return capsys.readouterr().out

    told("prepare", text, "--tokenizer", tmp_path / "tokenizer", "--out", store, "--sentences", "line", "--workers", 1)
    options = ["--max-steps", 3, "--batch-size", 8, "--no-curve", "--device", "cpu", "--dev", store]
    scores = json.loads(told("pretrain", store, "--recipe", tmp_path / "mine.toml", *options, "--out", run, "--json"))
    assert scores["steps"] == 3
    assert scores["denoising_loss"] > 0
    assert f"{scores['denoising_loss']:.4f}" in told(
        "pretrain", store, "--recipe", tmp_path / "mine.toml", *options, "--out", run
    )
    head = {"t5": "T5ForConditionalGeneration", "bart": "BartForConditionalGeneration"}[family]
    assert json.loads(told("inspect", run / "model", "--json"))["classes"][head] == "exact"
    assert told("generate", "--model", run / "model", "The old mill", "--max-new-tokens", 4, "--json")
    # Continued, by the command that a user of a published checkpoint gives.
    told("pretrain", store, "--model", run / "model", *options, "--out", tmp_path / "on", "--max-seq-length", 48)
    start = json.loads((tmp_path / "on" / "metrics.json").read_text())["start"]
    assert (start["source"], start["new_parts"]) == (str(run / "model"), [])
    where = ["--data", data, "--model", tmp_path / "on" / "model", "--out", tuned]
    told(
        "finetune",
        "summarize",
        *where,
        "--epochs",
        1,
        "--max-target-length",
        8,
        "--source",
        "text",
        "--target",
        "summary",
    )
    assert (tuned / "model.safetensors").exists()
    # And by other software, which computes the same.
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(run / "model").eval()
    ours = AutoModelForSeq2SeqLM.from_pretrained(run / "model")
    ids = AutoTokenizer.from_pretrained(run / "model")("The old mill", return_tensors="pt")["input_ids"]
    assert torch.equal(
        ids, transformers.AutoTokenizer.from_pretrained(run / "model")("The old mill", return_tensors="pt")["input_ids"]
    )
    with torch.no_grad():
        assert torch.allclose(ours(ids, labels=ids).logits, theirs(ids, labels=ids).logits, atol=1e-5)


def test_adapting_says_what_to_do_instead(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train, _ = make_stores("t5", tmp_path)
    from bertkit import T5ForConditionalGeneration

    T5ForConditionalGeneration(shape_of("t5", train)).save_pretrained(tmp_path / "t5")  # type: ignore[arg-type]
    train.tokenizer().save_pretrained(tmp_path / "t5")
    (tmp_path / "data.csv").write_text("text,label\nash,y\nbay,n\n")
    command = ["adapt", "csv", "--data", str(tmp_path / "data.csv"), "--model", str(tmp_path / "t5")]
    assert main([*command, "--out", str(tmp_path / "run")]) != 0
    shown = " ".join(capsys.readouterr().err.split())
    assert "is an encoder-decoder, and 'bertkit adapt' trains encoders on masked words" in shown
    assert "bertkit pretrain STORE --model" in shown
