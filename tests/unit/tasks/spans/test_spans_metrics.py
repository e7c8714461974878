"""SQuAD's metrics equal the official scripts' on published predictions; the search of thresholds is exact."""

from __future__ import annotations

import collections
import json
import lzma
import random
import re
import string
from pathlib import Path

import numpy as np
import pytest

from bertkit.errors import InputError
from bertkit.tasks.spans.metrics import (
    answer_points,
    best_threshold,
    normalize_answer,
    squad2_metrics,
    squad_metrics,
    with_threshold,
)

SYSTEMS = {
    "1.1": ("bert-ensemble", "logistic-baseline", "match-lstm", "rnet-plus", "slqa-plus"),
    "2.0": ("bert-single", "bidaf-elmo", "nlnet"),
}
WORDS = "the a An Denver Broncos, broncos 1812 (1812) café naïve it's its U.S. us 東京 -- . \t the\u00a0the I".split(
    " "
)


def read_packed(path: Path):
    with lzma.open(path, "rt", encoding="utf-8") as stream:
        return json.load(stream)


@pytest.fixture(scope="module")
def squad(shared: Path) -> Path:
    return shared / "data" / "squad"


@pytest.fixture(scope="module")
def right(squad: Path) -> dict[str, dict[str, list[str]]]:
    found = {}
    for version in SYSTEMS:
        articles = read_packed(squad / f"dev-v{version}-articles-1-28.json.xz")["data"]
        questions = [q for article in articles for paragraph in article["paragraphs"] for q in paragraph["qas"]]
        found[version] = {q["id"]: [answer["text"] for answer in q["answers"]] for q in questions}
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "system"),
    [
        pytest.param(version, name, marks=pytest.mark.campaign if name != names[0] else [])
        for version, names in SYSTEMS.items()
        for name in names
    ],
)
def test_published_predictions_score_what_the_official_scripts_print(squad, right, version, system):
    expected = json.loads((squad / "expected_metrics.json").read_text("utf-8"))[f"v{version}-{system}"]
    predictions = read_packed(squad / "predictions" / f"v{version}-{system}.json.xz")
    metrics = squad_metrics if version == "1.1" else squad2_metrics
    found = metrics(predictions, right[version])
    assert set(found) == set(expected) - {"source_file", "predictions"}
    for name, value in found.items():
        assert abs(value - expected[name]) < 1e-9, name
    one = next(question for question, answers in right[version].items() if predictions.get(question) in answers)
    assert metrics({**predictions, one: "spoilt"}, right[version]) != found


# What the official scripts do, written a second time and in another way: the oracle of random cases.


def plainly(text: str) -> str:
    kept = "".join(letter for letter in text.lower() if letter not in set(string.punctuation))
    return " ".join(re.sub(r"\b(?:a|an|the)\b", " ", kept).split())


def plain_points(said: str, answers: list[str], no_answers: bool) -> tuple[float, float]:
    if no_answers:
        answers = [answer for answer in answers if plainly(answer)] or [""]
    best = [0.0, 0.0]
    for answer in answers:
        one, other = plainly(said).split(), plainly(answer).split()
        left, shared = list(other), 0
        for word in one:
            if word in left:
                left.remove(word)
                shared += 1
        if no_answers and (not one or not other):
            f1 = float(one == other)
        else:
            f1 = (
                0.0
                if not shared
                else 2 * (shared / len(one)) * (shared / len(other)) / (shared / len(one) + shared / len(other))
            )
        best = [max(best[0], float(one == other)), max(best[1], f1)]
    return best[0], best[1]


def official_best(predictions, points, nulls, has_answer) -> tuple[float, float]:
    """The loop of the v2.0 script over questions in the order of their null scores."""
    now = best = sum(not has for has in has_answer.values())
    at = 0.0
    for question in sorted(nulls, key=lambda q: nulls[q]):
        now += points[question] if has_answer[question] else (-1 if predictions[question] else 0)
        if now > best:
            best, at = now, nulls[question]
    return 100.0 * best / len(points), at


def random_text(generator: random.Random) -> str:
    return " ".join(generator.choices(WORDS, k=generator.randrange(0, 5)))


