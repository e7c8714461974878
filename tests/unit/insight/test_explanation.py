"""Explanations against captum, against the answers to masked texts, and what cannot be explained."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import family_folders
from bertkit import (
    AutoTokenizer,
    BertConfig,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    pipeline,
    visualize,
)
from bertkit.errors import CheckpointError, InputError, TextError
from bertkit.insight.explanation import Explainer, Explanation
from bertkit.metrics.scores import spearman
from everyday import some
from pipeline_helpers import save_tiny

pytestmark = pytest.mark.slow

captum_attr = pytest.importorskip("captum.attr")

TEXT = "the film is not bad , and very great !"
LABELS = {"id2label": {0: "bad", 1: "good", 2: "dull"}, "num_labels": 3}
TAGS = {"id2label": {0: "O", 1: "B-X", 2: "I-X"}, "num_labels": 3}
#: Small enough for completeness by few steps; the usual 0.3 of tiny models has a rough surface.
SMOOTH = {"initializer_range": 0.15}


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("texts"), BertForSequenceClassification, **LABELS, **SMOOTH)


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("tags"), BertForTokenClassification, **TAGS, **SMOOTH)


@pytest.fixture(scope="module")
def answerer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("spans"), BertForQuestionAnswering, **SMOOTH)


def by_captum(folder: Path, model_class: type[Any], found: Explanation, score: Any, token: str) -> list[float]:
    """The attribution of each token, by a padded call of the model."""
    model, tokenizer = model_class.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(found.text, found.text_pair, return_tensors="pt", return_special_tokens_mask=True)
    special = inputs.pop("special_tokens_mask").bool()[..., None]
    table, ids = model.bert.embeddings.word_embeddings, inputs.pop("input_ids")
    words = table(ids).detach()
    empty = table(torch.tensor(tokenizer.convert_tokens_to_ids(token))).detach()

    def forward(embeds: Any) -> Any:
        copies = {name: value.expand(len(embeds), -1) for name, value in inputs.items()}
        return score(model(inputs_embeds=embeds, **copies))

    method = captum_attr.IntegratedGradients(forward)
    baseline = torch.where(special, words, empty)
    sums = method.attribute(words, baseline, n_steps=found.steps, method="gausslegendre").sum(dim=-1)
    return sums[0, ~special[0, :, 0]].tolist()


@pytest.mark.parametrize(("baseline", "token"), [("mask", "[MASK]"), ("pad", "[PAD]")])
@pytest.mark.parametrize("pair", [None, "it was a dull end"])
def test_gradients_are_those_of_captum(classifier: Path, baseline: Any, token: str, pair: str | None) -> None:
    found = visualize.explain(TEXT, pair, model=classifier, label="dull", baseline=baseline)
    right = by_captum(classifier, BertForSequenceClassification, found, lambda out: out.logits[:, 2], token)
    assert len(found.words) == len(right)  # every word is one piece
    np.testing.assert_allclose(found.gradients, right, atol=1e-4 * np.abs(right).max())
    assert found.baseline == token
    assert found.complete
    gap = found.gradients.sum() - (found.score - found.baseline_score)
    assert abs(gap) == pytest.approx(found.completeness_error * abs(found.score - found.baseline_score), rel=1e-3)


def test_a_word_of_several_pieces_has_the_sum_of_them(classifier: Path) -> None:
    found = visualize.explain("the films are dull", model=classifier, label="good")
    right = by_captum(classifier, BertForSequenceClassification, found, lambda out: out.logits[:, 1], "[MASK]")
    words = AutoTokenizer.from_pretrained(classifier)(found.text).word_ids(0)[1:-1]
    sums = [sum(value for value, word in zip(right, words, strict=True) if word == number) for number in range(4)]
    assert len(right) > 4
    assert [word.text for word in found.words] == found.text.split()
    np.testing.assert_allclose(found.gradients, sums, atol=1e-4 * np.abs(sums).max())


def test_occlusion_is_the_fall_of_the_logit_of_a_masked_text(classifier: Path) -> None:
    found = visualize.explain(TEXT, model=classifier)
    pipe, words = pipeline("text-classification", model=classifier, precision="fp32"), TEXT.split()
    masked = [" ".join([*words[:place], "[MASK]", *words[place + 1 :]]) for place in range(len(words))]
    answers = pipe([TEXT, *masked], function_to_apply="none", top_k=None)
    logits = [next(each["score"] for each in ranked if each["label"] == found.label) for ranked in answers]
    np.testing.assert_allclose(found.occlusion, logits[0] - np.array(logits[1:]), atol=1e-4)
    (best,) = pipe(TEXT)
    assert (found.label, found.predicted) == (best["label"], best["label"])
    assert found.probability == pytest.approx(best["score"], abs=1e-5)
    assert found.agreement == pytest.approx(spearman(found.gradients, found.occlusion))


def test_the_label_is_the_one_of_the_threshold(classifier: Path, tmp_path: Path) -> None:
    two = {"id2label": {0: "no", 1: "yes"}, "num_labels": 2}
    folder = save_tiny(tmp_path / "two", BertForSequenceClassification, **two, **SMOOTH)
    likely = visualize.explain(TEXT, model=folder)
    assert likely.probability is not None
    other = {"no": "yes", "yes": "no"}[likely.label]
    share = likely.probability if likely.label == "yes" else 1 - likely.probability
    threshold = (share + 1) / 2 if other == "no" else share / 2
    (folder / "decision.json").write_text(json.dumps({"thresholds": {"yes": threshold}}))
    (best,) = pipeline("text-classification", model=folder)(TEXT)
    assert best["label"] == other
    assert visualize.explain(TEXT, model=folder).label == other


def test_the_tag_of_a_word(tagger: Path) -> None:
    text = "the film is the end of it"
    explainer = Explainer(tagger)
    named, numbered = explainer.explain(text, word="end"), explainer.explain(text, word=5)
    assert (named.word, named.gradients.tolist()) == (4, numbered.gradients.tolist())
    assert explainer.explain(text, word="5").word == 4
    right = by_captum(
        tagger, BertForTokenClassification, named, lambda out: out.logits[:, 5, number_of(named)], "[MASK]"
    )
    np.testing.assert_allclose(named.gradients, right, atol=1e-4 * np.abs(right).max())
    found = pipeline("token-classification", model=tagger)(text, ignore_labels=[])
    assert named.predicted == found[4]["entity"]
    assert named.probability == pytest.approx(found[4]["score"], abs=1e-4)
    tagged = max((each for each in found if each["entity"] != "O"), key=lambda each: each["score"])
    assert explainer.explain(text).word == tagged["index"] - 1
    assert "of word 5, 'end' (predicted)" in named.render()
    other = explainer.explain(text, word="end", label="O" if named.label != "O" else "B-X")
    assert other.predicted == named.label
    assert f"(predicted: {named.label})" in other.render()


def number_of(found: Explanation) -> int:
    return ["O", "B-X", "I-X"].index(found.label)


def test_words_that_are_not_there(tagger: Path, classifier: Path) -> None:
    explainer = Explainer(tagger)
    for word, message in (
        ("start", r"no word 'start'"),
        ("the", r"'the' is in the text 2 times, as the words 1, 4"),
        (0, "no word 0: the text has 7 words, counted from 1"),
        ("8", "no word 8"),
    ):
        with pytest.raises(InputError, match=message):
            explainer.explain("the film is the end of it", word=word)
    with pytest.raises(InputError, match="reads single texts, got two"):
        explainer.explain("the film", "it was bad")
    with pytest.raises(InputError, match="word= is for models that tag words"):
        visualize.explain(TEXT, model=classifier, word=1)


def test_a_text_without_entities_needs_a_word(tmp_path: Path) -> None:
    outside = {"id2label": {0: "O", 1: "O-too", 2: "B-X"}, "num_labels": 3}
    folder = save_tiny(tmp_path / "m", BertForTokenClassification, **outside)
    model = BertForTokenClassification.from_pretrained(folder)
    with torch.no_grad():
        model.classifier.bias += torch.tensor([100.0, 0.0, 0.0])
    explainer = Explainer(model, AutoTokenizer.from_pretrained(folder))
    with pytest.raises(InputError, match="tags every word O; say which word"):
        explainer.explain("the film")
    assert explainer.explain("the film", word=2).label == "O"


def test_an_answer(answerer: Path) -> None:
    question, context = "is it good ?", "it was a bad film and the end was very great"
    found = visualize.explain(question, context, model=answerer)
    answer = pipeline("question-answering", model=answerer)(question, context, align_to_words=False)
    assert (found.label, found.predicted) == (answer["answer"], answer["answer"])
    model, tokenizer = (
        BertForQuestionAnswering.from_pretrained(answerer).eval(),
        AutoTokenizer.from_pretrained(answerer),
    )
    other = visualize.explain(question, context, model=answerer, label="bad film")
    inputs = tokenizer(question, context, return_tensors="pt")
    first, last = (inputs.char_to_token(0, context.index(word), sequence_index=1) for word in ("bad", "film"))
    with torch.no_grad():
        out = model(**inputs)
    assert other.score == pytest.approx(float(out.start_logits[0, first] + out.end_logits[0, last]), abs=1e-4)
    assert other.predicted == answer["answer"]
    right = by_captum(
        answerer, BertForQuestionAnswering, other, lambda out: out.start_logits[:, first] + out.end_logits[:, last],
        "[MASK]",
    )  # fmt: skip
    np.testing.assert_allclose(other.gradients, right, atol=1e-4 * np.abs(right).max())
    assert [word.second for word in other.words].index(True) == len(question.split())
    with pytest.raises(InputError, match="no piece of the context"):
        visualize.explain(question, context, model=answerer, label="good")
    with pytest.raises(InputError, match="a question and a context"):
        visualize.explain(question, model=answerer)
    with pytest.raises(InputError, match="cannot reach max_length=7"):
        visualize.explain(question, context, model=answerer, max_length=7, truncation=True)
    cut = visualize.explain(question, context, model=answerer, max_length=12, truncation=True)
    assert (cut.truncated, len(cut.words)) == (True, 9)
    with pytest.raises(TextError, match="the text has 18 tokens"):
        visualize.explain(question, context, model=answerer, max_length=7)


def test_no_answer_is_explained_by_the_first_token(answerer: Path, tmp_path: Path) -> None:
    for file in answerer.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "decision.json").write_text(json.dumps({"null_threshold": -1000.0}))
    found = visualize.explain("is it good ?", "it was bad", model=tmp_path)
    assert found.label == "(no answer)"
    model, tokenizer = BertForQuestionAnswering.from_pretrained(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    with torch.no_grad():
        out = model.eval()(**tokenizer("is it good ?", "it was bad", return_tensors="pt"))
    assert found.score == pytest.approx(float(out.start_logits[0, 0] + out.end_logits[0, 0]), abs=1e-4)


@pytest.mark.parametrize("family", some(("deberta-v2", "modernbert", "mpnet"), ["deberta-v2"]))
def test_other_families(tmp_path: Path, family: str) -> None:
    family_folders.make(family, tmp_path, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    torch.manual_seed(0)
    config = BertConfig.from_json_file(tmp_path / "config.json")
    found = visualize.explain(
        "the river or the other", model=BertForSequenceClassification(config), tokenizer=tokenizer
    )
    assert found.complete
    assert "".join(word.text for word in found.words) == "theriverortheother"


def test_numbers_and_several_labels(tmp_path: Path) -> None:
    number = save_tiny(tmp_path / "number", BertForSequenceClassification, num_labels=1, problem_type="regression")
    found = visualize.explain(TEXT, model=number)
    assert found.probability is None
    assert "probability" not in found.render()
    several = save_tiny(
        tmp_path / "several", BertForSequenceClassification, **LABELS, problem_type="multi_label_classification"
    )
    found = visualize.explain(TEXT, model=several, label="dull")
    ranked = pipeline("text-classification", model=several)(TEXT, top_k=None)
    share = next(each["score"] for each in ranked if each["label"] == "dull")
    assert found.probability == pytest.approx(share, abs=1e-4)
    assert found.predicted == ranked[0]["label"]


def test_a_model_in_training_mode_stays_so(classifier: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(classifier).train()
    tokenizer = AutoTokenizer.from_pretrained(classifier)
    found, right = visualize.explain(TEXT, model=model, tokenizer=tokenizer), visualize.explain(TEXT, model=classifier)
    assert model.training
    assert all(weight.grad is None for weight in model.parameters())
    np.testing.assert_allclose(found.gradients, right.gradients, atol=1e-5)


def test_an_explanation_that_is_not_complete_says_so(classifier: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    explainer = Explainer(classifier)
    monkeypatch.setattr("bertkit.insight.attributions.TOLERANCE", -1.0)
    monkeypatch.setattr("bertkit.insight.explanation.TOLERANCE", -1.0)
    found = explainer.explain(TEXT, most_steps=128)
    assert (found.steps, found.complete, found.to_dict()["complete"]) == (128, False, False)
    assert "(128 steps), more than -100 %" in found.render()


def test_long_and_empty_texts(classifier: Path) -> None:
    long = "good " * 70
    with pytest.raises(TextError, match=r"72 tokens, special tokens included; the limit is 64.*--truncate"):
        visualize.explain(long, model=classifier)
    cut = visualize.explain(long, model=classifier, truncation=True)
    assert (len(cut.words), cut.truncated) == (62, True)
    assert "truncated" in cut.heading()
    assert "(and 22 weaker words)" in cut.render()
    assert len(visualize.explain(TEXT, model=classifier, max_length=5, truncation=True).words) == 3
    for text in ("", "  ", "\u200b"):
        with pytest.raises(TextError, match=r"empty|no word"):
            visualize.explain(text, model=classifier)
    one = visualize.explain("good", model=classifier)
    assert (len(one.words), one.agreement) == (1, None)
    assert "not defined" in one.render()
    with pytest.raises(InputError, match=r"no label 'goof'.*good"):
        visualize.explain("good", model=classifier, label="goof")
    with pytest.raises(InputError, match="baseline must be"):
        visualize.explain("good", model=classifier, baseline="zero")  # type: ignore[arg-type]


def test_models_that_cannot_be_explained(classifier: Path, tmp_path: Path) -> None:
    words = save_tiny(tmp_path / "words", BertForMaskedLM)
    with pytest.raises(InputError, match=r"has a head for fill-mask.*bertkit finetune"):
        visualize.explain(TEXT, model=words)
    for name, what in (("export.json", "an exported model"), ("quantization.json", "a model in 8 bits")):
        folder = tmp_path / name.removesuffix(".json")
        folder.mkdir()
        for file in classifier.iterdir():
            (folder / file.name).write_bytes(file.read_bytes())
        (folder / name).write_text("{}")
        with pytest.raises(InputError, match=f"{what}, which has no gradients; explain the model"):
            visualize.explain(TEXT, model=folder)
    family_folders.make("t5", tmp_path / "t5", tmp_path)
    with pytest.raises(InputError, match="has a head for text2text-generation"):
        visualize.explain(TEXT, model=tmp_path / "t5")


def test_a_damaged_model(classifier: Path) -> None:
    model = BertForSequenceClassification.from_pretrained(classifier)
    with torch.no_grad():
        model.classifier.weight[0, 0] = torch.nan
    with pytest.raises(CheckpointError, match="not finite"):
        visualize.explain(TEXT, model=model, tokenizer=AutoTokenizer.from_pretrained(classifier))


def test_what_is_shown(classifier: Path, tmp_path: Path) -> None:
    found = visualize.explain("the </script> film & $it$ was <b>bad</b>", "a 'dull' end", model=classifier)
    page = found.page()
    assert "<b>bad" not in page
    assert "&lt;" in page
    assert not re.search(r"(src|href)=|https?:", page.replace("http-equiv", ""))
    for text, words in ((found.text, False), (found.text_pair, True)):
        shown = re.sub(r"<[^>]*>", "", page[page.index('<p class="words">') :])
        assert str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("'", "&#x27;") in shown
        assert all(str(text)[word.start : word.end] == word.text for word in found.words if word.second == words)
    names = [text.get_text() for text in found.figure().axes[0].get_yticklabels()]
    assert len(names) == len(found.words)
    assert r"\$" in names
    assert json.loads(found.save(tmp_path / "x.json").read_text()) == json.loads(json.dumps(found.to_dict()))
    assert found.save(tmp_path / "x.svg").stat().st_size > 1000
    strongest = int(np.abs(found.gradients).argmax())
    sign = "+" if found.gradients[strongest] > 0 else "-"
    assert re.search(rf"{re.escape(sign * 8)}  {re.escape(found.words[strongest].text)}$", found.render(), re.MULTILINE)
