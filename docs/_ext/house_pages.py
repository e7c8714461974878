"""The rooms of the package and who imports whom, from pyproject's layers and from the imports themselves.

``_generated/house.svg`` is a matrix: a row for each room, in the order of the layers, with a square in the column of
each room that it imports. ``_generated/rooms.md`` says what each room has, by the first sentence of its docstring.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from math import log
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

import bertkit

REPOSITORY = Path(__file__).parents[2]
SOURCE = Path(bertkit.__file__).parent
#: Sizes of the picture: of a cell, of the names on the left, and of those above.
CELL, LEFT, TOP = 17, 190, 172
ROOM, INK, QUIET, TORCH_FREE, BAND = "#0b5a8f", "#1a1a1a", "#595959", "#00704f", "#f1f4f7"
LEGEND = (
    "A row: a room of the package.",
    "A square in it: the room imports the room",
    "of this column; darker, more often.",
    "A band: the rooms of one layer, which",
    "do not import each other.",
    "Green: imports no torch.",
    "No square is down here: imports go down only.",
)
FONT = "font-family='system-ui, sans-serif'"


class Room(NamedTuple):
    """A package or module directly below ``bertkit``: its layer from the top, what it has, and its size."""

    name: str
    layer: int
    about: str
    files: int
    lines: int
    without_torch: bool


def house_pages() -> dict[str, str]:
    """Path of each generated file -> its text."""
    found = rooms()
    return {"_generated/house.svg": picture(found, imports()), "_generated/rooms.md": table(found)}


def contracts() -> dict[str, dict[str, list[str]]]:
    """The contracts of import-linter by name."""
    text = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    return {each["name"]: each for each in tomllib.loads(text)["tool"]["importlinter"]["contracts"]}


def rooms() -> list[Room]:
    """The rooms from the top down."""
    known = contracts()
    layers, free = known["imports go down"]["layers"], known["torch-free"]["source_modules"]
    return [
        _room(path.removeprefix("bertkit."), number, without_torch=path in free)
        for number, layer in enumerate(layers)
        for path in layer.split(" | ")
    ]


def _room(name: str, layer: int, *, without_torch: bool) -> Room:
    path = SOURCE / name
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    top = (path / "__init__.py" if path.is_dir() else files[0]).read_text(encoding="utf-8")
    said = " ".join((ast.get_docstring(ast.parse(top)) or "").partition("\n\n")[0].split())
    about = re.sub(r":\w+:`~?([^`]*)`", r"`\1`", said.replace("``", "`"))
    about = re.split(r"\. (?=[A-Z`])", about)[0].rstrip(".")
    lines = sum(file.read_bytes().count(b"\n") for file in files)
    return Room(name, layer, about, len(files), lines, without_torch)


def imports() -> Counter[tuple[str, str]]:
    """How many modules of a room import how many modules of another."""
    import grimp

    graph = grimp.build_graph("bertkit", cache_dir=None)
    found: Counter[tuple[str, str]] = Counter()
    for module in graph.modules:
        for other in graph.find_modules_directly_imported_by(module):
            first, second = (each.split(".")[1] if "." in each else "" for each in (module, other))
            if first and second and first != second:
                found[first, second] += 1
    return found


def table(found: list[Room]) -> str:
    """The rooms as a table in Markdown."""
    rows = "\n".join(
        f"| `{each.name}` | {each.about.replace('|', ' ')} | {each.files} | {each.lines:,} |" for each in found
    )
    return f"| room | what it has | files | lines of Python |\n|---|---|--:|--:|\n{rows}\n"


def picture(found: list[Room], counts: Counter[tuple[str, str]]) -> str:
    """The matrix as an SVG file."""
    place = {each.name: number for number, each in enumerate(found)}
    width, height = LEFT + CELL * len(found) + 16, TOP + CELL * len(found) + 12
    parts = [f"<rect width='{width}' height='{height}' fill='#ffffff'/>"]
    for number, each in enumerate(found):
        y, x = TOP + CELL * number, LEFT + CELL * number
        if each.layer % 2 == 0:
            parts.append(f"<rect x='8' y='{y}' width='{width - 16}' height='{CELL}' fill='{BAND}'/>")
        parts.append(f"<rect x='{x}' y='{y}' width='{CELL}' height='{CELL}' fill='#d0d5da'/>")
        color = TORCH_FREE if each.without_torch else INK
        parts.append(_text(LEFT - 10, y + 13, each.name, color, "end"))
        parts.append(_text(x + 13, TOP - 8, each.name, color, "start", f" transform='rotate(-90 {x + 13} {TOP - 8})'"))
    most = log(max(counts.values()) + 1)
    for (first, second), count in sorted(counts.items()):
        if first in place and second in place:
            x, y = LEFT + CELL * place[second] + 2, TOP + CELL * place[first] + 2
            share = 0.25 + 0.75 * log(count + 1) / most
            size = CELL - 4
            parts.append(
                f"<rect x='{x}' y='{y}' width='{size}' height='{size}' rx='2' fill='{ROOM}' opacity='{share:.2f}'/>"
            )
    for number, line in enumerate(LEGEND):
        parts.append(_text(LEFT + 14, TOP + CELL * (len(found) - 11 + number) + 13, line, QUIET, "start"))
    size = f"width='{width}' height='{height}' viewBox='0 0 {width} {height}'"
    body = "\n".join(parts)
    return f"<svg xmlns='http://www.w3.org/2000/svg' {size} {FONT} font-size='13'>\n{body}\n</svg>\n"


def _text(x: float, y: float, text: str, color: str, anchor: str, more: str = "") -> str:
    return f"<text x='{x}' y='{y}' fill='{color}' text-anchor='{anchor}'{more}>{escape(text)}</text>"
