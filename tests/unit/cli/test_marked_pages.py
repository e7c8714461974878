"""Pages with entities and answers marked, from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bertkit.cli import main
from bertkit.config.bert_config import BertConfig
from bertkit.model.models import BertForQuestionAnswering, BertForTokenClassification
from bertkit.tokenization import BertTokenizer

pytestmark = pytest.mark.slow

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] ann lee flew to rome who where ?".split()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "words.txt").write_text("\n".join(WORDS) + "\n")
    BertTokenizer(vocab_file=tmp_path / "words.txt").save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def config(**labels: dict[int, str]) -> BertConfig:
    torch.manual_seed(0)
    return BertConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        **labels,
    )


def test_entities_are_marked_on_a_page(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = BertForTokenClassification(config(id2label={0: "O", 1: "B-PER"}))
    with torch.no_grad():
        model.classifier.bias[1] = 9.0
    model.save_pretrained(folder)
    out = tmp_path / "page.html"
    texts = ["Ann Lee flew to <Rome>", "Who?"]
    assert main(["tag", *texts, "--model", str(folder), "--out", str(out)]) == 0
    page = out.read_text()
    assert "Ann Lee flew" in capsys.readouterr().out
    assert page.count("PER ") >= 2
    assert "&lt;" in page
    assert "<Rome>" not in page
    assert main(["tag", *texts, "--model", str(folder), "--out", str(tmp_path / "page.txt")]) == 2
    assert not (tmp_path / "page.txt").exists()


def test_answers_are_marked_on_a_page(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    BertForQuestionAnswering(config()).save_pretrained(folder)
    out = tmp_path / "page.html"
    command = ["answer", "Who?", "Where?", "--context", "Ann Lee flew to Rome", "--model", str(folder)]
    assert main([*command, "--out", str(out)]) == 0
    assert capsys.readouterr().out.count("\n") == 2, "answers are printed, too"
    page = out.read_text()
    assert page.index("<h2>Who?</h2>") < page.index("<h2>Where?</h2>")
    assert page.count("<mark") == 2
    assert main([*command, "--out", str(tmp_path / "page.json")]) == 2
    assert "--out needs --file" in capsys.readouterr().err
