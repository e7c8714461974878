"""``bertkit search``, ``cluster``, ``topics`` and ``duplicates`` on a tiny model."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from bertkit.cli import main
from disk_helpers import read_only
from pipeline_helpers import WORDS, save_tiny

TEXTS = ["a good film", "the end was dull", "a very bad scene", "great start", "it is not good"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("model") / "m"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A command in a folder of its own; its output, or with an error code the message."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("\n".join([*TEXTS[:3], "", *TEXTS[3:]]) + "\n", encoding="utf-8")

    def running(*argv: str, code: int = 0) -> Any:
        assert main([*argv, "--device", "cpu"]) == code
        told = capsys.readouterr()
        return (
            told.err if code else [json.loads(line) for line in told.out.splitlines()] if "--json" in argv else told.out
        )

    return running


def test_an_index_from_build_to_delete(run: Any, model: str, tmp_path: Path) -> None:
    assert run("search", "build", "index", "a.txt", "--model", model) == "index: 5 texts (5 added)\n"
    (found,) = run("search", "query", "index", "a good film", "--json")
    assert found["query"] == "a good film"
    assert found["hits"][0]["id"] == "a.txt:1"
    assert found["hits"][0]["score"] == pytest.approx(1.0, abs=1e-5)
    assert {hit["id"] for hit in found["hits"]} == {f"a.txt:{line}" for line in (1, 2, 3, 5, 6)}
    lines = run("search", "query", "index", "a good film", "great start", "--top-k", "1").splitlines()
    assert lines[0] == "a good film"
    assert lines[1].split("\t")[1:] == ["a.txt:1", "a good film"]
    assert lines[3].split("\t")[1:] == ["a.txt:5", "great start"]
    both = run("search", "query", "index", "good", "--by", "both", "--json")
    assert run("search", "query", "index", "good", "--hybrid", "--json") == both
    by_words = run("search", "query", "index", "good", "--by", "words", "--json")[0]["hits"]
    assert [hit["id"] for hit in by_words] == ["a.txt:1", "a.txt:6"]
    assert both[0]["hits"][0]["score"] > by_words[0]["score"] > 0
    (tmp_path / "b.jsonl").write_text(
        '{"id": 7, "text": "a film"}\n{"text": "no id"}\n{"id": "x", "text": "\\u2028 end"}\n', encoding="utf-8"
    )
    assert run("search", "add", "index", "b.jsonl") == "index: 8 texts (3 added)\n"
    (tmp_path / "a.txt").write_text("\n".join(["a new start", *TEXTS]) + "\n", encoding="utf-8")
    (changes,) = run("search", "update", "index", "a.txt", "--json")
    assert changes == {
        "index": "index", "added": 1, "changed": 3, "removed": 0, "unchanged": 2, "reused": 3, "total": 9
    }  # fmt: skip
    assert run("search", "delete", "index", "7", "b.jsonl:2", "x") == "index: 6 texts (3 removed)\n"
    (facts,) = run("search", "info", "index", "--json")
    assert (facts["texts"], facts["width"], facts["numbers"]) == (6, 32, "float32")
    assert "texts: 6\n" in run("search", "info", "index")


def test_sources_without_texts_are_emptied(
    run: Any, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file as well as standard input."""
    (tmp_path / "a.txt").write_text("great end\nbad start\n", encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a film\n")))
    run("search", "build", "index", "a.txt", "-", "--model", model)
    (tmp_path / "a.txt").write_text("", encoding="utf-8")
    (changes,) = run("search", "update", "index", "a.txt", "--json")
    assert (changes["removed"], changes["total"]) == (2, 1)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    (changes,) = run("search", "update", "index", "-", "--json")
    assert (changes["removed"], changes["total"]) == (1, 0)


def test_ids_and_texts_of_tables(run: Any, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.csv").write_text("key;body\nk1;a film\nk2;the end\n", encoding="utf-8")
    build = ["search", "build", "index", "rows.csv", "--model", model, "--text", "body", "--numbers", "int8"]
    run(*build, "--id", "key")
    assert [hit["id"] for hit in run("search", "query", "index", "a film", "--json")[0]["hits"]] == ["k1", "k2"]
    assert "no text column 'missing'" in run(*build[:2], "other", *build[3:-3], "missing", code=3)
    assert not (tmp_path / "other").exists()
    (tmp_path / "rows.csv").write_text("key;body\n;a film\n", encoding="utf-8")
    assert "rows.csv:2: column 'key' holds ''" in run(*build[:2], "other", *build[3:], "--id", "key", code=3)
    assert "leave the column of ids out" in run(*build[:2], "o", "a.txt", "--model", model, "--id", "key", code=2)
    stdin = io.TextIOWrapper(io.BytesIO(b"great end\nbad start\n"))
    monkeypatch.setattr("sys.stdin", stdin)
    assert run("search", "add", "index", "-") == "index: 4 texts (2 added)\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a film\nbad start\n")))
    found = run("search", "query", "index", "-", "--top-k", "1", "--json")
    assert [each["hits"][0]["id"] for each in found] == ["k1", "-:2"]


