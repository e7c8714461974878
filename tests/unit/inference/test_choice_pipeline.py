"""The multiple-choice pipeline: shapes of answers, equality with the padded model, errors that say what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from bertkit import BertForMultipleChoice, pipeline
from bertkit.engine.backend import Precision
from bertkit.errors import InputError
from bertkit.inference.multiple_choice import MultipleChoicePipeline
from bertkit.metrics.probabilities import softmax
from bertkit.tokenization import BertTokenizer
from pipeline_helpers import TOLERANCES, save_tiny

QUESTIONS: list[dict[str, Any]] = [
    {"context": "the film was good", "choices": ["it is a great end", "dull", "not a film"]},
    {"context": "a dull scene", "choices": ["good", "bad"], "start": "it was"},
    {"context": "in the end", "choices": ["a", "b", "c", "d", "e"]},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("choice"), BertForMultipleChoice)


@pytest.fixture(scope="module")
def pipe(folder: Path) -> MultipleChoicePipeline:
    model = BertForMultipleChoice.from_pretrained(folder)
    return MultipleChoicePipeline(model, BertTokenizer.from_pretrained(folder))


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-6), ("auto", TOLERANCES["auto"])])
def test_probabilities_are_those_of_the_padded_model(folder: Path, precision: Precision, tolerance: float) -> None:
    model = BertForMultipleChoice.from_pretrained(folder)
    pipe = pipeline("multiple-choice", model=folder, device="cpu", precision=precision)
    answers = pipe(QUESTIONS)
    for question, answer in zip(QUESTIONS, answers, strict=True):
        choices = [f"{question.get('start', '')} {choice}".strip() for choice in question["choices"]]
        ids = pipe.tokenizer([question["context"]] * len(choices), choices, padding=True, return_tensors="pt")
        with torch.inference_mode():
            logits = model(**{name: value[None] for name, value in ids.items()}).logits.numpy()
        assert answer["scores"] == pytest.approx(softmax(logits)[0].tolist(), abs=tolerance)
        assert answer["index"] == int(logits.argmax())
        assert answer["choice"] == question["choices"][answer["index"]]
        assert answer["score"] == max(answer["scores"])
    assert len({round(answer["score"], 3) for answer in answers}) == 3, "control: different questions differ"


def test_the_shape_of_the_answer_is_that_of_the_question(pipe: MultipleChoicePipeline) -> None:
    one = pipe(QUESTIONS[1])
    assert one == pipe("a dull scene", choices=["good", "bad"], start="it was")
    assert pipe([QUESTIONS[1]])[0]["scores"] == pytest.approx(one["scores"], abs=1e-6)
    assert pipe([]) == []

    drawn: list[int] = []

    def stream() -> Iterator[dict[str, Any]]:
        for number in range(600):
            drawn.append(number)
            yield QUESTIONS[number % 3]

    answers = pipe(stream())
    assert next(answers)["index"] in range(3)
    assert len(drawn) < 600, "questions are drawn as they are needed"
    assert sum(1 for _ in answers) == 599


def test_long_questions_are_refused_or_cut_before_the_choice(pipe: MultipleChoicePipeline) -> None:
    long = {"context": "good " * 100, "choices": ["bad", "a film"]}
    with pytest.raises(InputError, match=r"question 1 with its choice 0 .* has 104 tokens"):
        pipe([QUESTIONS[0], long])
    cut = pipe(long, truncation=True)
    assert cut["truncated"] is True
    short = pipe({**long, "context": "good " * 59}, truncation=True)  # 59 + 2 + 3 = 64 tokens with the longer choice
    assert short["truncated"] is False
    assert cut["scores"] == pytest.approx(pipe({**long, "context": "good " * 60}, truncation=True)["scores"], abs=1e-6)


@pytest.mark.parametrize(
    ("inputs", "options", "said"),
    [
        ("a context", {}, "needs choices="),
        ({"context": "a"}, {}, "must be a dict with 'context' and 'choices'"),
        ({"context": "a", "choices": "bc"}, {}, "must be a list of texts, got str"),
        ({"context": "a", "choices": ["b"]}, {}, "has 1 choice; expected two or more"),
        ({"context": "a", "choices": ["b", 3]}, {}, "holds a int, 3; expected texts"),
        ({"context": "a", "choices": ["b", "c"], "label": 1}, {}, r"unknown keys \['label'\]"),
        ([QUESTIONS[0], "text"], {}, "question 1 must be a dict"),
        (QUESTIONS[0], {"choices": ["a", "b"]}, "go with a single context"),
        (7, {}, "takes a question or an iterable"),
        (QUESTIONS[0], {"max_length": 1000}, "max_length must be from 3 to 64"),
    ],
)
def test_what_is_no_question(pipe: MultipleChoicePipeline, inputs: Any, options: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        pipe(inputs, **options)
