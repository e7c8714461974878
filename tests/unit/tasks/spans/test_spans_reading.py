"""Questions are read from SQuAD's JSON and from rows, and a bad one is named; held-out articles; reports; baselines."""

from __future__ import annotations

import copy
import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertkit import BertTokenizer
from bertkit.errors import ConfigError, DataError, InputError
from bertkit.tasks.examples import Examples
from bertkit.tasks.reading.splits import splits_of
from bertkit.tasks.registry import task_from_dict, task_to_dict
from bertkit.tasks.spans.baseline import overlap_baseline
from bertkit.tasks.spans.features import SpanSettings, featurize_spans
from bertkit.tasks.spans.reading import hold_out, question_rules, read_questions
from bertkit.tasks.spans.report import question_report
from bertkit.tasks.spans.task import SQUAD, SQUAD2, Answer, SpanExample, score_answers
from bertkit.tasks.workflow import workflow_of

CONTEXT = "The tower was built in 1889 by Gustave Eiffel. It stands in Paris. It is 330 m high."


def question(number: int, **changes):
    known = {
        "id": f"q{number}",
        "question": "Who built it?",
        "answers": [{"text": "Gustave Eiffel", "answer_start": 31}],
    }
    return {**known, **changes}


def squad_json(*questions, context=CONTEXT, title="Tower"):
    listed = list(questions) or [question(1), question(2)]
    return {"version": "1.1", "data": [{"title": title, "paragraphs": [{"context": context, "qas": listed}]}]}


def write(path: Path, content) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def real(shared):
    """The dev questions of both versions."""
    return {task.name: workflow_of(task).read(shared / "data" / "squad", "dev") for task in (SQUAD, SQUAD2)}


def test_both_versions_of_real_data(shared, real):
    folder = shared / "data" / "squad"
    one, two = real[SQUAD.name], real[SQUAD2.name]
    assert (one.path.name, len(one)) == ("dev-v1.1-articles-1-28.json.xz", 6715)
    assert (two.path.name, len(two)) == ("dev-v2.0-articles-1-28.json.xz", 6392)
    assert all(example.answers for example in one)
    assert sum(not example.answers for example in two) == 3275
    for example in (*one, *two):
        for answer in example.answers:
            assert example.context[answer.start : answer.end] == answer.text
    assert one[0].title == "Super_Bowl_50"
    with pytest.raises(DataError, match=r"no train file in .*squad, only dev .*not say dev or test"):
        workflow_of(SQUAD).read(folder, "train")
    with pytest.raises(DataError, match=r"q.*has no answer.*squad2"):
        workflow_of(SQUAD).read(two.path, "dev")
    kept = workflow_of(SQUAD).read(two.path, "dev", on_error="skip")
    assert (len(kept), len(kept.skipped)) == (3117, 3275)


@pytest.mark.slow
@pytest.mark.parametrize("task", [SQUAD, SQUAD2], ids=lambda task: task.name)
def test_perfect_answers_score_one_and_others_less(real, task):
    examples = real[task.name][:800]
    perfect = [example.label for example in examples]
    assert set(score_answers(task, examples, perfect).scores.values()) == {1.0}
    assert score_answers(task, examples, ["x", *perfect[1:]]).scores["f1"] < 1
    assert task_from_dict(json.loads(json.dumps(task_to_dict(task)))) == task


