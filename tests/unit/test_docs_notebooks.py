"""Tutorials as notebooks: they are what their pages and outputs give, and Jupyter runs them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import check_pages
import notebooks
import run_blocks


def test_notebooks_are_their_pages_with_the_outputs_that_are_kept():
    made = notebooks.notebooks()
    assert {*notebooks.NOTEBOOKS.rglob("*.ipynb")} == {*made}, "run 'make docs'"
    changed = [path.name for path, text in made.items() if path.read_text(encoding="utf-8") != text]
    assert not changed, "run 'make docs'"
    for text in made.values():
        is_notebook(json.loads(text))


def is_notebook(read: dict[str, Any]) -> None:
    """Check what the format 4.5 requires of a notebook of text and code with printed outputs."""
    assert [*read] == ["cells", "metadata", "nbformat", "nbformat_minor"]
    assert (read["nbformat"], read["nbformat_minor"]) == (4, 5)
    names = [cell["id"] for cell in read["cells"]]
    assert len({*names}) == len(names)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)
    for cell in read["cells"]:
        assert {*cell} == {"cell_type", "id", "metadata", "source"} | (
            {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
        )
        assert cell["cell_type"] in ("code", "markdown")
        assert all(isinstance(line, str) for line in cell["source"])
        assert all(line.endswith("\n") for line in cell["source"][:-1])
        for output in cell.get("outputs", []):
            assert {*output} == {"output_type", "name", "text"}
            assert (output["output_type"], output["name"]) == ("stream", "stdout")


def test_a_notebook_has_text_blocks_and_outputs_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    docs = tmp_path / "docs"
    for module in (run_blocks, notebooks, check_pages):
        monkeypatch.setattr(module, "DOCS", docs)
    monkeypatch.setattr(run_blocks, "OUTPUTS", docs / "outputs")
    monkeypatch.setattr(notebooks, "NOTEBOOKS", tmp_path / "examples" / "notebooks")
    (docs / "tutorials").mkdir(parents=True)
    (docs / "tour.md").touch()
    page = docs / "tutorials" / "page.md"
    text = (
        "# Title\n\nSee [it](../tour.md#top), [a command](../reference/commands/tag.md), [them](https://bertkit.example).\n"
        "```console\nshown\n```\n```bash\nWORD=two\necho one\n```\n\nThen:\n\n"
        "```bash\necho $WORD\n```\n```python\nx = 3\n```\n"
    )
    page.write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit, match=r"docs/tutorials/page.md:8: no output is kept"):
        notebooks.notebooks()
    run_blocks.main(["tutorials/page.md"])
    notebooks.NOTEBOOKS.mkdir(parents=True)
    (gone := notebooks.NOTEBOOKS / "gone.ipynb").touch()
    notebooks.write_notebooks()
    assert not gone.exists()
    read = json.loads((notebooks.NOTEBOOKS / "page.ipynb").read_text(encoding="utf-8"))
    is_notebook(read)
    assert [("".join(cell["source"]), *(out["text"] for out in cell.get("outputs", []))) for cell in read["cells"]] == [
        ("# Title\n\n*The page [docs/tutorials/page.md](../../docs/tutorials/page.md) as a notebook.*",),
        ("See [it](../../docs/tour.md#top), a command, [them](https://bertkit.example).\n```console\nshown\n```",),
        ("%%bash -e\nWORD=two\necho one", ["one\n"]),
        ("Then:",),
        ("%%bash -e\nWORD=two\necho $WORD", ["two\n"]),
        ("x = 3",),
    ]
    page.write_text(text + ":::{note}\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"docs/tutorials/page.md:20: notebooks cannot show a directive"):
        notebooks.notebooks()


@pytest.mark.campaign
@pytest.mark.parametrize("path", sorted(notebooks.NOTEBOOKS.rglob("*.ipynb")), ids=lambda path: path.stem)
def test_jupyter_runs_a_notebook_and_prints_the_same(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reason = "to run notebooks: pip install nbclient ipykernel"
    nbformat, nbclient = (pytest.importorskip(name, reason=reason) for name in ("nbformat", "nbclient"))
    pytest.importorskip("ipykernel", reason=reason)
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    kept = [_printed(cell) for cell in notebook.cells]
    folder = tmp_path / path.parent.relative_to(check_pages.DOCS.parent)
    folder.mkdir(parents=True)
    (tmp_path / "docs").symlink_to(check_pages.DOCS)  # data of a page are found from the folder of its notebook
    for name, value in run_blocks.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("JUPYTER_PATH", f"{sys.prefix}/share/jupyter")
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(folder)}}).execute()
    for cell, before in zip(notebook.cells, kept, strict=True):
        assert run_blocks.words(run_blocks.without_chance(_printed(cell), str(folder))) == run_blocks.words(before)


def _printed(cell: Any) -> str:
    return "".join(each.text for each in cell.get("outputs", []) if each.get("name") == "stdout")
