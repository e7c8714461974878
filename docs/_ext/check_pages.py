"""Checks pages without building them: ``python docs/_ext/check_pages.py [SITE]``; with a built site, that too.

A dead link, a picture without alternative text, a picture without what draws it, a speed, time or size in a section
that links to no measurement, a figure of ``results.md`` that is not in its measurement: each is reported with file and
line. Of a built site also what it asks other hosts for, and pages without a Markdown twin.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from result_pages import figure_errors

DOCS = Path(__file__).parents[1]
#: Pages are here too after a build; generated ones are checked by Sphinx.
GENERATED = ("_generated/", "data/", "reference/api/", "reference/commands/", "measurements/", "decisions/index.md")
#: Pages of Sphinx for finding others.
NO_TWIN = ("genindex.html", "search.html", "py-modindex.html")
#: Folders of the site with files of Sphinx, and of the model in the browser.
NO_PAGES = ("_static", "try")
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
#: What only a measurement can say, and what may stand as its source: a page of ours, or of others.
FIGURE = re.compile(r"\d[\d.,]* ?(?:times as\b|(?:texts|tokens|rows|questions|requests)/s|ms\b|MB\b)")
SOURCE = re.compile(r"\]\((?:[^)\s]*(?:measurements/|decisions/|results\.md)|\w+://)|benchmarks/|gpu_all\.py")
#: Decisions are sources themselves; settings and habits have defaults.
NO_FIGURES = ("reference/", "decisions/", "habits.md")


def source_errors(docs: Path = DOCS) -> Iterator[str]:
    """What is wrong in the sources of the pages."""
    for path in sorted(docs.rglob("*.md")):
        name = path.relative_to(docs).as_posix()
        if not name.startswith(GENERATED):
            yield from (f"docs/{name}:{line}: {error}" for line, error in page_errors(path))
        if not name.startswith((*GENERATED, *NO_FIGURES)):
            yield from (f"docs/{name}:{line}: {error}" for line, error in unsourced_figures(path))


def page_errors(path: Path) -> Iterator[tuple[int, str]]:
    """Line and fault of everything that is wrong in one page."""
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith(("```", ":::")):
            fenced = not fenced if line.startswith("```") else fenced
            continue
        if fenced:
            continue
        for picture, said, target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if picture:
                yield from ((number, error) for error in _picture_errors(path, said, target))
            elif not re.match(r"\w+:|#", target) and not _exists(path, target):
                yield number, f"dead link: {target}"


def unsourced_figures(path: Path) -> Iterator[tuple[int, str]]:
    """Line and fault of measured figures in sections of a page that name no source; blocks are not read."""
    for start, text in _sections(path.read_text(encoding="utf-8")):
        if not SOURCE.search(text):
            for number, line in enumerate(text.splitlines(), start):
                for found in FIGURE.findall(line):
                    yield number, f"{found} without its source; link to the measurement or decision in this section"


def _sections(text: str) -> Iterator[tuple[int, str]]:
    """Number of the first line, and text from one heading to the next with blocks left empty."""
    start, lines, fenced = 1, list[str](), False
    for number, line in enumerate(text.splitlines(), 1):
        fenced ^= line.startswith("```")
        if line.startswith("#") and not fenced:
            yield start, "\n".join(lines)
            start, lines = number, []
        lines.append("" if fenced else line)
    yield start, "\n".join(lines)


def _exists(path: Path, target: str) -> bool:
    """Generated pages exist after a build only; Sphinx checks links to them."""
    found = (path.parent / target.partition("#")[0]).resolve()
    return found.exists() or is_generated(found)


def is_generated(path: Path) -> bool:
    """Whether a page is made when the site is built."""
    return path.is_relative_to(DOCS) and path.relative_to(DOCS).as_posix().startswith(
        (*GENERATED, "reference/settings.md", "reference/exit-codes.md")
    )


def _picture_errors(path: Path, said: str, target: str) -> Iterator[str]:
    picture = path.parent / target
    if not said.strip():
        yield f"picture without alternative text: {target}"
    if target.startswith(GENERATED):
        return
    if not picture.exists():
        yield f"no such picture: {target}"
    elif not picture.with_suffix(".py").exists() and f"images/{path.stem}/" not in target:  # which run_blocks writes
        yield f"picture without its source: {target}; keep the program that draws it beside it, as {picture.stem}.py"


class _Page(HTMLParser):
    """Collects what a built page asks for, where it links to, and pictures without alternative text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.links: list[str] = []
        self.silent: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in ("script", "img", "iframe", "source", "video") and "src" in given:
            self.asked.append(given["src"])
        elif tag == "link" and "href" in given and given.get("rel") not in ("canonical", "next", "prev"):
            self.asked.append(given["href"])
        if tag == "img" and "alt" not in given:
            self.silent.append(given.get("src", ""))


def site_errors(site: Path) -> Iterator[str]:
    """What is wrong in the built site: dead links, requests to elsewhere, pages without a twin."""
    parsed = {path.resolve(): _Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in parsed.items():
        name = path.relative_to(site.resolve())
        yield from (f"{name}: asks for {each}" for each in page.asked if re.match(r"(https?:)?//", each))
        yield from (f"{name}: picture without alternative text: {each}" for each in page.silent)
        yield from (f"{name}: dead link: {each}" for each in page.links if _is_dead(path, each, parsed))
        if path.name not in NO_TWIN and name.parts[0] not in NO_PAGES and not path.with_suffix(".md").exists():
            yield f"{name}: no Markdown twin"
    for path in sorted(site.rglob("*.css")):
        for found in re.findall(
            r"url\([\"']?((?:https?:)?//[^)\"']*)|@import [\"']((?:https?:)?//[^\"']*)",
            path.read_text(encoding="utf-8"),
        ):
            yield f"{path.relative_to(site)}: asks for {''.join(found)}"


def _is_dead(path: Path, link: str, parsed: dict[Path, _Page]) -> bool:
    if re.match(r"\w+:|//", link):
        return False
    target, _, anchor = link.partition("#")
    found = (path.parent / target).resolve() if target else path
    if found.is_dir():
        found = found / "index.html"
    if not found.exists():
        return True
    return bool(anchor) and found in parsed and anchor not in parsed[found].ids


def main(arguments: list[str]) -> int:
    """Print what is wrong; 1 if anything is."""
    errors = [*source_errors(), *figure_errors(), *(error for each in arguments for error in site_errors(Path(each)))]
    print("\n".join(errors), file=sys.stderr)
    return int(bool(errors))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
