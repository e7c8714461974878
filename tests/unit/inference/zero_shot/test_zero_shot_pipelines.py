"""The three methods of zero-shot classification: what their scores are, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit import (
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    pipeline,
)
from bertkit.errors import CheckpointError, InputError
from bertkit.inference.zero_shot.entailment import EntailmentPipeline, nli_labels
from bertkit.inference.zero_shot.label_vectors import LabelVectorsPipeline
from bertkit.inference.zero_shot.mask_pattern import MaskPatternPipeline, Pattern
from bertkit.tokenization.features import featurize_crossed
from pipeline_helpers import save_tiny

TASK = "zero-shot-classification"
NLI = {0: "contradiction", 1: "neutral", 2: "entailment"}
TEXTS = ["a good film", "the end was very dull!", "it was not great " * 3]
LABELS = ["good", "bad", "great scene"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {
        "nli": save_tiny(root / "nli", BertForSequenceClassification, id2label=NLI),
        "embedding": save_tiny(root / "encoder", BertModel),
        "pattern": save_tiny(root / "mlm", BertForMaskedLM),
    }


@pytest.fixture(scope="module")
def pipes(folders: dict[str, Path]) -> dict[str, Any]:
    return {method: pipeline(TASK, model=folder, device="cpu") for method, folder in folders.items()}


def test_the_method_is_that_of_the_head(folders: dict[str, Path], pipes: dict[str, Any], tmp_path: Path) -> None:
    assert isinstance(pipes["nli"], EntailmentPipeline)
    assert isinstance(pipes["embedding"], LabelVectorsPipeline)
    assert isinstance(pipes["pattern"], MaskPatternPipeline)
    assert isinstance(pipeline(TASK, model=folders["nli"], method="embedding", device="cpu"), LabelVectorsPipeline)
    assert isinstance(pipeline(TASK, model=pipes["nli"].model, tokenizer=pipes["nli"].tokenizer), EntailmentPipeline)
    tagger = save_tiny(tmp_path / "tagger", BertForTokenClassification)
    with pytest.raises(InputError, match=r"token-classification.*method='embedding'"):
        pipeline(TASK, model=tagger, device="cpu")
    with pytest.raises(InputError, match=r"got 'nil' \(did you mean 'nli'\?\)"):
        pipeline(TASK, model=folders["nli"], method="nil")
    with pytest.raises(InputError, match="is for task 'zero-shot-classification' only"):
        pipeline("fill-mask", model=folders["pattern"], method="pattern")
    with pytest.raises(CheckpointError, match="no masked-lm head"):
        pipeline(TASK, model=folders["embedding"], method="pattern", device="cpu")


@pytest.mark.parametrize("method", ["nli", "embedding", "pattern"])
def test_shapes_order_and_sums(method: str, pipes: dict[str, Any]) -> None:
    pipe, labels = pipes[method], LABELS if method != "pattern" else ["good", "bad", "scene"]
    one, listed, lazy = pipe(TEXTS[0], labels), pipe(TEXTS, labels), pipe(iter(TEXTS), labels)
    assert isinstance(one, dict)
    assert isinstance(listed, list)
    assert isinstance(lazy, Iterator)
    assert pipe([], labels) == []
    for answer, text, other in zip(listed, TEXTS, lazy, strict=True):
        assert list(answer) == ["sequence", "labels", "scores"]
        assert answer["sequence"] == text
        assert sorted(answer["labels"]) == sorted(labels)
        assert answer["scores"] == sorted(answer["scores"], reverse=True)
        assert sum(answer["scores"]) == pytest.approx(1.0, abs=1e-5)
        assert other["scores"] == pytest.approx(answer["scores"], abs=1e-5)
    assert one["scores"] == pytest.approx(listed[0]["scores"], abs=1e-5)
    assert listed[0]["scores"] != pytest.approx(listed[1]["scores"], abs=1e-3)  # the control


def test_vectors_by_hand(folders: dict[str, Path], pipes: dict[str, Any]) -> None:
    embed = pipeline("feature-extraction", model=folders["embedding"], device="cpu", pooling="mean", normalize=True)
    words = {"a": ["good film", "great"], "b": "dull"}
    text, good, great, dull = embed([TEXTS[0], "it is good film", "it is great", "it is dull"])
    centre = (good + great) / np.linalg.norm(good + great)
    cosines = np.array([text @ centre, text @ dull])
    found = pipes["embedding"](TEXTS[0], words, hypothesis_template="it is {}", temperature=0.5)
    shares = np.exp(cosines / 0.5) / np.exp(cosines / 0.5).sum()
    assert dict(zip(found["labels"], found["scores"], strict=True)) == pytest.approx(
        {"a": shares[0], "b": shares[1]}, abs=1e-4
    )
    several = pipes["embedding"](TEXTS[0], words, hypothesis_template="it is {}", multi_label=True)
    assert sorted(several["scores"]) == pytest.approx(sorted(cosines), abs=1e-4)


def test_words_at_the_mask_by_hand(folders: dict[str, Path], pipes: dict[str, Any]) -> None:
    """Against the fill-mask pipeline, whose probabilities are over the whole vocabulary."""
    fill = pipeline("fill-mask", model=folders["pattern"], device="cpu")
    guesses = fill("it was [MASK] : the end", targets=["good", "great", "dull"], top_k=3)
    likely = {guess["token_str"]: guess["score"] for guess in guesses}
    found = pipes["pattern"](
        "the end", {"yes": ["good", "great"], "no": "dull"}, hypothesis_template="it was {mask} : {text}"
    )
    yes = (likely["good"] + likely["great"]) / 2
    expected = {"yes": yes / (yes + likely["dull"]), "no": likely["dull"] / (yes + likely["dull"])}
    assert dict(zip(found["labels"], found["scores"], strict=True)) == pytest.approx(expected, abs=1e-4)


def test_of_a_long_text_only_the_text_is_cut(pipes: dict[str, Any]) -> None:
    long = "the film is good and not bad . " * 12
    for method, words in (("nli", LABELS), ("pattern", ["good", "bad"])):
        pipe = pipes[method]
        with pytest.raises(InputError, match=r"text 1 \(counted from 0\) has \d+ tokens"):
            pipe(["a film", long], words)
        cut, short = pipe([long, "a film"], words, truncation=True)
        assert (cut["truncated"], short["truncated"]) == (True, False)
        assert cut["sequence"] == long
        assert cut["scores"] != pytest.approx(short["scores"], abs=1e-4)
    pipe = pipes["pattern"]
    pattern = Pattern.of("it {text} was {mask} !", "[MASK]")
    row = pipe._encode([long], pattern, 20, 0, truncate=True)
    kept = "the film is good and not bad . the film is good and not"
    assert pipe.tokenizer.convert_ids_to_tokens(row[0].tolist()) == f"[CLS] it {kept} was [MASK] ! [SEP]".split()
    with pytest.raises(InputError, match="no room for a text within 4 tokens"):
        pipe(long, ["good", "bad"], truncation=True, max_length=4)
    with pytest.raises(InputError, match=r"'great scene' has .* no room for a text within 9"):
        pipes["nli"](long, LABELS, truncation=True, max_length=9)


@pytest.mark.parametrize("from_left", [False, True])
def test_every_text_with_every_hypothesis_is_as_encoding_the_pairs(pipes: dict[str, Any], from_left: bool) -> None:
    tokenizer = pipeline(TASK, model=pipes["nli"].model, tokenizer=pipes["nli"].tokenizer).tokenizer
    tokenizer.truncation_side = "left" if from_left else "right"
    try:
        texts = [*TEXTS, "the film " * 20, ""]
        first = tokenizer.encode_ragged(texts, add_special_tokens=False)
        second = tokenizer.encode_ragged(LABELS, add_special_tokens=False)
        for limit in (64, 24):
            crossed = featurize_crossed(first, second, tokenizer, limit)
            pairs = [(text, label) for text in texts for label in LABELS]
            whole = tokenizer.encode_ragged(*zip(*pairs, strict=True), max_length=limit, truncation="only_first")
            for name in ("ids", "boundaries", "token_type_ids", "num_tokens_before"):
                np.testing.assert_array_equal(getattr(crossed.sequences, name), getattr(whole, name))
            assert crossed.truncated.tolist() == whole.truncated.reshape(len(texts), -1).any(axis=1).tolist()
    finally:
        tokenizer.truncation_side = "right"


@pytest.mark.parametrize(
    ("labels", "options", "told"),
    [
        (None, {}, "needs candidate_labels"),
        ([], {}, "needs candidate_labels"),
        (" , ", {}, "needs candidate_labels"),
        (["a", "b", "a"], {}, "has 'a' twice"),
        ("good, bad,good", {}, "has 'good' twice"),
        (["a", "b", "a "], {}, "has 'a' and 'a ', which differ in blanks only"),
        (["a  b", "a\tb"], {}, r"has 'a  b' and 'a\\tb', which differ"),
        ({"a": "good", "b": " good"}, {}, "' good' stands for 'a' and for 'b'"),
        ({"a": ["good", "good"]}, {}, "'good' stands for 'a' and for 'a'"),
        (["a", 3], {}, "must be texts"),
        ({"a": "good", "b": "good"}, {}, "'good' stands for 'a' and for 'b'"),
        ({"a": []}, {}, "must be texts that are not empty"),
        ({"a": ["good", "great"], "b": "bad"}, {}, "label 'a' has 2 descriptions"),
        (["a", "b"], {"hypothesis_template": "no field"}, "has no {} where the whole label goes"),
        (["a", "b"], {"hypothesis_template": "{} is {}"}, r"has {} 2 times; leave it once"),
        (["a", "b"], {"hypothesis_template": "{}{}{}"}, r"has {} 3 times; leave it once"),
        (["a", "b"], {"hypothesis_template": "This is {{}}."}, "{{}} stands for braces"),
        (["cat", "car"], {"hypothesis_template": "It is {:.2}."}, "has no {} where the whole label goes"),
        (["a", "b"], {"hypothesis_template": "It is {0.__class__}."}, "has no {} where the whole label goes"),
        (["a", "b"], {"hypothesis_template": "It is {!r:.1}."}, "has no {} where the whole label goes"),
        (["a", "b"], {"hypothesis_template": "{text} {mask}"}, "are for method='pattern'"),
    ],
)
def test_labels_and_templates_that_say_nothing(
    labels: Any, options: dict[str, Any], told: str, pipes: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match=told):
        pipes["nli"]("a film", labels, **options)


@pytest.mark.parametrize(
    ("labels", "options", "told"),
    [
        (["good"], {}, "two or more exclusive labels"),
        (["good", "bad"], {"multi_label": True}, "exclusive labels"),
        (["good", "very bad"], {}, r"'very bad' is not one token .*read as very bad.*--labels 'very bad=word'"),
        (["good", "goodest"], {}, "'goodest' is not one token"),
        ({"a": "good", "b": "GOOD"}, {}, "is the same token as a word of 'a'"),
        (["good", "bad"], {"hypothesis_template": "This is {}."}, r"a pattern has \{text\} and \{mask\} once each"),
        (["good", "bad"], {"hypothesis_template": "{mask} {text} {mask}"}, "once each"),
        (["good", "bad"], {"hypothesis_template": "{{text}} is {mask}"}, "no other braces"),
        (["good", "bad"], {"hypothesis_template": "{text} {} is {mask}"}, "no other braces"),
    ],
)
def test_patterns_that_cannot_be_filled(labels: Any, options: dict[str, Any], told: str, pipes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=told):
        pipes["pattern"]("a film", labels, **options)


def test_texts_that_cannot_be_labelled(pipes: dict[str, Any]) -> None:
    for pipe in pipes.values():
        with pytest.raises(InputError, match="text 1 is empty"):
            pipe(["good", " "], ["good", "bad"])
        with pytest.raises(InputError, match="text 0 is a pair"):
            pipe([("good", "bad")], ["good", "bad"])
        with pytest.raises(InputError, match="must be a str"):
            pipe([3], ["good", "bad"])
    with pytest.raises(InputError, match=r"text 1 \(counted from 0\) has a \[MASK\] itself"):
        pipes["pattern"](["good", "a [MASK] film"], ["good", "bad"])
    with pytest.raises(InputError, match="temperature must be above 0"):
        pipes["embedding"]("good", ["good", "bad"], temperature=0)


def test_models_without_entailment(tmp_path: Path) -> None:
    assert nli_labels({0: "not_entailment", 1: "entailment"}) == (1, 0)
    assert nli_labels({0: "neutral", 1: "Entailment", 2: "Contradiction"}) == (1, 2)
    assert nli_labels({0: "LABEL_0", 1: "entailed", 2: "LABEL_2"}) == (1, None)
    other = save_tiny(tmp_path / "m", BertForSequenceClassification, id2label={0: "bad", 1: "good"})
    with pytest.raises(CheckpointError, match=r"labels are 'bad', 'good'; exactly one .* begin with 'entail'"):
        pipeline(TASK, model=other, device="cpu")
    vague = save_tiny(
        tmp_path / "v", BertForSequenceClassification, id2label={0: "LABEL_0", 1: "entailment", 2: "LABEL_2"}
    )
    pipe = pipeline(TASK, model=vague, device="cpu")
    assert len(pipe("a film", "good, bad")["labels"]) == 2
    for labels, options in (("good, bad", {"multi_label": True}), ("good", {})):
        with pytest.raises(CheckpointError, match="which of them is contradiction"):
            pipe("a film", labels, **options)
