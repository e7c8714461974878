"""Three jobs from the files that people have to a spreadsheet that opens: a dirty sheet, names as spans, few labels."""

from __future__ import annotations

import csv
import json
import lzma
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from bertkit import BertClassifier
from pipeline_helpers import Command

QUICK = ("--batch-size", "16", "--device", "cpu")


def tweets(shared: Path, count: int) -> list[tuple[str, str]]:
    with lzma.open(shared / "data/tweet_sentiment/train.csv.xz", "rt", encoding="utf-8", newline="") as lines:
        rows = [row for row in csv.DictReader(lines) if row["sentiment"] in ("positive", "negative") and row["text"]]
    return [(row["text"].strip(), row["sentiment"]) for row in rows[:count]]


def test_a_dirty_sheet_of_opinions(shared: Path, minilm: Path, tmp_path: Path, command: Command) -> None:
    """A title above the header, labels in several spellings, rows without text or label, a rare label, ids like 007."""
    book = openpyxl.Workbook()
    book.active.title = "Notes"
    sheet = book.create_sheet("Answers 2024")
    sheet.append(["Customer survey, all answers"])
    sheet.append([])
    sheet.append(["id", "comment", "sentiment"])
    spellings = {"positive": ["positive", "Positive", "POSITIVE "], "negative": ["negative", "Negative", " negative"]}
    known = tweets(shared, 340)
    for number, (text, label) in enumerate(known[:300]):
        sheet.append([f"{number:04}", text, spellings[label][number % 3]])
    sheet.append(["x1", None, "positive"])
    sheet.append(["x2", "no label here", None])
    sheet.append(["x3", "cannot say", "n/a"])
    book.save(tmp_path / "survey.xlsx")
    data = ("--data", tmp_path / "survey.xlsx", "--sheet", "Answers 2024", "--text", "comment", "--label", "sentiment")
    asked = ("--merge-labels", "case,space", "--drop-label", "n/a", "--on-error", "skip")
    run = ("--model", minilm, "--out", tmp_path / "run", "--freeze-encoder", "--epochs", "8", "--learning-rate", "1e-2")
    code, _, err = command("finetune", "csv", *data, *asked, *run, *QUICK)
    assert code == 0, err
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    classes = next(seed["classes"] for seed in metrics["seeds"])["by_class"]
    assert sorted(map(str.lower, classes)) == ["negative", "positive"]
    assert metrics["scores"]["accuracy"] > 0.6
    card = (tmp_path / "run" / "README.md").read_text()
    assert "n/a" in card

    new = openpyxl.Workbook()
    new.active.append(["id", "comment"])
    for number, (text, _) in enumerate(known[300:]):
        new.active.append([f"{number:03}", text])
    new.save(tmp_path / "new.xlsx")
    out = tmp_path / "labelled.xlsx"
    code, _, err = command(
        "classify", "--file", tmp_path / "new.xlsx", "--text", "comment", "--model", tmp_path / "run", "--out", out
    )
    assert code == 0, err
    found = pd.read_excel(out, dtype={"id": str})
    assert found["id"].tolist() == [f"{number:03}" for number in range(40)]
    assert set(found["predicted"]) <= set(classes)
    assert np.mean(found["predicted"].str.lower().to_numpy() == [label for _, label in known[300:]]) > 0.6


@pytest.mark.campaign
def test_names_from_character_spans(shared: Path, minilm: Path, tmp_path: Path, command: Command) -> None:
    """Sentences of WNUT 17 as doccano exports them; what is found goes to a table and back to doccano."""
    sentences, words, tags = [], list[str](), list[str]()
    with (shared / "data/ner/wnut17/dev.conll").open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                word, tag = line.rstrip("\n").split("\t")[:2]
                words.append(word)
                tags.append(tag)
            elif words:
                sentences.append((words, tags))
                words, tags = [], []
    rows = []
    for words, tags in islice(sentences, 160):
        starts = np.cumsum([0, *(len(word) + 1 for word in words)]).tolist()
        spans: list[list[int | str]] = []
        for place, tag in enumerate(tags):
            end = starts[place] + len(words[place])
            if tag.startswith("B-"):
                spans.append([starts[place], end, tag[2:]])
            elif tag.startswith("I-"):
                spans[-1][1] = end
        rows.append({"id": len(rows), "text": " ".join(words), "label": spans})
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = (
        "--model",
        minilm,
        "--out",
        tmp_path / "run",
        "--epochs",
        "2",
        "--learning-rate",
        "3e-4",
        "--max-length",
        "64",
    )
    code, _, err = command("finetune", "ner", "--data", tmp_path / "train.jsonl", *run, *QUICK)
    assert code == 0, err
    assert "doccano" in err
    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert "features" in metrics["baseline"]["name"]
    pd.DataFrame({"id": ["007", "008"], "text": ["Barack Obama flew to Paris", "=nothing here"]}).to_csv(
        tmp_path / "new.csv", index=False
    )
    tagging = ("tag", "--file", tmp_path / "new.csv", "--model", tmp_path / "run", "--device", "cpu")
    assert command(*tagging, "--out", tmp_path / "names.xlsx")[0] == 0
    header, *table = openpyxl.load_workbook(tmp_path / "names.xlsx").active.iter_rows(values_only=True)
    assert header[:2] == ("id", "text")
    assert {row[0] for row in table} == {"007", "008"}
    assert {row[1] for row in table} == {"Barack Obama flew to Paris", "=nothing here"}
    assert command(*tagging, "--format", "doccano", "--out", tmp_path / "names.jsonl")[0] == 0
    written = [json.loads(line) for line in (tmp_path / "names.jsonl").read_text().splitlines()]
    assert [row["text"] for row in written] == ["Barack Obama flew to Paris", "=nothing here"]


@pytest.mark.campaign
def test_sixteen_questions_a_class(shared: Path, minilm: Path, tmp_path: Path) -> None:
    """The five large classes of TREC, in a frame and back to a sheet, beside TF-IDF with a linear model."""
    names = ["what", "thing", "description", "person", "place", "number"]

    def read(name: str) -> pd.DataFrame:
        with lzma.open(shared / f"data/few_labels/{name}", "rt", encoding="latin-1") as lines:
            rows = [line.rstrip("\n").split(" ", 1) for line in lines]
        return pd.DataFrame({"question": [text for _, text in rows], "kind": [names[int(label)] for label, _ in rows]})

    train, test = read("trec_train.txt.xz"), read("trec_test.txt.xz")
    large = [kind for kind, _ in Counter(train["kind"]).most_common(5)]
    few = pd.concat([train[train["kind"] == kind].head(16) for kind in large])
    test = test[test["kind"].isin(large)].head(200)
    model = BertClassifier(str(minilm), few_shot="linear", device="cpu").fit(few["question"], few["kind"])
    plain = make_pipeline(TfidfVectorizer(), LogisticRegression(max_iter=1000)).fit(few["question"], few["kind"])
    ours, theirs = (each.score(test["question"], test["kind"]) for each in (model, plain))
    assert ours > theirs + 0.1
    test.assign(predicted=model.predict(test["question"])).to_excel(tmp_path / "out.xlsx", index=False)
    again = pd.read_excel(tmp_path / "out.xlsx")
    assert float((again["predicted"] == again["kind"]).mean()) == pytest.approx(ours)
