"""A folder of documents, searched from start to finish by commands, with vectors of a real model."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from document_files import write_all_formats
from pipeline_helpers import Command


@pytest.mark.slow
def test_a_folder_of_documents_is_searched_evaluated_and_updated(
    command: Command, minilm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    questions = write_all_formats(tmp_path / "docs")
    (tmp_path / "docs" / "locked.pdf").write_bytes(b"%PDF-1.4 nothing more")
    with (tmp_path / "questions.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("question", "document"), *((text, name) for name, text in questions.items())])

    code, out, err = command("search", "build", "index", "docs", "--model", minilm, "--device", "cpu")
    assert code == 0, err
    assert out.startswith("index: 8 texts (8 added); left out 1 document")
    assert "left out docs/locked.pdf: not a readable PDF" in err

    code, out, err = command("search", "query", "index", *questions.values(), "--top-k", 1, "--json")
    assert code == 0, err
    found = [json.loads(line) for line in out.splitlines()]
    for row, (name, text) in zip(found, questions.items(), strict=True):
        assert row["query"] == text
        assert row["hits"][0]["source"] == f"docs/{name}"
    refunds = found[0]["hits"][0]
    source = Path("docs/refunds.md").read_text(encoding="utf-8")
    assert refunds["heading"] == "Shop manual > Refunds"
    assert source[refunds["start"] : refunds["end"]] == refunds["text"]
    assert found[3]["hits"][0]["heading"] == "Computers > Passwords"
    assert found[4]["hits"][0]["page"] == 1
    code, out, _ = command("search", "query", "index", "money back", "--top-k", 1)
    assert out.split("\t")[1:3] == [f"docs/refunds.md [{refunds['start']}:{refunds['end']}]", "Shop manual > Refunds"]

    code, out, err = command("search", "evaluate", "index", "questions.csv", "--top-k", 3, "--json", "--set")
    assert code == 0, err
    report = json.loads(out)
    assert (report["questions"], report["texts"], report["unit"]) == (6, 8, "document")
    for name in ("vectors", "both, 0.8 vectors"):
        assert report["searches"][name]["hit@1"]["mean"] == 1.0
    assert "queries of index now go by: both, 0.8 vectors" in err  # of equal ones the present one

    (tmp_path / "docs" / "garden.txt").write_text("Roses are cut back in spring.\n", encoding="utf-8")
    (tmp_path / "docs" / "office.docx").unlink()
    code, out, err = command("search", "update", "index", "docs", "--json")
    assert code == 0, err
    changes = json.loads(out)
    assert {name: changes[name] for name in ("added", "removed", "unchanged", "total", "documents")} == {
        "added": 1, "removed": 2, "unchanged": 6, "total": 7, "documents": 5
    }  # fmt: skip
    code, out, _ = command("search", "query", "index", "When are roses pruned?", "Passwords", "--top-k", 1, "--json")
    roses, passwords = (json.loads(line)["hits"][0] for line in out.splitlines())
    assert roses["source"] == "docs/garden.txt"
    assert passwords["source"] != "docs/office.docx"
