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
from bertkit import BertConfig, BertForMaskedLM, pipeline
from bertkit.tasks import csv_task
from bertkit.tokenization import DistilBertTokenizer, ElectraTokenizer
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from pipeline_helpers import TOLERANCES
from tokenizer_families import FAMILIES as WITH_OWN_TOKENIZER
from tokenizer_families import small

WORDS = {"good": ["fine", "lovely", "great"], "bad": ["awful", "bad", "poor"]}
TEXTS = ["a fine film, a great play", "an awful book; poor!", "the play"]


@pytest.fixture(params=[*WITH_OWN_TOKENIZER, "distilbert", "electra"])
def start(request: pytest.FixtureRequest, shared: Path, tmp_path: Path) -> Path:
    """A small random masked-LM model of the family, with its tokenizer."""
    family, folder = request.param, tmp_path / "start"
    if family in WITH_OWN_TOKENIZER:
        tokenizer: Any = small(family, shared, tmp_path, model_max_length=36)
    else:
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"the a an film play book".split(), *",.;!"]
        file = tmp_path / "words.txt"
        file.write_text("\n".join(dict.fromkeys([*words, *WORDS["good"], *WORDS["bad"]])) + "\n", encoding="utf-8")
        tokenizer = {"distilbert": DistilBertTokenizer, "electra": ElectraTokenizer}[family](
            vocab_file=file, model_max_length=36
        )
    own = {"albert": {"embedding_size": 12}, "electra": {"embedding_size": 12}}.get(family, {})
    config = BertConfig(
        model_type=family, vocab_size=len(tokenizer), hidden_size=24, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=40, pad_token_id=tokenizer.pad_token_id, initializer_range=0.2,
        **own,
    )  # fmt: skip
    torch.manual_seed(1)
    BertForMaskedLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


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
