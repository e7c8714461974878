"""The pages' sources, without building the site (``make docs`` does, and checks what it has built)."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest

import api_pages
import bertkit
import check_pages
import chooser
import command_pages
import fact_pages
import house_pages
import result_pages
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
        ("It is 2.4 times as fast.", "2.4 times as without its source"),
    ],
)
def test_faults_are_reported_with_their_line(tmp_path: Path, line: str, error: str):
    (tmp_path / "drawn.png").touch()
    (tmp_path / "page.md").write_text(f"# Page\n\n```text\n[not](a link)\n```\n{line}\n", encoding="utf-8")
    assert f"docs/page.md:6: {error}" in next(check_pages.source_errors(tmp_path))


def test_figures_may_have_their_source_anywhere_in_their_section(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "It is 2.4 times as fast.\n\n```text\n# 3 ms\n```\n[Measured](measurements/a.md).\n# Size\n9 MB\n", "utf-8"
    )
    assert [line for line, _ in check_pages.unsourced_figures(page)] == [8]


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


def test_cells_of_a_table_are_run_with_their_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_blocks, "DOCS", tmp_path)
    head = "| theirs | bertkit | note |\n|---|---|---|\n"
    rows = ["| `load()` | `x = [2]` | the same |", "| | | `no code` |", "| `x`, `y` | `x[0]`, `print(x)` | |"]
    page = tmp_path / "page.md"
    page.write_text(f"# Page\n\n{head}" + "\n".join(rows) + f"\n\n{head.replace('bertkit', 'ours')}{rows[0]}\n")
    (block,) = run_blocks.blocks_of("page.md")
    assert block[:3] == (5, "python", "x = [2]\n\nx[0]; print(x)\n")
    assert run_blocks.run("page.md")[0][block.key]["output"] == "[2]\n"
    page.write_text(page.read_text().replace("x[0]", "y[0]"))
    assert 'block at line 5", line 3' in run_blocks.run("page.md")[1], "the row at line 7"


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
    monkeypatch.setattr(bertkit.pipeline, "__doc__", None)
    assert list(api_pages.missing_docstrings()) == ["bertkit.pipeline: no docstring"]
    monkeypatch.delitem(api_pages.SUBJECTS, "errors")
    assert "bertkit.DataError: on no page" in "\n".join(api_pages.missing_docstrings())


@pytest.mark.parametrize("names", [("tag",), pytest.param(NAMES, marks=pytest.mark.campaign)], ids=["tag", "all"])
def test_pages_are_made_of_every_command_and_setting(names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(command_pages, "NAMES", names)
    pages = command_pages.command_pages()
    assert {f"reference/commands/{name}.md" for name in names} < set(pages)
    assert "`--aggregation-strategy`" not in pages["reference/commands/tag.md"]
    assert "| `--strategy` *CHOICE* | What makes an entity." in pages["reference/commands/tag.md"]
    assert "| `batch_size` | `32` | sequences in a batch |" in fact_pages.fact_pages()["reference/settings.md"]


def test_pages_of_contributors_name_files_that_exist():
    root = check_pages.DOCS.parent
    for page in (root / "CONTRIBUTING.md", check_pages.DOCS / "house.md"):
        named = re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./-]+)`", page.read_text(encoding="utf-8"))
        gone = [name for name in named if not re.search("[A-Z]{3}", name) and not (root / name).exists()]
        assert (bool(named), gone) == (True, []), page.name


def test_the_picture_of_the_house_has_every_room_and_only_imports_that_go_down():
    rooms, counts = house_pages.rooms(), house_pages.imports()
    layer = {each.name: each.layer for each in rooms}
    top = {
        path.stem for path in house_pages.SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert {name for name in top if not name.startswith("_")} == set(layer)
    assert counts["model", "checkpoints"] > 0
    assert all(layer[first] < layer[second] for first, second in counts if {first, second} <= set(layer))
    assert all(each.about for each in rooms)


def test_every_figure_of_the_results_is_measured(tmp_path: Path):
    assert list(result_pages.figure_errors()) == []
    for name in ("results.md", "derived-figures.toml"):
        shutil.copy(check_pages.DOCS / name, tmp_path)
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    broken = text.replace("every epoch | 8.2", "every epoch | 8.3").replace("generation_epyc", "generation_gone")
    assert broken.count("every epoch | 8.3") == broken.count("generation_gone") == 1
    (tmp_path / "results.md").write_text(broken, encoding="utf-8")
    first, second = result_pages.figure_errors(tmp_path)
    assert "has no generation_gone-avx2-2-cores_2026-11-24.md" in first
    assert "8.3 is no number of frozen-tweets_epyc-2-cores_2026-11-21.md" in second


def test_names_of_the_api_say_which_pages_use_them():
    assert "[How packing works](../../explanation/packing.md)" in api_pages.uses("bertkit.BertModel")
    assert "[Gallery](../../gallery.md)" in api_pages.uses("bertkit.visualize.anisotropy")
    assert "`examples/annotated_bert.py`" in api_pages.uses("bertkit.BertConfig")
    assert api_pages.uses("bertkit.NoSuchName") == []
