"""Indices of documents: stable ids, only what has changed is read, and nothing is left out silently."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertkit.cli import main
from bertkit.errors import ConfigError, DataError, InputError
from bertkit.inference.retrieval import document_texts, index_writer
from bertkit.inference.retrieval.document_texts import DocumentTexts
from bertkit.inference.retrieval.index_files import read_manifest, read_rows
from bertkit.inference.retrieval.index_writer import IndexWriter, index_rows
from bertkit.inference.retrieval.passages import Cutter
from bertkit.inference.retrieval.search_index import SearchIndex
from bertkit.inference.retrieval.text_vectors import TextEncoder
from pipeline_helpers import save_tiny

Run = Callable[..., Any]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("model") / "m"))


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``bertkit search`` beside a folder of documents: its JSON, or with an error code the message."""
    monkeypatch.chdir(tmp_path)
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("# film\n\ngood film\n\n## scene\n\nbad scene\n", encoding="utf-8")
    (docs / "b.txt").write_text("the start was great\nand the end was dull\n", encoding="utf-8")

    def running(*argv: str, code: int = 0) -> Any:
        assert main(["search", *argv, *([] if code else ["--json"]), "--device", "cpu"]) == code
        told = capsys.readouterr()
        return told.err if code else [json.loads(line) for line in told.out.splitlines()]

    return running


def ids(folder: Path = Path("index")) -> dict[str, str]:
    """Texts by their ids."""
    found = [row for block in read_manifest(folder).blocks for row in read_rows(folder, block).values()]
    return {row.id: row.text for row in found}


def test_a_hit_names_document_heading_and_characters(run: Run, model: str) -> None:
    (built,) = run("build", "index", "docs", "--model", model)
    assert (built["added"], built["documents"], built["left_out"]) == (3, 2, {})
    (found,) = run("query", "index", "bad scene", "--by", "words")
    (hit,) = found["hits"]
    text = Path("docs/a.md").read_text(encoding="utf-8")
    assert text[hit["start"] : hit["end"]] == hit["text"] == "bad scene"
    assert (hit["source"], hit["heading"]) == ("docs/a.md", "film > scene")
    assert hit["id"].startswith("docs/a.md#")
    (hits,) = (row["hits"] for row in run("query", "index", "dull", "--by", "words"))
    assert [hit["text"] for hit in hits] == ["the start was great\nand the end was dull"]  # no line of it alone


