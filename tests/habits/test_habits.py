"""What people type from memory: it runs with the meaning it has at home, or the error names ours."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from bertkit import (
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    T5Config,
    T5ForConditionalGeneration,
)
from bertkit.errors import BertkitError
from bertkit.habit_table import habits
from bertkit.habits.page import page
from finetune_data import labelled_texts, no_pictures, tiny_start
from habits.compared_texts import matches, scored_pairs, triplets
from habits.dataset_like import Dataset
from habits.snippet_runner import HOMES, Snippet, answer_at_home, differences, read_snippets, run, typed
from pipeline_helpers import save_tiny

WORLDS = {world: read_snippets(world) for world in HOMES}
NAMES = {"POSITIVE": 1, "NEGATIVE": 0}
TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


@pytest.fixture(scope="session")
def given(minilm: Path, once: Callable[[str, Callable[[Path], Any]], Any]) -> dict[str, Any]:
    """What a snippet may use: folders of models, and data that the tiny ones read."""
    rows = labelled_texts(64, seed=5)
    return {
        **once("habits", _models),
        "Dataset": Dataset,
        **once("habits-sheets", _run),
        "DF": _frame(),
        "typed": typed,
        "MINILM": str(minilm),
        "TEXTS": [text for text, _ in rows],
        "LABELS": [label for _, label in rows],
        "SENTENCES": ["A man is eating food.", "A man eats a meal.", "A girl plays the violin.", "The stock fell."],
        "MATCHES": matches(),
        "TRIPLETS": triplets(),
        "SCORED": scored_pairs(),
        "PAIRS": [("A man is eating.", "Someone eats."), ("A man is eating.", "The sky is blue.")],
    }


def _models(folder: Path) -> dict[str, str]:
    labels = {"id2label": {number: name for name, number in NAMES.items()}, "label2id": NAMES}
    tags = {"id2label": dict(enumerate(TAGS)), "label2id": {tag: number for number, tag in enumerate(TAGS)}}
    made = {
        "CLASSIFIER": save_tiny(folder / "classifier", BertForSequenceClassification, **labels),
        "CROSS": save_tiny(folder / "cross", BertForSequenceClassification, num_labels=1),
        "SPARSE": save_tiny(folder / "sparse", BertForMaskedLM),
        "WORDS": tiny_start(folder / "words"),
        "TAGGER": save_tiny(folder / "tagger", BertForTokenClassification, **tags),
        "ANSWERER": save_tiny(folder / "answerer", BertForQuestionAnswering),
        "ENCODER": save_tiny(folder / "encoder"),
        "MASKED": save_tiny(folder / "masked", BertForMaskedLM),
        "SEQ2SEQ": folder / "seq2seq",
    }
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "d_model": 24, "d_kv": 8, "d_ff": 36, "num_layers": 2, "num_heads": 3}
    T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0)).save_pretrained(made["SEQ2SEQ"])
    return {"MODEL": "bertkit-tiny-en", **{name: str(path) for name, path in made.items()}}


def _frame() -> pd.DataFrame:
    texts, labels = zip(*labelled_texts(64, seed=5), strict=True)
    words = [("negative", "positive")[label] for label in labels]
    return pd.DataFrame({"id": [f"{number:03d}" for number in range(64)], "text": texts, "label": words})


def _run(folder: Path) -> dict[str, str]:
    start, run = tiny_start(folder / "start"), folder / "run"
    _frame().to_csv(folder / "reviews.csv", index=False)
    with no_pictures():
        typed(
            f"bertkit finetune csv --data {folder}/reviews.csv --model {start} --out {run} --no-baseline "
            "--learning-rate 3e-3 --epochs 12 --batch-size 8 --precision fp32"
        )
    return {"START": str(start), "RUN": str(run)}


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    """Runs of a second: drawing takes longer than the rest."""
    with no_pictures():
        yield


@pytest.mark.parametrize(
    "snippet", [each for rows in WORLDS.values() for each in rows], ids=lambda s: f"{s.world}-{s.name}"
)
def test_what_is_typed_runs_as_at_home_or_is_answered_with_ours(
    snippet: Snippet, given: dict[str, Any], tmp_path: Path
) -> None:
    if snippet.error:
        with pytest.raises((BertkitError, ImportError, AttributeError, TypeError)) as told:
            run(snippet.code, given, tmp_path / "ours")
        assert re.search(snippet.error, str(told.value)), str(told.value)
        return
    ours = run(snippet.code, given, tmp_path / "ours")
    if snippet.check:
        assert eval(snippet.check, {**given, "result": ours, "TMP": tmp_path / "ours"}), f"{ours!r:.2000}"
        return
    try:
        theirs = answer_at_home(snippet, given, tmp_path / "home")
    except LookupError as error:
        pytest.skip(str(error))
    assert differences(ours, theirs, snippet.tolerance) == []


def test_nine_of_ten_run_in_all_and_four_of_five_in_each_world() -> None:
    rows = [each for world in WORLDS.values() for each in world]
    assert len(rows) >= 200
    assert all(len(world) >= 35 for world in WORLDS.values())
    assert sum(not each.error for each in rows) >= 0.9 * len(rows)
    assert all(sum(not each.error for each in world) >= 0.8 * len(world) for world in WORLDS.values())


def test_differences_are_found() -> None:
    assert differences([{"a": 1.0}], [{"a": 1.1}], 1e-3)
    assert differences([1], [1, 2], 1e-3)
    assert differences({"a": 1}, {"b": 1}, 1e-3)
    assert differences("x", "y", 1e-3)
    assert not differences([{"a": (1.0, 2)}], [{"a": [1.0001, 2]}], 1e-3)


def test_the_table_is_sorted_and_says_what_to_write() -> None:
    rows = list(habits().values())
    assert [(row.entry, row.name) for row in rows] == sorted((row.entry, row.name) for row in rows)
    assert all(row.ours for row in rows if row.meaning != "same")


def test_the_page_of_the_docs_is_that_of_the_table() -> None:
    written = (Path(__file__).parents[2] / "docs" / "habits.md").read_text(encoding="utf-8")
    assert written == page(), "run: python -m bertkit.habits.page > docs/habits.md"
