"""Passages of documents: bounded, in order, and without a gap."""

from __future__ import annotations

import numpy as np
import pytest

from bertkit.errors import ConfigError
from bertkit.inference.retrieval.passages import Cutter
from bertkit.inference.retrieval.text_vectors import TextEncoder
from bertkit.tasks.reading.documents.document import Document, joined
from bertkit.tasks.reading.documents.plain_text import read_markdown
from pipeline_helpers import WORDS, save_tiny


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> TextEncoder:
    return TextEncoder(save_tiny(tmp_path_factory.mktemp("model") / "m"), device="cpu", by_products=True)


def some_document(seed: int) -> Document:
    """Headings of several levels, and paragraphs of sentences, some of them long."""
    chance = np.random.default_rng(seed)
    parts = []
    for _ in range(int(chance.integers(1, 20))):
        level = int(chance.choice([0, 0, 0, 1, 2, 3]))
        words = chance.choice([word for word in WORDS if word.isalpha()], int(chance.integers(1, 4 if level else 90)))
        parts.append((" ".join(word + chance.choice(["", "", "", "."]) for word in words), level))
    return joined(parts)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("tokens", "overlap"), [(40, 0), (40, 12), (64, None)])
def test_every_word_is_in_a_passage_and_none_is_too_long(
    seed: int, tokens: int, overlap: int | None, encoder: TextEncoder
) -> None:
    document = some_document(seed)
    cutter = Cutter(encoder, tokens, overlap)
    passages = list(cutter.passages(document))
    covered = np.zeros(len(document.text), np.int64)
    for passage in passages:
        text = document.text[passage.start : passage.end]
        assert text == text.strip()
        whole = f"{passage.heading}\n{text}" if passage.heading else text
        assert len(encoder.pipe.tokenizer(whole)["input_ids"]) <= tokens
        covered[passage.start : passage.end] += 1
    for block in document.blocks:
        for place in range(block.start, block.end):
            if not block.level and not document.text[place].isspace():
                assert covered[place]
            assert covered[place] <= (1 if overlap == 0 else 3)
        title = document.text[block.start : block.end]
        if block.level:
            assert any(title in (passage.heading.split(" > ")) for passage in passages) or covered[block.start]
    assert [passage.start for passage in passages] == sorted(passage.start for passage in passages)


def test_headings_end_a_passage_and_name_the_next(encoder: TextEncoder) -> None:
    text = "good\n\n# film\n\n## scene\n\nbad\n\n## end\n\nof it\n\nstart\n\n# dull\n\n# great\n"
    found = [(text[each.start : each.end], each.heading) for each in Cutter(encoder, 64).passages(read_markdown(text))]
    assert found == [
        ("good", ""),
        ("bad", "film > scene"),
        ("of it\n\nstart", "film > end"),
        ("dull", ""),
        ("great", ""),
    ]


def test_cut_where_a_paragraph_or_sentence_ends(encoder: TextEncoder) -> None:
    paragraph = " ".join(["the film is good"] * 8)
    document = joined([(paragraph, 0), (f"{paragraph}. it is dull", 0)])
    cutter = Cutter(encoder, 50, 0)
    texts = [document.text[each.start : each.end] for each in cutter.passages(document)]
    assert texts == [paragraph, f"{paragraph}. it is dull"]
    document = joined([(f"{paragraph}. {paragraph}.", 0)])
    texts = [document.text[each.start : each.end] for each in cutter.passages(document)]
    assert texts == [f"{paragraph}.", f"{paragraph}."]


def test_sizes_that_cannot_be(encoder: TextEncoder) -> None:
    with pytest.raises(ConfigError, match="from 12 to 64 tokens, got 65"):
        Cutter(encoder, 65)
    with pytest.raises(ConfigError, match="overlap by 0 to 19, got 20"):
        Cutter(encoder, 40, 20)


def test_pages_are_counted_from_one(encoder: TextEncoder) -> None:
    document = read_markdown("good\n\n# end\n\nbad")._replace(pages=(0, 4, 6))
    assert [each.page for each in Cutter(encoder).passages(document)] == [1, 3]
