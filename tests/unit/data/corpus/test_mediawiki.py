"""Passages of MediaWiki dumps: what is kept, what is dropped, and what is refused."""

from __future__ import annotations

import bz2
import time
import tracemalloc
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from bertkit.data.corpus.documents import CorpusReport, read_documents
from bertkit.data.corpus.mediawiki import passages
from bertkit.errors import DataError

HEAD = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="de">
  <siteinfo><sitename>Wikipedia</sitename><namespaces>
      <namespace key="0" case="first-letter" /><namespace key="6" case="first-letter">Datei</namespace>
      <namespace key="14" case="first-letter">Kategorie</namespace></namespaces></siteinfo>
"""


def page(text: str, *, ns: int = 0, redirect: bool = False) -> str:
    target = '<redirect title="Else" />' if redirect else ""
    return (
        f"  <page>\n    <title>T</title><ns>{ns}</ns><id>1</id>{target}\n    <revision><id>2</id>"
        f'<comment>text</comment><text bytes="1" xml:space="preserve">{escape(text)}</text></revision>\n  </page>\n'
    )


def dump(*pages: str) -> str:
    return HEAD + "".join(pages) + "</mediawiki>\n"


ARTICLE = """{{Infobox settlement
| name = Anarchism {{nested|[[link]]}}
}}
{{Short description|Ideology}}
'''Anarchism''' is a [[xyz|philosophy]] that is ''sceptical'' of [[king]]s ({{lang|el|x}}).<ref name="a">{{cite
|title=Book}}</ref> It calls for the abolition of the [[State|state]]&nbsp;&mdash; see [http://x.org this page]<ref/>.

[[File:Portrait.jpg|thumb|A [[caption]] of two
lines]]
== History ==
<!-- a comment -->The second passage has H<sub>2</sub>O, 5 &lt; 6 and {{convert|5|km}} , ends.
* a list item with ''words''
# a numbered one
:indented talk
; term : definition
{| class="wikitable"
|-
! Head
| cell ''one'' || cell two
|}
<gallery>
File:A.jpg|caption
</gallery>
<math>E=mc^2</math>
----
=== A [[link]] in a header ===
Third passage[http://no.title].__NOTOC__
<blockquote>Quoted words.</blockquote>

==References==
{{reflist}}
[[Category:Anarchism| ]]
[[de:Anarchismus]]
"""


def test_passages_only() -> None:
    assert passages(ARTICLE) == [
        "Anarchism is a philosophy that is sceptical of kings. It calls for the abolition of the state — see this "
        "page.",
        "The second passage has H2O, 5 < 6 and, ends.",
        "Third passage.",
        "Quoted words.",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("#REDIRECT [[Else]]", []),
        ("plain", ["plain"]),
        ("a [[:Category:Foo]] b", ["a Category:Foo b"]),
        ("a [[Star Wars: A New Hope]] b", ["a Star Wars: A New Hope b"]),
        ("before {{never closed\n\nafter", ["after"]),
        ("[[never closed\nafter", ["after"]),
        ("{| never closed\n| cell\n\nafter", ["after"]),
        ("'''''unbalanced'' quotes", ["unbalanced quotes"]),
        ("<nowiki>'' kept [[so]]</nowiki>", []),
        ("a<br>b<br />c", ["a b c"]),
        ("x <code>y = 1</code> z", ["x z"]),
        ("中文[[维基百科]]。", ["中文维基百科。"]),
    ],
)
def test_mark_up(text: str, expected: list[str]) -> None:
    assert passages(text) == expected


def test_a_dump(tmp_path: Path) -> None:
    text = dump(
        page("First article. [[Datei:Bild.jpg|mini|Bild]] Two sentences.\n\nNext passage."),
        page("#REDIRECT [[Else]]", redirect=True),
        page("Talk talk talk.", ns=1),
        page("* only\n* a list"),
        page("Last <b>article</b>.[[Kategorie:X]]"),
    )
    for name, data in (
        ("a.xml", text.encode()),
        ("a.xml.bz2", bz2.compress(text[:900].encode()) + bz2.compress(text[900:].encode())),
    ):
        (tmp_path / name).write_bytes(data)
        report = CorpusReport()
        found = list(read_documents(tmp_path / name, report=report))
        assert [document.sentences for document in found] == [
            ("First article.", "Two sentences.", "Next passage."),
            ("Last article.",),
        ]
        assert report.empty_rows == 1
        for document in found:
            line = int(document.source.rpartition(":")[2])
            assert text.split("\n")[line - 1] == "  <page>"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (HEAD + page("Kept."), r"a\.xml:\d+: no element found"),
        (HEAD + page("Kept.") + "<page><title>&undefined;</title>", r"a\.xml:9: undefined entity"),
        (HEAD + page("Kept.") + "<page></title>", r"a\.xml:9: mismatched tag"),
        ("<rss><page/></rss>", r"a\.xml:1: expected a MediaWiki dump .* got <rss>"),
        ('<!DOCTYPE m [<!ENTITY a "aa"><!ENTITY b "&a;&a;">]><mediawiki/>', r"a\.xml:1: .*DOCTYPE"),
        ('<!DOCTYPE m SYSTEM "file:///etc/passwd"><mediawiki/>', r"a\.xml:1: .*DOCTYPE"),
        ("not XML", r"a\.xml:1: syntax error"),
    ],
)
def test_bad_xml(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(content)
    (tmp_path / "good.txt").write_text("Good.")
    with pytest.raises(DataError, match=message):
        list(read_documents(tmp_path / "a.xml"))
    report = CorpusReport()
    found = read_documents([tmp_path / "a.xml", tmp_path / "good.txt"], on_error="skip", report=report)
    kept = [("Kept.",)] if "Kept" in content else []
    assert [document.sentences for document in found] == [*kept, ("Good.",)]
    assert dict(report.skipped) == {"bad XML": 1}


@pytest.mark.campaign
@pytest.mark.slow
def test_memory_does_not_grow_with_the_dump(tmp_path: Path) -> None:
    peaks = []
    for pages in (60, 240):
        with bz2.open(tmp_path / "a.xml.bz2", "wt") as file:
            file.write(HEAD)
            for _ in range(pages):
                file.write(page("Some words of a talk page. " * 1500, ns=1))
            file.write(page("An article.") + "</mediawiki>")
        tracemalloc.start()
        assert sum(1 for _ in read_documents(tmp_path / "a.xml.bz2", sentences="line")) == 1
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


def test_a_page_that_is_too_long(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(dump(page("x" * (2**24 + 1)), page("Kept.")))
    with pytest.raises(DataError, match=r"a\.xml:5: the page is longer than 16 MiB"):
        list(read_documents(tmp_path / "a.xml"))
    assert [document.sentences for document in read_documents(tmp_path / "a.xml", on_error="skip")] == [("Kept.",)]


@pytest.mark.parametrize(
    "opening", ["\n{|", "<ref>", "<ref name=", "[[a|{{b|", "<b>{{a|</b>}}", "<!--", "<math>", "<math>\n" + "<ref>" * 9]
)
def test_a_page_of_openings_that_are_never_closed(opening: str, tmp_path: Path) -> None:
    text = opening * (200_000 // len(opening))
    (tmp_path / "a.xml").write_text(dump(page(text), page("Kept.")))
    began = time.monotonic()
    with pytest.raises(DataError, match=r"a\.xml:5: the page's mark-up cannot be read \(too many templates, links, ta"):
        list(read_documents(tmp_path / "a.xml"))
    report = CorpusReport()
    documents = read_documents(tmp_path / "a.xml", on_error="skip", report=report)
    assert [document.sentences for document in documents] == [("Kept.",)]
    assert report.skipped == {"bad mark-up": 1}
    assert time.monotonic() - began < 10, "each of them makes the parser read to the end"


@pytest.mark.slow
def test_a_large_page_with_a_few_unclosed_openings_is_read() -> None:
    well_formed = "{{a|[[b]]}}Text.<ref name=a>x</ref><br><ref/>\n{|\n|a\n|}\n<math>{{</math><!-- {{ -->\n"
    unclosed = "It has [[a link and <small>a tag.\n"
    assert passages(unclosed + well_formed * 800).count("Text.") == 800
