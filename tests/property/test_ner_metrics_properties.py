"""Entity scores equal seqeval's on random tags, broken ones included; the repair rule changes no score."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import seqeval.metrics as oracle
from seqeval.metrics.sequence_labeling import get_entities
from seqeval.scheme import IOB2, IOBES

from bertkit.metrics.tags import Notation, notation_of, read_entities, spelling_of, write_tags
from bertkit.tasks.tokens.metrics import entity_scores, tag_accuracy

LETTERS = {"BIO": "BI", "BIOES": "BIES"}
STRICT = {"BIO": IOB2, "BIOES": IOBES}
TYPES = ["PER", "LOC", "creative-work", "X"]
Tags = list[list[str]]


def tag_cases(count: int, seed: int, scheme: str) -> Iterator[tuple[Tags, Tags]]:
    """1 to 6 sentences of 0 to 12 words, 1 to 4 types; predictions from independent to equal, most of them broken."""
    for case in range(count):
        rng = np.random.default_rng([seed, case])
        kinds = TYPES[: int(rng.integers(1, 5))]
        names = ["O", *(f"{letter}-{kind}" for kind in kinds for letter in LETTERS[scheme])]
        share_outside = float(rng.choice([0.1, 0.5, 0.9]))
        keep = float(rng.choice([0.0, 0.5, 0.9, 1.0]))
        right: Tags = []
        predicted: Tags = []
        for length in rng.integers(0, 13, rng.integers(1, 7)).tolist():
            drawn = [draw(rng, names, share_outside) for _ in range(length)]
            if rng.random() < 0.7:  # a file that keeps to its scheme
                drawn = write_tags(read_entities(drawn), length, scheme)  # type: ignore[arg-type]
            right.append(drawn)
            predicted.append([tag if rng.random() < keep else draw(rng, names, share_outside) for tag in drawn])
        if sum(map(len, right)):
            yield predicted, right


def draw(rng: np.random.Generator, names: list[str], share_outside: float) -> str:
    return "O" if rng.random() < share_outside else str(rng.choice(names))


def compare(count: int, seed: int, scheme: str, mode: str) -> int:
    told: dict[str, Any] = {"mode": "strict", "scheme": STRICT[scheme]} if mode == "strict" else {}
    worst, cases, with_entities = 0.0, 0, 0
    for predicted, right in tag_cases(count, seed, scheme):
        scores = entity_scores(predicted, right, mode=mode, scheme=scheme)  # type: ignore[arg-type]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = oracle.classification_report(right, predicted, output_dict=True, zero_division=0, **told)
            accuracy = oracle.accuracy_score(right, predicted)
        kinds = set(table) - {"micro avg", "macro avg", "weighted avg"}
        assert set(scores.by_class) == kinds
        for name, found in [*scores.by_class.items(), *([("micro avg", scores.micro)] if kinds else [])]:
            values = (found.precision, found.recall, found.f1, found.support)
            keys = ("precision", "recall", "f1-score", "support")
            worst = max(worst, *(abs(ours - table[name][key]) for ours, key in zip(values, keys, strict=True)))
        if kinds:
            with_entities += 1
            worst = max(worst, abs(scores.macro["f1"] - table["macro avg"]["f1-score"]))
            if scores.micro.support:
                worst = max(worst, abs(scores.weighted["f1"] - table["weighted avg"]["f1-score"]))
        worst = max(worst, abs(tag_accuracy(predicted, right) - accuracy))
        cases += 1
    assert worst < 1e-12, worst
    assert with_entities > cases / 2, "the sweep must contain entities"
    return cases


@pytest.mark.parametrize("mode", ["default", "strict"])
@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
def test_entity_scores_equal_seqeval(scheme: str, mode: str) -> None:
    assert compare(60, 1, scheme, mode) > 40


@pytest.mark.campaign
@pytest.mark.parametrize("mode", ["default", "strict"])
@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
def test_campaign_entity_scores_equal_seqeval(scheme: str, mode: str) -> None:
    assert compare(13_000, 2, scheme, mode) > 12_500


def test_the_modes_differ_on_broken_tags() -> None:
    """The control: were strict read as default, or the other way round, the comparison above would see it."""
    differ = [
        entity_scores(predicted, right).micro != entity_scores(predicted, right, mode="strict").micro
        for predicted, right in tag_cases(50, 3, "BIO")
    ]
    assert sum(differ) > 10


def test_entities_equal_those_of_seqeval() -> None:
    for predicted, right in tag_cases(400, 4, "BIOES"):
        for tags in (*predicted, *right):
            theirs = [(kind, start, end + 1) for kind, start, end in get_entities(tags)]
            assert [tuple(entity) for entity in read_entities(tags)] == theirs


def in_bio(tags: list[str]) -> list[str]:
    return write_tags(read_entities(tags), len(tags))


@pytest.mark.parametrize("scheme", ["BIO", "BIOES"])
def test_repair_changes_no_score_and_pleases_strict_mode(scheme: str) -> None:
    for predicted, right in tag_cases(150, 5, scheme):
        mended, mended_right = [in_bio(tags) for tags in predicted], [in_bio(tags) for tags in right]
        before = entity_scores(predicted, right)
        assert entity_scores(mended, mended_right) == before
        assert entity_scores(mended, mended_right, mode="strict") == before
        assert [in_bio(tags) for tags in mended] == mended


@pytest.mark.parametrize("scheme", ["BIO", "IOB1", "BIOES", "IO", "bare"])
def test_every_scheme_is_read_back(scheme: str) -> None:
    for _, right in tag_cases(150, 6, "BIO"):
        for tags in right:
            entities = read_entities(tags)
            if scheme in ("IO", "bare"):  # which cannot tell neighbours of one type apart
                touching = pairwise(entities)
                if any(a.end == b.start and a.type == b.type for a, b in touching):
                    continue
            written = write_tags(entities, len(tags), scheme)  # type: ignore[arg-type]
            spelling = spelling_of([written])
            assert read_entities(written, spelling.notation) == entities
            assert spelling.repaired == 0


def test_suffixed_tags_equal_seqeval() -> None:
    """``NP-B`` and ``NP-I`` are what seqeval reads with ``suffix=True``."""

    def turned(tags: list[str]) -> list[str]:
        return [tag if tag == "O" else "-".join(reversed(tag.split("-", 1))) for tag in tags]

    for predicted, right in tag_cases(200, 6, "BIO"):
        predicted, right = ([*map(turned, side)] for side in (predicted, right))
        ours = entity_scores([*predicted, ["X-B", "X-I"]], [*right, ["X-B", "X-I"]])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = oracle.f1_score([*right, ["X-B", "X-I"]], [*predicted, ["X-B", "X-I"]], suffix=True)
        assert ours.micro.f1 == pytest.approx(expected)


def test_types_that_end_like_letters_are_no_suffixes() -> None:
    assert notation_of(["vitamin-B", "vitamin-E", "O"]) == Notation(lettered=False)
    assert notation_of(["B-I", "I-B"]) == Notation()
