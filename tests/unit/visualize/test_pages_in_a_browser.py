"""The pages of explanations and of ablations in a real browser: by keyboard, in light and dark, without a request."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablation_plan import PLAN
from bertkit import BertForSequenceClassification, visualize
from bertkit.ablations.ablation_page import Ablation
from bertkit.ablations.plan import load_plan
from bertkit.ablations.unit_results import UnitResult
from browser_helpers import CHROMIUM, Page, browser
from pipeline_helpers import save_tiny

pytestmark = [
    pytest.mark.slow,
    pytest.mark.campaign,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
    pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"]),
]


def check(page: Page, file: Path, *, dark: bool) -> None:
    """Nothing was asked for, no script failed, and the page has the colors that were wished for."""
    paper = page.value("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") != dark
    assert (page.requests, page.problems) == ([file.as_uri()], [])


def test_an_explanation_by_keyboard(tmp_path: Path, dark: bool) -> None:
    model = save_tiny(tmp_path / "model", BertForSequenceClassification, num_labels=2, initializer_range=0.15)
    found = visualize.explain("a great </script> film", "not <b>dull</b>", model=model)
    file = found.save(tmp_path / "why.html")
    value = "document.getElementById('value').textContent"
    focused = "[document.activeElement.textContent, document.activeElement.closest('section').ariaLabel]"
    chosen = "[...document.querySelectorAll('.chosen')].map((each) => each.textContent)"

    def said(number: int) -> str:
        word = found.words[number]
        return f"{word.text}: integrated gradients {word.gradients:+.3f}, occlusion {word.occlusion:+.3f}"

    with browser(tmp_path / "profile") as page:
        page.open(file, dark=dark)
        assert page.value(value).strip() == ""
        for keys, number, panel in (
            (["Tab"], 0, "Integrated gradients"),
            (["ArrowRight"], 1, "Integrated gradients"),
            (["End"], len(found.words) - 1, "Integrated gradients"),
            (["ArrowRight"], len(found.words) - 1, "Integrated gradients"),  # there is none behind the last
            (["Tab"], 0, "Occlusion"),
            (["End", "ArrowLeft"], len(found.words) - 2, "Occlusion"),
            (["Home"], 0, "Occlusion"),
        ):
            page.press(*keys)
            assert page.value(focused) == [found.words[number].text, panel]
            assert page.value(value).replace("+0.000", "0.000") == said(number).replace("+0.000", "0.000")
            assert page.value(chosen) == [found.words[number].text] * 2, "the word is marked in both"
        ink, paper = (page.value(f"getComputedStyle(document.body).{name}") for name in ("color", "backgroundColor"))
        assert ink != paper
        check(page, file, dark=dark)


def test_an_ablation(tmp_path: Path, dark: bool) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    results = [
        UnitResult(arm, seed, {"words": 0.5 + 0.1 * number + 0.01 * seed}, {}, {}, [])
        for number, arm in enumerate(("both", "left", "right"))
        for seed in (0, 1)
    ]
    found = Ablation(load_plan(tmp_path / "plan.toml"), results)
    file = found.save(tmp_path / "ablation.html")
    with browser(tmp_path / "profile") as page:
        page.open(file, dark=dark)
        assert page.value("document.querySelector('h1').textContent") == "Directions"
        arms = page.value("[...document.querySelectorAll('table')[0].rows].map((row) => row.cells[0].textContent)")
        assert arms == ["", "both directions", "left-to-right", "right-to-left"]
        box = page.value("JSON.stringify(document.querySelector('figure.paper svg').getBoundingClientRect())")
        assert '"width":0' not in box, "the picture is seen"
        check(page, file, dark=dark)
