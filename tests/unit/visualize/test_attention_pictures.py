"""Pictures and pages of attention: readable, bounded, offline, by keyboard."""

from __future__ import annotations

import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit.insight.attention_maps import Attention
from bertkit.insight.head_statistics import HeadStatistics
from bertkit.visualize import attention_pictures
from bertkit.visualize.attention_pictures import AttentionMap, lines_figure, matrices_figure, page_data
from browser_helpers import CHROMIUM, browser

pytestmark = pytest.mark.slow

WORDS = ("[CLS]", "the", "<b>&film</script>", "$x$", "[SEP]")


def made(words: tuple[str, ...] = WORDS, layers: int = 2, heads: int = 3, **options: Any) -> Attention:
    """Random attention of two texts, of which the second has the last word but one."""
    size = len(words)
    draw = np.random.default_rng(0)
    values = draw.dirichlet(np.full(size, 0.3), size=(layers, heads, size)).astype(np.float32)
    texts = (None, *(0 for _ in words[2:-1]), 1, None)
    found = AttentionMap(words, words, texts, texts, values, values.mean(1))
    return Attention({"encoder": found}, "encoder", **{"view": "heads", "layer": 1, "head": None, **options})


def data_of(page: str) -> Any:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])  # type: ignore[index]


def decoded(text: str, *shape: int) -> Any:
    return (np.frombuffer(base64.b64decode(text), np.uint8).reshape(shape) / 255.0) ** 2


def test_a_page_holds_all_values_to_four_thousandths() -> None:
    """Those above .002 also to a tenth."""
    shown = made()
    (found,) = data_of(shown.page())["maps"]
    values = shown.maps["encoder"].values
    back = decoded(found["values"], 2, 3, 5, 5)
    assert np.abs(back - values).max() < 0.004
    small = (values < 0.1) & (values > 0.002)
    assert small.sum() > 10
    assert (np.abs(back - values)[small] < 0.1 * values[small]).all()
    np.testing.assert_allclose(decoded(found["rollout"], 2, 5, 5), values.mean(1), atol=0.004)
    assert found["rows"] == list(WORDS)
    assert found["rowTexts"] == [None, 0, 0, 1, None]


def test_what_is_too_large_for_a_page_is_cut_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = dict(made().maps)
    values = maps["encoder"].values
    monkeypatch.setattr(attention_pictures, "MOST_PAGE_BYTES", 150)
    (whole,), notes = page_data(maps, "encoder", 2)
    assert (whole["layers"], notes) == ([1, 2], [])
    monkeypatch.setattr(attention_pictures, "MOST_PAGE_BYTES", 149)
    (one,), notes = page_data(maps, "encoder", 2)
    assert one["layers"] == [2]
    np.testing.assert_allclose(decoded(str(one["values"]), 3, 5, 5), values[1], atol=0.004)
    assert notes == ["All layers are too large for a page: this one has layer 2 alone."]
    monkeypatch.setattr(attention_pictures, "MOST_PAGE_BYTES", 3 * 4 * 4)
    (cut,), notes = page_data(maps, "encoder", 2)
    assert cut["rows"] == WORDS[:4]
    np.testing.assert_allclose(decoded(str(cut["values"]), 3, 4, 4), values[1, :, :4, :4], atol=0.004)
    assert notes[1] == "Of 5 tokens it has the first 4."
    page = made(layer=2).page()
    assert "this one has layer 2 alone" in page
    assert "the first 4" in page


def test_the_largest_page_has_eight_megabytes() -> None:
    """12 layers of 12 heads and 512 tokens are 38 million numbers."""
    one = np.zeros((1, 1, 1, 1), np.float32)
    values = np.broadcast_to(one, (12, 12, 512, 512))
    names = ("word",) * 512
    many = AttentionMap(names, names, (0,) * 512, (0,) * 512, values)
    data, notes = page_data({"encoder": many}, "encoder", 12)
    assert 4e6 < len(json.dumps(data)) < 8.4e6
    assert notes == ["All layers are too large for a page: this one has layer 12 alone."]