def test_rows_of_the_hub_are_read_like_the_json(tmp_path):
    shared = {"title": "T", "context": CONTEXT}
    rows = [
        {"id": "a", **shared, "question": "Who?", "answers": {"text": ["Paris"], "answer_start": [60]}},
        {"id": "b", **shared, "question": "Why?", "answers": {"text": [], "answer_start": []}},
    ]
    lines = tmp_path / "train.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    table = tmp_path / "validation-00000-of-00001.parquet"
    pq.write_table(pa.Table.from_pylist(rows), table)
    questions = [
        {
            "id": row["id"],
            "question": row["question"],
            "is_impossible": not row["answers"]["text"],
            "answers": [{"text": text, "answer_start": 60} for text in row["answers"]["text"]],
        }
        for row in rows
    ]
    nested = squad_json(*questions, title="T")
    packed = tmp_path / "test.json.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + json.dumps(nested).encode()))
    found = [workflow_of(SQUAD2).read(tmp_path, split) for split in ("train", "dev", "test")]
    plain = [[(e.id, e.question, e.context, e.answers, e.title) for e in examples] for examples in found]
    assert plain[0] == plain[1] == plain[2]
    assert plain[0][0][3] == (Answer("Paris", 60),)
    assert plain[0][1][3] == ()
    assert [example.row for example in found[0]] == [1, 2]
    assert found[0][1].where == f"{lines}:2 (id b)"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"answers": [{"text": "Eiffel Gustave", "answer_start": 31}]}, "nowhere in the context"),
        ({"answers": [{"text": "Paris", "answer_start": 59}]}, "has ' Pari'; its text begins at 60.*not bytes"),
        ({"answers": [{"text": "Paris", "answer_start": -1}]}, "'answer_start' is -1"),
        ({"answers": [{"text": "Paris", "answer_start": "60"}]}, "'answer_start' is '60'"),
        ({"answers": [{"text": "", "answer_start": 0}]}, "'' is no text"),
        ({"answers": [{"text": "It"}]}, "occurs 2 times in the context"),
        ({"answers": "Paris"}, "'answers' is 'Paris'"),
        ({"answers": {"text": ["Paris"], "answer_start": []}}, "'answers' is"),
        ({"answers": None}, "no 'answers'; only a test file"),
        ({"answers": []}, "no answer.*squad2"),
        ({"is_impossible": True}, "'is_impossible' is true, but there is the answer 'Gustave Eiffel'"),
        ({"question": " "}, "'question' is empty"),
        ({"question": "Who \ud83d?"}, "'question': .*half of a surrogate pair"),
        ({"question": 3}, "'question' holds a int, 3, not a text"),
        ({"id": None}, "'id' is empty"),
        ({"id": "q1"}, "'q1' was that of data.0..paragraphs.0..qas.0. already"),
    ],
)
def test_a_bad_question_is_named_and_can_be_left_out(tmp_path, change, said):
    path = write(tmp_path / "train.json", squad_json(question(1), question(2, **change), question(3)))
    place = r"train.json: question 2: data\[0\].paragraphs\[0\].qas\[1\]"
    with pytest.raises(DataError, match=f"{place}.*{said}"):
        workflow_of(SQUAD).read(path, "train")
    kept = workflow_of(SQUAD).read(path, "train", on_error="skip")
    assert [example.id for example in kept] == ["q1", "q3"]
    assert len(kept.skipped) == 1


def test_an_answer_without_offset_is_found_where_it_stands_once(tmp_path):
    path = write(tmp_path / "train.json", squad_json(question(1, answers=[{"text": "330 m"}])))
    assert workflow_of(SQUAD).read(path, "train")[0].answers == (Answer("330 m", CONTEXT.index("330 m")),)


@pytest.mark.parametrize("ending", [".csv", ".xlsx"])
def test_questions_of_a_spreadsheet(ending, tmp_path):
    cells = ["330 m", "", '[{"text": "Paris", "answer_start": 60}]']
    frame = pd.DataFrame({"question": ["How high?", "Why?", "Where?"], "context": CONTEXT, "answer": cells})
    path = tmp_path / f"train{ending}"
    frame.to_excel(path, index=False) if ending == ".xlsx" else frame.to_csv(path, index=False)
    found = workflow_of(SQUAD2).read(path, "train")
    assert [each.answers for each in found] == [(Answer("330 m", CONTEXT.index("330 m")),), (), (Answer("Paris", 60),)]
    assert len({each.id for each in found}) == 3
    frame.assign(answer="no such").to_csv(tmp_path / "dev.csv", index=False)
    with pytest.raises(DataError, match=r"dev.csv:2.*occurs 0 times"):
        workflow_of(SQUAD2).read(tmp_path / "dev.csv", "dev")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not JSON.*empty"),
        (b'{"data": [', "is not JSON"),
        (b'{"a": 1}\n{"a": 2}\n', "is not JSON.*suffix .jsonl"),
        (b"[]", "got a list"),
        (b'{"rows": []}', "got an object with 'rows'"),
        (b'{"data": []}', "has no question: it is empty"),
        (b'{"data": [{}]}', r"data\[0\]: expected an object with a list 'paragraphs'"),
        (b'{"data": [{"paragraphs": [[]]}]}', r"data\[0\].paragraphs\[0\]: expected an object.*got a list"),
        (b'{"data": "caf\x81"}', ":1: byte 14 of the line, 0x81, is not UTF-8"),
    ],
)
def test_a_file_of_another_form_is_refused(tmp_path, content, said):
    path = tmp_path / "train.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=said):
        workflow_of(SQUAD).read(path, "train")


