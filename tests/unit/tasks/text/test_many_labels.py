"""Tasks with thousands of labels: what is written and held does not grow with rows x labels."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from bertkit.config.bert_config import BertConfig
from bertkit.metrics.calibration import log_losses
from bertkit.tasks import Columns, TextTask, csv_task, tfidf_baseline
from bertkit.tasks.examples import Example
from bertkit.tasks.text import baseline, decoding
from bertkit.tasks.text.decoding import MOST_SHARES, prediction_rows
from bertkit.tasks.text.row_scores import row_losses
from bertkit.training.finetuning.finetune import finetune
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from finetune_data import QUICK, no_pictures, tiny_start

NAMES = tuple(f"label {number}" for number in range(250))
LOGITS = np.random.default_rng(0).normal(size=(7, len(NAMES))).astype(np.float32)


def rows_of(problem: str, num_labels: int) -> list[dict[str, object]]:
    shape = BertConfig(id2label=dict(enumerate(NAMES[:num_labels])), problem_type=problem)
    return prediction_rows(LOGITS[:, :num_labels], shape, np.zeros(len(LOGITS), bool))


@pytest.mark.parametrize("at_once", [decoding.NUMBERS_AT_ONCE, 600])
@pytest.mark.parametrize("problem", ["single_label_classification", "multi_label_classification"])
def test_a_line_has_the_probabilities_of_the_likeliest_labels(
    problem: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decoding, "NUMBERS_AT_ONCE", at_once)
    several = problem == "multi_label_classification"
    wanted = (expit(LOGITS.astype(np.float64)) if several else softmax(LOGITS.astype(np.float64), axis=1)).tolist()
    rows = rows_of(problem, len(NAMES))
    assert len(rows) == len(LOGITS)
    for row, shares in zip(rows, wanted, strict=True):
        by_name = sorted(zip(shares, NAMES, strict=True), reverse=True)
        told = row["probabilities"]
        assert isinstance(told, dict)
        assert list(told) == [name for _, name in by_name[:MOST_SHARES]]
        np.testing.assert_allclose(list(told.values()), [share for share, _ in by_name[:MOST_SHARES]], rtol=1e-5)
        said = [name for name, share in zip(NAMES, shares, strict=True) if share >= 0.5] if several else by_name[0][1]
        assert row["predicted"] == said


def test_of_few_labels_all_are_there_in_their_order() -> None:
    told = rows_of("single_label_classification", MOST_SHARES)[0]["probabilities"]
    assert list(told) == list(NAMES[:MOST_SHARES])  # type: ignore[call-overload]


def test_losses_in_parts_are_those_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    task = TextTask("many", NAMES, ("accuracy",), "accuracy", Columns(("text",)))
    labels = np.arange(len(LOGITS))
    whole = log_losses(LOGITS, labels)
    monkeypatch.setattr(decoding, "NUMBERS_AT_ONCE", 600)
    np.testing.assert_array_equal(row_losses(task, LOGITS, labels), whole)
    assert row_losses(task, LOGITS[:0], labels[:0]).shape == (0,)


def test_the_baseline_of_many_labels_is_the_nearest_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the same arithmetic with dense matrices."""
    generator = np.random.default_rng(1)
    words = [f"w{number}" for number in range(60)]

    def examples(count: int) -> list[Example]:
        numbers = generator.integers(0, 120, count)
        return [Example(" ".join([words[n % 60], *generator.choice(words, 3)]), None, int(n)) for n in numbers]

    train, dev = examples(600), examples(80)
    task = TextTask("many", NAMES[:120], ("accuracy",), "accuracy", Columns(("text",)))
    plain = tfidf_baseline(train, dev, task)
    assert str(plain["model"]).endswith("logistic regression")
    monkeypatch.setattr(baseline, "MOST_WEIGHTS", 1)
    found = tfidf_baseline(train, dev, task)
    assert str(found["model"]).endswith("nearest mean of the texts of a label")
    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\w+|[^\w\s]", dtype=np.float32
    )
    x = vectorizer.fit_transform([row.text for row in train]).toarray()
    right = np.array([row.label for row in train])
    means = normalize(np.stack([x[right == label].sum(axis=0) for label in np.unique(right)]))
    best = (vectorizer.transform([row.text for row in dev]).toarray() @ means.T).argmax(axis=1)
    share = float(np.mean(np.unique(right)[best] == [row.label for row in dev]))
    assert found["metrics"] == {"accuracy": pytest.approx(share, abs=1.5 / len(dev))}  # of near ties either may win


@pytest.mark.campaign
@pytest.mark.slow
def test_a_run_with_many_labels_writes_few_numbers_a_row_and_draws_them(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    start = tiny_start(tmp_path / "start")
    words = (start / "vocab.txt").read_text().split()[5:]
    for name in ("train", "dev"):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            rows = [(f"{words[n % len(words)]} {words[n // 7 % len(words)]}", NAMES[n]) for n in range(len(NAMES))]
            csv.writer(file).writerows([("text", "label"), *rows])
    config = FinetuneConfig(**{**QUICK, "epochs": 1, "baseline": False})
    task = csv_task(tmp_path / "train.csv", text="text", label="label")
    with no_pictures():
        run = finetune(task, tmp_path, start, tmp_path / "run", config).folder
    lines = [json.loads(line) for line in (run / "predictions-dev.jsonl").read_text().splitlines()]
    assert len(lines) == len(NAMES)
    assert {len(line["probabilities"]) for line in lines} == {MOST_SHARES}
    assert all(next(iter(line["probabilities"])) == line["predicted"] for line in lines)
    assert (run / "confusion.png").exists()
    assert (run / "reliability.png").exists()
