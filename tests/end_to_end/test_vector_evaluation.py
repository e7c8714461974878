"""Vectors of labelled texts by neighbours, a linear classifier and clusters, beside TF-IDF."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import v_measure_score

from bertkit import SentenceEncoder
from bertkit.cli import main
from bertkit.errors import ConfigError, DataError
from bertkit.inference.vector_evaluation import evaluate_vectors
from bertkit.metrics.scores import accuracy
from bertkit.tasks import csv_task, get_task
from bertkit.tasks.text.probes import neighbour_labels
from embedding_data import WORDS, untrained, write_rows


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return untrained(tmp_path_factory.mktemp("model") / "model")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts of three topics; a third of the words of each text are of any topic."""
    folder, chance = tmp_path_factory.mktemp("data"), random.Random(0)
    for name, count in (("train", 90), ("dev", 45)):
        rows = []
        for number in range(count):
            words = [*chance.sample(WORDS[number % 3], 4), *(chance.choice(chance.choice(WORDS)) for _ in range(2))]
            rows.append({"text": " ".join(words), "label": "abc"[number % 3]})
        write_rows(folder / f"{name}.csv", rows)
    return folder


def test_scores_are_those_of_the_vectors(model: Path, data: Path) -> None:
    task = csv_task(data)
    found = evaluate_vectors(task, data, model)
    encoder = SentenceEncoder(model)
    train, dev = ([row["text"] for row in _rows(data / f"{name}.csv")] for name in ("train", "dev"))
    labels, right = (["abc".index(row["label"]) for row in _rows(data / f"{name}.csv")] for name in ("train", "dev"))
    x, y = encoder.encode(train), encoder.encode(dev)
    linear = LogisticRegression(C=3.0, max_iter=1000).fit(x, labels).predict(y)
    assert found.scores["linear_accuracy"] == accuracy(linear, right)
    near = [np.bincount(np.array(labels)[np.argsort(-x @ row, kind="stable")[:10]], minlength=3) for row in y]
    clear = [number for number, votes in enumerate(near) if np.count_nonzero(votes == votes.max()) == 1]
    assert len(clear) > 30
    names = [row["neighbours"] for row in found.predictions]
    assert [names[number] for number in clear] == ["abc"[int(near[number].argmax())] for number in clear]
    clusters = [row["cluster"] for row in found.predictions]
    assert found.scores["v_measure"] == pytest.approx(v_measure_score(right, clusters))
    low, high = found.protocol["intervals"]["v_measure"]
    assert 0 <= low < high <= 1
    assert found.interval == found.protocol["intervals"]["linear_accuracy"]
    assert found.protocol["baseline"]["metrics"].keys() == found.scores.keys()
    assert found.protocol["baseline"]["metrics"]["linear_accuracy"] > 0.8
    assert "TF-IDF" in found.render()


def test_the_command(model: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--data", str(data), "--model", str(model)]
    assert main(["evaluate", "csv", *where, "--vectors", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["protocol"]["what_is_scored"] == "vectors of texts"
    assert main(["evaluate", "pairs", *where, "--vectors"]) == 2
    assert "--vectors scores labelled texts" in capsys.readouterr().err
    assert main(["evaluate", "csv", *where, "--vectors", "--split", "train"]) == 2


def test_what_cannot_be_scored(model: Path, data: Path, tmp_path: Path) -> None:
    for name in ("mrpc", "stsb"):
        with pytest.raises(ConfigError, match=f"task {name} has pairs of texts"):
            evaluate_vectors(get_task(name), data, model)  # type: ignore[arg-type]
    write_rows(tmp_path / "one.csv", [{"text": "aq", "label": "a"}] * 9)
    with pytest.raises(DataError, match="holds the one label"):
        csv_task(tmp_path / "one.csv")


def test_fewer_texts_than_neighbours() -> None:
    train = np.eye(3, dtype=np.float32)
    assert neighbour_labels(train, np.array([1, 1, 0]), train).tolist() == [1, 1, 1]


def _rows(path: Path) -> list[dict[str, str]]:
    import csv

    with path.open() as file:
        return list(csv.DictReader(file))
