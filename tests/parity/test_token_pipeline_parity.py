"""Token classification against ``transformers``: every strategy, on real text."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import transformers

from bertkit import BertForTokenClassification, pipeline
from bertkit.engine.backend import Precision
from bertkit.tasks.tokens.reading import ner_task
from bertkit.tasks.workflow import workflow_of
from pipeline_helpers import TOLERANCES, save_tiny

LABELS = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}
STRATEGIES = ["none", "simple", "first", "average", "max"]


@pytest.fixture(scope="module")
def tagger(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real MiniLM with a head that says nothing sensible, but different things of different pieces."""
    folder = tmp_path_factory.mktemp("tagger")
    model = BertForTokenClassification.from_pretrained(minilm, id2label=LABELS, new_head=True, seed=3)
    model.classifier.weight.data *= 25
    model.save_pretrained(folder)
    for name in ("vocab.txt", "tokenizer_config.json"):
        (folder / name).write_bytes((minilm / name).read_bytes())
    return folder


@pytest.fixture(scope="module")
def texts(shared: Path) -> list[str]:
    """Tweets and encyclopedia sentences: names, handles, emoji, apostrophes, numbers."""
    data = shared / "data" / "ner"
    found = []
    for name in ("btc/e.conll", "wnut17/dev.conll"):
        task = ner_task(data / name)
        examples = workflow_of(task).read(data / name, "train" if "btc" in name else "dev")
        found += [example.text for example in random.Random(0).sample(examples, 12)]
    return [*found, "don't", "a", "U.S. No.1!"]


@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy(tagger: Path, texts: list[str], strategy: str, precision: Precision) -> None:
    ours = pipeline("token-classification", model=tagger, device="cpu", precision=precision)
    theirs = transformers.pipeline("token-classification", model=str(tagger), device="cpu")
    several = ours(texts, aggregation_strategy=strategy)
    expected = [theirs(text, aggregation_strategy=strategy) for text in texts]
    for text, found, other in zip(texts, several, expected, strict=True):
        assert_same(found, other, text, TOLERANCES[precision])
    assert_same(ours(texts[0], aggregation_strategy=strategy), expected[0], texts[0], TOLERANCES[precision])
    assert sum(map(len, expected)) > len(texts)


def assert_same(ours: list[dict[str, Any]], theirs: list[dict[str, Any]], text: str, tolerance: float) -> None:
    """Equal keys, labels and places; scores as near as that; the word is the text's own instead of a decoded one."""
    assert len(ours) == len(theirs), text
    for mine, other in zip(ours, theirs, strict=True):
        assert list(mine) == list(other)
        assert mine["word"] == text[mine["start"] : mine["end"]]
        assert mine["score"] == pytest.approx(float(other["score"]), abs=tolerance)
        assert {k: v for k, v in mine.items() if k not in ("score", "word")} == {
            k: v for k, v in other.items() if k not in ("score", "word")
        }


def test_the_strategies_differ(tagger: Path, texts: list[str]) -> None:
    """The control: a comparison that confused two strategies would be seen."""
    pipe = pipeline("ner", model=tagger, device="cpu")
    found = {strategy: str(pipe(texts, aggregation_strategy=strategy)) for strategy in STRATEGIES}
    assert len(set(found.values())) == len(STRATEGIES)


def test_ignored_labels_and_words_given(tagger: Path) -> None:
    ours = pipeline("ner", model=tagger, device="cpu", precision="fp32")
    theirs = transformers.pipeline("ner", model=str(tagger), device="cpu")
    text = "Angela Merkel flew from Berlin to Paris."
    for strategy in ("none", "simple", "first"):
        for ignored in ([], ["O", "PER", "B-PER"]):
            options = {"aggregation_strategy": strategy, "ignore_labels": ignored}
            assert_same(ours(text, **options), theirs(text, **options), text, TOLERANCES["fp32"])
    words = text.replace(".", " .").split()
    options = {"aggregation_strategy": "simple", "is_split_into_words": True}
    assert_same(ours(words, **options), theirs(words, **options)[0], " ".join(words), TOLERANCES["fp32"])


@pytest.mark.parametrize("labels", [{0: "NOUN", 1: "VERB", 2: "X"}, {0: "O", 1: "PER", 2: "LOC"}])
def test_labels_without_letters(tmp_path: Path, labels: dict[int, str]) -> None:
    folder = save_tiny(tmp_path / "m", BertForTokenClassification, id2label=labels)
    ours = pipeline("ner", model=folder, device="cpu", precision="fp32")
    theirs = transformers.pipeline("ner", model=str(folder), device="cpu")
    for text in ("a good film", "the end was very dull! it is great, not bad of all", "film"):
        for strategy in STRATEGIES:
            expected = theirs(text, aggregation_strategy=strategy)
            assert_same(ours(text, aggregation_strategy=strategy), expected, text, TOLERANCES["fp32"])
