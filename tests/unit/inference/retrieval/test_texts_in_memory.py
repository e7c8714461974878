"""Indices, clusters, topics and duplicates of texts in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from bertkit import SearchIndex, find_clusters, find_duplicates, find_topics
from bertkit.config.file_columns import Columns
from bertkit.errors import ConfigError, DataError, InputError, TextError
from bertkit.inference.retrieval.index_writer import IndexWriter, index_rows
from bertkit.inference.retrieval.source_texts import texts_with_ids
from bertkit.inference.retrieval.text_vectors import TextEncoder
from bertkit.metrics.clusters import v_measure
from pipeline_helpers import save_tiny

pytestmark = pytest.mark.slow

TEXTS = ["the film is good", "a great film", "a dull scene", "the end of it", "not very bad"]
FRAME = pd.DataFrame({"id": [11, 12, 13, 14, 15], "text": TEXTS, "stars": [5, 5, 1, 3, 3]})
SUBJECTS = {
    "refund": ["How do I get a refund?", "Where is my refund?", "I want my refund now"],
    "card": ["My card was stolen", "I lost my card", "Block my card, it was stolen"],
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "m")


@pytest.mark.parametrize(
    "texts",
    [
        FRAME,
        pa.Table.from_pandas(FRAME),
        FRAME.to_dict("list"),
        FRAME.to_dict("records"),
        dict(zip("abcde", TEXTS, strict=True)),
    ],
    ids=["frame", "arrow", "columns", "rows", "by id"],
)
def test_every_form_of_texts_makes_the_index_that_a_file_of_them_makes(texts: Any, model: Path, tmp_path: Path) -> None:
    found = SearchIndex.build(tmp_path / "memory", texts, model=model, device="cpu")
    FRAME.to_csv(tmp_path / "rows.csv", index=False)
    with IndexWriter(tmp_path / "file", TextEncoder(model, by_products=True, device="cpu")) as writer:
        writer.build(index_rows(texts_with_ids(tmp_path / "rows.csv", Columns(("text",)), None)), str(model))
    (ours,), (theirs,) = (index.search("a good film", 5) for index in (found, SearchIndex(tmp_path / "file")))
    assert [hit.text for hit in ours] == [hit.text for hit in theirs]
    np.testing.assert_allclose([hit.score for hit in ours], [hit.score for hit in theirs], atol=1e-6)
    ids = dict(zip(TEXTS, texts if isinstance(texts, dict) and "a" in texts else map(str, FRAME["id"]), strict=True))
    assert [hit.id for hit in ours] == [ids[hit.text] for hit in ours]


def test_a_list_is_numbered_and_can_be_changed(model: Path, tmp_path: Path) -> None:
    index = SearchIndex.build(tmp_path / "index", (text for text in TEXTS), model, device="cpu")
    assert {hit.id for hit in index.search("film", 9)[0]} == {"0", "1", "2", "3", "4"}
    assert index.add(iter(["a new scene", "the start"])).added == 2
    assert index.search("the start", 1)[0][0][:2] == ("6", "the start")
    assert index.add({"6": "the start"}).unchanged == 1
    with pytest.raises(DataError, match="another text with the id '6'"):
        index.add({"6": "the end"})
    index.delete([0, "6"])
    index.delete("5")
    assert len(index) == len(SearchIndex(tmp_path / "index")) == 4
    changes = index.update(["x", "a great film"])
    assert (changes.added, changes.unchanged, changes.removed, changes.total) == (1, 1, 3, 2)
    assert index.search("x", 1, hybrid=True)[0][0].text == "x"
    with pytest.raises(ConfigError, match="finished index"):
        SearchIndex.build(tmp_path / "index", TEXTS, model)


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        (["a", " "], TextError, r"row 1 \(counted from 0\) has no text, but ' '"),
        (pd.Series(["a", None]), TextError, r"row 1 .* nan|row 1 .* None"),
        ("a text", InputError, "got one text"),
        (pd.DataFrame({"id": [1, None], "text": ["a", "b"]}), InputError, r"row 1 .* has no id"),
        (pd.DataFrame({"a": ["x"], "b": ["y"]}), InputError, "Name it with text=; the columns are 'a', 'b'"),
        ([{"id": "1", "text": "a"}, {"id": "1", "text": "b"}], DataError, "row 1 .* occurs twice"),
        ([], DataError, "no text to index"),
    ],
)
def test_the_row_that_is_wrong_is_named_and_nothing_is_built(
    texts: Any, error: type[Exception], message: str, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        SearchIndex.build(tmp_path / "index", texts, model, device="cpu")
    assert not (tmp_path / "index" / "index.json").exists()
    with pytest.raises(InputError, match="no column 'body'"):
        SearchIndex.build(tmp_path / "index", FRAME, model, text="body")


def test_texts_are_grouped_by_what_they_are_about() -> None:
    texts = [text for group in SUBJECTS.values() for text in group]
    gold = [0, 0, 0, 1, 1, 1]
    assert v_measure(find_clusters(pd.Series(texts, index=range(10, 16)), k=2).assigned, gold) == pytest.approx(1.0)
    topics = find_topics(np.array(texts), words=2, k=2)
    assert v_measure(topics.assigned, gold) == pytest.approx(1.0)
    words = {word for topic in topics.clusters for word in topic.words or ()}
    assert set(SUBJECTS) <= words
    with pytest.raises(TextError, match=r"text 1 \(counted from 0\) is nan"):
        find_clusters(["a", float("nan")])


def test_duplicates_are_found_by_their_numbers() -> None:
    texts = ["How do I get a refund?", "My card was stolen", "how do I get a  REFUND?", "How can I get a refund?"]
    found = find_duplicates(texts, threshold=0.8)
    assert [group.rows for group in found.groups] == [[0, 2, 3]]
    assert found.groups[0].cosines[:2] == [1.0, 1.0]
    assert 0.8 <= found.groups[0].cosines[2] < 1
    assert find_duplicates(pa.chunked_array([texts[:2], texts[2:]])).groups[0].rows[:2] == [0, 2]
    with pytest.raises(InputError, match="needs 20 different texts"):
        find_duplicates(texts, threshold="auto")
    with pytest.raises(TextError, match=r"text 1 .* more than 5 tokens"):
        find_duplicates(["short", "a text of many more tokens than five"], max_length=5)
    assert find_duplicates(["short", "a text of many more tokens than five"], max_length=5, truncate=True).groups == []


def test_numbers_go_on_behind_those_of_another_process(model: Path, tmp_path: Path) -> None:
    one = SearchIndex.build(tmp_path / "index", TEXTS, model, device="cpu")
    other = SearchIndex(tmp_path / "index", device="cpu")
    assert one.add(["a new scene"]).added == other.add(["the start"]).added == 1
    assert {hit.id: hit.text for hit in other.search("the start", 9)[0]}["6"] == "the start"


@pytest.mark.parametrize("missing", [pd.NA, pd.NaT, None, float("nan"), " "])
def test_a_row_without_an_id_is_refused(missing: Any, model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"row 1 .* has no id"):
        SearchIndex.build(tmp_path / "index", {"id": [1, missing], "text": TEXTS[:2]}, model, device="cpu")
