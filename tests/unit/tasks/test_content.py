"""What the hash of a data set is of: a run that is resumed must find the same, whatever file its rows came from."""

from __future__ import annotations

from typing import Any

import pytest

from bertkit.metrics.tags import Entity
from bertkit.tasks import Example, get_task
from bertkit.tasks.choices.task import ChoiceExample
from bertkit.tasks.embeddings.task import EmbeddingExample
from bertkit.tasks.rerank.task import RerankExample
from bertkit.tasks.seq2seq.task import Seq2SeqExample
from bertkit.tasks.spans.task import Answer, SpanExample
from bertkit.tasks.tokens.conll import ConllColumns
from bertkit.tasks.tokens.task import TaggedExample, TokenTask
from bertkit.tasks.workflow import workflow_of

PLACE: dict[str, Any] = {"row": 7, "source": "file.csv"}
NER = TokenTask("ner", ("PER",), ConllColumns())


@pytest.mark.parametrize(
    ("task", "example", "content", "unlabelled"),
    [
        ("sst2", Example("a", None, 1, **PLACE), ("a", None, 1), Example("a")),
        (
            "swag",
            ChoiceExample("c", "s", ("x", "y"), 1, **PLACE),
            ("c", "s", ("x", "y"), 1),
            ChoiceExample("c", "", ()),
        ),
        ("rerank", RerankExample("q", ("d",), (1.0,), **PLACE), ("q", ("d",), (1.0,)), RerankExample("q", ("d",))),
        ("summarize", Seq2SeqExample("a", "b", **PLACE), ("a", "b"), Seq2SeqExample("a")),
        ("pairs", EmbeddingExample(("a", "b"), **PLACE), (("a", "b"), None), None),
        ("scored-pairs", EmbeddingExample(("a", "b"), 0.5, **PLACE), (("a", "b"), 0.5), EmbeddingExample(("a", "b"))),
        (
            "squad",
            SpanExample("1", "q", "c", (Answer("c", 0),), **PLACE, title="t"),
            ("1", "q", "c", [("c", 0)]),
            SpanExample("1", "q", "c"),
        ),
        (
            "ner",
            TaggedExample(("Ann",), (Entity("PER", 0, 1),), **PLACE),
            (("Ann",), " ", [("PER", 0, 1)]),
            TaggedExample(("Ann",)),
        ),
        (
            "ner",
            TaggedExample(("Ann",), (), **PLACE, spacing=("", " ")),
            (("Ann",), " ", [], ("", " ")),
            TaggedExample(("Ann",)),
        ),
    ],
)
def test_content_is_what_a_model_and_its_scores_see(task: str, example: Any, content: object, unlabelled: Any) -> None:
    workflow = workflow_of(NER if task == "ner" else get_task(task))
    assert repr(workflow.content(example)) == repr(content)
    assert workflow.has_labels([example])
    if unlabelled is not None:
        assert not workflow.has_labels([unlabelled])
