"""What a label loses without a word is what the pipeline says of the text without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertkit import BertForSequenceClassification, pipeline, visualize
from bertkit.errors import InputError, LongTextError
from bertkit.insight.occlusion import occlusion
from pipeline_helpers import save_tiny

LABELS = {"id2label": {0: "bad", 1: "good", 2: "dull"}, "num_labels": 3}
TEXT = "the film is great , and the start dull"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("texts"), BertForSequenceClassification, **LABELS)


def score_of(pipe: object, text: object, label: str) -> float:
    return float(next(one["score"] for one in pipe(text, top_k=None) if one["label"] == label))  # type: ignore[operator]


@pytest.mark.parametrize("second", [None, "not bad"])
def test_scores_are_those_of_the_masked_text(folder: Path, second: str | None) -> None:
    pipe = pipeline("text-classification", model=folder)
    found = occlusion(pipe, TEXT, second, label="good")
    whole = TEXT if second is None else (TEXT, second)
    assert found.score == pytest.approx(score_of(pipe, whole, "good"), abs=1e-4)
    assert (found.hidden_by, found.truncated) == ("mask", False)
    assert [word.text for word in found.words] == (TEXT.split() + (second or "").split())
    for word in found.words:
        own = second if word.second else TEXT
        assert own is not None
        assert own[word.start : word.end] == word.text
        masked = f"{own[: word.start]}[MASK]{own[word.end :]}"
        text = (TEXT, masked) if word.second else masked if second is None else (masked, second)
        assert word.score == pytest.approx(score_of(pipe, text, "good"), abs=1e-4)
        assert word.drop == pytest.approx(found.score - word.score)


def test_words_and_label_are_those_of_the_explanation_in_logits(folder: Path) -> None:
    found = occlusion(pipeline("text-classification", model=folder), TEXT)
    other = visualize.explain(TEXT, model=folder)
    assert (found.label, found.predicted) == (other.label, other.predicted)
    assert found.score == pytest.approx(other.probability, abs=1e-4)
    assert [(word.text, word.start, word.end) for word in found.words] == [
        (word.text, word.start, word.end) for word in other.words
    ]


def test_without_a_mask_words_are_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = pipeline("text-classification", model=folder)
    monkeypatch.setattr(pipe.tokenizer, "mask_token_id", None)
    found = occlusion(pipe, "a great film")
    assert found.hidden_by == "removal"
    assert found.words[1].score == pytest.approx(score_of(pipe, "a film", found.label), abs=1e-4)


def test_one_output_is_explained_by_its_score(tmp_path: Path) -> None:
    ranker = save_tiny(tmp_path, BertForSequenceClassification, id2label={0: "relevance"})
    pipe = pipeline("text-classification", model=ranker)
    found = occlusion(pipe, "a film", "great")
    assert found.score == pytest.approx(pipe(("a film", "great"))["score"], abs=1e-4)
    assert 0 < found.score < 1


def test_what_is_refused(folder: Path) -> None:
    pipe = pipeline("text-classification", model=folder)
    with pytest.raises(InputError, match=r"no label 'god' \(did you mean 'good'\?\)"):
        occlusion(pipe, TEXT, label="god")
    long = "film " * 100
    with pytest.raises(LongTextError):
        occlusion(pipe, long)
    found = occlusion(pipe, long, truncation=True, max_length=10)
    assert (found.truncated, len(found.words)) == (True, 8)
