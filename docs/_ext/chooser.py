"""The chooser of the first page, from ``chooser.toml``: a table of links, and an answer for each cell.

All of it is plain text; ``_static/chooser.js`` only hides what was not asked for.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]


@cache
def chooser_pages() -> dict[str, str]:
    """The part that ``index.md`` includes."""
    table = tomllib.loads((DOCS / "chooser.toml").read_text(encoding="utf-8"))
    parts = [_links(table), *(_answer(each, table) for each in table["answer"])]
    return {"_generated/chooser.md": "\n\n".join(parts) + "\n"}


def _name(answer: dict[str, Any]) -> str:
    return "-".join(["choose", answer["have"], *answer["labels"]])


def _links(table: dict[str, Any]) -> str:
    """A row for what there is, a column for how many labels."""
    answers = {(each["have"], label): each for each in table["answer"] for label in each["labels"]}
    missing = [(have, label) for have in table["have"] for label in table["labels"] if (have, label) not in answers]
    if missing:
        raise SystemExit(f"docs/chooser.toml: no answer for {missing}; add an [[answer]] or a label to one")
    rows = [
        f"| **{said}** | "
        + " | ".join(f"[{_short(answers[have, label])}](#{_name(answers[have, label])})" for label in table["labels"])
        + " |"
        for have, said in table["have"].items()
    ]
    head = "| I have | " + " | ".join(table["labels"].values()) + " |\n" + "|---" * (len(table["labels"]) + 1) + "|"
    return head + "\n" + "\n".join(rows)


def _short(answer: dict[str, Any]) -> str:
    """The commands of an answer, the first two."""
    commands = [line.split()[1:3] for line in answer["block"].strip().splitlines() if line.startswith("bertkit ")]
    named = [" ".join(words if words[0] in ("finetune", "search") else words[:1]) for words in commands]
    return ", ".join(f"`{name}`" for name in list(dict.fromkeys(named))[:2])


def _answer(answer: dict[str, Any], table: dict[str, Any]) -> str:
    labels = ", ".join(table["labels"][label] for label in answer["labels"])
    machines = table["work"][answer["work"]]
    source = f" ([source](measurements/{answer['source']}))" if "source" in answer else ""
    have = table["have"][answer["have"]]
    return "\n".join(
        [
            f"({_name(answer)})=",
            f"### {have[0].upper()}{have[1:]}, {labels}",
            "",
            f"{answer['call']}:",
            "",
            f"```{answer.get('language', 'bash')}\n{answer['block'].strip()}\n```",
            "",
            f"- **How long:** {answer['time']}.",
            f"- **What to expect:** {answer['expect']}{source}.",
            *(f"- **{said}:** {machines[machine]}." for machine, said in table["machines"].items()),
        ]
    )
