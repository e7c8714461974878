"""The pages' sources, without building the site (``make docs`` does, and checks what it has built)."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import api_pages
import check_pages
import chooser
import command_pages
import fact_pages
import run_blocks
from bertkit.cli import NAMES


def test_no_page_has_a_dead_link_or_a_picture_without_text_or_source():
    assert list(check_pages.source_errors()) == []


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("see [this](gone.md)", "dead link: gone.md"),
        ("![](drawn.png)", "picture without alternative text"),
        ("![A map](drawn.png)", "picture without its source"),
    ],
)
def test_faults_are_reported_with_their_line(tmp_path: Path, line: str, error: str):
    (tmp_path / "drawn.png").touch()
    (tmp_path / "page.md").write_text(f"# Page\n\n```text\n[not](a link)\n```\n{line}\n", encoding="utf-8")
    assert f"docs/page.md:6: {error}" in next(check_pages.source_errors(tmp_path))


def test_a_built_site_asks_nobody_and_has_twins(tmp_path: Path):
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="#top">a</a><a href="#gone">b</a><a href="b.html">c</a>'
        '<script src="https://elsewhere.example/x.js"></script><img src="x.png">',
        encoding="utf-8",
    )
    assert list(check_pages.site_errors(tmp_path)) == [
        "a.html: asks for https://elsewhere.example/x.js",
        "a.html: picture without alternative text: x.png",
        "a.html: dead link: #gone",
        "a.html: dead link: b.html",
        "a.html: no Markdown twin",
    ]


def test_outputs_are_kept_of_every_block():
    stale = {page: blocks for page in run_blocks.pages() if (blocks := run_blocks.stale(page))}
    assert not stale, "run 'make docs'"


def test_a_changed_block_is_stale_with_all_that_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_blocks, "DOCS", tmp_path)
    blocks = ["print('one')\n", "number = 2\n", "print(number, 0.5)\n"]

    def keys() -> list[str]:
        text = "".join(f"```python\n{block}```\n" for block in blocks)
        (tmp_path / "page.md").write_text(f"```console\nbertkit\n```\n{text}", encoding="utf-8")
        return [block.key for block in run_blocks.blocks_of("page.md")]

    before = keys()
    found, failure = run_blocks.run("page.md")
    assert not failure
    assert [found[key]["output"] for key in before] == ["one\n", "", "2 0.5\n"]
    blocks[1] = "number = 1 / 0\n"
    after = keys()
    assert before[0] == after[0]
    assert not {*before[1:]} & {*after[1:]}
    assert run_blocks.run("page.md")[1].startswith("docs/page.md:8: the block failed: ")
    assert run_blocks.words("loss 0.31,  2 rows") == run_blocks.words("loss 1e-3, 4 rows") != run_blocks.words("los 3")
    assert run_blocks.words("1 seed, bf16") == run_blocks.words("1 seed, fp32")
    slow = "in ./out\ntuning: 1,041/2,000 steps (52 %), 13 s left, loss 0.003\nlabels: a 13 (33 %)\n"
    assert run_blocks.without_chance(slow.replace(".", "/tmp/x", 1), "/tmp/x") == "in ./out\nlabels: a 13 (33 %)\n"


def test_every_cell_of_the_chooser_has_an_answer():
    page = chooser.chooser_pages()["_generated/chooser.md"]
    table = tomllib.loads((check_pages.DOCS / "chooser.toml").read_text(encoding="utf-8"))
    cells = [(each["have"], label) for each in table["answer"] for label in each["labels"]]
    assert len(cells) == len(set(cells)) == len(table["have"]) * len(table["labels"])
    results = check_pages.DOCS.parent / "benchmarks" / "results"
    assert all((results / each["source"]).exists() for each in table["answer"] if "source" in each)
    assert page.count("```bash") + page.count("```console") == len(table["answer"])


def test_every_public_name_is_documented_and_on_a_page(monkeypatch: pytest.MonkeyPatch):
    assert list(api_pages.missing_docstrings()) == []
    monkeypatch.delitem(api_pages.SUBJECTS, "errors")
    assert "bertkit.DataError: on no page" in "\n".join(api_pages.missing_docstrings())


def test_pages_are_made_of_every_command_and_setting():
    pages = command_pages.command_pages()
    assert {f"reference/commands/{name}.md" for name in NAMES} < set(pages)
    assert "`--aggregation-strategy`" not in pages["reference/commands/tag.md"]
    assert "| `--strategy` *CHOICE* | What makes an entity." in pages["reference/commands/tag.md"]
    assert "| `batch_size` | `32` | sequences in a batch |" in fact_pages.fact_pages()["reference/settings.md"]
