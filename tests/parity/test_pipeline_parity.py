"""Pipelines against ``transformers`` on real weights and real text."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import bertkit
from bertkit import (
    BertForNextSentencePrediction,
    BertForSequenceClassification,
    InputError,
    TextClassificationPipeline,
    pipeline,
)
from bertkit.engine.backend import Precision
from bertkit.tasks import TASKS, load_split
from pipeline_helpers import TOLERANCES, save_tiny

MASKED = [
    "Paris is the [MASK] of France.",
    "The [MASK] was shown in 1999, and [MASK] liked it.",
    "[MASK]",
    "He opened the [MASK] and went in (it wasn't locked).",
]


@pytest.fixture(scope="module")
def texts(shared: Path) -> list[str]:
    """Ragged real texts: tweets, sentences and reviews."""
    chance = random.Random(0)
    folders = {"sst2": "glue/SST-2", "mrpc": "glue/MRPC", "tweets": "tweet_sentiment"}
    found = []
    for name, folder in folders.items():
        examples = load_split(TASKS[name], shared / "data" / folder, "dev")
        found += [example.text for example in chance.sample(examples, 8)]
    found += ["", "a", "word " * 400]
    chance.shuffle(found)
    return found


@pytest.fixture(scope="module")
def splade(shared: Path) -> Path:
    return shared / "models" / "bert-tiny-splade-mlm"


@pytest.mark.parametrize("precision", TOLERANCES)
def test_fill_mask(splade: Path, precision: Precision) -> None:
    ours = pipeline("fill-mask", model=splade, device="cpu", precision=precision)
    theirs = transformers.pipeline("fill-mask", model=str(splade), device="cpu")
    for text in MASKED:
        for options in ({}, {"top_k": 11}, {"targets": ["city", "film", "door"]}, {"targets": "he", "top_k": 3}):
            assert_same(ours(text, **options), theirs(text, **options), TOLERANCES[precision])
    assert_same(ours(MASKED), theirs(MASKED), TOLERANCES[precision])


def assert_same(ours: Any, theirs: Any, tolerance: float) -> None:
    """Equal structure, texts and tokens; scores as near as that."""
    if isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            assert_same(mine, other, tolerance)
        return
    assert set(ours) == set(theirs)
    for key, value in theirs.items():
        if key == "score":
            assert ours[key] == pytest.approx(value, abs=tolerance)
        else:
            assert ours[key] == value, key


def test_mean_pooling(minilm: Path, texts: list[str]) -> None:
    theirs = mean_vectors(minilm, texts)
    for precision, tolerance in TOLERANCES.items():
        ours = pipeline("feature-extraction", model=minilm, device="cpu", precision=precision)(texts, pooling="mean")
        assert np.abs(np.stack(ours) - theirs).max() <= tolerance
        assert np.abs(np.stack(ours)[::-1] - theirs).max() > 1e-2  # the control: another order would be seen


def test_neighbours_are_invisible(minilm: Path, texts: list[str]) -> None:
    pipe = pipeline("feature-extraction", model=minilm, device="cpu")
    together = np.stack(pipe(texts, pooling="mean"))
    backwards = np.stack(list(pipe(reversed(texts), pooling="mean")))[::-1]
    alone = np.stack([pipe(text, pooling="mean") for text in texts])
    assert np.abs(together - alone).max() <= 1e-5
    assert np.abs(together - backwards).max() <= 1e-5


def mean_vectors(folder: Path, texts: list[str]) -> np.ndarray:
    """Masked mean of the last hidden states, one text at a time, so that no padding can play a part."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.model_max_length = 512
    model = transformers.BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    with torch.inference_mode():
        encoded = (tokenizer(text, return_tensors="pt", truncation=False) for text in texts)
        return np.stack([model(**item).last_hidden_state[0].mean(dim=0).numpy() for item in encoded])


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize(
    "settings", [{"num_labels": 3}, {"num_labels": 1}, {"num_labels": 1, "problem_type": "regression"}]
)
def test_text_classification(tmp_path: Path, settings: dict[str, Any], precision: Precision) -> None:
    folder = save_tiny(tmp_path / "m", BertForSequenceClassification, **settings)
    ours = pipeline("text-classification", model=folder, device="cpu", precision=precision)
    tolerance = TOLERANCES[precision]
    theirs = transformers.pipeline("text-classification", model=str(folder), device="cpu")
    texts = ["a good film", "the end was very dull!", ""]
    for options in ({}, {"top_k": None}, {"top_k": 2}, {"top_k": 1}, {"function_to_apply": "none"}):
        assert_same(ours(texts, **options), theirs(texts, **options), tolerance)
        assert_same(ours(texts[0], **options), theirs(texts[0], **options), tolerance)
    pair = {"text": "a good film", "text_pair": "the end"}
    assert_same(ours(pair), theirs(pair), tolerance)
    assert_same(ours([pair, pair], top_k=None), theirs([pair, pair], top_k=None), tolerance)