def test_files_are_chosen_by_split_and_version(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        splits_of(SQUAD, tmp_path / "none", question_rules(SQUAD))
    with pytest.raises(DataError, match=r"no data of task squad in .*found an empty folder"):
        splits_of(SQUAD, tmp_path, question_rules(SQUAD))
    for name in ("train-v1.1.json", "train-v2.0.json", "dev-v2.0.json", "dev-v1.1.json", "notes.txt"):
        write(tmp_path / name, squad_json())
    assert {s: p.name for s, p in splits_of(SQUAD, tmp_path, question_rules(SQUAD)).items()} == {
        "train": "train-v1.1.json", "dev": "dev-v1.1.json"}  # fmt: skip
    assert splits_of(SQUAD2, tmp_path, question_rules(SQUAD2))["train"].name == "train-v2.0.json"
    inner = tmp_path / "SQuAD_v2"
    inner.mkdir()
    write(inner / "train.json", squad_json())
    assert splits_of(SQUAD2, tmp_path, question_rules(SQUAD2)) == {"train": inner / "train.json"}
    write(inner / "train.jsonl", squad_json())
    with pytest.raises(DataError, match="2 files for train"):
        splits_of(SQUAD2, tmp_path, question_rules(SQUAD2))
    other = write(tmp_path / "own.json", squad_json())
    assert len(workflow_of(SQUAD).read(other, "dev")) == 2  # a file without a split's name is what it is asked for
    with pytest.raises(DataError, match="cannot tell how to read"):
        workflow_of(SQUAD).read(tmp_path / "notes.txt", "train")


def test_a_test_file_may_be_without_answers_but_not_half(tmp_path):
    bare = question(1)
    del bare["answers"]
    path = write(tmp_path / "test.json", squad_json(bare))
    assert workflow_of(SQUAD).read(path, "test")[0].answers is None
    write(path, squad_json(question(2), bare))
    with pytest.raises(DataError, match=r"\(id q1\): no 'answers', but other rows have it \(1 of 2\)"):
        workflow_of(SQUAD).read(path, "test")


def test_rows_may_have_answers_that_the_first_does_not(tmp_path):
    rows = [{"id": str(n), "question": "Who?", "context": CONTEXT} for n in range(2)]
    rows[1] |= {"answers": question(1)["answers"], "title": "T"}
    path = tmp_path / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match=r"jsonl:1.*: no 'answers', but other rows have it \(1 of 2\)"):
        read_questions(SQUAD, path, "test")
    (example,) = read_questions(SQUAD, path, "train", on_error="skip")
    assert (example.answers[0].text, example.title) == ("Gustave Eiffel", "T")
    path.write_text('{"id": "1", "question": "Who?"}\n')
    with pytest.raises(DataError, match=r"no context column 'context'.*; rename the column that holds it"):
        read_questions(SQUAD, path, "train")


@pytest.mark.parametrize("hidden", [[], {"text": [], "answer_start": []}])
def test_hidden_answers_may_be_empty_lists_where_each_question_has_one(tmp_path, hidden):
    path = write(tmp_path / "test.json", squad_json(question(1, answers=hidden), question(2, answers=hidden)))
    assert [example.answers for example in workflow_of(SQUAD).read(path, "test")] == [None, None]
    assert [example.answers for example in workflow_of(SQUAD2).read(path, "test")] == [(), ()], "there it is an answer"
    write(path, squad_json(question(1, answers=hidden), question(2)))
    with pytest.raises(DataError, match=r"other rows have it \(1 of 2\)"):
        workflow_of(SQUAD).read(path, "test")


def test_who_only_asks_needs_no_right_answers(tmp_path):
    path = write(tmp_path / "dev.json", squad_json(question(1, answers=[{"text": "Paris", "answer_start": 3}])))
    with pytest.raises(DataError, match="is not at character 3"):
        read_questions(SQUAD, path, "test")
    assert read_questions(SQUAD, path, "test", labelled=False)[0].answers is None


def examples_of(articles: int, each: int) -> Examples[SpanExample]:
    rows = [
        SpanExample(
            f"{a}-{n}", f"What is {n}?", f"{a}: {CONTEXT}", (Answer("1889", 26 if a < 10 else 27),), title=str(a)
        )
        for a in range(articles)
        for n in range(each)
    ]
    return Examples(rows, Path("train.json"), "train")


def test_held_out_questions_are_whole_articles():
    rows = examples_of(10, 7)
    stay, held = hold_out(rows, 0.2, seed=1)
    assert len(held) == 14
    assert {e.title for e in stay}.isdisjoint(e.title for e in held)
    assert sorted([*stay, *held], key=rows.index) == list(rows)
    assert hold_out(rows, 0.2, seed=1)[1] == held
    assert any(hold_out(rows, 0.2, seed=seed)[1] != held for seed in range(2, 5))
    for few in (examples_of(2, 3), examples_of(2, 1)):
        stay, held = hold_out(few, 0.1, seed=0)
        assert {e.context for e in stay}.isdisjoint(e.context for e in held)
        assert held
    with pytest.raises(DataError, match="about one context"):
        hold_out(examples_of(1, 5), 0.1, seed=0)
    with pytest.raises(ConfigError, match="above 0"):
        hold_out(rows, 0.7, seed=0)


