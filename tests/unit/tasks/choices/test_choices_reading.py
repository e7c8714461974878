"""Files of multiple-choice questions, read as independent readers read them; bad ones by file, line and reason."""

from __future__ import annotations

import csv
import json
import lzma
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertkit.errors import DataError
from bertkit.tasks.choices.task import ARC, CODAH, SWAG, ChoiceExample
from bertkit.tasks.reading.splits import split_of, splits_of
from bertkit.tasks.registry import task_from_dict, task_to_dict
from bertkit.tasks.workflow import workflow_of


@pytest.mark.slow
def test_codah_equals_the_lines_of_its_files(shared: Path) -> None:
    for split, count in (("train", 1665), ("dev", 556)):
        rows = workflow_of(CODAH).read(shared / "data" / "codah", split)
        lines = (shared / "data" / "codah" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
        assert len(rows) == len(lines) == count
        for number, (row, line) in enumerate(zip(rows, lines, strict=True), start=1):
            _, prompt, *endings, label = line.split("\t")
            assert (row.context, row.start, row.choices, row.label) == (prompt, "", tuple(endings), int(label))
            assert row.row == number


def test_arc_equals_the_csv_module(shared: Path) -> None:
    path = shared / "data" / "arc" / "arc_easy_train.csv.xz"
    with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
        records = list(csv.DictReader(file))
    rows = workflow_of(ARC).read(path, "train")
    assert len(rows) == len(records) == 2142
    for row, record in zip(rows, records, strict=True):
        assert (row.context, row.choices) == (record["question"], tuple(record[letter] for letter in "ABCD"))
        assert "ABCD"[row.label] == record["answer"]


def test_swag_sample_equals_its_json(shared: Path) -> None:
    path = shared / "data" / "swag_sample" / "sample.jsonl"
    records = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for row, record in zip(workflow_of(SWAG).read(path, "train"), records, strict=True):
        assert row.pairs == tuple(
            (record["sent1"], f"{record['sent2']} {record[f'ending{number}']}") for number in range(4)
        )
        assert row.label == record["label"]


def test_one_task_reads_the_files_of_the_others(shared: Path) -> None:
    for task, data in ((CODAH, "codah/dev.tsv"), (ARC, "arc/arc_easy_dev.csv")):
        assert workflow_of(SWAG).read(shared / "data" / data, "dev") == workflow_of(task).read(
            shared / "data" / data, "dev"
        )


def test_files_that_belong_together_are_named_by_their_beginning(shared: Path) -> None:
    folder = shared / "data" / "arc"
    found = {split: path.name for split, path in splits_of(ARC, folder / "arc_easy").items()}
    assert found == {"train": "arc_easy_train.csv.xz", "dev": "arc_easy_dev.csv"}
    with pytest.raises(DataError, match=r"2 files for train: .*how the names of the files that belong together begin"):
        splits_of(ARC, folder)
    with pytest.raises(DataError, match="does not exist"):
        splits_of(ARC, folder / "arc_eas")
    assert split_of(folder / "arc_easy_train.csv.xz") is None, "a file that a user names is what it is asked for"


OFFICIAL = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label"


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_the_official_swag_csv(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", OFFICIAL, '0,v,1,x,"He sits, still.",She,gold,a,b,c,d,2')
    assert workflow_of(SWAG).read(train, "train") == [
        ChoiceExample("He sits, still.", "She", ("a", "b", "c", "d"), 2, 2, str(train))
    ]
    test = write(tmp_path / "test.csv", OFFICIAL.removesuffix(",label"), "0,v,1,x,one,two,gold,a,b,c,d")
    assert [row.label for row in workflow_of(SWAG).read(test, "test")] == [None]


LAYOUTS: dict[str, tuple[dict[str, Any], ChoiceExample]] = {
    "hellaswag": (
        {"ctx_a": "A man.", "ctx_b": "he", "ctx": "A man. he", "endings": ["sits", "runs"], "label": "1"},
        ChoiceExample("A man.", "he", ("sits", "runs"), 1),
    ),
    "commonsense": (
        {"question": "Where?", "choices": {"label": ["A", "B"], "text": ["here", "there"]}, "answerKey": "B"},
        ChoiceExample("Where?", "", ("here", "there"), 1),
    ),
    "arc with numbers": (
        {"question": "Where?", "choices": {"label": ["1", "2"], "text": ["here", "there"]}, "answerKey": "1"},
        ChoiceExample("Where?", "", ("here", "there"), 0),
    ),
    "race": (
        {"article": "Long.", "question": "Who?", "options": ["I", "you", "she"], "answer": "C"},
        ChoiceExample("Long.", "Who?", ("I", "you", "she"), 2),
    ),
    "copa": (
        {"premise": "It rained.", "choice1": "Wet.", "choice2": "Dry.", "label": 0},
        ChoiceExample("It rained.", "", ("Wet.", "Dry."), 0),
    ),
    "codah of the hub": (
        {"question_propmt": "I", "candidate_answers": ["go", "stay"], "correct_answer_idx": 1},
        ChoiceExample("I", "", ("go", "stay"), 1),
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_other_layouts(tmp_path: Path, name: str, kind: str) -> None:
    record, expected = LAYOUTS[name]
    path = tmp_path / f"train.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist([record]), path)
    else:
        write(path, json.dumps(record))
    (row,) = workflow_of(SWAG).read(path, "train")
    assert (row.pairs, row.choices, row.label) == (expected.pairs, expected.choices, expected.label)


HEADER = "question,A,B,C,D,answer"
BAD = {
    "unknown label": (f"{HEADER}\nq,a,b,c,d,E", r":2: column 'answer': 'E' is not a choice; expected one of 'A', 'B'"),
    "number for a letter": (f"{HEADER}\nq,a,b,c,d,1", r":2: column 'answer': '1' is not a choice"),
    "number too large": ("sent1,ending0,ending1,label\nq,a,b,0\nq,a,b,2", r":3: .*expected one of 0, 1"),
    "missing label": (f"{HEADER}\nq,a,b,c,d,", r":2: column 'answer' has no label"),
    "empty choice": (f"{HEADER}\nq,a,,c,d,A", r":2: column 'B' is empty"),
    "empty context": (f"{HEADER}\n ,a,b,c,d,A", r":2: column 'question' is empty"),
    "ragged": (f"{HEADER}\nq,a,b,c,A", r":2: the row has 5 fields, expected 6"),
    "no choices": ("question,answer\nq,A", r"no choices: looked for columns ending0"),
    "one choice": ("question,A,answer\nq,a,A", r"no choices"),
    "no label": (
        "question,A,B\nq,a,b",
        r"no label column 'label' or .*; rename the column that holds it to one of label, answer",
    ),
    "no context": ("wording,A,B,answer\nq,a,b,A", r"a file without a header is read as CODAH's"),
    "no rows": (HEADER, "no usable row"),
    "empty": ("", "is empty"),
}


COUNTED = "sent1,ending0,ending1,label"
BAD |= {
    "power of two": (f"{COUNTED}\nq,a,b,0\nq,a,b,²", r":3: .*'²' is not a choice"),
    "negative": (f"{COUNTED}\nq,a,b,0\nq,a,b,-1", r":3: .*'-1' is not a choice; expected one of 0, 1"),
    "a letter among numbers": (f"{COUNTED}\nq,a,b,0\nq,a,b,B", r":3: .*'B' is not a choice; expected one of 0, 1"),
    "a number among letters": (f"{COUNTED}\nq,a,b,B\nq,a,b,0", r":3: .*'0' is not a choice; expected one of 'A', 'B'"),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_rows_are_named(tmp_path: Path, fault: str) -> None:
    content, message = BAD[fault]
    path = tmp_path / "train.csv"
    path.write_text(f"{content}\n" if content else "")
    with pytest.raises(DataError, match=message) as error:
        workflow_of(SWAG).read(path, "train")
    assert str(path) in str(error.value)


@pytest.mark.parametrize("on_error", ["raise", "skip"])
@pytest.mark.parametrize(
    ("columns", "labels", "told"),
    [
        ("option1,option2,option3,option4", "1234", "4 occurs and 0 does not, with 4 choices"),
        ("option1,option2,option3,option4", "1324", "4 occurs and 0 does not, with 4 choices"),
        ("ending0,ending1,ending2,ending3", "413", "4 occurs and 0 does not, with 4 choices"),
        (
            "option1,option2,option3,option4",
            "13",
            "are in option1 to option4 and no label is 0. .*call the columns option0",
        ),
        ("choice1,choice2", "11", "are in choice1 to choice2 and no label is 0"),
    ],
)
def test_labels_counted_from_one_are_refused(
    tmp_path: Path, columns: str, labels: str, told: str, on_error: Any
) -> None:
    rows = [",".join(["q", *"abcd"[: columns.count(",") + 1], label]) for label in labels]
    path = write(tmp_path / "train.csv", f"sent1,{columns},label", *rows)
    with pytest.raises(DataError, match=r"train.csv: column 'label': labels seem to be counted from 1: .*" + told):
        workflow_of(SWAG).read(path, "train", on_error=on_error)


@pytest.mark.parametrize(("first", "labels"), [(1, "103"), (0, "132"), (0, "3"), (1, "0")])
def test_labels_counted_from_zero_are_taken(tmp_path: Path, first: int, labels: str) -> None:
    columns = ",".join(f"option{number}" for number in range(first, first + 4))
    path = write(tmp_path / "train.csv", f"sent1,{columns},label", *(f"q,a,b,c,d,{label}" for label in labels))
    assert [row.label for row in workflow_of(SWAG).read(path, "train")] == [int(label) for label in labels]


def test_a_number_too_large_beside_zero_is_a_bad_row(tmp_path: Path) -> None:
    path = write(tmp_path / "train.csv", "sent1,option1,option2,label", "q,a,b,2", "q,a,b,1", "q,a,b,0")
    rows = workflow_of(SWAG).read(path, "train", on_error="skip")
    assert [row.label for row in rows] == [1, 0]
    assert [row.kind for row in rows.skipped] == ["unknown label"]


def test_bad_rows_can_be_left_out_and_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "train.csv", HEADER, "q,a,b,c,d,A", "q,a,b,c,d,F", "q,a,b,c,d,", "q,a,b,c,d,D")
    rows = workflow_of(SWAG).read(path, "train", on_error="skip")
    assert [row.row for row in rows] == [2, 5]
    assert Counter(row.kind for row in rows.skipped) == {"unknown label": 1, "missing label": 1}


def test_all_questions_have_the_same_number_of_choices(tmp_path: Path) -> None:
    records = [{"question": "q", "options": options, "label": 0} for options in (["a", "b"], ["a", "b", "c"])]
    path = write(tmp_path / "train.jsonl", *map(json.dumps, records))
    with pytest.raises(DataError, match=r":2: 3 choices, but 2 in line 1"):
        workflow_of(SWAG).read(path, "train")


@pytest.mark.parametrize("names", [["A", "B", "C"], ["A", "A"], 5, "AB"])
def test_names_of_choices_must_be_those_of_the_choices(tmp_path: Path, names: Any) -> None:
    rows = [{"question": "q", "choices": {"text": ["a", "b"], "label": given}, "answerKey": "A"}
            for given in (["A", "B"], names)]  # fmt: skip
    path = write(tmp_path / "train.jsonl", *map(json.dumps, rows))
    with pytest.raises(DataError, match=r":2: column 'choices': .* do not name 2 different choices"):
        workflow_of(ARC).read(path, "train")
    assert len(workflow_of(ARC).read(path, "train", on_error="skip")) == 1


def test_a_choice_that_only_later_rows_have_is_not_lost(tmp_path: Path) -> None:
    row = {"sent1": "q", "ending0": "a", "ending1": "b", "label": 0}
    path = write(tmp_path / "train.jsonl", json.dumps(row), json.dumps({**row, "ending2": "c"}))
    with pytest.raises(DataError, match=r":2: there is 'ending2' beside ending0, ending1"):
        workflow_of(SWAG).read(path, "train")


def test_a_test_file_has_labels_throughout_or_not_at_all(tmp_path: Path) -> None:
    records = [{"question": "q", "options": ["a", "b"], "label": label} for label in (-1, 0)]
    path = write(tmp_path / "test.jsonl", *map(json.dumps, records))
    with pytest.raises(DataError, match=r":1: no label, but other rows have it \(1 of 2\)"):
        workflow_of(SWAG).read(path, "test")
    later = write(
        tmp_path / "test.jsonl", *(json.dumps(row) for row in ({"question": "q", "options": ["a", "b"]}, records[1]))
    )
    with pytest.raises(DataError, match=r":1: no label, but other rows have it \(1 of 2\)"):
        workflow_of(SWAG).read(later, "test")
    hidden = write(tmp_path / "test.jsonl", json.dumps(records[0]))
    assert workflow_of(SWAG).read(hidden, "test")[0].label is None
    with pytest.raises(DataError, match="is not a choice"):
        workflow_of(SWAG).read(write(tmp_path / "train.jsonl", json.dumps(records[0])), "train")


def test_tasks_come_back_from_json() -> None:
    for task in (SWAG, CODAH, ARC):
        assert task_from_dict(json.loads(json.dumps(task_to_dict(task)))) == task