@pytest.mark.parametrize(
    ("argv", "code", "told"),
    [
        (["build", "index", "a.txt"], 2, "needs --model"),
        (["build", "index"], 2, "needs files to read"),
        (["query", "index"], 2, "needs query"),
        (["delete", "index"], 2, "needs ids to remove"),
        (["info", "index", "x"], 2, "takes an index only"),
        (["query", "index", "a", "--prompt", "x"], 2, "--prompt is not for 'search query'"),
        (["build", "index", "a.txt", "--top-k", "3"], 2, "--top-k is not for 'search build'"),
        (["query", "index", "a", "--hybrid", "--by", "words"], 2, "--hybrid is --by both, not --by words"),
        (["query", "index", "a", "--relevant", "x"], 2, "--relevant is not for 'search query'"),
        (["evaluate", "index", "q.csv", "--by", "words"], 2, "--by is not for 'search evaluate'"),
        (["evaluate", "index", "q.txt", "r.txt"], 2, "needs one table of questions"),
        (["query", "index", "a", "--id", "x"], 2, "--id is not for 'search query'"),
        (["build", "index", "a.txt", "--text-pair", "x"], 2, "leave --text-pair out"),
        (["query", "index", "a"], 3, "is not there"),
        (["build", "index", "missing.txt", "--model", "x"], 3, "missing.txt does not exist"),
        (["erase", "index"], 2, "Choose from"),
    ],
)
def test_what_search_refuses(argv: list[str], code: int, told: str, run: Any) -> None:
    assert told in run("search", *argv, code=code)


def rows_of(tmp_path: Path) -> str:
    """Three kinds of texts, in a table."""
    with (tmp_path / "rows.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["text", "cluster"])
        for number in range(12):
            table.writerow([" ".join([WORDS[number % 3]] * 5 + [str(number)]), "mine"])
        table.writerow(["  ", "mine"])
    return "rows.csv"


def test_clusters_and_topics(run: Any, model: str, tmp_path: Path) -> None:
    file = rows_of(tmp_path)
    (found,) = run("cluster", file, "--model", model, "--k", "3", "--out", "out.csv", "--json")
    assert (found["texts"], found["rows"], sum(each["size"] for each in found["clusters"])) == (12, 12, 12)
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert list(rows[0]) == ["text", "cluster", "bertkit_cluster", "nearness"]
    assert {row["bertkit_cluster"] for row in rows} == {"0", "1", "2"}
    assert "12 texts in 3 clusters" in run("cluster", file, "--model", model, "--k", "3")
    assert "out.csv exists already" in run("cluster", file, "--model", model, "--out", "out.csv", code=2)
    (topics,) = run("topics", file, "--model", model, "--k", "3", "--words", "2", "--json")
    assert all(len(each["words"]) <= 2 for each in topics["clusters"])
    assert {word for each in topics["clusters"] for word in each["words"]} <= set(WORDS)
    assert any(each["words"] for each in topics["clusters"])
    assert "--words must be a whole number from 1" in run("topics", file, "--model", model, "--words", "0", code=2)
    assert "cannot be put into 13 clusters" in run("cluster", file, "--model", model, "--k", "13", code=2)


def test_duplicates(run: Any, model: str, tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_text("a good film\nthe end\nA  good film\ngreat great start\n", encoding="utf-8")
    pairs = ["duplicates", "d.txt", "--model", model, "--threshold", "-0.99", "--pairs"]
    found = run(*pairs, "--json")
    assert found[0]["kind"] == "same"
    assert found[0]["places"] == ["d.txt:1", "d.txt:3"]
    assert [each["kind"] for each in found[1:]] == ["similar"] * 3
    assert len(run(*pairs, "--limit", "1").splitlines()) == 2
    (group,) = run("duplicates", "d.txt", "--model", model, "--threshold", "-0.99", "--json")
    assert group["places"] == ["d.txt:1", "d.txt:2", "d.txt:3", "d.txt:4"]
    assert group["scores"][0] == group["scores"][2] == 1.0
    assert "leave --pairs out" in run(*pairs, "--out", "d.xlsx", code=2)
    assert "--threshold 2.0 is not a cosine" in run("duplicates", "d.txt", "--model", model, "--threshold", "2", code=2)


@pytest.mark.parametrize("command", ["cluster", "topics", "duplicates"])
def test_texts_that_cannot_be_grouped(command: str, run: Any, model: str, tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n", encoding="utf-8")
    assert "empty.txt has no texts" in run(command, "empty.txt", "--model", model, code=3)
    (tmp_path / "long.txt").write_text("a film\n" + "film " * 100 + "\n", encoding="utf-8")
    assert "long.txt:2: a text of more than 64 tokens" in run(command, "long.txt", "--model", model, code=3)
    assert run(command, "long.txt", "--model", model, "--truncate") is not None
    assert "does not exist" in run(command, "missing.txt", "--model", model, code=3)
    assert "single texts" in run(command, "long.txt", "--model", model, "--text-pair", "x", code=2)


def test_an_index_that_cannot_be_written_is_searched_and_the_rest_says_what_to_do(model: str, run: Any) -> None:
    run("search", "build", "index", "a.txt", "--model", model)
    with read_only(Path("index")):
        assert run("search", "query", "index", "a good film", "--top-k", "1").split("\t")[1] == "a.txt:1"
        told = run("search", "update", "index", "a.txt", code=5)
    assert "cannot write to index: Permission denied. Change its permissions, or work in a folder of your own" in told
