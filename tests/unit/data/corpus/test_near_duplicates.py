"""Which documents are dropped as duplicates."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from bertkit.data.corpus.documents import Document, read_documents
from bertkit.data.corpus.near_duplicates import DedupReport, drop_duplicates, shingle_hashes, signature
from bertkit.errors import InputError

WORDS = [f"w{number}" for number in range(5000)]


def text_of(generator: random.Random, length: int = 400) -> list[str]:
    return [generator.choice(WORDS) for _ in range(length)]


def jaccard(first: list[str], second: list[str]) -> float:
    sets = [{tuple(words[i : i + 5]) for i in range(len(words) - 4)} for words in (first, second)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def kept(texts: list[str], **options: object) -> tuple[list[str], DedupReport]:
    report = DedupReport()
    documents = (Document((text,), str(number)) for number, text in enumerate(texts))
    return [document.source for document in drop_duplicates(documents, report=report, **options)], report  # type: ignore[arg-type]


def test_exact_duplicates() -> None:
    documents = [Document(("A b.", "C d."), "1"), Document(("a B. c  d.",), "2"), Document(("a b. c e.",), "3")]
    report = DedupReport()
    assert [document.source for document in drop_duplicates(documents, report=report)] == ["1", "3"]
    assert (report.kept, report.exact, report.near, report.examples) == (2, 1, 0, [("2", "1")])
    assert report.summary() == "2 of 3 documents kept; dropped 1 exact and 0 near duplicates (11 bytes)"


def test_signatures_estimate_jaccard_similarity() -> None:
    """Against the sets themselves: unbiased, and as far off as 64 draws are."""
    generator = random.Random(0)
    errors, expected = [], []
    for _ in range(200):
        first = text_of(generator)
        second = list(first)
        for place in generator.sample(range(len(first)), generator.randrange(1, 30)):
            second[place] = generator.choice(WORDS)
        true = jaccard(first, second)
        one, two = (signature(shingle_hashes(" ".join(words))) for words in (first, second))
        errors.append(np.mean(one == two) - true)
        expected.append(true * (1 - true) / 64)
    deviation = np.sqrt(np.mean(expected))
    assert abs(np.mean(errors)) < 4 * deviation / np.sqrt(200)
    assert 0.8 < np.std(errors) / deviation < 1.2


def test_signatures_of_long_documents_are_those_of_a_set() -> None:
    """In whatever order and however often shingles come, and over block borders."""
    shingles = np.random.default_rng(0).integers(2**64, size=10_000, dtype=np.uint64)
    whole = signature(shingles)
    parts = [signature(part) for part in np.array_split(shingles, 7)]
    np.testing.assert_array_equal(whole, np.minimum.reduce(parts))
    np.testing.assert_array_equal(whole, signature(np.concatenate([shingles[::-1], shingles])))


def test_near_duplicates() -> None:
    generator = random.Random(1)
    texts = [text_of(generator) for _ in range(100)]
    near, far = [], []
    for words in texts:
        near.append([*words[:150], "changed", *words[151:]])  # Jaccard about 0.975
        far.append([*words[:200], *text_of(generator, 200)])  # about 0.33
    documents = [" ".join(words) for words in [*texts, *near, *far]]
    sources, report = kept(documents)
    assert sources == [str(number) for number in [*range(100), *range(200, 300)]]
    assert (report.exact, report.near) == (0, 100)
    # Control: without near, all stay.
    assert kept(documents, near=False)[1].kept == 300
    assert kept(documents) == (sources, report), "the same again"


def test_short_documents_are_compared_exactly_only() -> None:
    assert kept(["a b c d e f g h", "a b c d e f g i", "", "a"])[1].kept == 4


def test_scripts_without_spaces() -> None:
    generator = random.Random(2)
    text = "".join(chr(generator.randrange(0x4E00, 0x9000)) for _ in range(300))
    assert kept([text, text[:100] + "中" + text[101:], text[::-1]])[0] == ["0", "2"]


def test_threshold() -> None:
    with pytest.raises(InputError, match=r"0\.5 to 1, got 0\.2"):
        drop_duplicates([], threshold=0.2)


def test_real_text(shared: Path) -> None:
    """Real articles: planted copies go, and what else goes really resembles what stays."""
    documents = list(read_documents(shared / "data/pretrain_text/wikinews_en.valid.txt.xz", sentences="line"))
    copies = [Document((*document.sentences, "One more line."), f"copy:{document.source}") for document in documents]
    report = DedupReport()
    sources = [document.source for document in drop_duplicates([*documents, *copies], report=report)]
    assert report.kept == len(sources)
    assert sum(source.startswith("copy:") for source in sources) <= 0.05 * len(copies)
    by_source = {document.source: " ".join(document.sentences).lower().split() for document in [*documents, *copies]}
    assert all(jaccard(by_source[dropped], by_source[twin]) > 0.6 for dropped, twin in report.examples)