def compare(count: int, seed: int) -> collections.Counter[str]:
    seen: collections.Counter[str] = collections.Counter()
    for case in range(count):
        generator = random.Random(f"{seed}-{case}")
        ids = [f"q{number}" for number in range(generator.randrange(1, 9))]
        right = {q: [random_text(generator) for _ in range(generator.randrange(0, 4))] for q in ids}
        predictions = {
            q: generator.choice([*right[q], ""]) if generator.random() < 0.5 else random_text(generator) for q in ids
        }
        nulls = {q: round(generator.random(), 1) - 0.3 for q in generator.sample(ids, len(ids))}
        threshold = generator.choice([-1.0, 0.0, 0.2, 1.0])
        has_answer = {q: bool(right[q]) for q in ids}
        found = squad2_metrics(predictions, right, nulls, threshold)
        points = {q: plain_points(predictions[q], right[q], True) for q in ids}
        for place, name in enumerate(("exact", "f1")):
            raw = {q: points[q][place] for q in ids}
            shown = [float(not has_answer[q]) if nulls[q] > threshold else raw[q] for q in ids]
            assert abs(found[name] - 100.0 * sum(shown) / len(ids)) < 1e-12
            best, at = official_best(predictions, raw, nulls, has_answer)
            assert abs(found[f"best_{name}"] - best) < 1e-12
            assert found[f"best_{name}_thresh"] == at
            for prefix, kind in (("HasAns_", True), ("NoAns_", False)):
                values = [value for q, value in zip(ids, shown, strict=True) if has_answer[q] is kind]
                assert (f"{prefix}{name}" in found) == bool(values)
                if values:
                    assert abs(found[f"{prefix}{name}"] - 100.0 * sum(values) / len(values)) < 1e-12
                    assert found[f"{prefix}total"] == len(values)
            seen["ties"] += len(set(nulls.values())) < len(nulls)
        answered = {q: right[q] for q in ids if right[q]}
        if answered:
            said = {q: predictions[q] for q in ids if generator.random() < 0.9}
            old = squad_metrics(said, answered)
            exact, f1 = zip(*(plain_points(said[q], answered[q], False) if q in said else (0, 0) for q in answered),
                            strict=True)  # fmt: skip
            assert abs(old["exact_match"] - 100.0 * sum(exact) / len(answered)) < 1e-12
            assert abs(old["f1"] - 100.0 * sum(f1) / len(answered)) < 1e-12
            seen["partial"] += any(0 < value < 1 for value in f1)
            seen["missing"] += len(said) < len(ids)
    return seen


def test_random_cases_equal_a_second_implementation():
    seen = compare(400, seed=1)
    assert min(seen[kind] for kind in ("ties", "partial", "missing")) > 20, seen


@pytest.mark.campaign
def test_random_cases_campaign():
    compare(50_000, seed=2)


def test_best_threshold_is_the_best_of_all_thresholds():
    for case in range(300):
        rng = np.random.default_rng([7, case])
        count = int(rng.integers(1, 12))
        nulls = np.round(rng.normal(size=count), int(rng.integers(0, 3)))
        has_answer = rng.random(count) < rng.choice([0.0, 0.5, 1.0])
        points = np.where(has_answer, rng.choice([0.0, 0.4, 1.0], count), 0.0)
        found, mean = best_threshold(points, has_answer, nulls)
        every = [nulls.min() - 1, nulls.max() + 1, *nulls]
        means = [float(np.where(nulls > cut, ~has_answer, points).mean()) for cut in every]
        assert mean == pytest.approx(max(means), abs=1e-12)
        assert float(np.where(nulls > found, ~has_answer, points).mean()) == pytest.approx(mean, abs=1e-12)
        assert not np.isin(found, nulls)  # rounding of a null score cannot change a decision


def test_the_two_versions_differ_where_the_scripts_do():
    empty = answer_points(["the", "", "x"], [["a"], ["x"], ["x", "y"]])
    assert empty.exact.tolist() == [1.0, 0.0, 1.0]
    assert empty.f1.tolist() == [0.0, 0.0, 1.0]
    newer = answer_points(["the", "", "x", "", "x"], [["a"], ["x"], ["x", "the"], [], []], no_answers=True)
    assert newer.exact.tolist() == [1.0, 0.0, 1.0, 1.0, 0.0]
    assert newer.f1.tolist() == newer.exact.tolist()
    silent = with_threshold(newer, np.array([True, True, True, False, False]), np.arange(5.0), 2.5)
    assert silent.f1.tolist() == [1.0, 0.0, 1.0, 1.0, 1.0]


def test_normalize_answer():
    assert normalize_answer("The  U.S.'s, an\tA") == "uss"
    assert normalize_answer("Theatre of a\u00a0theme") == "theatre of theme"
    assert normalize_answer("«Äpfel»") == "«äpfel»"  # only ASCII punctuation goes


def test_errors_say_what_is_missing():
    with pytest.raises(InputError, match="no questions"):
        squad_metrics({}, {})
    with pytest.raises(InputError, match=r"question 0 .* no right answer"):
        squad_metrics({"a": "x"}, {"a": []})
    with pytest.raises(InputError, match=r"predictions lacks 1 of 2 questions .*'b'"):
        squad2_metrics({"a": ""}, {"a": [], "b": ["x"]})
    with pytest.raises(InputError, match="null_scores lacks"):
        squad2_metrics({"a": ""}, {"a": []}, null_scores={})
    with pytest.raises(InputError, match="2 predictions but 1 questions"):
        answer_points(["x", "y"], [["x"]])
    with pytest.raises(InputError, match="finite"):
        best_threshold([1.0], [True], [float("nan")])
    with pytest.raises(InputError, match="expected three times"):
        best_threshold([], [], [])
