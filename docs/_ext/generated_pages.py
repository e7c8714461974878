"""Writes the pages that are made from the code, before Sphinx reads any; an unchanged page is not touched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from api_pages import api_pages, missing_docstrings
from chooser import chooser_pages
from command_pages import command_pages
from fact_pages import fact_pages


def setup(app: Any) -> dict[str, bool]:
    """Connect with Sphinx."""
    app.connect("builder-inited", _on_start)
    return {"parallel_read_safe": True}


def _on_start(app: Any) -> None:
    if missing := list(missing_docstrings()):
        raise SystemExit("Public names without documentation:\n" + "\n".join(missing))
    write_pages(Path(app.srcdir), {**api_pages(), **command_pages(), **fact_pages(), **chooser_pages()})


def write_pages(folder: Path, pages: Mapping[str, str]) -> None:
    """Write pages that have changed, and remove generated ones that are no more."""
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for part in ("reference/api", "reference/commands"):
        for path in (folder / part).glob("*.md"):
            if f"{part}/{path.name}" not in pages:
                path.unlink()
