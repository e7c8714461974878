"""Data sets by their Hub name, against a real HTTP server on this machine that answers as the Hub does."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertkit.errors import DataError
from bertkit.tasks.reading.hub_datasets import HubData, label_names, local_data, splits_by_subset
from hub_helpers import COMMIT, NO_FILE, NO_REPOSITORY, NO_REVISION, Answer, HubServer, client, file_of

CONVERTED = "fedcba9876543210fedcba9876543210fedcba98"
SPLITS = {"train": 5, "validation": 3, "test": 2}


def parquet(rows: list[dict[str, object]], names: list[str] | None = None) -> bytes:
    table = pa.Table.from_pylist(rows)
    if names:
        notes = {"info": {"features": {"label": {"names": names, "_type": "ClassLabel"}}}}
        table = table.replace_schema_metadata({"huggingface": json.dumps(notes)})
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def reviews(split: str, start: int = 0) -> bytes:
    rows = [{"text": f"{split} text {n}", "label": n % 2} for n in range(start, start + SPLITS[split])]
    return parquet(rows, ["bad", "good"])


def questions(split: str) -> bytes:
    answers = [{"text": ["Eiffel"], "answer_start": [3]}, {"text": [], "answer_start": []}]
    asked = [{"id": f"{split}-{n}", "title": "T", "context": "By Eiffel.", "question": "Who?"} for n in range(2)]
    return parquet([{**row, "answers": answer} for row, answer in zip(asked, answers, strict=True)])


PAGES: dict[str, dict[str, dict[str, bytes]]] = {
    "tester/reviews": {
        COMMIT: {
            "README.md": b"# Reviews",
            "data/train-00000-of-00002.parquet": reviews("train"),
            "data/train-00001-of-00002.parquet": reviews("train", 5),
            "data/validation-00000-of-00001.parquet": reviews("validation"),
            "data/test-00000-of-00001.parquet": reviews("test"),
        }
    },
    "tester/several": {
        COMMIT: {
            f"{name}/{split}-00000-of-00001.parquet": reviews(split) for name in ("sst2", "old") for split in SPLITS
        }
    },
    "tester/scripted": {
        COMMIT: {"load.py": b"raise SystemExit('never run')", "raw.csv": b"a,b\n"},
        CONVERTED: {
            "default/train/0000.parquet": reviews("train"),
            "default/partial-test/0000.parquet": reviews("test"),
        },
    },
    "tester/questions": {
        COMMIT: {f"squad_v2/{split}-00000-of-00001.parquet": questions(split) for split in ("train", "validation")}
    },
    "tester/empty": {COMMIT: {"README.md": b"nothing"}},
    "tester/unnamed": {COMMIT: {"part-1.parquet": reviews("train")}},
}


class DataHub(HubServer):
    """The data sets of :data:`PAGES`."""

    def answer(self, parts: list[str]) -> Answer:
        if parts[:2] == ["api", "datasets"]:
            page = PAGES.get("/".join(parts[2:4]))
            if page is None:
                return NO_REPOSITORY
            revision = "/".join(parts[5:]) if parts[4:5] == ["revision"] else "main"
            commit = {"main": COMMIT, "refs/convert/parquet": CONVERTED}.get(revision, revision)
            if commit not in page:
                return NO_REVISION
            info = {"id": "/".join(parts[2:4]), "sha": commit, "siblings": [{"rfilename": f} for f in page[commit]]}
            return 200, {"Content-Type": "application/json"}, json.dumps(info).encode()
        if parts[0] == "datasets" and parts[3] == "resolve":
            content = PAGES["/".join(parts[1:3])].get(parts[4], {}).get("/".join(parts[5:]))
            if content is not None:
                return file_of(content, parts[4])
        return NO_FILE


@pytest.fixture
def hub() -> Iterator[DataHub]:
    server = DataHub()
    yield server
    server.stop()


SCRIPT = """
import json, sys
from bertkit.errors import BertkitError
from bertkit.tasks.reading.hub_datasets import local_data
told = []
for data in json.loads(sys.argv[1]):
    try:
        folder = local_data(data, ("sst2", "SST-2"))
        told.append({path.name: path.stat().st_size for path in sorted(folder.iterdir())})
    except BertkitError as error:
        told.append([type(error).__name__, str(error)])
