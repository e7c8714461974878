"""Inputs that are cut in an unusual place, outputs beside them, errors of earlier calls, drafts of other shards."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertkit import BertForSequenceClassification
from bertkit.bulk.cuts import Size
from bertkit.bulk.inputs import find_inputs
from bertkit.bulk.planner import How, What, compute_file, compute_folder
from bertkit.bulk.resume import remove_drafts
from bertkit.bulk.state import State
from bertkit.errors import ConfigError, DataError
from pipeline_helpers import save_tiny

SMALL = How(size=Size(rows=4))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"), BertForSequenceClassification, num_labels=2)


def rows_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for part in sorted(folder.glob("part-*")) for line in part.read_text().splitlines()]


@pytest.mark.parametrize("first", ["\n", "\ufeff\n", "  \n\n", ""])
def test_no_row_is_lost_behind_a_blank_line(model: Path, tmp_path: Path, first: str) -> None:
    lines = "".join(json.dumps({"n": number, "text": f"good {number}"}) + "\n" for number in range(11))
    (tmp_path / "a.jsonl").write_text(first + lines, encoding="utf-8")
    compute_folder(What(model), [tmp_path / "a.jsonl"], tmp_path / "out", SMALL)
    assert [row["n"] for row in rows_of(tmp_path / "out")] == [*range(11)]


def test_a_header_may_have_a_line_break(model: Path, tmp_path: Path) -> None:
    rows = "".join(f'{number},"good, {number}"\n' for number in range(11))
    (tmp_path / "a.csv").write_text('n,"text\nof people"\n' + rows, encoding="utf-8", newline="")
    with pytest.raises(DataError, match="no text column"):
        compute_folder(What(model), [tmp_path / "a.csv"], tmp_path / "other", SMALL)
    (tmp_path / "a.csv").write_text('"n\nof row",text\n' + rows, encoding="utf-8", newline="")
    compute_folder(What(model), [tmp_path / "a.csv"], tmp_path / "out", SMALL)
    assert [row["text"] for row in rows_of(tmp_path / "out")] == [f"good, {number}" for number in range(11)]


def test_a_folder_that_is_in_the_way_is_kept(model: Path, tmp_path: Path) -> None:
    parts = tmp_path / "labels.jsonl.parts"
    parts.mkdir()
    (parts / "a.txt").write_text("good\n")
    for source in (parts, tmp_path / "typo.txt"):
        with pytest.raises(ConfigError, match="folder of something else"):
            compute_file(What(model), [source], tmp_path / "labels.jsonl")
    assert (parts / "a.txt").read_text() == "good\n"


def test_errors_of_an_earlier_call_count(model: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "good"}\n{"text": 5}\n{"text": "bad"}\n')
    for _ in range(2):
        with pytest.raises(DataError, match="more rows have no result"):
            compute_folder(What(model), [tmp_path / "a.jsonl"], tmp_path / "out", How(max_errors=0))
    compute_folder(What(model), [tmp_path / "a.jsonl"], tmp_path / "out", How(max_errors=1))


def test_an_output_in_the_folder_of_the_input_is_resumed(model: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text('{"text": "good"}\n')
    for _ in range(2):
        compute_folder(What(model), [tmp_path / "data"], tmp_path / "data" / "out", SMALL)
    assert len(rows_of(tmp_path / "data" / "out")) == 1


def test_drafts_of_other_shards_stay(tmp_path: Path) -> None:
    state = State(tmp_path)
    names = [f".part-0000{number}.jsonl.999999999.tmp" for number in (1, 2)]
    for name in names:
        (tmp_path / name).touch()
    remove_drafts(state, {"part-00001.jsonl"})
    assert [path.name for path in tmp_path.iterdir()] == names[1:]


def test_hidden_folders_are_passed_over_below_others(tmp_path: Path) -> None:
    for name in ("a.csv", "sub/b.csv", "sub/.hidden/c.csv", "sub/_state/d.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text\ngood\n")
    assert [Path(file.name).name for file in find_inputs([tmp_path])] == ["a.csv", "b.csv"]
