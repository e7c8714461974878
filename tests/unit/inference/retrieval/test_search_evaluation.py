"""Scores of an index on questions, beside numbers that follow by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bertkit.errors import DataError
from bertkit.inference.retrieval.index_files import read_manifest
from bertkit.inference.retrieval.index_writer import IndexWriter, Located, Row
from bertkit.inference.retrieval.search_evaluation import (
    Found,
    Question,
    SearchReport,
    evaluate_search,
    name_of,
    set_share,
)
from bertkit.inference.retrieval.search_index import SearchIndex
from bertkit.inference.retrieval.text_vectors import TextEncoder
from bertkit.metrics.fusion import SHARE
from pipeline_helpers import save_tiny

#: Texts of two documents and of a third with the same name in another folder.
TEXTS = {
    "1": ("a good film", "docs/a.md"),
    "2": ("the end was dull", "docs/a.md"),
    "3": ("great zebra", "docs/b.md"),
    "4": ("a bad scene", "old/b.md"),
}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> SearchIndex:
    folder = tmp_path_factory.mktemp("evaluated")
    encoder = TextEncoder(save_tiny(folder / "m"), device="cpu", by_products=True)
    with IndexWriter(folder / "index", encoder) as writer:
        rows = (Located(Row(name, text, source), name) for name, (text, source) in TEXTS.items())
        writer.build(rows, str(folder / "m"))
    return SearchIndex(folder / "index", device="cpu")


def means(report: SearchReport, share: float) -> dict[str, float]:
    (found,) = (each for each in report.searches if each.share == share)
    return {name: float(values.mean()) for name, values in found.values.items()}


def test_scores_follow_by_hand(index: SearchIndex) -> None:
    """By words: the first is found first, the second not at all; "a good" finds text 1, then text 4."""
    asked = [
        Question("zebra", ("3",), "1"),
        Question("scene", ("1",), "2"),
        Question("a good", ("4",), "3"),
        Question("a good", ("2",), "4"),  # the same question: two belong to it, one of which is found second
    ]
    report = evaluate_search(index, asked, k=2)
    assert (report.unit, report.main, report.num_texts) == ("id", "ndcg@2", 4)
    discount = 1 / np.log2(3)
    assert means(report, 0.0) == pytest.approx(
        {"hit@1": 1 / 3, "hit@2": 2 / 3, "ndcg@2": (1 + discount / (1 + discount)) / 3, "mrr@2": 1.5 / 3}
    )
    by_vectors = [[hit.id for hit in hits] for hits in index.search(["zebra", "scene", "a good"], 2, by="vectors")]
    wanted = [{"3"}, {"1"}, {"4", "2"}]
    hits = np.mean([bool({*found} & own) for found, own in zip(by_vectors, wanted, strict=True)])
    assert means(report, 1.0)["hit@2"] == pytest.approx(hits)
    assert report.to_dict()["questions"] == 3


@pytest.mark.parametrize(
    ("relevant", "unit"), [("docs/a.md", "document"), ("a.md", "document"), ("  The END was  dull", "text")]
)
def test_documents_and_passages(relevant: str, unit: str, index: SearchIndex) -> None:
    report = evaluate_search(index, [Question("dull end", (relevant,), "q.csv:2")])
    assert report.unit == unit
    assert means(report, 0.0)["mrr@10"] == 1.0


def test_a_document_counts_once(index: SearchIndex) -> None:
    """Both texts of a.md come before b.md, which is the second document all the same."""
    report = evaluate_search(index, [Question("a good film end dull zebra", ("docs/b.md",), "q.csv:2")])
    orders = [hit.source for hit in index.search("a good film end dull zebra", 4, by="words")[0]]
    rank = list(dict.fromkeys(orders)).index("docs/b.md") + 1
    assert means(report, 0.0)["mrr@10"] == pytest.approx(1 / rank)


def test_what_belongs_to_nothing_is_named(index: SearchIndex) -> None:
    good = Question("a good", ("a.md", "gone.md"), "q.csv:2")
    bad, other = Question("b", ("c.md",), "q.csv:3"), Question("c", ("c.md",), "q.csv:4")
    with pytest.raises(DataError, match=r"q\.csv:2: no document of the index is 'gone\.md'; of 3 questions, 2 name"):
        evaluate_search(index, [good, bad, other])
    for some in ([good, bad], [bad, good]):  # as after a document was deleted
        report = evaluate_search(index, some)
        assert report.to_dict()["questions"] == 1
        assert (
            "2 of 2 questions with names that the index lacks, 1 of them with no others and left out" in report.render()
        )
        alone = evaluate_search(index, [Question("a good", ("a.md",), "q.csv:2")])
        assert means(report, 0.0) == means(alone, 0.0)
        assert "lacks" not in alone.render()
    with pytest.raises(DataError, match=r"q\.csv:2: .*'b\.md'.* is no id, no document and no passage"):
        evaluate_search(index, [Question("b", ("b.md",), "q.csv:2")])  # two documents have that name
    with pytest.raises(DataError, match="there are no questions"):
        evaluate_search(index, [])


def test_the_best_is_set_and_kept(index: SearchIndex) -> None:
    """Queries go by words, until something else is set."""
    asked = [Question("zebra", ("3",), "1")]
    report = evaluate_search(index, asked, k=1)
    assert means(report, 0.0)["hit@1"] == 1.0
    set_share(index, 0.0)
    again = SearchIndex(index.path, device="cpu")
    assert again.share_of(None) == 0.0
    assert [hit.id for hit in again.search("zebra")[0]] == ["3"]
    assert again.share_of("both") == SHARE
    assert evaluate_search(again, asked, k=1).best.name == "words"  # of equal ones the present one
    set_share(again, 0.5)
    assert SearchIndex(index.path).share_of("both") == 0.5
    assert evaluate_search(SearchIndex(index.path, device="cpu"), asked, k=1).current == 0.5
    set_share(again, 1.0)
    assert read_manifest(index.path).vectors_share == 1.0


def test_names() -> None:
    assert [name_of(share) for share in (1.0, 0.0, 0.75)] == ["vectors", "words", "both, 0.75 vectors"]


def test_a_mixture_that_is_worse_is_said(index: SearchIndex) -> None:
    report = evaluate_search(index, [Question(text, ("3",), "1") for text in ("zebra", "a zebra", "great zebra")], k=1)
    good = {name: np.ones(40) for name in ("hit@1", "ndcg@1")}
    half = {name: np.tile([0.0, 1.0], 20) for name in ("hit@1", "ndcg@1")}
    worse = [each.__class__(each.share, good if each.share in (0.0, 1.0) else half) for each in report.searches]
    told = SearchReport(tuple(worse), "id", "ndcg@1", 4, 1.0).render()
    assert "minus its better half, ndcg@1: -0.5000" in told
    assert "so the usual mixture is worse here than one half alone" in told
    assert "so the usual mixture" not in report.render()


def test_a_change_is_proposed_only_where_chance_does_not_explain_the_gain() -> None:
    before = np.zeros(40)
    always, once = np.ones(40), np.eye(1, 40)[0]

    def report(values: np.ndarray) -> SearchReport:
        searches = (Found(0.5, {"ndcg@10": before}), Found(0.0, {"ndcg@10": values}))
        return SearchReport(searches, "id", "ndcg@10", 40, 0.5)

    assert report(always).gains
    assert report(once).best.share == 0.0
    assert not report(once).gains
