"""The comparison of methods that saw no label: its scores, its baselines, and what it refuses."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from bertkit import BertForMaskedLM, BertForSequenceClassification, BertModel, pipeline
from bertkit.cli import main
from bertkit.errors import ConfigError, InputError
from bertkit.inference.zero_shot.candidate_labels import CandidateLabels, read_labels
from bertkit.inference.zero_shot.compare_methods import compare_methods
from bertkit.tasks import csv_task
from bertkit.tasks.hold_out import deal
from bertkit.tasks.reading.bad_rows import OnError
from bertkit.tasks.text.reading import load_split
from pipeline_helpers import WORDS, save_tiny

NLI = {0: "contradiction", 1: "neutral", 2: "entailment"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    return {
        "nli": save_tiny(root / "nli", BertForSequenceClassification, id2label=NLI),
        "encoder": save_tiny(root / "encoder", BertModel),
        "mlm": save_tiny(root / "mlm", BertForMaskedLM),
        "other": save_tiny(root / "other", BertForSequenceClassification, num_labels=2),
    }


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts whose label is one of their words, mostly."""
    chance = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("data") / "rows.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label"])
        for number in range(90):
            label = ("good", "bad", "dull")[number % 3]
            words = [*chance.choice(WORDS[:3], 4), label if number % 5 else "end"]
            rows.writerow([" ".join(words), label])
    return path


def compared(data: Path, models: list[Path], labels: Any = "dull, good, bad", on_error: OnError = "raise", **more: Any):
    words = read_labels(labels)
    return compare_methods(csv_task(data, labels=words.names), data, models, words, on_error=on_error, **more)


@pytest.mark.slow
def test_scores_are_those_of_the_pipelines(models: dict[str, Path], data: Path) -> None:
    found = compared(data, [models["nli"], models["encoder"], models["mlm"]])
    methods = [(each.method, each.model.rpartition("/")[2]) for each in found.methods]
    assert methods[:-2] == [("nli", "nli"), ("embedding", "nli"), ("embedding", "encoder"), ("embedding", "mlm"),
                            ("pattern", "mlm")]  # fmt: skip
    assert [method for method, _ in methods[-2:]] == ["majority", "tf-idf"]
    rows = load_split(csv_task(data), data, "train")
    names = csv_task(data).labels or ()
    right = [names[row.label] for row in rows if isinstance(row.label, int)]
    for each in found.methods[:-2]:
        folder = models[each.model.rpartition("/")[2]]
        pipe = pipeline("zero-shot-classification", model=folder, method=each.method, device="cpu")
        best = [answer["labels"][0] for answer in pipe([row.text for row in rows], "dull, good, bad")]
        assert each.scores["accuracy"] == pytest.approx(accuracy_score(right, best))
        assert each.scores["macro_f1"] == pytest.approx(f1_score(right, best, average="macro"))
        low, high = each.intervals["accuracy"] or (1.0, 0.0)
        assert low < each.scores["accuracy"] < high
    scores = {each.method: each.scores["accuracy"] for each in found.methods[-2:]}
    assert scores["tf-idf"] > 0.7 > 0.5 > scores["majority"]  # the word is the label, the most frequent label is not
    assert "tf-idf" in found.render()
    assert json.loads(json.dumps(found.to_dict()))["num_rows"] == 90


def test_a_train_file_is_what_the_baselines_learn_from(models: dict[str, Path], data: Path, tmp_path: Path) -> None:
    rows = data.read_text(encoding="utf-8").splitlines()
    (tmp_path / "train.csv").write_text("\n".join(rows[:61]) + "\n", encoding="utf-8")
    (tmp_path / "dev.csv").write_text("\n".join([rows[0], *rows[61:]]) + "\n", encoding="utf-8")
    found = compared(tmp_path, [models["encoder"]])
    assert (found.file, found.num_rows) == ("dev.csv", 30)
    assert "trained on 60 labelled rows" in found.methods[-1].model
    assert compared(tmp_path, [models["encoder"]], split="train").num_rows == 60