def test_no_large_article_is_held_out_where_small_ones_are():
    sizes = {"a": 900, "b": 50, "c": 50}
    rows = [SpanExample(f"{a}{n}", "?", a, (), title=a) for a, size in sizes.items() for n in range(size)]
    for seed in range(6):
        assert len(hold_out(Examples(rows), 0.1, seed)[1]) in (50, 100)
    assert len(hold_out(Examples(rows[-51:]), 0.1, 0)[1]) == 1, "the smallest, where each is too large"


def test_no_context_is_split_by_titles_and_rows_without_title_are_no_article():
    rows = examples_of(12, 3)
    shared_context = Examples(
        (replace(e, context="shared") if e.title in ("1", "4") and e.id.endswith("0") else e for e in rows),
        None,
        "train",
    )
    untitled = Examples((replace(e, title="") for e in rows), None, "train")
    for seed in range(20):
        stay, held = hold_out(shared_context, 0.3, seed)
        assert {e.context for e in stay}.isdisjoint(e.context for e in held)
        assert {e.title for e in stay}.isdisjoint(e.title for e in held)
        stay, held = hold_out(untitled, 0.3, seed)
        assert {e.context for e in stay}.isdisjoint(e.context for e in held)
        assert 9 <= len(held) <= 12
    half = Examples((replace(e, title="" if int(e.title) % 2 else e.title) for e in rows), None, "train")
    assert all(len(hold_out(half, 0.1, seed)[1]) == 3 for seed in range(20)), "no group of all that have no title"
    one = Examples((replace(e, context="shared") if e.id.endswith("0") else e for e in rows), None, "train")
    stay, held = hold_out(one, 0.3, 0)
    assert {e.context for e in stay}.isdisjoint(e.context for e in held)


def test_the_report_says_what_should_make_a_reader_stop(minilm):
    tokenizer = BertTokenizer.from_pretrained(minilm)
    long = " ".join(["word"] * 400)
    train = Examples([*examples_of(3, 2), SpanExample("l", long, f"{long} end", (Answer(long, 0),))], None, "train")
    dev = Examples([copy.copy(train[0]), SpanExample("n", "What?", train[0].context, ())], None, "dev")
    settings = SpanSettings(max_length=100, doc_stride=30, max_answer_length=30)
    windows = {name: featurize_spans(rows, tokenizer, settings, labelled=True) for name, rows in
               (("train", train), ("dev", dev))}  # fmt: skip
    report = question_report(SQUAD2, {"train": train, "dev": dev}, windows)
    told = report.render()
    assert report.overlap == {"dev": 1}
    for line in (
        "train: 7 questions about 4 contexts of 4 articles",
        "1 question with more than one",
        "CUT: 1 question cut at the end",
        "LOST: 1 answer not whole in any window",
        "TOO LONG: 1 answer with more tokens than max_answer_length, so never predicted",
        "LEAK: 1 of 2 dev questions (50.0 %) are also in train; the context of 2 is in train",
        "without an answer: 1 (50.0 %)",
    ):
        assert line in told, told
    json.dumps(report.to_dict(), allow_nan=False)


@pytest.mark.slow
def test_the_baseline_is_above_chance_and_repeatable(real):
    train, dev = hold_out(real[SQUAD.name], 0.05, seed=0)
    found = overlap_baseline(train, dev, SQUAD)
    assert 0.15 < found["metrics"]["f1"] < 0.4  # 20 F1 published for the whole dev set, in the same manner
    assert overlap_baseline(train, dev, SQUAD)["metrics"] == found["metrics"]
    texts = [example.context for example in dev]
    assert score_answers(SQUAD, dev, texts).scores["f1"] < found["metrics"]["f1"]


def test_scores_say_what_cannot_be_scored():
    with pytest.raises(InputError, match="no questions"):
        score_answers(SQUAD, [], [])
    with pytest.raises(DataError, match="has no 'answers'"):
        score_answers(SQUAD, [SpanExample("a", "b", "c")], ["c"])


def test_the_threshold_of_squad2_is_tuned_or_given():
    examples = [SpanExample("a", "?", "x y", (Answer("x", 0),)), SpanExample("b", "?", "x y", ())]
    tuned = score_answers(SQUAD2, examples, ["x", "y"], np.array([-1.0, 3.0]))
    assert tuned.scores["f1"] == 1.0
    assert tuned.threshold == 1.0
    given = score_answers(SQUAD2, examples, ["x", "y"], np.array([-1.0, 3.0]), threshold=5.0)
    assert given.scores == {
        "f1": 0.5, "exact_match": 0.5, "HasAns_exact": 1.0, "HasAns_f1": 1.0, "NoAns_exact": 0.0, "NoAns_f1": 0.0
    }  # fmt: skip
