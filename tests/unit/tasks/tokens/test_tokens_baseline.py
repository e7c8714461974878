"""The baseline of names: it knows words by their looks and neighbours, writes valid tags, and has bounds."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.metrics.tags import Entity
from bertkit.tasks import ner_task
from bertkit.tasks.examples import Examples
from bertkit.tasks.hold_out import part
from bertkit.tasks.tokens import baseline as module
from bertkit.tasks.tokens.baseline import WordFeatureTagger, best_path, feature_baseline, word_features, word_shape
from bertkit.tasks.tokens.task import TaggedExample, TokenTask
from bertkit.tasks.workflow import workflow_of

pytestmark = pytest.mark.slow

TASK = TokenTask("ner", ("LOC", "PER"))
SYLLABLES = ("ba", "ko", "mi", "ru", "ta", "zo")


def _name(generator: np.random.Generator) -> str:
    return "".join(generator.choice(SYLLABLES, 5)).title()


def _sentence(generator: np.random.Generator) -> TaggedExample:
    """``the <word> saw Mr. Name Name in Name .``: only the word before a name says what it is."""
    filler = list(generator.choice(["the", "a", "old", "film", "book", "was", "seen"], generator.integers(1, 5)))
    words = [*filler, "by", "Mr.", _name(generator), _name(generator), "in", _name(generator), "."]
    start = len(filler) + 2
    return TaggedExample(tuple(words), (Entity("PER", start, start + 2), Entity("LOC", start + 3, start + 4)))


def _sentences(count: int, seed: int) -> list[TaggedExample]:
    generator = np.random.default_rng(seed)
    return [_sentence(generator) for _ in range(count)]


def test_names_that_train_lacks_are_found() -> None:
    train, dev = _sentences(60, 1), _sentences(40, 2)
    known = {word for example in train for word in example.words}
    names = {word for example in dev for entity in example.entities or () for word in example.words[slice(*entity[1:])]}
    assert len(names - known) > len(names) / 2
    told = feature_baseline(train, dev, TASK)
    metrics = told["metrics"]
    assert isinstance(metrics, dict)
    assert metrics["f1"] > 0.95
    assert metrics.keys() == set(TASK.metrics)
    # A control: without the words around them, two kinds of names look alike.
    alone = [TaggedExample(example.words[slice(*each[1:])], (Entity(each.type, 0, each.end - each.start),))
             for example in dev for each in example.entities or ()]  # fmt: skip
    assert feature_baseline(train, alone, TASK)["metrics"]["f1"] < 0.9  # type: ignore[index, call-overload, operator]


def test_the_same_sentences_give_the_same_tags_in_parts_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    train, dev = _sentences(30, 1), _sentences(20, 2)
    first = WordFeatureTagger(train).tag(dev)
    monkeypatch.setattr(module, "WORDS_AT_ONCE", 7)
    assert WordFeatureTagger(train).tag(dev) == first


@given(st.integers(0, 4), st.integers(2, 3), st.integers(0, 2**32 - 1))
def test_the_best_path_is_that_of_all_paths(length: int, size: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    scores, first, following = (generator.normal(size=shape) for shape in ((length, size), size, (size, size)))

    def total(path: tuple[int, ...]) -> float:
        steps = sum(following[pair] for pair in itertools.pairwise(path))
        return float(sum(scores[place, tag] for place, tag in enumerate(path)) + first[path[0]] + steps)

    found = best_path(scores, first, following)
    if not length:
        assert found == []
        return
    best = max(map(total, itertools.product(range(size), repeat=length)))
    assert total(tuple(found)) == pytest.approx(best, abs=1e-9)


def test_an_entity_begins_with_b_even_where_train_is_odd() -> None:
    generator = np.random.default_rng(0)
    words = [f"W{number}" for number in range(8)]
    train = []
    for _ in range(40):
        chosen = tuple(map(str, generator.choice(words, 5)))
        train.append(TaggedExample(chosen, (Entity("PER", 0, 2), Entity(("LOC", "PER")[len(train) % 2], 2, 5))))
    for tags in WordFeatureTagger(train).tag(train):
        for before, tag in itertools.pairwise(["O", *tags]):
            assert not tag.startswith("I-") or before in (tag, f"B-{tag[2:]}")


def test_files_of_one_tag_of_many_tags_and_of_no_words() -> None:
    outside = [TaggedExample(("a", "b"), ()), TaggedExample((), ()), TaggedExample(("c",), ())]
    assert WordFeatureTagger(outside).tag(outside) == [["O", "O"], [], ["O"]]
    whole = [TaggedExample((f"w{number}",), (Entity("PER", 0, 1),)) for number in range(4)]
    assert WordFeatureTagger(whole).tag(whole[:1]) == [["B-PER"]]
    many = [TaggedExample((f"w{number}", "x"), (Entity(f"T{number}", 0, 1),)) for number in range(300)]
    tagger = WordFeatureTagger(many)
    assert tagger.num_features * len(tagger.tags) <= module.MOST_WEIGHTS
    assert tagger.tag(many[:3]) == [["B-T0", "O"], ["B-T1", "O"], ["B-T2", "O"]]


def test_of_a_long_file_a_part_is_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    train = _sentences(200, 1)
    monkeypatch.setattr(module, "MOST_WORDS", 500)
    tagger = WordFeatureTagger(train)
    assert 400 < sum(len(example.words) for example in tagger.learned_from) < 600
    assert tagger.learned_from[0] is train[0]
    assert tagger.learned_from[-1] is train[-1]
    assert feature_baseline(train, train, TASK)["train_rows"] == len(tagger.learned_from)


def test_features_of_words() -> None:
    shapes = {"Oslo": "Xx", "NATO": "X", "10-12": "d-d", "iPhone5s": "xXxdx", "": "", "Ω1": "Xd", "...": "."}
    assert {word: word_shape(word) for word in shapes} == shapes
    (first, second) = word_features(["Ann", "spoke"])
    assert {"word Ann", "1 spoke", "-1 <>", "0 shape Xx", "ends nn", "begins a", "and ann spoke"} <= set(first)
    assert {"-1 ann", "left ann x", "two ann spoke", "-1 ends ann"} <= set(second)


@pytest.mark.slow
@pytest.mark.campaign
def test_it_is_a_bar_on_real_names(shared: Path) -> None:
    file = shared / "data" / "ner" / "wikigold"
    task = ner_task(file)
    rows: Examples[TaggedExample] = workflow_of(task).read(file, "train")
    chosen = set(np.random.default_rng(0).permutation(len(rows))[:796].tolist())
    train, dev = part(rows, chosen)
    assert (len(train), len(dev)) == (900, 796)
    assert 0.63 < feature_baseline(train, dev, task)["metrics"]["f1"] < 0.73  # type: ignore[index, call-overload, operator]
