"""The page "try it here" in a real browser: by keyboard alone, narrow and wide, light and dark, and without a network.

The pictures of it are kept where BERTKIT_PICTURES says, to be looked at.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from browser_helpers import CHROMIUM, Page, browser, served

pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine"),
]
MOST_BYTES = 12_000_000
MOST_SECONDS = 1.5


def focused(page: Page) -> str:
    return str(page.value("document.activeElement.className || document.activeElement.id"))


def note(page: Page, tool: str) -> str:
    return str(page.value(f"document.querySelector('[data-tool={tool}] .try-note').textContent"))


def picture(page: Page, name: str) -> None:
    if folder := os.environ.get("BERTKIT_PICTURES"):
        page.picture(Path(folder) / f"{name}.png")


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_campaign_by_keyboard(page_folder: Path, tmp_path: Path, width: int, dark: bool) -> None:
    with served(page_folder) as address, browser(tmp_path) as page:
        page.open(address, dark=dark, width=width)
        assert not [url for url in page.requests if "bin.gz" in url or "wasm" in url]
        sizes = sum((page_folder / name).stat().st_size for name in ("bertkit.wasm", "bertkit-tiny-en.bin.gz"))
        assert sizes < MOST_BYTES
        assert f"({sizes / 1e6:.1f} MB)" in page.value("document.querySelector('.try-load').textContent")
        page.press("Tab")
        assert focused(page) == "try-load"
        page.press("Enter")
        page.wait("!document.querySelector('.try-tools').hidden")
        assert focused(page) == "try-lines"
        page.write("A dog barked.\n\nA puppy was loud.\nTax law is dry.")
        page.wait("document.querySelectorAll('.try-matrix td').length === 9")
        cells = page.value("[...document.querySelectorAll('.try-matrix tbody td')].map((td) => Number(td.textContent))")
        assert cells[0] == 1.0
        assert cells[1] > cells[2]
        page.press("Tab", "Tab")
        page.write("The [MASK] of [MASK] is Paris.")
        page.wait("document.querySelectorAll('.try-bars').length === 2")
        assert page.value("document.querySelectorAll('.try-bars')[1].querySelector('li').textContent").startswith(
            "paris"
        )
        page.press("Tab")
        page.write("\U0001f600 Na\u00efvet\u00e9")
        page.wait("document.querySelector('.try-pieces').textContent.includes('Na\u00efve')")
        picture(page, f"try-{width}-{'dark' if dark else 'light'}")
        assert page.value("document.documentElement.scrollWidth <= innerWidth")
        assert all(url.startswith((address, "data:", "blob:")) for url in page.requests)
        assert not page.problems


def test_campaign_first_answer(page_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From the press to the first answers, by the browser's own clock; printed, for machines differ."""
    with served(page_folder) as address, browser(tmp_path) as page:
        page.open(address)
        page.value(
            "answered = undefined; new MutationObserver(() => { answered ??= performance.now(); }).observe("
            "document.querySelector('.try-tools'), {attributes: true}); "
            "begun = performance.now(); document.querySelector('.try-load').click()"
        )
        page.wait("answered !== undefined")
        seconds = page.value("(answered - begun) / 1000")
        told = page.value("document.querySelector('.try-status').textContent")
    with capsys.disabled():
        print(f"\nfirst answers {seconds:.2f} s after the press (limit {MOST_SECONDS}); {told}")


def test_campaign_errors_are_plain(page_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(page_folder, tmp_path / "page"))
    whole = (folder / "bertkit-tiny-en.bin.gz").read_bytes()
    with served(folder) as address, browser(tmp_path / "profile") as page:
        page.open(address)
        status = "document.querySelector('.try-status').textContent"
        for damage, text in ((None, "the server said 404"), (whole[:-1000], "damaged, or not all of it came")):
            (folder / "bertkit-tiny-en.bin.gz").unlink(missing_ok=True)
            if damage is not None:
                (folder / "bertkit-tiny-en.bin.gz").write_bytes(damage)
            page.value("document.querySelector('.try-load').click()")
            page.wait(f"{status}.includes('{text}')")
            assert page.value("document.querySelector('.try-load').disabled") is False
        (folder / "bertkit-tiny-en.bin.gz").write_bytes(whole)
        page.value("document.querySelector('.try-load').click()")
        page.wait("!document.querySelector('.try-tools').hidden")
        page.value("document.querySelector('#try-masked').focus()")
        page.write("nothing is hidden")
        page.wait("document.querySelector('[data-tool=fill] .try-note').textContent.includes('no [MASK]')")
        page.value("document.querySelector('#try-lines').focus()")
        page.write("word " * 200)
        page.wait("document.querySelector('[data-tool=similarity] .try-note').textContent.includes('the limit is 128')")
        assert note(page, "similarity").startswith("Line 1: it has 202 tokens")


def test_campaign_without_vectors_there_is_a_sentence(page_folder: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(page_folder, tmp_path / "page"))
    script = (folder / "engine.js").read_text(encoding="utf-8")
    assert script.count("253, 98") == 1
    (folder / "engine.js").write_text(script.replace("253, 98", "253, 255"), encoding="utf-8")
    with served(folder) as address, browser(tmp_path / "profile") as page:
        page.open(address)
        page.wait("document.querySelector('.try-status').textContent.includes('it has no vectors in WebAssembly')")
        assert page.value("document.querySelector('.try-load').hidden")
        assert "pip install bertkit" in page.value("document.querySelector('.try-status').textContent")
