"""The table of habits as a page: ``python -m bertkit.habits.page > docs/habits.md``."""

from __future__ import annotations

from itertools import groupby

from bertkit.habit_table import Habit, habits

_WORLDS = {
    "tf": "transformers",
    "st": "sentence-transformers",
    "setfit": "SetFit",
    "sk": "scikit-learn",
    "keras": "Keras",
    "other": "several tools",
}
_MEANINGS = {"same": "the same here", "nothing": "accepted, without effect", "otherwise": "refused"}
_HEAD = """# What you type from other libraries

Names, arguments and options of other libraries, and what they mean in bertkit: *the same here*, *accepted, without
effect* (with the reason), or *refused* with what to write instead, which is also what the error says. This page is
generated from `bertkit/habit_table.py`.
"""


def page() -> str:
    """The page in Markdown: a table for each entry."""
    rows = sorted(habits().values())
    sections = [_section(entry, list(found)) for entry, found in groupby(rows, key=lambda row: row.entry)]
    return "\n".join([_HEAD, *sections])


def _section(entry: str, rows: list[Habit]) -> str:
    lines = [f"## `{entry}`\n", "| typed | known from | here | |", "| --- | --- | --- | --- |"]
    for row in rows:
        worlds = ", ".join(_WORLDS[world] for world in row.worlds)
        told = row.ours.replace("|", "\\|")
        lines.append(f"| `{row.name}` | {worlds} | {_MEANINGS[row.meaning]} | {_code(told, row)} |")
    return "\n".join([*lines, ""])


def _code(told: str, row: Habit) -> str:
    return f"`{told}`" if row.meaning == "otherwise" and told else told


if __name__ == "__main__":
    print(page(), end="")