@pytest.mark.parametrize("precision", TOLERANCES)
def test_next_sentence(tmp_path: Path, precision: Precision) -> None:
    folder = save_tiny(tmp_path / "m", BertForNextSentencePrediction)
    ours = pipeline("next-sentence", model=folder, device="cpu", precision=precision)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs = transformers.BertForNextSentencePrediction.from_pretrained(folder).eval()
    for first, second in (("a good film", "the end"), ("", "it was dull"), ("dull " * 20, "the film")):
        with torch.inference_mode():
            logits = theirs(**tokenizer(first, second, return_tensors="pt")).logits
        expected = pytest.approx(float(logits.softmax(-1)[0, 0]), abs=TOLERANCES[precision])
        assert ours(first, second)["is_next"] == expected


@pytest.mark.parametrize(
    ("name", "head", "options", "text"),
    [
        ("TextClassificationPipeline", "ForSequenceClassification", {"top_k": None}, "a good film"),
        ("TextClassificationPipeline", "ForSequenceClassification", {"top_k": 2, "function_to_apply": "none"}, "bad"),
        ("FillMaskPipeline", "ForMaskedLM", {"top_k": 2, "targets": ["good", "bad", "film"]}, "a [MASK] film"),
        ("TokenClassificationPipeline", "ForTokenClassification", {"aggregation_strategy": "first"}, "a good film"),
        ("QuestionAnsweringPipeline", "ForQuestionAnswering", {"top_k": 2, "max_answer_len": 2}, None),
    ],
)
def test_classes_of_pipelines_take_what_pipeline_takes(
    tmp_path: Path, name: str, head: str, options: dict[str, Any], text: str | None
) -> None:
    folder = save_tiny(tmp_path / "m", getattr(bertkit, f"Bert{head}"))
    results = []
    for library in (bertkit, transformers):
        if not hasattr(library, name):  # transformers 5 has no class for answers
            continue
        made = getattr(library, name)(
            model=getattr(library, f"AutoModel{head}").from_pretrained(folder),
            tokenizer=library.AutoTokenizer.from_pretrained(folder),
            device=-1,
            batch_size=2,
            **options,
        )
        inputs = [{"question": "good?", "context": "a good film"}] if text is None else [[text, text], text]
        results.append([made(each) for each in inputs])
    twin = pipeline(model=folder, device=-1, **options)
    assert_same(results[0], [twin(each) for each in inputs], 1e-4)
    if len(results) > 1:
        assert_same(*results, 1e-4)


def test_a_class_of_pipelines_says_what_is_missing(tmp_path: Path) -> None:
    folder = save_tiny(tmp_path / "m", BertForSequenceClassification)
    model, words = BertForSequenceClassification.from_pretrained(folder), bertkit.AutoTokenizer.from_pretrained(folder)
    with pytest.raises(InputError, match=r"write pipeline\('text-classification', model='.*m'\)"):
        TextClassificationPipeline(str(folder), words)
    with pytest.raises(InputError, match="pass tokenizer= as well"):
        TextClassificationPipeline(model)
    with pytest.raises(InputError, match=r"has no option 'topk'; write top_k="):
        TextClassificationPipeline(model, words, topk=2)
    assert (
        TextClassificationPipeline(model, words, torch_dtype="float32", threads=1, top_k=1)("good")[0][0]["score"] > 0
    )
