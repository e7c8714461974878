"""Text to text: its files, token ids, scores and baselines, without a model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rouge_score.rouge_scorer import RougeScorer

from bertkit.errors import ConfigError, DataError
from bertkit.tasks import check_task, get_task
from bertkit.tasks.seq2seq.battery import Seq2SeqBattery
from bertkit.tasks.seq2seq.features import featurize_seq2seq
from bertkit.tasks.seq2seq.scoring import copied, copy_baseline, sentences, text_scores
from bertkit.tasks.seq2seq.task import SUMMARIZE, TEXT2TEXT, Seq2SeqExample, Seq2SeqTask
from bertkit.tasks.workflow import workflow_of
from tokenizer_families import family_contestants

ARTICLE = "A dog ran. It was fast! Was it? Nobody knows."


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("columns", [("article", "highlights"), ("document", "summary"), ("text", "title")])
def test_usual_columns_are_found(tmp_path: Path, columns: tuple[str, str]) -> None:
    source, target = columns
    file = write(tmp_path / "train.jsonl", [{"id": 1, target: "short", source: ARTICLE}])
    (row,) = workflow_of(get_task("summarize")).read_file(file, "train")
    assert (row.text, row.target, row.where) == (ARTICLE, "short", f"{file}:1")


def test_files_that_are_wrong_are_refused(tmp_path: Path) -> None:
    read = workflow_of(TEXT2TEXT).read_file
    for rows, told in (
        ([{"source": "a", "target": "b"}, {"source": " ", "target": "b"}], ":2: column 'source'"),
        ([{"source": "a", "target": None}], ":1: column 'target'"),
        ([{"source": "a", "other": "b"}], "--target"),
        ([{"question": "a", "target": "b"}], "--source"),
    ):
        with pytest.raises(DataError, match=told):
            read(write(tmp_path / "train.jsonl", rows), "train")
    unlabelled = read(write(tmp_path / "test.jsonl", [{"source": "a"}]), "test")
    assert unlabelled[0].target is None
    with pytest.raises(DataError, match="target"):
        read(write(tmp_path / "test.jsonl", [{"source": "a", "target": "b"}, {"source": "a", "target": ""}]), "test")


def test_the_battery(tmp_path: Path) -> None:
    for split in ("train", "dev"):
        write(
            tmp_path / f"{split}.jsonl", [{"source": f"{'word ' * n}end", "target": "end " * n} for n in range(1, 30)]
        )
    passed = check_task(TEXT2TEXT, tmp_path)
    assert sum("every loss is reported" in line for line in passed) == 2

    class Forgetful(Seq2SeqBattery):
        """A control: targets that are not the right ones."""

        def perfect(self, rows: Any) -> dict[str, float]:
            return super().perfect([replace(rows[0], target="x"), *rows[1:]]) | {"exact_match": 0.5}

    with pytest.raises(AssertionError, match="perfect predictions"):
        Forgetful(TEXT2TEXT, tmp_path).run()


def test_sentences_and_what_a_baseline_copies() -> None:
    assert sentences(ARTICLE) == ["A dog ran.", "It was fast!", "Was it?", "Nobody knows."]
    assert sentences("一。二！\n\nthree") == ["一。", "二！", "three"]
    assert copied(ARTICLE, SUMMARIZE) == "A dog ran.\nIt was fast!\nWas it?"
    assert copied(ARTICLE, TEXT2TEXT) == ARTICLE
    dev = [Seq2SeqExample(ARTICLE, "A dog ran."), Seq2SeqExample("one two", "one  two")]
    lead, copy = copy_baseline(dev, SUMMARIZE), copy_baseline(dev, TEXT2TEXT)
    assert (lead["name"], copy["name"]) == ("lead-3", "copy")
    assert copy["metrics"]["exact_match"] == 0.5  # type: ignore[index, call-overload]
    scorer = RougeScorer(["rougeL"])
    expected = np.mean([scorer.score(row.target, copied(row.text, SUMMARIZE))["rougeL"].fmeasure for row in dev])
    assert lead["metrics"]["rougeL"] == pytest.approx(expected)  # type: ignore[index, call-overload]


def test_scores_of_each_text() -> None:
    found = text_scores(["a b", "a  b\nc", ""], ["a b", "a b c", "x"])
    assert found["exact_match"].tolist() == [1.0, 1.0, 0.0]
    assert found["rouge2"].tolist() == [1.0, 1.0, 0.0]


def test_a_metric_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'rougeL'"):
        Seq2SeqTask("text2text", main_metric="rougel")


@pytest.mark.parametrize("family", ["t5", "roberta"])
def test_special_tokens_in_texts_are_refused(family: str, shared: Path) -> None:
    tokenizer: Any = family_contestants(shared, family).ours
    end = tokenizer.eos_token or tokenizer.sep_token
    options = {"max_length": 50, "max_target_length": 20}
    rows = [Seq2SeqExample("a long day", "day", 1, "f"), Seq2SeqExample("a", "b", 2, "f")]
    found = featurize_seq2seq(rows, "say: ", tokenizer, labelled=True, **options)
    assert tokenizer.decode(found.sources[0], skip_special_tokens=True).strip() == "say: a long day"
    assert found.targets is not None
    assert found.lengths.tolist() == (found.sources.lengths + found.targets.lengths).tolist()
    for bad, told in (
        (Seq2SeqExample(f"a {end} b", "c", 3, "f"), f"f:3: the source contains '{end}'"),
        (Seq2SeqExample("a", f"c {end} b", 3, "f"), f"f:3: the target contains '{end}'"),
    ):
        with pytest.raises(DataError, match=told):
            featurize_seq2seq([*rows, bad], "", tokenizer, labelled=True, **options)
