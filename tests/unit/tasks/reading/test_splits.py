"""Which file holds which split."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertkit.errors import ConfigError, DataError
from bertkit.tasks import TASKS, get_task, load_split, split_of, splits_of

SST2 = TASKS["sst2"]


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("sentence\tlabel\ngood\t1\nbad\t0\n")


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train.tsv", "train"),
        ("train_slice.tsv.xz", "train"),
        ("training.csv", "train"),
        ("Train-00000-of-00001.parquet", "train"),
        ("dev.tsv", "dev"),
        ("validation.jsonl", "dev"),
        ("valid.csv.gz", "dev"),
        ("val.tsv", "dev"),
        ("eval.csv", "dev"),
        ("test.tsv.bz2", "test"),
        ("trainer.csv", None),
        ("reviews.csv", None),
        ("latest.csv", None),
        ("value.csv", None),
    ],
)
def test_split_names(name: str, split: str | None) -> None:
    assert split_of(Path(name)) == split


@pytest.mark.parametrize("given", ["data", "data/glue", "data/glue/SST-2"])
def test_the_folder_or_any_folder_above(given: str, shared: Path) -> None:
    found = splits_of(SST2, shared / given)
    folder = shared / "data/glue/SST-2"
    assert found == {"train": folder / "train.tsv.xz", "dev": folder / "dev.tsv"}


@pytest.mark.parametrize(("name", "splits"), [("qqp", ["train"]), ("qnli", ["dev"]), ("imdb", ["train", "test"])])
def test_what_is_there_and_no_more(name: str, splits: list[str], shared: Path) -> None:
    assert list(splits_of(TASKS[name], shared / "data")) == splits


def test_a_missing_split_says_what_there_is_and_what_to_do(shared: Path) -> None:
    with pytest.raises(DataError, match=r"imdb has no dev file .*train \(train\.jsonl\.xz\), test.*dev_share"):
        load_split(TASKS["imdb"], shared / "data", "dev")
    with pytest.raises(DataError, match=r"qnli has no train file .*only dev \(dev\.tsv\.xz\)"):
        load_split(TASKS["qnli"], shared / "data", "train")


def test_one_file(tmp_path: Path) -> None:
    touch(tmp_path, "reviews.tsv", "dev.tsv")
    assert splits_of(SST2, tmp_path / "reviews.tsv") == {"train": tmp_path / "reviews.tsv"}
    assert splits_of(SST2, tmp_path / "dev.tsv") == {"dev": tmp_path / "dev.tsv"}
    for split in ("train", "dev", "test"):
        assert len(load_split(SST2, tmp_path / "reviews.tsv", split)) == 2
    with pytest.raises(DataError, match="no train file"):
        load_split(SST2, tmp_path / "dev.tsv", "train")


def test_exact_names_win(tmp_path: Path) -> None:
    touch(tmp_path, "train.tsv", "train_small.tsv", "val.tsv", "dev.tsv", "notes.txt", "train.tsv.bak")
    assert splits_of(SST2, tmp_path) == {"train": tmp_path / "train.tsv", "dev": tmp_path / "dev.tsv"}


@pytest.mark.parametrize("names", [("train.tsv", "train.tsv.xz"), ("train_a.tsv", "train_b.tsv")])
def test_two_files_for_one_split(names: tuple[str, str], tmp_path: Path) -> None:
    touch(tmp_path, *names)
    with pytest.raises(DataError, match="2 files for train") as caught:
        splits_of(SST2, tmp_path)
    assert all(name in str(caught.value) for name in names)


def test_a_folder_named_after_the_task_comes_first(tmp_path: Path) -> None:
    touch(tmp_path, "train.tsv", "sst2/train.tsv")
    assert splits_of(SST2, tmp_path) == {"train": tmp_path / "sst2/train.tsv"}


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no data of task sst2 .*SST-2; found an empty folder"):
        splits_of(SST2, tmp_path)
    (tmp_path / "data.xls").write_text("x")
    with pytest.raises(DataError, match=r"found 'data\.xls'"):
        splits_of(SST2, tmp_path)
    with pytest.raises(DataError, match=r"must end in \.tsv, \.csv.*Save the workbook as \.xlsx"):
        splits_of(SST2, tmp_path / "data.xls")
    with pytest.raises(DataError, match=r"nowhere does not exist; .* has 'data\.xls'"):
        splits_of(SST2, tmp_path / "nowhere")
    with pytest.raises(DataError, match="unknown split 'validation'"):
        load_split(SST2, tmp_path, "validation")


def test_task_names() -> None:
    assert set(TASKS) == set("cola sst2 mrpc stsb qqp rte wnli qnli imdb tweets".split())
    assert get_task("rte") is TASKS["rte"]
    with pytest.raises(ConfigError, match=r"unknown task 'stt2' \(did you mean 'sst2'\?\)"):
        get_task("stt2")
    with pytest.raises(ConfigError, match=r"made from files: use bertkit.tasks.task_of\(.csv., data\)"):
        get_task("csv")
