"""A model of every family in use: predictions of masked words, fine-tuning, and the result in other software."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import bertkit
from bertkit import pipeline
from bertkit.cli import main
from bertkit.tasks import csv_task
from bertkit.tokenization import BertTokenizer, DistilBertTokenizer, ElectraTokenizer
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from finetune_data import write_heads_data
from pipeline_helpers import TOLERANCES
from store_families import MASKED, checkpoint
from tokenizer_families import ENCODERS, small

WORDS = {"good": ["fine", "lovely", "great"], "bad": ["awful", "bad", "poor"]}
TEXTS = ["a fine film, a great play", "an awful book; poor!", "the play"]


@pytest.fixture(params=MASKED)
def start(request: pytest.FixtureRequest, shared: Path, tmp_path: Path) -> Path:
    """A small random masked-LM model of the family, with its tokenizer."""
    family, folder = request.param, tmp_path / "start"
    if family in ENCODERS:
        tokenizer: Any = small(family, shared, tmp_path, model_max_length=64)
    else:
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"the a an film play book".split(), *",.;!"]
        file = tmp_path / "words.txt"
        file.write_text("\n".join(dict.fromkeys([*words, *WORDS["good"], *WORDS["bad"]])) + "\n", encoding="utf-8")
        named: dict[str, type[BertTokenizer]] = {"distilbert": DistilBertTokenizer, "electra": ElectraTokenizer}
        tokenizer = named[family](vocab_file=file, model_max_length=64)
    return checkpoint(family, tokenizer, folder)


def write_csv(path: Path, seed: int) -> None:
    chance = np.random.default_rng(seed)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "other", "label"])
        for _ in range(24):
            label = str(chance.choice(["good", "bad"]))
            rows.writerow([f"the {chance.choice(WORDS[label])} film", "a play", label])


def test_words_and_fine_tuning(start: Path, tmp_path: Path) -> None:
    theirs = transformers.pipeline("fill-mask", model=str(start), device="cpu")
    for precision, tolerance in TOLERANCES.items():
        fill = pipeline("fill-mask", model=start, device="cpu", precision=precision)
        masked = f"the {fill.tokenizer.mask_token} film"
        for ours, other in zip(fill(masked, top_k=4), theirs(masked, top_k=4), strict=True):
            assert ours["token"] == other["token"]
            assert ours["score"] == pytest.approx(other["score"], abs=tolerance)
            assert (ours["token_str"], ours["sequence"]) == (other["token_str"], other["sequence"])

    for number, name in enumerate(("train", "dev")):
        write_csv(tmp_path / f"{name}.csv", number)
    task = csv_task(tmp_path, text="text", text_pair="other", label="label")
    settings = FinetuneConfig(epochs=1, batch_size=8, learning_rate=1e-3, max_length=24)
    finetune(task, tmp_path, start, tmp_path / "run", settings, cache=None)
    best = tmp_path / "run"
    ours = bertkit.AutoModelForSequenceClassification.from_pretrained(best)
    assert ours.load_report.new == ()
    again = transformers.AutoModelForSequenceClassification.from_pretrained(best).eval()
    told = bertkit.AutoTokenizer.from_pretrained(best)
    given = told(TEXTS, ["the play", "a film", "poor"], padding=True, return_tensors="pt")
    segments = "token_type_ids" in given  # theirs leaves ALBERT's out unless asked
    expected = transformers.AutoTokenizer.from_pretrained(best)(
        TEXTS, ["the play", "a film", "poor"], padding=True, return_tensors="pt", return_token_type_ids=segments
    )
    assert torch.equal(given["input_ids"], expected["input_ids"])
    with torch.no_grad():
        assert torch.allclose(ours(**given).logits, again(**expected).logits, atol=1e-5)
    classify = pipeline("text-classification", model=tmp_path / "run", device="cpu")
    assert {row["label"] for row in classify(TEXTS)} <= {"good", "bad"}


@pytest.mark.campaign
@pytest.mark.parametrize("start", ["modernbert", "deberta-v2", "mpnet"], indirect=True)
def test_an_export_answers_like_the_model(start: Path, tmp_path: Path) -> None:
    """Also for texts longer than a window, and than the distances that are told apart."""
    assert main(["export", str(start), "--out", str(tmp_path / "out"), "--variant", "both", "--quiet"]) == 0
    fill = pipeline("fill-mask", model=start, device="cpu", precision="fp32")
    exported = pipeline("fill-mask", model=tmp_path / "out")
    texts = [f"the {fill.tokenizer.mask_token} film", f"the {fill.tokenizer.mask_token} film {'a great play, ' * 6}"]
    for ours, other in zip(exported(texts, top_k=3), fill(texts, top_k=3), strict=True):
        assert [row["token"] for row in ours] == [row["token"] for row in other]
        assert [row["score"] for row in ours] == pytest.approx([row["score"] for row in other], abs=1e-5)


@pytest.mark.parametrize("start", ["modernbert", "deberta-v2", "mpnet"], indirect=True)
def test_every_kind_of_head_is_trained(start: Path, tmp_path: Path) -> None:
    """Tokens, spans and choices with all weights; texts on a frozen encoder, read at [CLS] and by their mean."""
    settings = FinetuneConfig(epochs=1, batch_size=8, learning_rate=1e-3, max_length=24, baseline=False)
    write_heads_data(tmp_path)
    for name, pipe in (("ner", "token-classification"), ("squad", "question-answering"), ("swag", "multiple-choice")):
        found = finetune(name, tmp_path / name, start, tmp_path / f"run-{name}", settings, cache=None)
        assert found.main_metric in found.scores
        pipeline(pipe, model=tmp_path / f"run-{name}", device="cpu")
    for number, name in enumerate(("train", "dev")):
        write_csv(tmp_path / f"{name}.csv", number)
    task = csv_task(tmp_path, text="text", label="label")
    for pooling in ("cls", "mean"):
        frozen = settings.model_copy(update={"freeze_encoder": True, "pooling": pooling})
        finetune(task, tmp_path, start, tmp_path / pooling, frozen, cache=None)
        before = bertkit.AutoModel.from_pretrained(start).state_dict()
        trained = bertkit.AutoModelForSequenceClassification.from_pretrained(tmp_path / pooling)
        encoder = {name: value for name, value in trained.bert.state_dict().items() if not name.startswith("pooler.")}
        assert all(torch.equal(value, before[name]) for name, value in encoder.items())
