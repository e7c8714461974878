"""From a text file to a BERT that fills in words, with the commands a user types."""

from __future__ import annotations

import json

import pytest

from bertkit.cli import main

#: See ``conftest.py``.
DRAWS = True

SENTENCES = ["The cat sat on the mat.", "The dog ran under the tree.", "A red bird flew over the blue house."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretraining")
    documents = ["\n".join(SENTENCES[(first + n) % 3] for n in range(8)) for first in range(30)]
    (folder / "text.txt").write_text("\n\n".join(documents) + "\n")
    return folder


def run(capsys, *arguments: object) -> tuple[int, str, str]:
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_vocab_prepare_pretrain_fill_mask(folder, capsys) -> None:
    text, tokenizer, store, out = (folder / name for name in ("text.txt", "tokenizer", "store", "run"))
    assert run(capsys, "vocab", text, "--size", 1100, "--held-out", 0.1, "--out", tokenizer, "-q")[0] == 0
    assert run(capsys, "prepare", text, "--tokenizer", tokenizer, "--out", store, "--sentences", "line", "-q")[0] == 0
    code, shown, _ = run(capsys, "inspect", store)
    assert code == 0
    assert "documents    30\n" in shown
    assert "the cat sat on the mat." in shown
    settings = ["--preset", "bert-tiny", "--max-seq-length", 48, "--batch-size", 16, "--learning-rate", 3e-3]
    train = ["pretrain", store, *settings, "--max-steps", 60, "--dev", store, "--out", out, "-q"]
    code, shown, _ = run(capsys, *train, "--json")
    assert code == 0
    scores = json.loads(shown)
    assert scores["steps"] == 60
    assert scores["masked_lm_loss"] < 2.0  # a guess by frequency alone is above 2.3
    code, shown, _ = run(capsys, "fill-mask", "--model", out / "model", "--json", "The cat sat on the [MASK].")
    assert code == 0
    assert json.loads(shown.splitlines()[0])
    code, shown, _ = run(capsys, *train)  # finished: told again, not trained again
    assert code == 0
    assert f"{scores['masked_lm_loss']:.4f}" in shown
    assert f"{scores['unigram_entropy']:.4f}" in shown
    assert "of the measured matmul peak" in shown
    assert (out / "loss.png").read_bytes().startswith(b"\x89PNG")
    code, _, err = run(capsys, *train, "--no-resume")
    assert code == 2
    assert "already holds a run" in err


def test_errors_name_what_to_do(folder, capsys) -> None:
    code, _, err = run(capsys, "pretrain", folder / "nothing", "--preset", "bert-tiny", "--out", folder / "x")
    assert code == 3
    assert "nothing" in err
    code, _, err = run(capsys, "pretrain", folder / "nothing", "--out", folder / "x")
    assert code == 2
    assert "--preset" in err
    assert not (folder / "x").exists()