print(json.dumps(told))
"""


def fetched(home: Path, url: str, *names: str, **variables: str) -> list[object]:
    done = client(SCRIPT, home, url, json.dumps(names), **variables)
    assert done.returncode == 0, done.stderr
    found: list[object] = json.loads(done.stdout)
    return found


def test_pages_of_all_shapes(hub: DataHub, tmp_path: Path) -> None:
    names = ("hub:tester/reviews", "hub:tester/several", "hub:tester/several:old", "hub:tester/scripted",
             "hub:tester/several:sst", "hub:tester/empty", "hub:tester/unnamed", "hub:tester/none",
             "hub:tester/reviews@other", "hub:nonsense")  # fmt: skip
    reviews, several, old, scripted, *errors = fetched(tmp_path, hub.url, *names)
    whole = {"source.json", "test.parquet", "train.parquet", "validation.parquet"}
    assert set(reviews) == set(several) == set(old) == whole  # type: ignore[call-overload]
    assert set(scripted) == {"source.json", "test.parquet", "train.parquet"}  # type: ignore[call-overload]
    for (kind, message), said in zip(
        errors,  # type: ignore[arg-type]
        (
            "did you mean 'sst2'?",
            "has no Parquet files",
            "no name contains train, validation or test",
            "no folder 'tester/none', and no dataset 'tester/none' on ",
            "has no revision 'other'",
            "expected hub:owner/name",
        ),
        strict=True,
    ):
        assert kind == "DataError", message
        assert said in message
    cache = tmp_path / "cache" / "bertkit" / "datasets"
    assert json.loads((cache / "tester--several" / "main" / "sst2" / "source.json").read_text())["commit"] == COMMIT
    joined = pq.read_table(cache / "tester--reviews" / "main" / "default" / "train.parquet")
    assert joined["text"].to_pylist() == [f"train text {n}" for n in range(10)]
    assert label_names(cache / "tester--reviews" / "main" / "default" / "train.parquet", "label") == ("bad", "good")
    assert not [path for path in hub.asked if path.endswith(".py")], "no script is ever fetched"


def test_what_was_fetched_is_used_again_and_without_a_connection(hub: DataHub, tmp_path: Path) -> None:
    (first,) = fetched(tmp_path, hub.url, "hub:tester/reviews")
    downloads = sum("/resolve/" in path for path in hub.asked)
    assert fetched(tmp_path, hub.url, "hub:tester/reviews") == [first]
    assert sum("/resolve/" in path for path in hub.asked) == downloads
    assert fetched(tmp_path, hub.url, "hub:tester/reviews", HF_HUB_OFFLINE="1") == [first]
    ((kind, _),) = fetched(tmp_path, hub.url, "hub:tester/several", HF_HUB_OFFLINE="1")  # type: ignore[misc]
    assert kind == "ResourceError"


TRAIN = """
import sys
from bertkit.tasks import csv_task, load_split
task = csv_task("hub:tester/reviews")
rows = load_split(task, "hub:tester/reviews", "dev")
print(task.labels, [(row.text, row.label) for row in rows])
"""


def test_a_task_is_made_from_a_page_with_its_label_names(hub: DataHub, tmp_path: Path) -> None:
    done = client(TRAIN, tmp_path, hub.url)
    assert done.returncode == 0, done.stderr
    rows = [(f"validation text {n}", n % 2) for n in range(3)]
    assert done.stdout.strip() == f"{('bad', 'good')} {rows}"


ASK = """
from bertkit.tasks.workflow import workflow_of
from bertkit.tasks.spans.task import SQUAD2
rows = [row for split in ("train", "dev") for row in workflow_of(SQUAD2).read("hub:tester/questions", split)]
print([(row.id, row.label) for row in rows])
"""


def test_questions_are_read_from_a_page(hub: DataHub, tmp_path: Path) -> None:
    done = client(ASK, tmp_path, hub.url)
    assert done.returncode == 0, done.stderr
    rows = [("train-0", "Eiffel"), ("train-1", ""), ("validation-0", "Eiffel"), ("validation-1", "")]
    assert done.stdout.strip() == str(rows)


def test_names_and_files() -> None:
    assert HubData.parse("hub:a/b") == HubData("a/b", None, None)
    assert HubData.parse("hub:a/b:c@refs/pr/1") == HubData("a/b", "c", "refs/pr/1")
    for wrong in ("hub:a", "hub:a/b/c", "hub:a/b:", "hub:../b", "hub:a/b@"):
        with pytest.raises(DataError):
            local_data(wrong)
    assert local_data("a/b") == Path("a/b")
    assert local_data("some/path") == Path("some/path")
    files = ["train.parquet", "x/validation_matched-00000-of-00001.parquet", "x/test/0001.parquet",
             "x/test/0000.parquet", "other.parquet", "data/y/dev.parquet", "train.csv", "../train.parquet",
             "..x/../train.parquet"]  # fmt: skip
    assert splits_by_subset(files) == {
        "default": {"train": ["train.parquet"]},
        "x": {
            "validation_matched": ["x/validation_matched-00000-of-00001.parquet"],
            "test": ["x/test/0000.parquet", "x/test/0001.parquet"],
        },
        "y": {"dev": ["data/y/dev.parquet"]},
    }
