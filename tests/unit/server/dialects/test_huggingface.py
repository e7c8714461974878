"""Hugging Face's task shapes, as the installed client reads them."""

from __future__ import annotations

from typing import Any

import pytest
from huggingface_hub import (
    FillMaskOutputElement,
    QuestionAnsweringOutputElement,
    TextClassificationOutputElement,
    TokenClassificationOutputElement,
    ZeroShotClassificationOutputElement,
)

from bertkit.server.dialects.huggingface import DIALECT
from bertkit.server.failures import Failure
from dialect_helpers import LABELS, ask

SPAN = {"entity_group": "PER", "score": 0.5, "word": "a", "start": 0, "end": 1}
ANSWER = {"answer": "a", "score": 0.5, "start": 0, "end": 1}
GUESS = {"sequence": "a b", "score": 0.5, "token": 7, "token_str": "b"}


def of(task: str, inputs: Any, **parameters: Any) -> Any:
    """A request for a task of a model, whose name may have a slash."""
    return ask("POST", f"/models/vectors/pipeline/{task}", {"inputs": inputs, "parameters": parameters})


def test_text_classification_is_nested() -> None:
    said = of("text-classification", "a").said([LABELS], "labels")
    (found,) = TextClassificationOutputElement.parse_obj_as_list(said)
    assert [each.label for each in found] == ["good", "dull", "bad"]
    assert of("text-classification", ["a", "b"]).said([LABELS, LABELS], "labels") == [LABELS, LABELS]
    pair = of("text-classification", {"text": "a", "text_pair": "b"}, top_k=2, function_to_apply="none")
    assert list(pair.call.items) == [("a", "b")]
    assert pair.call.options == {"top_k": 2, "function_to_apply": "none"}


def test_token_classification_gives_groups_unless_it_is_told_otherwise() -> None:
    asking = of("token-classification", "a")
    assert asking.call.options == {"aggregation_strategy": "simple"}
    assert TokenClassificationOutputElement.parse_obj_as_list(asking.said([[SPAN]]))[0].entity_group == "PER"
    asking = of("token-classification", ["a", "b"], aggregation_strategy="none", ignore_labels=["O"], stride=4)
    assert asking.call.options == {"aggregation_strategy": "none", "ignore_labels": ("O",), "stride": 4}
    assert asking.said([[SPAN], []]) == [[SPAN], []]


def test_question_answering_gives_one_or_a_list() -> None:
    question = {"question": "q", "context": "a"}
    asking = of("question-answering", question, top_k=1, doc_stride=128, max_seq_len=64)
    assert asking.call.options == {"max_seq_len": 64}
    assert QuestionAnsweringOutputElement.parse_obj(asking.said([ANSWER])).answer == "a"
    several = of("question-answering", question, top_k=2)
    assert several.call.options == {"top_k": 2}
    assert len(QuestionAnsweringOutputElement.parse_obj(several.said([[ANSWER, ANSWER]]))) == 2
    assert of("question-answering", [question, question]).said([ANSWER, ANSWER]) == [ANSWER, ANSWER]


def test_fill_mask_is_flat_for_one_mask() -> None:
    asking = of("fill-mask", "a [MASK]", targets=["b"], top_k=1)
    assert asking.call.options == {"targets": ("b",), "top_k": 1}
    assert FillMaskOutputElement.parse_obj_as_list(asking.said([[GUESS]]))[0].token_str == "b"
    assert of("fill-mask", "[MASK] [MASK]").said([[[GUESS], [GUESS]]]) == [[GUESS], [GUESS]]
    assert of("fill-mask", ["a", "b"]).said([[GUESS], [GUESS]]) == [[GUESS], [GUESS]]


def test_zero_shot() -> None:
    options = {"candidate_labels": ["x", "y"], "multi_label": True, "hypothesis_template": "It is {}."}
    asking = of("zero-shot-classification", "a", **options)
    assert asking.call.options == {**options, "candidate_labels": ("x", "y")}
    result = {"labels": ["y", "x"], "scores": [0.75, 0.25]}
    said = asking.said([result])
    assert ZeroShotClassificationOutputElement.parse_obj_as_list(said)[0].label == "y"
    assert of("zero-shot-classification", ["a"], **options).said([result]) == [said]


@pytest.mark.parametrize(
    ("task", "field"),
    [
        ("text2text-generation", "generated_text"),
        ("text-generation", "generated_text"),
        ("summarization", "summary_text"),
        ("translation", "translation_text"),
    ],
)
def test_written_text_has_the_name_of_its_task(task: str, field: str) -> None:
    asking = of(task, "a", max_new_tokens=8, clean_up_tokenization_spaces=True)
    assert (asking.call.task, asking.call.options) == ("generate", {"max_new_tokens": 8})
    assert asking.said([{"generated_text": "b"}], "writer") == [{field: "b"}]


def test_failures_are_one_text() -> None:
    reply = DIALECT.refusal(Failure("unknown_model", "no model 'x'"))
    assert (reply.status, reply.body) == (404, b'{"error":"no model \'x\'"}')
    assert DIALECT.refusal(Failure("invalid", "x")).status == 422
