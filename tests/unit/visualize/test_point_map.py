"""Points in groups: which groups are shown, what is written beside points, and the page in a real browser."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from bertkit.visualize.point_map import STYLES, Groups, PointMap, groups_of
from browser_helpers import CHROMIUM, browser

pytestmark = pytest.mark.slow


def spread(count: int, groups: Groups, **more: list[str]) -> PointMap:
    places = np.random.default_rng(0).normal(size=(count, 2))
    return PointMap(places, [f"text {n}" for n in range(count)], groups, ("x", "y"), ["a < b"], **more)


def test_the_most_frequent_labels_are_groups_and_equals_go_by_name() -> None:
    found = groups_of(["b", "a", None, "c", "c", "b", "a", "c"])
    assert (found.names, found.sizes, found.others) == (["c", "a", "b"], [3, 2, 2], "no label")
    assert found.numbers.tolist() == [2, 1, -1, 0, 0, 2, 1, 0]
    as_they_come = groups_of(["b", "a", "c", "c"], by_size=False)
    assert (as_they_come.names, as_they_come.others) == (["b", "a", "c"], None)
    many = groups_of([f"{n}" for n in range(len(STYLES) + 1)])
    assert (len(many.names), many.others) == (len(STYLES), "1 other label")
    nothing = groups_of([None, None])
    assert (nothing.names, nothing.others, nothing.numbers.tolist()) == ([], None, [-1, -1])


def test_groups_differ_in_color_and_in_shape() -> None:
    for own in zip(*STYLES, strict=True):
        assert len(set(own)) == len(STYLES)


def test_names_stand_beside_their_points_and_not_on_each_other() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    names = [f"name {n}" for n in range(60)]
    figure = spread(60, groups_of([None] * 60), names=names).figure()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    texts = figure.axes[0].texts
    assert 30 < len(texts) <= 60
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in texts]
    overlapping = sum(
        min(a.x1, b.x1) - max(a.x0, b.x0) > 4 and min(a.y1, b.y1) - max(a.y0, b.y0) > 4
        for a, b in combinations(boxes, 2)
    )
    assert overlapping <= 2
    assert not spread(600, groups_of([None] * 600), names=[f"{n}" for n in range(600)]).figure().axes[0].texts


@pytest.mark.campaign
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_is_used_by_keyboard_and_asks_for_nothing(tmp_path: Path, dark: bool) -> None:
    file, labels = tmp_path / "map.html", ["<b>one</b>", "two", None, "two"]
    drawn = spread(4, groups_of(labels), names=["cat", "car", "dog", "cat"])
    file.write_text(drawn.page("A map", "texts"), encoding="utf-8")
    with browser(tmp_path / "profile") as page:
        page.open(file, dark=dark)
        focused = []
        while not focused or focused[-1] != "CANVAS":
            page.press("Tab")
            focused.append(page.value("document.activeElement.tagName"))
        assert focused == ["INPUT", *["BUTTON"] * 6, "CANVAS"]
        texts = page.value("[...document.querySelectorAll('button')].map((each) => each.textContent.trim())")
        assert texts == ["+", "\u2212", "Reset", "two (2)", "<b>one</b> (1)", "no label (1)"]
        read = set()
        for key in ("ArrowRight", "ArrowUp", "ArrowLeft", "ArrowLeft", "ArrowDown", "ArrowDown", "ArrowRight"):
            page.press(key)
            read.add(page.value("document.querySelector('.shown').textContent"))
        assert len(read) > 1
        assert read <= {"cat: text 0", "car: text 1", "dog: text 2", "cat: text 3"}
        page.value("search.value = 'CA', search.dispatchEvent(new Event('input'))")
        assert page.value("document.querySelector('.found').innerText").startswith("3 found")
        page.value("legend.querySelector('button').focus()")
        before = page.value("canvas.toDataURL()")
        page.press("Enter")
        assert page.value("legend.querySelector('button').getAttribute('aria-pressed')") == "false"
        assert page.value("canvas.toDataURL()") != before
        paper = page.value("getComputedStyle(document.body).backgroundColor")
        assert (paper == "rgb(255, 255, 255)") != dark
        assert page.requests == [file.resolve().as_uri()]
        assert page.problems == []
