"""Pipelines of BARTs and T5s that read give what those of ``transformers`` give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import bertkit
from bertkit import AutoModelForQuestionAnswering, AutoModelForSequenceClassification, pipeline
from reader_folders import TEXTS, save_reader

ATOL = 1e-5
#: What the classifier is for; a call of transformers, and the same call here.
KINDS_OF_LABELS: dict[str, dict[str, Any]] = {
    "one label": {"num_labels": 3},
    "several labels": {"num_labels": 3, "problem_type": "multi_label_classification"},
    "a number": {"num_labels": 1, "problem_type": "regression"},
}
PAIRS = [("the river", "it was wide"), ("who ran?", "they ran there, the two of them"), ("a", "b")]


@pytest.mark.parametrize("labels", KINDS_OF_LABELS)
def test_text_classification(labels: str, tmp_path: Path) -> None:
    theirs = save_reader("ForSequenceClassification", tmp_path, **KINDS_OF_LABELS[labels])
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    peer: Any = transformers.pipeline("text-classification", model=theirs, tokenizer=tokenizer, top_k=None)
    pipe = pipeline(model=tmp_path)
    assert pipe.task == "text-classification"
    for given, asked in ((TEXTS, TEXTS), (PAIRS, [{"text": first, "text_pair": second} for first, second in PAIRS])):
        found, expected = pipe(given, top_k=None), [peer([each])[0] for each in asked]
        for ours, other in zip(found, expected, strict=True):
            assert [label["label"] for label in ours] == [label["label"] for label in other]
            assert [label["score"] for label in ours] == pytest.approx([label["score"] for label in other], abs=ATOL)
        assert len({round(each[0]["score"], 3) for each in found}) == len(found)  # a control: the text matters
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    again = pipeline("text-classification", model=loaded, tokenizer=tmp_path)
    for ours, other in zip(again(TEXTS, top_k=None), pipe(TEXTS, top_k=None), strict=True):
        assert [label["score"] for label in ours] == pytest.approx([label["score"] for label in other], abs=ATOL)


def test_labels_that_it_was_not_trained_on(tmp_path: Path) -> None:
    """As with ``bart-large-mnli``."""
    names = ("contradiction", "neutral", "entailment")
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}
    theirs = save_reader("ForSequenceClassification", tmp_path, **labels)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    peer: Any = transformers.pipeline("zero-shot-classification", model=theirs, tokenizer=tokenizer)
    pipe, words = pipeline("zero-shot-classification", model=tmp_path), ["river", "boat", "fair"]
    for text in TEXTS[:3]:
        found, expected = pipe(text, words), peer(text, words)
        assert found["labels"] == expected["labels"]
        assert found["scores"] == pytest.approx(expected["scores"], abs=ATOL)


def test_question_answering(tmp_path: Path) -> None:
    """The best pieces of the context by the logits of transformers, whose own pipeline is gone; searched one by one."""
    theirs = save_reader("ForQuestionAnswering", tmp_path)
    pipe = pipeline(model=tmp_path)
    assert pipe.task == "question-answering"
    seen = set()
    # Without blanks, which are tokens of this vocabulary but no part of an answer.
    for question, context in (("who?", TEXTS[2]), ("where?", "there, on the river"), ("a", TEXTS[4])):
        context = context.replace(" ", "-")
        given = pipe.tokenizer(question, context, return_offsets_mapping=True)
        with torch.no_grad():
            out = theirs(input_ids=torch.tensor([given["input_ids"]]))
        starts, ends = out.start_logits[0].double().numpy(), out.end_logits[0].double().numpy()
        places = [n for n, part in enumerate(given.sequence_ids(0)) if part == 1]
        spans = [(i, j) for i in places for j in places if i <= j < i + 7]
        weights = np.exp([starts[i] + ends[j] for i, j in spans])
        ranked = np.argsort(-weights)[:3]
        found = pipe(question, context, top_k=3, max_answer_len=7, align_to_words=False)
        for answer, number in zip(found, ranked, strict=True):
            first, last = (given["offset_mapping"][place] for place in spans[number])
            assert answer["answer"] == context[first[0] : last[1]]
            assert answer["score"] == pytest.approx(weights[number] / weights.sum(), abs=ATOL)
        seen.add(found[0]["answer"])
    assert len(seen) > 1  # a control: the text matters
    again = pipeline("question-answering", AutoModelForQuestionAnswering.from_pretrained(tmp_path), tmp_path)
    assert again("a", TEXTS[4])["score"] == pytest.approx(pipe("a", TEXTS[4])["score"], abs=ATOL)


@pytest.mark.parametrize(("family", "head"), [("bart", "Model"), ("t5", "EncoderModel")])
def test_vectors(family: str, head: str, tmp_path: Path) -> None:
    """Of a BART the decoder's, as the pipeline of transformers gives them; of a T5 the encoder's."""
    theirs = save_reader(head, tmp_path, family=family)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    peer: Any = transformers.pipeline("feature-extraction", model=theirs, tokenizer=tokenizer)
    pipe = pipeline(model=tmp_path)
    assert pipe.task == "feature-extraction"
    nested = [np.array(peer(text)) for text in TEXTS]
    expected = [each[0] for each in nested]
    for pooling, pooled in (("mean", [x.mean(axis=0) for x in expected]), ("max", [x.max(axis=0) for x in expected]),
                            ("cls", [x[0] for x in expected]), (None, nested)):  # fmt: skip
        for ours, other in zip(pipe(TEXTS, pooling=pooling), pooled, strict=True):
            np.testing.assert_allclose(ours, other, atol=ATOL)
    means = [x.mean(axis=0) for x in expected]
    similar = pipeline("sentence-similarity", model=tmp_path)(TEXTS[0], TEXTS[1:3])
    cosines = [means[0] @ other / np.linalg.norm(means[0]) / np.linalg.norm(other) for other in means[1:3]]
    assert similar == pytest.approx(cosines, abs=ATOL)


def test_vectors_of_models_with_heads(tmp_path: Path) -> None:
    """Any class of the family gives those of the bare one, loaded or as an object; of a T5 its encoder's."""
    for family, head in (("bart", "ForSequenceClassification"), ("t5", "ForConditionalGeneration"), ("t5", "Model")):
        folder = tmp_path / f"{family}{head}"
        theirs = save_reader(head, folder, family=family)
        pipe = pipeline("feature-extraction", model=folder)
        ids = torch.tensor([pipe.tokenizer(TEXTS[2])["input_ids"]])
        with torch.no_grad():
            bare = theirs.encoder if family == "t5" else theirs.model
            expected = bare(input_ids=ids).last_hidden_state.numpy()
        np.testing.assert_allclose(pipe(TEXTS[2]), expected, atol=ATOL)
        model = getattr(bertkit, theirs.config.architectures[0]).from_pretrained(folder)
        found = pipeline("feature-extraction", model=model, tokenizer=folder)(TEXTS[2])
        np.testing.assert_allclose(found, expected, atol=ATOL)
