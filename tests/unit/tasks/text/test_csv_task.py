"""A task from a user's own file: which columns, which labels, in which order."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from bertkit.errors import ConfigError, DataError
from bertkit.tasks import csv_task, load_split, task_from_dict, task_to_dict


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_common_names_are_guessed_and_said(tmp_path: Path) -> None:
    file = write(tmp_path / "mine.csv", "id,Tweet,Sentiment\n1,good day,pos\n2,bad day,neg\n")
    task = csv_task(file)
    assert (task.columns.text, task.columns.label, task.is_pair) == (("Tweet",), ("Sentiment",), False)
    assert task.labels == ("neg", "pos")
    assert task.notes == (
        "text column: 'Tweet' (inferred from its name)",
        "label column: 'Sentiment' (inferred from its name)",
        "2 labels, in this order: 'neg', 'pos'",
    )
    assert [(row.text, row.label) for row in load_split(task, file, "train")] == [("good day", 1), ("bad day", 0)]


@pytest.mark.parametrize(
    ("header", "text", "pair"),
    [
        ("premise,hypothesis,label", "premise", "hypothesis"),
        ("sentence1,sentence2,label", "sentence1", "sentence2"),
        ("Text_A,Text_B,label", "Text_A", "Text_B"),
        ("question,sentence,label", "question", "sentence"),
        ("text,title,label", "text", None),
        ("title,review,label", "review", None),
    ],
)
def test_pairs_are_guessed(header: str, text: str, pair: str | None, tmp_path: Path) -> None:
    task = csv_task(write(tmp_path / "train.csv", f"{header}\na,b,0\nc,d,1\n"))
    assert (task.columns.text, task.columns.text_pair) == ((text,), (pair,) if pair else ())


def test_a_score_without_end_is_not_a_label(tmp_path: Path) -> None:
    file = write(tmp_path / "train.csv", "text,score\na,1.5\nb,2.5\nc,-Inf\n")
    with pytest.raises(DataError, match="holds numbers and 1 time '-Inf'"):
        csv_task(file)
    assert csv_task(file, problem="classification").labels is not None


def test_named_columns(tmp_path: Path) -> None:
    file = write(tmp_path / "train.csv", "premise,hypothesis,label,other\na,b,x,1\nc,d,y,2\n")
    assert not csv_task(file, text="premise").is_pair  # a pair is guessed only where no text is named
    task = csv_task(file, text="hypothesis", text_pair="premise", label="other")
    assert (task.columns.text, task.columns.text_pair, task.labels) == (("hypothesis",), ("premise",), ("1", "2"))
    assert not any("inferred" in note for note in task.notes)
    with pytest.raises(DataError, match=r"no text column 'premis' \(did you mean 'premise'\?\).*--text"):
        csv_task(file, text="premis")
    with pytest.raises(DataError, match=r"no second text column 'b'.*--text-pair"):
        csv_task(file, text="premise", text_pair="b")
    with pytest.raises(DataError, match=r"no label column 'lable' \(did you mean 'label'\?\).*--label"):
        csv_task(file, label="lable")
    with pytest.raises(ConfigError, match="one column cannot be two things"):
        csv_task(file, text="premise", label="premise")


def test_nothing_to_guess_from(tmp_path: Path) -> None:
    file = write(tmp_path / "train.csv", "a,lable\nx,1\ny,0\n")
    with pytest.raises(DataError, match=r"cannot tell which column is the label \(is it 'lable'\?\)"):
        csv_task(file, text="a")
    with pytest.raises(DataError, match=r"cannot tell which column is the text.*\['a', 'lable'\].*--text"):
        csv_task(file, label="lable")
    with pytest.raises(DataError, match=r"the label \(.*\) and which the text\. .*name them with --label and --text"):
        csv_task(file)


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        (["1", "0", "10", "2"], ("0", "1", "2", "10")),
        (["-1", "1", "0"], ("-1", "0", "1")),
        (["1.0", "0.0", "2"], ("0", "1", "2")),
        (["item 10", "item 2", "Item 1"], ("Item 1", "item 2", "item 10")),
        (["b", "A", "a"], ("A", "a", "b")),
        (["02", "2", "10"], ("02", "2", "10")),
        (["01", "x", "1"], ("01", "1", "x")),
        (["yes ", " yes", "no"], ("no", "yes")),
        (["True", "False"], ("False", "True")),
        (["none", "some"], ("none", "some")),
        (["0.5", "high"], ("0.5", "high")),
    ],
)
def test_label_order(values: list[str], labels: tuple[str, ...], tmp_path: Path) -> None:
    rows = "".join(f"text {number},{value}\n" for number, value in enumerate(values * 2))
    file = write(tmp_path / "train.csv", "text,label\n" + rows)
    task = csv_task(file)
    assert task.labels == labels
    read = [labels[row.label] for row in load_split(task, file, "train")]
    assert len(read) == len(values) * 2
    assert set(read) == set(labels)


def test_typed_labels(tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": ["a", "b", "c", "d"], "label": [3, 5, 3, 7]})
    for name, dump in (
        ("train.jsonl", lambda f: frame.to_json(f, orient="records", lines=True)),
        ("train.parquet", frame.to_parquet),
        ("train.csv", lambda f: frame.to_csv(f, index=False)),
    ):
        folder = tmp_path / name.replace(".", "_")
        folder.mkdir()
        dump(folder / name)
        task = csv_task(folder)
        assert task.labels == ("3", "5", "7")
        assert [row.label for row in load_split(task, folder, "train")] == [0, 1, 0, 2]
    booleans = tmp_path / "train.parquet"
    pd.DataFrame({"text": ["a", "b"], "label": [True, False]}).to_parquet(booleans)
    assert csv_task(booleans).labels == ("False", "True")
    categories = pd.DataFrame({"text": ["a", "b"], "label": pd.Categorical(["x", "y"])})
    categories.to_parquet(booleans)
    assert [row.label for row in load_split(csv_task(booleans), booleans, "train")] == [0, 1]


def test_an_unseen_typed_label_is_not_taken_for_a_number(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", '{"text": "a", "label": 3}\n{"text": "b", "label": 5}\n')
    write(tmp_path / "dev.jsonl", '{"text": "a", "label": 1}\n')
    with pytest.raises(DataError, match=r"dev\.jsonl:1: column 'label': label 1 is not one of '3', '5'"):
        load_split(csv_task(tmp_path), tmp_path, "dev")


def test_regression(tmp_path: Path) -> None:
    file = write(tmp_path / "train.csv", "text,score\na,1\nb,2.5\nc,-3e-1\n")
    task = csv_task(file)
    assert (task.labels, task.kind, task.main_metric, task.num_labels) == (None, "regression", "spearman", 1)
    assert task.notes[-1] == "regression: the scores go from -0.3 to 2.5"
    assert [row.label for row in load_split(task, file, "train")] == [1.0, 2.5, -0.3]
    assert csv_task(file, problem="classification").labels == ("-3e-1", "1", "2.5")
    whole = write(tmp_path / "dev.csv", "text,score\na,1\nb,2\n")
    assert csv_task(whole).labels == ("1", "2")
    assert csv_task(whole, problem="regression").labels is None
    words = write(tmp_path / "x.csv", "text,score\na,1\nb,two\n")
    with pytest.raises(DataError, match=r"x\.csv:3: .* must hold numbers for regression, but has 'two'\."):
        csv_task(words, problem="regression")
    more = write(tmp_path / "more.csv", 'text,score\n"a\nb",1\nc,2.5\nd,x y\ne,z\nf,x y\n')
    with pytest.raises(DataError, match=r"more\.csv:5: .* but has 'x y', and so have 2 rows after it"):
        csv_task(more, problem="regression")
    gaps = write(tmp_path / "gaps.csv", "text,score\na,1.5\nb,2.5\nc,n/a\nd,n/a\n")
    with pytest.raises(DataError, match=r"gaps\.csv:4: column 'score' holds numbers and 2 times 'n/a'"):
        csv_task(gaps)
    endless = write(tmp_path / "endless.csv", "text,score\na,1.5\nb,inf\n")
    with pytest.raises(DataError, match=r"endless\.csv:3: column 'score' holds numbers and 1 time 'inf'"):
        csv_task(endless)
    with pytest.raises(ConfigError, match="labels= is for classification"):
        csv_task(words, problem="regression", labels=["1"])


def test_what_cannot_be_learned(tmp_path: Path) -> None:
    one = write(tmp_path / "a.csv", "text,label\na,x\nb,x\n")
    with pytest.raises(DataError, match="holds the one label 'x' in all 2 rows"):
        csv_task(one)
    with pytest.raises(DataError, match="holds the one score '2' in all 2 rows"):
        csv_task(write(tmp_path / "b.csv", "text,label\na,2\nb,2\n"), problem="regression")
    ids = write(tmp_path / "c.csv", "text,label\n" + "".join(f"t,id{n}\n" for n in range(50)))
    with pytest.raises(DataError, match=r"50 different labels in 50 rows.*--label"):
        csv_task(ids)
    assert csv_task(ids, label="label").num_labels == 50, "who names the column means it; one text per label can do"
    gaps = write(tmp_path / "d.csv", "text,label\na,1\nb,0\nc,NA\n")
    with pytest.raises(DataError, match="1 time 'NA', which looks like a missing value"):
        csv_task(gaps)
    with pytest.raises(DataError, match=r":3: column 'label' has no label \(''\)"):
        csv_task(write(tmp_path / "e.csv", "text,label\na,1\nb,\nc,0\n"))
    with pytest.raises(DataError, match="no row with a label"):
        csv_task(write(tmp_path / "f.csv", "text,label\n"))
    with pytest.raises(DataError, match=r":1: column 'label' holds a list; expected one label per row"):
        csv_task(write(tmp_path / "g.jsonl", '{"text": "a", "label": ["x", "y"]}\n'), problem="classification")


@pytest.mark.parametrize("slip", ["n/a", "NEGATIVE", " Positive", "NA"])
def test_a_slip_is_no_label(slip: str, tmp_path: Path) -> None:
    """One row under a frequent label in another spelling, or under what looks like a missing value, is a bad row."""
    path = tmp_path / "train.csv"
    rows = ["text,label", *(f"text {n},{('negative', 'positive')[n % 2]}" for n in range(24))]
    path.write_text("\n".join([*rows[:5], f"a slip,{slip}", *rows[5:]]) + "\n")
    with pytest.raises(DataError, match=rf"train.csv:6: column 'label': label '{slip}' is not one of"):
        csv_task(path)
    task = csv_task(path, on_error="skip")
    assert task.labels == ("negative", "positive")
    (skipped,) = load_split(task, path, "train", on_error="skip").skipped
    assert skipped.row == 6
    for others in ([*rows, f"again,{slip}"], rows[:5]):  # the controls: two rows of it; no frequent label
        path.write_text("\n".join([*others, f"a slip,{slip}"]) + "\n")
        assert slip.strip() in (csv_task(path).labels or ())


def test_labels_of_an_earlier_run(tmp_path: Path) -> None:
    file = write(tmp_path / "train.csv", "text,label\na,x\nb,y\n")
    task = csv_task(file, labels=["z", "y", "x"])
    assert [row.label for row in load_split(task, file, "train")] == [2, 1]
    with pytest.raises(DataError, match=r":3: .*label 'y' is not one of 'x', 'z'"):
        load_split(csv_task(file, labels=["x", "z"]), file, "train")
    with pytest.raises(ConfigError, match="listed twice"):
        csv_task(file, labels=["x", "x"])
    flags = write(tmp_path / "flags.csv", "text,p,q\na,1,0\nb,0,1\n")
    assert csv_task(flags, label=["p", "q"], labels=["p", "q"], problem="multi_label").labels == ("p", "q")
    for wrong in ({"labels": ["P", "Q"]}, {"problem": "regression"}):
        with pytest.raises(ConfigError, match="each of several columns is one label, so that problem= is"):
            csv_task(flags, label=["p", "q"], **wrong)  # type: ignore[arg-type]


def test_an_unseen_label_in_dev(tmp_path: Path) -> None:
    write(tmp_path / "train.csv", "text,label\na,x\nb,y\n")
    write(tmp_path / "dev.csv", "text,label\na,x\nb,Z\n")
    with pytest.raises(DataError, match=r"dev\.csv:3: column 'label': label 'Z' is not one of 'x', 'y'"):
        load_split(csv_task(tmp_path), tmp_path, "dev")


def test_quoted_tsv_is_not_guessed(tmp_path: Path) -> None:
    frame = pd.DataFrame({"text": ['she said "hi" twice', "plain", "two\nlines"], "label": ["x", "y", "x"]})
    file = tmp_path / "train.tsv"
    frame.iloc[:2].to_csv(file, sep="\t", index=False)
    task = csv_task(file)  # the label column alone does not show the quotes
    with pytest.raises(DataError, match=r":2: a field is enclosed in quotes.*quoting='csv'.*quoting='none'"):
        load_split(task, file, "train")
    frame.to_csv(file, sep="\t", index=False)
    read = load_split(csv_task(file, quoting="csv"), file, "train")
    assert [row.text for row in read] == frame["text"].tolist()
    with pytest.raises(DataError, match=r":4: the row has 1 field, expected 2.*a line broken in two"):
        load_split(csv_task(file, quoting="none", on_error="skip"), file, "train")
    frame.iloc[:2].to_csv(file, sep="\t", index=False)
    read = load_split(csv_task(file, quoting="none"), file, "train")
    assert read[0].text == '"she said ""hi"" twice"'
    frame.to_csv(file, sep="\t", index=False, quoting=1)
    with pytest.raises(DataError, match=r":1: the header is quoted"):
        csv_task(file)


def test_delimiter(tmp_path: Path) -> None:
    file = write(tmp_path / "train.csv", 'text;label\n"a;b";x\nc;y\n')
    task = csv_task(file, delimiter=";")
    assert [row.text for row in load_split(task, file, "train")] == ["a;b", "c"]
    assert task_from_dict(task_to_dict(task)) == task