def test_parts_keep_labels_even_and_equal_texts_together(data: Path) -> None:
    rows = load_split(csv_task(data), data, "train")
    parts = deal([*rows, *rows], 5, seed=0)
    assert parts[:90] == parts[90:]
    shares = [sorted(row.label for row, part in zip(rows, parts, strict=False) if part == n) for n in range(5)]
    assert len({len(share) for share in shares}) <= 3  # of 90 rows, some equal
    assert all(len(set(share)) == 3 for share in shares)
    assert deal(rows, 5, seed=0) != deal(rows, 5, seed=1)


def test_what_a_model_cannot_do_is_said(models: dict[str, Path], data: Path) -> None:
    words = {"good": "good", "bad": "very bad", "dull": "dull"}
    found = compared(data, [models["other"], models["mlm"]], words)
    assert [each.method for each in found.methods] == ["embedding", "embedding", "majority", "tf-idf"]
    assert any("nli of" in note and "must begin with 'entail'" in note for note in found.notes)
    assert any("pattern of" in note and "'very bad' is not one token" in note for note in found.notes)
    assert "note: " in found.render()


@pytest.mark.slow
def test_templates_go_to_the_methods_they_fit(models: dict[str, Path], data: Path) -> None:
    plain = compared(data, [models["mlm"]])
    both = compared(data, [models["mlm"]], templates=["it is {}", "{mask} {text}"])
    one = compared(data, [models["mlm"]], templates=["it is {}"])
    values = [[each.scores["accuracy"] for each in found.methods[:2]] for found in (plain, both, one)]
    assert values[0][0] != values[1][0] == values[2][0]
    assert values[0][1] == values[2][1] != values[1][1]
    with pytest.raises(ConfigError, match="two templates of a kind"):
        compared(data, [models["mlm"]], templates=["it is {}", "that is {}"])
    with pytest.raises(InputError, match=r"has no \{\}"):
        compared(data, [models["encoder"]], templates=["it is"])


def test_labels_must_be_the_tasks(models: dict[str, Path], data: Path) -> None:
    task = csv_task(data)
    with pytest.raises(ConfigError, match=r"'goood' is no label of task csv \(did you mean 'good'\?\)"):
        compare_methods(task, data, [models["encoder"]], read_labels("goood, bad, dull"))
    with pytest.raises(ConfigError, match="also has the labels 'dull'"):
        compare_methods(task, data, [models["encoder"]], read_labels("good, bad"))
    with pytest.raises(ConfigError, match="unknown split 'mismatched'"):
        compare_methods(task, data, [models["encoder"]], read_labels("good, bad, dull"), "mismatched")
    pairs = csv_task(data, text="text", label="label", problem="multi_label")
    with pytest.raises(ConfigError, match="one label each; task csv has"):
        compare_methods(pairs, data, [models["encoder"]], CandidateLabels(("good",), (("good",),)))


def test_the_command(models: dict[str, Path], data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["evaluate", "csv", "--data", str(data), "--model", str(models["encoder"]), "--device", "cpu"]
    assert main([*command, "--labels", "good, bad=awful|bad, dull", "--beside", str(models["nli"]), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["labels"] == {"good": ["good"], "bad": ["awful", "bad"], "dull": ["dull"]}
    assert [each["method"] for each in found["methods"]] == ["embedding", "embedding", "majority", "tf-idf"]
    assert "2 descriptions" in found["notes"][0]
    assert main([*command, "--labels", "good, bad"]) == 3  # a row has another label
    assert "'dull' is not one of" in capsys.readouterr().err
    assert main([*command, "--template", "it is {}"]) == 2
    assert "go with --labels" in capsys.readouterr().err
    assert main(["evaluate", "squad", "--data", str(data), "--model", "m", "--labels", "a, b"]) == 2
    assert "another kind" in capsys.readouterr().err
