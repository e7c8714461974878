"""Writes the pages that are made from the code, before Sphinx reads any; an unchanged page is not touched."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from shutil import copytree
from typing import Any

from api_pages import api_pages, missing_docstrings
from chooser import chooser_pages
from command_pages import command_pages
from fact_pages import fact_pages
from family_pages import family_pages
from house_pages import house_pages
from result_pages import result_pages

#: The page that runs the included model in a browser, with its files, as ``docs/try/build.py`` leaves it.
TRY = Path(__file__).parents[2] / "build" / "try"


def setup(app: Any) -> dict[str, bool]:
    """Connect with Sphinx."""
    app.connect("builder-inited", _on_start)
    app.connect("build-finished", _on_end)
    return {"parallel_read_safe": True}


def _on_start(app: Any) -> None:
    if missing := list(missing_docstrings()):
        raise SystemExit("Public names without documentation:\n" + "\n".join(missing))
    pages = (api_pages, command_pages, fact_pages, chooser_pages, family_pages, house_pages, result_pages, try_page)
    made = {name: text for make in pages for name, text in make().items()}
    write_pages(Path(app.srcdir), made)


def try_page() -> dict[str, str]:
    """What the first page includes as "Try it here", where it is built; see ``docs/try/``."""
    fragment = TRY / "fragment.html"
    if not fragment.exists():
        return {"_generated/try-it-here.md": ""}
    files = '<link rel="stylesheet" href="try/try.css"><script type="module" src="try/try.js"></script>'
    return {"_generated/try-it-here.md": f"```{{raw}} html\n{files}\n{fragment.read_text(encoding='utf-8')}\n```\n"}


def _on_end(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.name == "html" and TRY.is_dir():
        copytree(TRY, Path(app.outdir) / "try", dirs_exist_ok=True)


def write_pages(folder: Path, pages: Mapping[str, str]) -> None:
    """Write pages that have changed, and remove generated ones that are no more."""
    for name, text in pages.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for part in ("reference/api", "reference/commands", "measurements"):
        for path in (folder / part).glob("*.md"):
            if f"{part}/{path.name}" not in pages:
                path.unlink()
