"""The built site in a real browser without a network: what it asks for, its model, its search, keyboard, axe-core.

``make docs`` builds it. Pictures of some pages are kept where BERTKIT_PICTURES says, to be looked at.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from browser_helpers import CHROMIUM, Page, browser, served

SITE = Path(__file__).parents[3] / "build" / "site"
AXE = "axe-core@4.14.1"
pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="no site in build/site; make docs"),
]
#: A page of each kind.
KINDS = {
    "first": "index.html",
    "tutorial": "tutorials/first-classifier.html",
    "introduction": "tutorials/five/1-annotated-bert.html",
    "how-to": "how-to/transformers-v4-pipelines.html",
    "explanation": "explanation/packing.html",
    "gallery": "gallery.html",
    "api": "reference/api/pipelines.html",
    "command": "reference/commands/tag.html",
    "settings": "reference/settings.html",
    "results": "results.html",
    "measurements": "measurements/index.html",
    "house": "house.html",
    "decision": "decisions/0330-tools-of-the-site.html",
    "search": "search.html",
}
#: Kinds of which pictures are kept.
LOOKED_AT = ("first", "tutorial", "how-to", "gallery", "api", "results")


@pytest.fixture(scope="session")
def axe(once: Callable[[str, Callable[[Path], Any]], Any]) -> str:
    """The program of axe-core, from npm."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("no npm on this machine, which gets axe-core")

    def get(folder: Path) -> str:
        subprocess.run([npm, "install", "--no-audit", "--no-fund", "--prefix", str(folder), AXE], check=True)
        return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text(encoding="utf-8")

    return str(once("axe", get))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[str, Page]]:
    """The address of the site, and a browser."""
    with served(SITE) as address, browser(tmp_path) as page:
        yield address, page


def serious(page: Page, axe: str) -> list[str]:
    """What axe-core finds serious or critical in a page, with the first element of each."""
    page.value(axe + "; undefined")
    page.value("axe.run().then((found) => { window.found = JSON.stringify(found.violations); }); undefined")
    page.wait("window.found !== undefined", 120)
    return [
        f"{each['id']}: {each['nodes'][0]['html'][:200]}"
        for each in json.loads(page.value("found"))
        if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_campaign_a_page_asks_nobody_and_can_be_used(kind: str, site: tuple[str, Page], axe: str) -> None:
    address, page = site
    for width in (1280, 360):
        for dark in (False, True):
            name = f"{kind}-{width}-{'dark' if dark else 'light'}"
            page.open(address + KINDS[kind], dark=dark, width=width)
            assert page.value("document.documentElement.dataset.theme") == ("dark" if dark else "light")
            assert page.value("document.documentElement.scrollWidth <= innerWidth"), f"{name} is wider than the window"
            if (folder := os.environ.get("BERTKIT_PICTURES")) and kind in LOOKED_AT:
                page.picture(Path(folder) / f"{name}.png")
            assert serious(page, axe) == [], name
    assert [url for url in page.requests if not url.startswith((address, "data:", "blob:"))] == []
    assert page.problems == []


def test_campaign_axe_finds_a_fault(site: tuple[str, Page], axe: str) -> None:
    address, page = site
    page.open(f"{address}index.html")
    page.value("document.querySelector('main').append(new Image()); undefined")
    assert [each.partition(":")[0] for each in serious(page, axe)] == ["image-alt"]


def test_campaign_every_kind_of_page_opens_as_a_file(tmp_path: Path) -> None:
    with browser(tmp_path) as page:
        for name in KINDS.values():
            page.open(SITE / name)
            assert page.value("document.querySelectorAll('main h1').length") == 1
        page.open(f"{(SITE / 'search.html').as_uri()}?q=packing")
        page.wait("document.querySelectorAll('ul.search li').length > 5")
        assert [url for url in page.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_campaign_search_finds_pages(site: tuple[str, Page]) -> None:
    address, page = site
    page.open(f"{address}search.html?q=kubernetes")
    page.wait("document.querySelectorAll('ul.search li').length > 0")
    found = "[...document.querySelectorAll('ul.search li a')].map((link) => link.pathname)"
    assert "/how-to/kubernetes.html" in page.value(found)
    page.open(f"{address}search.html?q=xyzzyplugh")
    page.wait("document.querySelector('#search-results').textContent.includes('did not match any documents')")
    assert all(url.startswith((address, "data:")) for url in page.requests)


def test_campaign_the_first_page_by_keyboard(site: tuple[str, Page]) -> None:
    address, page = site
    page.open(f"{address}index.html", width=1280)
    page.press("Tab")
    assert "Skip to main content" in page.value("document.activeElement.textContent")
    reached: list[str] = []
    for _ in range(200):
        page.press("Tab")
        assert page.value(
            "(() => { const style = getComputedStyle(document.activeElement); return document.activeElement === "
            "document.body || style.outlineStyle !== 'none' || style.boxShadow !== 'none'; })()"
        ), f"where is the focus? {page.value('document.activeElement.outerHTML')[:200]}"
        reached.append(page.value("document.activeElement.className || document.activeElement.name || ''"))
        if reached[-1] == "try-load":
            page.press("Enter")
            page.wait("!document.querySelector('.try-tools').hidden")
            assert page.value("document.activeElement.id") == "try-lines"
        elif reached[-1] == "have":
            break
    assert "try-load" in reached
    assert page.value("document.querySelectorAll('.try-matrix tbody td').length") == 16
    assert page.value("document.querySelectorAll('.try-bars li').length") == 5
    assert page.value("document.querySelectorAll('.try-pieces tbody tr').length") > 10
    answers = "[...document.querySelectorAll('section[id^=choose-]')].filter((each) => !each.hidden).length"
    assert page.value(answers) == page.value("document.querySelectorAll('section[id^=choose-]').length") > 10
    page.press("ArrowDown", "Tab", "ArrowDown")
    assert page.value(answers) == 1
    assert all(url.startswith((address, "data:", "blob:")) for url in page.requests)


def test_campaign_without_javascript_the_first_page_is_complete(site: tuple[str, Page]) -> None:
    address, page = site
    page.open(f"{address}index.html")
    assert page.value("document.querySelector('form.chooser') !== null")
    page.send("Emulation.setScriptExecutionDisabled", value=True)
    page.send("Page.reload")
    page.wait("document.readyState === 'complete' && document.querySelector('form.chooser') === null")
    assert page.value("document.querySelectorAll('section[id^=choose-]').length") > 10
    assert page.value("[...document.querySelectorAll('section[id^=choose-]')].every((each) => each.clientHeight > 0)")
    said = page.value("document.querySelector('.bertkit-try noscript').innerText")
    assert said.startswith("This part needs JavaScript")