@pytest.mark.parametrize("shown", [made(), made(view="lines", head=2)], ids=["heads", "lines"])
def test_a_page_asks_for_nothing(shown: Attention) -> None:
    """What is in a text stays text, and no address is in the page but the name of SVG."""
    page = shown.page()
    assert "default-src 'none'" in page
    assert "<b>" not in page.replace("<body>", "")
    assert page.count("</script>") == 2
    addresses = set(re.findall(r"\w+://[^\s\"'`)]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\b(fetch|XMLHttpRequest|import|eval|src|href|url)\b\s*[(=]", page)


def test_labels_are_words_until_there_are_too_many() -> None:
    shown = made()
    figure = matrices_figure(shown.maps["encoder"].values[0], ["a", "b", "c"], WORDS, WORDS)
    axes = [each for each in figure.axes if each.get_visible() and each.images]
    assert [each.get_title() for each in axes][:3] == ["a", "b", "c"]
    names = [label.get_text() for label in axes[0].get_yticklabels()]
    assert names == [
        "[CLS]",
        "the",
        "<b>&film</script>"[:15] + "…",
        r"\$x\$",
        "[SEP]",
    ]
    np.testing.assert_array_equal(axes[2].images[0].get_array(), shown.maps["encoder"].values[0, 2])
    many = tuple(f"word{number}" for number in range(41))
    figure = made(many).figure()
    assert "word1" not in {label.get_text() for each in figure.axes for label in each.get_yticklabels()}


def test_lines_are_as_dark_as_the_attention() -> None:
    matrix = np.array([[0.75, 0.25], [0.0, 1.0]], np.float32)
    figure = lines_figure(matrix, "title", ("a", "b"), ("c", "d"))
    (axes,) = figure.axes
    (lines,) = axes.collections
    found = {
        tuple(map(tuple, path.vertices)): alpha
        for path, alpha in zip(lines.get_paths(), lines.get_alpha(), strict=True)
    }
    assert found == {((0, 0), (1, 0)): 0.75, ((0, 0), (1, 1)): 0.25, ((0, 1), (1, 1)): 1.0}
    assert [text.get_text() for text in axes.texts] == ["a", "b", "c", "d"]
    many = tuple(f"w{number}" for number in range(101))
    cut = lines_figure(np.eye(101, dtype=np.float32), "title", many, many)
    assert "the first 100 of 101" in cut.axes[0].get_title()
    assert len(cut.axes[0].texts) == 200


def test_sums_that_round_to_more_than_one_are_drawn() -> None:
    matrix = np.array([[np.nextafter(np.float32(1), np.float32(2))]], np.float32)
    assert matrix.max() > 1
    figure = lines_figure(matrix, "title", ("a",), ("b",))
    assert figure.axes[0].collections[0].get_alpha().tolist() == [1.0]


@pytest.mark.parametrize(
    ("ending", "view"),
    [
        pytest.param(ending, view, marks=[] if (ending, view) == (".png", "heads") else pytest.mark.campaign)
        for ending in (".png", ".svg")
        for view in ("heads", "lines", "average", "rollout")
    ],
)
def test_every_view_is_drawn_the_same_twice(view: str, ending: str, tmp_path: Path) -> None:
    shown = made(view=view, head=1 if view == "lines" else None)
    first, second = (shown.save(tmp_path / f"{name}{ending}").read_bytes() for name in ("a", "b"))
    assert first == second
    assert len(first) > 2000


@pytest.mark.filterwarnings("error", "default::ResourceWarning")  # a file that another test left open
def test_characters_that_the_font_lacks_are_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = made(("[CLS]", "\u5317", "\u4eac", "\u5317", "[SEP]"))
    shown.save(tmp_path / "a.png")
    said = "the font of pictures lacks '\u4eac', '\u5317'; .svg and .html show such letters\n"
    assert capsys.readouterr().err == said
    assert "\u5317" in shown.save(tmp_path / "a.svg").read_text(encoding="utf-8")
    assert capsys.readouterr().err == ""


def statistics() -> HeadStatistics:
    names = "next previous itself cls sep same punctuation distance entropy relative_entropy".split()
    draw = np.random.default_rng(0)
    values = {name: draw.random((3, 4)) for name in names}
    return HeadStatistics(values, 7, 99, 1, 0, False, {"cls": "<s>", "sep": "</s>"})


def test_grids_of_heads_show_each_statistic() -> None:
    shown = statistics()
    figure = shown.figure()
    grids = [axes for axes in figure.axes if axes.get_visible() and axes.images]
    assert [axes.get_title() for axes in grids] == list(shown.names.values())
    for axes, values in zip(grids, shown.values.values(), strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), values)
    assert figure.get_suptitle() == "3 layers of 4 heads, 7 texts, 99 tokens, 1 text truncated"
    page = shown.page()
    assert "</s>" not in page.partition("<script")[0]
    rows = data_of(page)["rows"]
    assert [row["entropy"] for row in rows] == pytest.approx(shown.values["entropy"].ravel().tolist(), rel=1e-5)
    assert not re.search(r"\w+://", page)


