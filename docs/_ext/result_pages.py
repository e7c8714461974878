"""A page for each file of measurements, with a list of machines and dates."""

from __future__ import annotations

import re
from pathlib import Path

from fact_pages import escaped

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def result_pages() -> dict[str, str]:
    """Path of each page -> its Markdown: the file as its program wrote it."""
    files = sorted(RESULTS.glob("*.md"))
    texts = {file.stem: file.read_text(encoding="utf-8") for file in files}
    rows = "\n".join(
        f"| [{escaped(_title(text))}]({name}.md) | {' | '.join(_where(text))} |" for name, text in texts.items()
    )
    tree = "\n".join(texts)
    index = (
        "# Measurements\n\nEvery file of `benchmarks/results/`, as the program that measured wrote it.\n\n"
        f"| measured | date | processor | version |\n|---|---|---|---|\n{rows}\n\n"
        f"```{{toctree}}\n:hidden:\n\n{tree}\n```\n"
    )
    return {"measurements/index.md": index, **{f"measurements/{name}.md": text for name, text in texts.items()}}


def _title(text: str) -> str:
    return text.partition("\n")[0].lstrip("# ")


def _where(text: str) -> list[str]:
    """Date, processor and version, as the file says them."""
    found = [re.search(rf"^{name}: *(.+)$", text, re.MULTILINE) for name in ("date", "cpu", "bertkit")]
    day = re.search(r"20\d\d-\d\d-\d\d", text)
    said = [match[1] if match else "" for match in found]
    return [escaped(each) for each in (said[0] or (day[0] if day else ""), said[1].partition(" (")[0], said[2])]
