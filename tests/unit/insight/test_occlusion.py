"""What a label, a tag or an answer loses without a word is what the pipeline says of the text without it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertkit import (
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    pipeline,
    visualize,
)
from bertkit.errors import InputError, LongTextError, TextError
from bertkit.insight.occlusion import occlusion
from pipeline_helpers import save_tiny

TAGS = {"id2label": {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC"}, "num_labels": 4}
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


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tags"), BertForTokenClassification, **TAGS)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("answers"), BertForQuestionAnswering)


@pytest.mark.parametrize(("word", "label"), [(None, None), ("film", "I-PER"), (8, None)])
def test_a_tag(tagger: Path, word: int | str | None, label: str | None) -> None:
    pipe = pipeline("token-classification", model=tagger)
    found = occlusion(pipe, TEXT, word=word, label=label)
    other = visualize.explain(TEXT, model=tagger, word=word, label=label)
    assert (found.label, found.predicted, found.word) == (other.label, other.predicted, other.word)
    assert found.score == pytest.approx(other.probability, abs=1e-4)
    assert found.word is not None
    number = list(TAGS["id2label"].values()).index(found.label)  # type: ignore[attr-defined]
    token = found.word + 1  # every word of the text is one piece
    for each in found.words:
        masked = f"{TEXT[: each.start]}[MASK]{TEXT[each.end :]}"
        assert each.score == pytest.approx(float(pipe.token_scores(masked)[token, number]), abs=1e-4)
        assert each.drop == pytest.approx(found.score - each.score)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("refuses", [True, False])
def test_an_answer(reader: Path, own: bool, refuses: bool) -> None:
    pipe = pipeline("question-answering", model=reader)
    if refuses:
        pipe.decision = {"null_threshold": 1000.0}  # "no answer" has a share, and never wins
    question, label = "is it good", None if own else "film is"
    found = occlusion(pipe, question, TEXT, label=label)
    best = pipe({"question": question, "context": TEXT}, align_to_words=False)
    assert found.predicted == best["answer"]
    assert found.label == (best["answer"] if own else label)
    start = best["start"] if own else TEXT.index("film is")
    end = start + len(found.label)

    def share(question: str, context: str, start: int, end: int) -> float:
        asked = {"question": question, "context": context}
        ranked = pipe(asked, top_k=10_000, align_to_words=False)
        return float(next(one["score"] for one in ranked if (one["start"], one["end"]) == (start, end)))

    assert found.score == pytest.approx(share(question, TEXT, start, end), abs=1e-4)
    assert [word.text for word in found.words] == [*question.split(), *TEXT.split()]
    for word in found.words:
        if not word.second:
            asked = f"{question[: word.start]}[MASK]{question[word.end :]}"
            assert word.score == pytest.approx(share(asked, TEXT, start, end), abs=1e-4)
            continue
        more = len("[MASK]") - len(word.text)
        context = f"{TEXT[: word.start]}[MASK]{TEXT[word.end :]}"
        moved = (start + more * (word.end <= start), end + more * (word.end <= end))
        assert word.score == pytest.approx(share(question, context, *moved), abs=1e-4)


def test_what_is_refused_of_tags_and_answers(
    folder: Path, tagger: Path, reader: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags, answers = pipeline("token-classification", model=tagger), pipeline("question-answering", model=reader)
    with pytest.raises(InputError, match="the text has no word 'flim'"):
        occlusion(tags, TEXT, word="flim")
    with pytest.raises(InputError, match="reads single texts"):
        occlusion(tags, TEXT, "a film")
    with pytest.raises(InputError, match="a question and a context"):
        occlusion(answers, TEXT)
    with pytest.raises(InputError, match="no piece of the context"):
        occlusion(answers, "is it good", TEXT, label="scene")
    with pytest.raises(InputError, match="for models that tag words"):
        occlusion(pipeline("text-classification", model=folder), TEXT, word="film")
    monkeypatch.setattr(tags.tokenizer, "mask_token_id", None)
    with pytest.raises(InputError, match="no mask"):
        occlusion(tags, TEXT)


@pytest.mark.parametrize("context", ["good", "the film"])
def test_a_question_may_be_longer_than_its_context(reader: Path, context: str) -> None:
    """Where the pipeline is free to choose, a question has at most half a window."""
    pipe, question = pipeline("question-answering", model=reader), "is it good or bad , not dull and not very bad"
    found = occlusion(pipe, question, context)
    best = pipe({"question": question, "context": context}, align_to_words=False)
    assert found.predicted == best["answer"]
    assert found.score == pytest.approx(best["score"], abs=1e-4)
    assert visualize.explain(question, context, model=reader).predicted == best["answer"]


def test_a_context_without_a_word_is_refused(reader: Path) -> None:
    pipe = pipeline("question-answering", model=reader)
    with pytest.raises(TextError, match="the context has no word that could be an answer"):
        occlusion(pipe, "is it good", "\u200b")
    with pytest.raises(TextError, match="the context has no word that could be an answer"):
        visualize.explain("is it good", "\u200b", model=reader)


def test_an_answer_that_the_model_cannot_give_has_no_probability(reader: Path) -> None:
    pipe = pipeline("question-answering", model=reader)
    pipe.decision = {"max_answer_length": 3}
    found = occlusion(pipe, "is it good", TEXT, label="the film is")
    assert 0 < found.score < 1
    with pytest.raises(InputError, match="the answer to explain has 4 word pieces, and the model gives 3 at most"):
        occlusion(pipe, "is it good", TEXT, label="the film is great")


def test_the_predicted_label_follows_the_threshold(tmp_path: Path) -> None:
    labels = {"id2label": {0: "no", 1: "yes"}, "num_labels": 2}
    folder = save_tiny(tmp_path / "m", BertForSequenceClassification, **labels)
    share = score_of(pipeline("text-classification", model=folder), TEXT, "yes")
    for threshold, label in ((share - 0.01, "yes"), (share + 0.01, "no")):
        (folder / "decision.json").write_text(json.dumps({"thresholds": {"yes": threshold}}))
        found = occlusion(pipeline("text-classification", model=folder), TEXT)
        assert (found.label, found.predicted) == (label, label)
