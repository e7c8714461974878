"""Zero-shot classification against that of ``transformers`` on small random NLI models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers

from bertkit import BertForSequenceClassification, pipeline
from bertkit.engine.backend import Precision
from pipeline_helpers import TOLERANCES, save_tiny
from reader_folders import TEXTS as READER_TEXTS
from reader_folders import save_reader

TEXTS = ["a good film", "the end was very dull!", "it was not great and not bad " * 6, "?"]
LABELS = ["good", "very bad", "great scene"]
#: Orders of the labels that published models have.
ORDERS = {
    "entailment-last": {"id2label": {0: "CONTRADICTION", 1: "NEUTRAL", 2: "ENTAILMENT"}},
    "entailment-first": {"id2label": {0: "entailment", 1: "neutral", 2: "contradiction"}},
    "between": {"id2label": {0: "contradiction", 1: "entailment", 2: "neutral"}},
    "two": {"id2label": {0: "entailment", 1: "not_entailment"}},
}


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("order", ORDERS)
def test_nli(tmp_path: Path, order: str, precision: Precision) -> None:
    folder = save_tiny(tmp_path / "m", BertForSequenceClassification, **ORDERS[order])
    ours = pipeline("zero-shot-classification", model=folder, device="cpu", precision=precision)
    theirs = transformers.pipeline("zero-shot-classification", model=str(folder), device="cpu")
    for options in (
        {"candidate_labels": LABELS},
        {"candidate_labels": "good, very bad,,great scene"},
        {"candidate_labels": LABELS, "multi_label": True},
        {"candidate_labels": LABELS, "hypothesis_template": "the film is {}"},
        {"candidate_labels": ["dull"]},
    ):
        for inputs in (TEXTS, TEXTS[0], TEXTS[:1]):
            assert_same(ours(inputs, truncation=True, **options), theirs(inputs, **options), TOLERANCES[precision])
    first = ours(TEXTS[0], LABELS)
    assert_same(first, theirs(TEXTS[0], LABELS), TOLERANCES[precision])
    # The control: another template is another result.
    assert abs(first["scores"][0] - ours(TEXTS[0], LABELS, hypothesis_template="{} film")["scores"][0]) > 1e-3


def assert_same(ours: Any, theirs: Any, tolerance: float) -> None:
    """The same answers; ours also say whether the text was cut."""
    assert type(ours) is type(theirs)
    for mine, other in zip(*([each] if isinstance(each, dict) else each for each in (ours, theirs)), strict=True):
        assert set(other) == set(mine) - {"truncated"}
        assert mine["sequence"] == other["sequence"]
        assert mine["labels"] == other["labels"]
        assert mine["scores"] == pytest.approx(other["scores"], abs=tolerance)


def test_texts_longer_than_the_model_are_cut_as_theirs(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "m", BertForSequenceClassification, **ORDERS["entailment-last"])
    ours = pipeline("zero-shot-classification", model=folder, device="cpu", precision="fp32")
    theirs = transformers.pipeline("zero-shot-classification", model=str(folder), device="cpu")
    text = "the film was good and bad " * 20
    found = ours([text, "a film"], LABELS, truncation=True)
    assert [answer["truncated"] for answer in found] == [True, False]
    assert_same(found, theirs([text, "a film"], LABELS), 1e-5)


def test_a_bart(tmp_path: Path) -> None:
    """The family of the best-known model for this, ``bart-large-mnli``."""
    names = ORDERS["entailment-last"]["id2label"]
    numbers = {name: number for number, name in names.items()}
    theirs = save_reader("ForSequenceClassification", tmp_path, id2label=names, label2id=numbers)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    peer: Any = transformers.pipeline("zero-shot-classification", model=theirs, tokenizer=tokenizer)
    ours = pipeline("zero-shot-classification", model=tmp_path, device="cpu")
    texts = [text for text in READER_TEXTS if text.strip()]
    for options in ({}, {"multi_label": True}):
        found = ours(texts, ["river", "a wide one"], hypothesis_template="it is {}", **options)
        assert_same(found, peer(texts, ["river", "a wide one"], hypothesis_template="it is {}", **options), 1e-5)
    assert len({round(answer["scores"][0], 3) for answer in found}) > 1  # the control: the text matters
