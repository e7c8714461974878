"""Calls whose meaning depends on two keywords, on what was asked before, or on the kind of collection."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bertkit import BertForQuestionAnswering, BertForTokenClassification, pipeline
from bertkit.errors import InputError
from bertkit.inference.pipeline_base import read_options
from bertkit.inference.token_classification import TokenClassificationPipeline
from pipeline_helpers import save_tiny
from sentence_folders import pooling, sentence_folder

TAGS = {"id2label": {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC"}, "num_labels": 4}


@pytest.mark.parametrize(
    ("given", "strategy"),
    [
        ({"grouped_entities": True, "ignore_subwords": True}, "first"),
        ({"ignore_subwords": True, "grouped_entities": True}, "first"),
        ({"ignore_subwords": False, "grouped_entities": True}, "simple"),
        ({"grouped_entities": False, "ignore_subwords": True}, "none"),
        ({"grouped_entities": True}, "simple"),
    ],
)
def test_old_names_of_strategies_as_in_version_4(given: dict[str, bool], strategy: str) -> None:
    found = read_options("ner", TokenClassificationPipeline.other_names, given, None)
    assert found == {"aggregation_strategy": strategy}


def test_how_much_is_read_does_not_depend_on_earlier_calls(tmp_path: Path) -> None:
    folder = sentence_folder(tmp_path / "m", [pooling("mean")], None, {"max_seq_length": 40})
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "model_max_length": 20}))
    pipe, text = pipeline("feature-extraction", folder), "film " * 35
    for _ in range(2):
        with pytest.raises(InputError, match="the limit is 20"):
            pipe(text)
        cut = pipe(text, truncation=True, pooling="mean")
        assert cut.num_tokens == 20
        assert pipe(text, pooling="model").num_tokens == 37


def test_a_question_with_its_context_and_another_is_refused(tmp_path: Path) -> None:
    pipe = pipeline("question-answering", save_tiny(tmp_path / "m", BertForQuestionAnswering))
    for given in ({"question": "Who came?"}, {"question": "Who came?", "context": "Ann came."}):
        with pytest.raises(InputError, match="context= goes with a question that is a text"):
            pipe(given, context="Ann came.")


def test_words_in_any_collection(tmp_path: Path) -> None:
    pipe = pipeline("ner", save_tiny(tmp_path / "m", BertForTokenClassification, **TAGS))
    words = [["a", "good", "film"], ["the", "end"]]
    expected = pipe(words, is_split_into_words=True)
    array = np.empty(2, object)
    array[:] = words
    for given in (pd.Series(words), array, pa.array(words)):
        assert pipe(given, is_split_into_words=True) == expected
