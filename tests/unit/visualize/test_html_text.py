"""Answers as HTML: what is shown is the text, and nothing of it is taken for HTML."""

from __future__ import annotations

import html
import pickle
import re

from bertkit.inference.pipeline_results import Entities, FoundAnswer, Ranked
from bertkit.inference.retrieval.hits import Hit, Hits
from bertkit.visualize.figures import BLACK, COLORS
from bertkit.visualize.html_text import AROUND, MOST_TEXTS, Mark, MarkedTexts, colors_of, marked_text


def text_of(page: str) -> str:
    """What a reader sees of marked text, without the names of the marks."""
    return html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"<small>.*?</small>", "", page)))


def test_marks_keep_the_text_and_its_tags_are_escaped() -> None:
    text = "<b>Ann</b> & Bob <script>alert(1)</script>"
    page = marked_text(text, [Mark(14, 17, "P&R", 0.5), Mark(3, 6, "PER", 0.987)])
    assert text_of(page) == text
    assert "<script>" not in page
    assert "<b>" not in page
    assert re.findall(r"<small> (.*?)</small>", page) == ["PER 0.99", "P&amp;R 0.50"]


def test_of_overlapping_marks_the_first_and_longest_is_shown() -> None:
    page = marked_text("abcdef", [Mark(1, 3, "x"), Mark(0, 4, "y"), Mark(4, 6, "z"), Mark(2, 2, "empty")])
    assert re.findall(r"<small> (.*?)</small>", page) == ["y", "z"]
    assert text_of(page) == "abcdef"


def test_of_long_texts_the_surroundings_are_shown() -> None:
    text = "a" * 5000 + "NAME" + "b" * 5000
    shown = text_of(marked_text(text, [Mark(5000, 5004, "x")]))
    assert shown == " […] " + "a" * AROUND + "NAME" + "b" * AROUND + " […] "


def test_answers_are_still_lists_and_dictionaries() -> None:
    entity = {"entity_group": "PER", "score": 0.9, "start": 0, "end": 3, "word": "Ann"}
    entities = Entities([entity], "Ann Lee")
    assert entities == [entity]
    assert pickle.loads(pickle.dumps(entities)).text == "Ann Lee"
    assert "PER 0.90" in entities._repr_html_()
    answer = FoundAnswer({"score": 0.5, "start": 4, "end": 7, "answer": "Lee"}, "Ann Lee")
    assert dict(answer) == answer
    assert pickle.loads(pickle.dumps(answer)).context == "Ann Lee"
    assert text_of(answer._repr_html_()) == "Ann Lee"
    nothing = FoundAnswer({"score": 0.5, "start": 0, "end": 0, "answer": ""}, "Ann Lee")
    assert "no answer" in nothing._repr_html_()
    assert "width:25.0%" in Ranked([{"label": "a", "score": 0.25}])._repr_html_()
    assert "<td>0.5000</td>" in Hits([Hit("1", "a <b>", "f", 0.5)])._repr_html_()
    assert "&lt;b&gt;" in Hits([Hit("1", "a <b>", "f", 0.5)])._repr_html_()


def test_no_mark_is_black_which_a_dark_page_hides() -> None:
    names = [f"L{number}" for number in range(20)]
    colors = colors_of(names)
    assert list(colors) == sorted(names)
    assert len(set(colors.values())) == len(COLORS) - 1
    assert BLACK in COLORS
    assert BLACK not in colors.values()


def test_a_page_is_bounded_and_a_name_has_one_color() -> None:
    page = MarkedTexts("Entities")
    for number in range(MOST_TEXTS + 1):
        page.add("Ann in Rome", [Mark(0, 3, "PER")] if number % 2 else [Mark(7, 11, "LOC")])
    assert f"The first {MOST_TEXTS:,} of {MOST_TEXTS + 1:,} texts." in page.page()
    colors = set(re.findall(r"border-bottom:2px solid (#\w+).*?<small> (\w+)", page.page()))
    assert len(colors) == 2
