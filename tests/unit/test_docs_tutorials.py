"""The table of the five introductions names every cell of them, places that exist, and names that bertkit has."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

from bertkit.cli import NAMES
from bertkit.tasks.registry import KINDS
from check_pages import DOCS

#: Numbers of their code cells, in the order of the originals (as printed, or counted; of the third, its parts).
CELLS = {
    "1-annotated-bert": [*range(1, 16)],
    "2-introduction-tf-hub": [*range(1, 14)],
    "3-bert-background": [*range(1, 11)],
    "4-sentence-encoder-tweets": [*range(1, 18), 23, 24],
    "5-architecture-and-workflow": [
        2, 3, 11, 13, 15, 92, 94, 96, 1, 5, 35, 43, 49, 58, 110, 134, 122, 126, 154, 160, 170, 180, 204, 208, 213, 217,
        219, 225, 229, 235, 237, 287, 289, 290, 291, 294, 297, 299, 306, 307,
    ],
}  # fmt: skip
TASKS = {name for kind in KINDS.values() for name in (*kind.built_in, *kind.from_files)}
ROW = re.compile(r"^\| \[(\d+)\]\(([\w-]+)\.md#([\w-]+)\) \| ([^|]+) \| ([^|]+) \|", flags=re.M)


def test_every_cell_of_the_five_introductions_is_somewhere():
    five = DOCS / "tutorials" / "five"
    rows = ROW.findall((five / "index.md").read_text(encoding="utf-8"))
    assert {page: [int(row[0]) for row in rows if row[1] == page] for page in CELLS} == CELLS
    anchors = {page: anchors_of(five / f"{page}.md") for page in CELLS}
    for number, page, anchor, _, where in rows:
        assert int(number) in anchors[page].get(anchor, ()), f"{page}.md#{anchor} is no place of cell {number}"
        names = re.findall(r"`([^`]+)`", where)
        assert names, (page, number)
        assert [name for name in names if not exists(name)] == [], (page, number)


def test_what_bertkit_does_not_have_is_noticed():
    assert exists("bertkit.hub.Preprocess.bert_pack_inputs")
    assert exists("bertkit finetune csv")
    assert not any(
        map(exists, ("bertkit.BertForNothing", "bertkit.nowhere.gelu", "bertkit nothing", "bertkit finetune x"))
    )


def anchors_of(page: Path) -> dict[str, list[int]]:
    """Anchor of each heading of cells -> their numbers."""
    headings = re.findall(r"^## ((?:Cells?|Part) (.+?): .*)$", page.read_text(encoding="utf-8"), flags=re.M)
    found = {}
    for heading, numbers in headings:
        cells = [int(each) for each in re.findall(r"\d+", numbers)]
        anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found[anchor] = [*range(cells[0], cells[1] + 1)] if " to " in numbers else cells
    return found


def exists(name: str) -> bool:
    """Whether it is a command, perhaps with a task, or a name of bertkit, of a module or of a class."""
    command, *task = name.split()[1:] or [""]
    if command:
        return command in NAMES and set(task) <= TASKS
    try:
        return bool(pkgutil.resolve_name(name))
    except (AttributeError, ImportError):
        return False