def test_update_reads_what_has_changed_and_removes_what_is_gone(
    run: Run, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("build", "index", "docs", "--model", model)
    before = ids()
    read: list[str] = []
    real = document_texts.read_document
    monkeypatch.setattr(
        document_texts, "read_document", lambda path, *more: read.append(path.name) or real(path, *more)
    )
    (changes,) = run("update", "index", "docs")
    assert (changes["unchanged"], changes["total"], read) == (3, 3, [])
    Path("docs/a.md").write_text("# film\n\na new end\n\ngood film\n\n## scene\n\nbad scene\n", encoding="utf-8")
    Path("docs/c.html").write_text("<p>great scene", encoding="utf-8")
    (changes,) = run("update", "index", "docs")
    assert read == ["a.md", "c.html"]
    after = ids()
    kept = {name for name, text in before.items() if text != "good film"}
    assert kept < after.keys()  # also the one that has moved within its document
    assert changes["reused"] == 1
    assert sorted(after.values()) == sorted([*(before[name] for name in kept), "a new end\n\ngood film", "great scene"])
    (hit,) = run("query", "index", "bad", "--by", "words")[0]["hits"]
    assert Path("docs/a.md").read_text(encoding="utf-8")[hit["start"] : hit["end"]] == "bad scene"
    Path("docs/b.txt").unlink()
    (changes,) = run("update", "index", "docs")
    assert (changes["removed"], changes["total"]) == (1, 3)
    for path in Path("docs").iterdir():
        path.unlink()
    assert run("update", "index", "docs")[0]["total"] == 0


def test_a_pattern_touches_no_other_documents(run: Run, model: str) -> None:
    run("build", "index", "docs", "--model", model)
    Path("docs/b.txt").unlink()
    assert run("update", "index", "docs/*.md")[0]["removed"] == 0
    assert run("update", "index", "docs/*.txt")[0]["removed"] == 1
    Path("docs/a.md").write_text("changed", encoding="utf-8")
    assert "'bertkit search update' replaces it" in run("add", "index", "docs", code=3)
    assert run("update", "index", "docs/a.md")[0] | {"left_out": 0} == {
        "index": "index", "added": 1, "changed": 0, "removed": 2, "unchanged": 0, "reused": 0, "total": 1,
        "documents": 1, "left_out": 0, "not_read": {}, "passed_over": {},
    }  # fmt: skip


def test_bad_documents_of_a_folder_are_left_out_with_their_reasons(run: Run, model: str) -> None:
    Path("docs/broken.docx").write_bytes(b"PK\3\4nonsense")
    Path("docs/latin.txt").write_bytes(b"one\nF\x81\x8d\xff")
    (built,) = run("build", "index", "docs", "--model", model)
    assert built["documents"] == 2
    assert built["left_out"].keys() == {"docs/broken.docx", "docs/latin.txt"}
    assert built["left_out"]["docs/latin.txt"].startswith("line 2: byte 2 of the line, 0x81, is not UTF-8")
    assert "docs/broken.docx: it is no zip archive" in run("update", "index", "docs/broken.docx", code=3)
    Path("docs/a.md").write_bytes(b"\xff\xfe\x00")  # what was good is bad now
    (changes,) = run("update", "index", "docs")
    assert (changes["removed"], len(changes["left_out"])) == (2, 3)
    for path in Path("docs").glob("[ab].*"):
        path.unlink()
    assert "there is no text to index" in run("build", "other", "docs", "--model", model, code=3)
    assert not Path("other/index.json").exists()


def test_a_text_file_by_its_name_is_lines_and_beside_documents_a_document(run: Run, model: str) -> None:
    assert run("build", "lines", "docs/b.txt", "--model", model)[0]["total"] == 2
    assert run("build", "both", "docs/b.txt", "docs/a.md", "--model", model)[0]["total"] == 3
    assert run("update", "both", "docs/b.txt")[0]["unchanged"] == 1
    assert "documents have no columns; leave --text out" in run(
        "build", "index", "docs", "--text", "x", "--model", model, code=2
    )
    assert "are for documents" in run("build", "index", "docs/b.txt", "-m", model, "--passage-tokens", "20", code=2)


def test_a_killed_update_forgets_no_document(run: Run, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that was being replaced when the process died, and then went back to what it said before."""
    monkeypatch.setattr(index_writer, "BLOCK_TEXTS", 1)
    run("build", "index", "docs", "--model", model, "--passage-overlap", "0")
    whole, old = ids(), Path("docs/a.md").read_bytes()
    Path("docs/a.md").write_text("# end\n\nnew end\n\n# start\n\nnew start\n", encoding="utf-8")
    encoder = TextEncoder(model, device="cpu", by_products=True)
    real = index_writer.write_manifest

    def killed(folder: Path, manifest: Any) -> None:
        real(folder, manifest)
        raise KeyboardInterrupt

    monkeypatch.setattr(index_writer, "write_manifest", killed)
    manifest = read_manifest(Path("index"))
    documents = DocumentTexts(["docs"], known=manifest.documents)
    documents.begin(Cutter.of(manifest, encoder), manifest.documents)
    with IndexWriter("index", encoder, documents=documents) as writer, pytest.raises(KeyboardInterrupt):
        writer.update(index_rows(documents.texts()), documents.touched)
    monkeypatch.setattr(index_writer, "write_manifest", real)
    assert ids() != whole
    Path("docs/a.md").write_bytes(old)
    run("update", "index", "docs")
    assert ids() == whole


def test_questions_with_answers(run: Run, model: str) -> None:
    Path("faq.csv").write_text(
        'id,question,answer,page\n1,is it good,"Yes, very.",3\n2,is it dull,No.,4\n', encoding="utf-8"
    )
    run("build", "index", "faq.csv", "--text", "question", "--show", "answer, page", "--model", model)
    (hit,) = run("query", "index", "dull", "--by", "words")[0]["hits"]
    assert {name: hit[name] for name in ("id", "text", "answer", "page")} == {
        "id": "2", "text": "is it dull", "answer": "No.", "page": "4"
    }  # fmt: skip
    Path("faq.csv").write_text('id,question,answer,page\n1,is it good,"Yes.",3\n2,is it dull,No.,4\n', encoding="utf-8")
    options = ("--text", "question", "--show", "answer,page")
    (changes,) = run("update", "index", "faq.csv", *options)
    assert (changes["changed"], changes["unchanged"], changes["reused"]) == (1, 1, 1)
    said = run("build", "bad", "faq.csv", "--text", "question", "--show", "anser", "--model", model, code=3)
    assert "no column 'anser' to show (did you mean 'answer'?)" in said
    assert "--show" in run("build", "bad", "docs/b.txt", "--show", "answer", "--model", model, code=2)


def test_a_document_that_is_named_and_bad_is_an_error(tmp_path: Path, model: str) -> None:
    (tmp_path / "x.pdf").write_bytes(b"junk")
    documents = DocumentTexts([str(tmp_path / "x.pdf")])
    documents.begin(Cutter(TextEncoder(model, device="cpu", by_products=True)))
    with pytest.raises(DataError, match=r"x\.pdf: not a readable PDF"):
        list(documents.texts())


def test_a_pdf_without_its_reader_names_the_extra(run: Run, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("docs/x.pdf").write_bytes(b"%PDF-1.4")
    monkeypatch.setitem(__import__("sys").modules, "pypdf", None)
    assert "pip install 'bertkit[documents]'" in run("build", "index", "docs", "--model", model, code=5)


def test_documents_from_python(tmp_path: Path, model: str, run: Run) -> None:
    """The same index as the command makes, with the same ids."""
    run("build", "index", "docs", "--model", model)
    index = SearchIndex.build("other", Path("docs"), model, device="cpu")
    assert ids(Path("other")) == ids()
    (hit,) = index.search("bad", by="words")[0]
    assert (hit.source, hit.more) == ("docs/a.md", {"heading": "film > scene", "start": 29, "end": 38})
    assert hit.to_dict()["heading"] == "film > scene"
    Path("docs/c.html").write_text("<p>great scene", encoding="utf-8")
    assert index.add([Path("docs/c.html")]).added == 1
    Path("docs/b.txt").unlink()
    assert (index.update("docs").removed, len(index)) == (1, 3)
    assert [hit.text for hit in index.search("dull", by="words")[0]] == []
    small = SearchIndex.build("small", "docs/*.md", model, device="cpu", passage_tokens=12, passage_overlap=0)
    assert small.manifest.facts["passage_tokens"] == 12
    with pytest.raises(InputError, match="got one text, 'nowhere'"):
        SearchIndex.build("none", "nowhere", model)
    with pytest.raises(ConfigError, match="are for documents"):
        SearchIndex.build("none", ["a text"], model, passage_tokens=12)


def test_words_of_other_libraries_are_translated(tmp_path: Path, model: str, run: Run) -> None:
    with pytest.raises(InputError, match=r"SearchIndex.build has no argument 'chunk_size'; write passage_tokens="):
        SearchIndex.build("index", "docs", model, chunk_size=100)  # type: ignore[call-arg]
    index = SearchIndex.build("index", "docs", model, device="cpu", show_progress=True)  # type: ignore[call-arg]
    with pytest.raises(InputError, match=r"no argument 'k'; write top_k="):
        index.search("good", k=3)
    with pytest.raises(AttributeError, match=r"no attribute 'similarity_search'; write index.search\(query, top_k=4\)"):
        index.similarity_search("good")
    with pytest.raises(AttributeError, match="did you mean 'search'"):
        index.serach("good")
    assert "Did you mean --passage-tokens?" in run("build", "index", "docs", "--chunk-size", "9", code=2)
    assert "Did you mean --top-k?" in run("query", "index", "good", "--similarity-top-k", "3", code=2)


def test_a_document_that_is_not_there_is_named_and_one_that_was_indexed_is_removed(run: Run, model: str) -> None:
    run("build", "index", "docs", "--model", model)
    Path("docs/a.md").unlink()
    (done,) = run("update", "index", "docs/a.md")
    assert done["removed"] == 2
    assert "docs/typo.md does not exist" in run("update", "index", "docs/typo.md", "docs", code=3)


def test_a_killed_addition_leaves_no_passage_that_an_update_does_not_know(
    run: Run, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("build", "index", "docs/b.txt", "docs/a.md", "--model", model)
    Path("more").mkdir()
    for name in "xyz":
        Path(f"more/{name}.md").write_text(f"# {name}\n\ngood {name}\n\n## end\n\nbad {name}\n", encoding="utf-8")
    monkeypatch.setattr(index_writer, "BLOCK_TEXTS", 1)
    written = index_writer.write_manifest

    def killed(folder: Path, manifest: Any) -> None:
        written(folder, manifest)
        raise KeyboardInterrupt

    monkeypatch.setattr(index_writer, "write_manifest", killed)
    with pytest.raises(KeyboardInterrupt):
        SearchIndex(Path("index"), device="cpu").add(Path("more"))
    monkeypatch.setattr(index_writer, "write_manifest", written)
    assert any("x.md" in name for name in ids())
    Path("more/x.md").unlink()
    run("update", "index", "more")
    assert not any("x.md" in name for name in ids())
    assert sum("y.md" in name for name in ids()) == 2