@pytest.mark.campaign
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
class TestInABrowser:
    """Real key events; without a request."""

    @pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
    def test_attention_by_keyboard(self, dark: bool, tmp_path: Path) -> None:
        shown = made()
        file = shown.save(tmp_path / "page.html")
        with browser(tmp_path / "profile") as page:
            page.open(file, dark=dark)
            page.press("Tab", "Tab", "Tab", "ArrowRight", "ArrowDown")  # view, words, then the grid of heads
            assert page.value("document.activeElement.ariaLabel") == "layer 2, head 2"
            page.press("Enter")
            assert page.value("[...document.querySelectorAll('select')].map((each) => each.value)") == [
                "lines",
                "2",
                "2",
                "all",
            ]
            lines = "[...document.querySelectorAll('line')].map((line) => line.getAttribute('stroke-opacity'))"
            assert len(page.value(lines)) == (shown.maps["encoder"].values[1, 1] >= 0.005).sum()
            page.press("Tab", "Tab", "Tab", "Tab", "ArrowDown")  # layer, head, words, the first word, the second
            weights = shown.maps["encoder"].values[1, 1, 1]
            assert [float(each) for each in page.value(lines)] == pytest.approx(
                np.sort(weights[weights >= 0.005]), abs=0.004
            )
            best = WORDS[weights.argmax()]
            assert page.value("document.querySelector('.said').textContent").startswith(f"“the” attends to: {best} ")
            page.press("Enter", "ArrowRight")  # it stays chosen when another word is looked at
            assert page.value("document.querySelectorAll('[aria-pressed=true]').length") == 1
            assert "“the” is attended to by: " in page.value("document.querySelector('.said').textContent")
            page.value("document.getElementById('choose-view').focus()")
            page.press(
                "ArrowDown", "Tab", "Tab", "Tab", "Tab", "ArrowDown", "ArrowRight"
            )  # matrix, second row and column
            said = page.value("document.querySelector('.said').textContent")
            assert re.match(r"“the” \(2\) → “the” \(2\): [\d.e-]+$", said)
            assert float(said.split()[-1]) == pytest.approx(
                shown.maps["encoder"].values[1, 1, 1, 1], rel=0.2, abs=0.006
            )
            page.value("document.getElementById('choose-head').focus()")
            page.press("End")
            assert page.value("document.getElementById('choose-head').value") == "rollout"
            assert page.requests == [file.as_uri()]
            assert page.problems == []
            page.picture(tmp_path / "page.png")
        corner = pixels(tmp_path / "page.png")[0, 0, :3]
        assert (corner.mean() < 60) == dark

    def test_heads_by_keyboard(self, tmp_path: Path) -> None:
        shown = statistics()
        file = shown.save(tmp_path / "page.html")
        with browser(tmp_path / "profile") as page:
            page.open(file)
            page.press(*["Tab"] * 3, "Enter")  # layer, head, next token
            column = "[...document.querySelectorAll('.all tbody tr')].map((row) => Number(row.children[2].textContent))"
            expected = np.sort(shown.values["next"].ravel())[::-1]
            assert page.value(column) == pytest.approx(expected, abs=6e-4)
            page.press("Enter")
            assert page.value(column) == pytest.approx(expected[::-1], abs=6e-4)
            assert page.value("document.querySelectorAll('.grids table').length") == len(shown.values)
            assert (page.requests, page.problems) == ([file.as_uri()], [])

    def test_a_request_would_be_seen_and_stopped(self, tmp_path: Path) -> None:
        """The control: a page that asks for something."""
        file = tmp_path / "page.html"
        policy = made().page().partition("<style>")[0]
        file.write_text(policy + "<script>fetch('http://127.0.0.1:9/x')</script>")
        with browser(tmp_path / "profile") as page:
            page.open(file)
            assert any("Content Security Policy" in problem for problem in page.problems)
            file.write_text("<img src='http://127.0.0.1:9/x.png'>")
            page.open(file)
            page.value("0")
            assert "http://127.0.0.1:9/x.png" in page.requests


def pixels(path: Path) -> Any:
    from matplotlib.image import imread

    return imread(io.BytesIO(path.read_bytes())) * 255
