"""Whatever the text: an entity is ``text[start:end]``, each piece is read once, and words find their pieces."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertkit import BertConfig, BertForTokenClassification, BertTokenizer, pipeline
from bertkit.inference.token_classification import TokenClassificationPipeline
from bertkit.tasks.pieces import find_pieces
from bertkit.tasks.tokens.features import windows_of_texts, windows_of_words
from bertkit.windows import cut_windows
from pipeline_helpers import VOCABULARY
from tokenizer_families import small

LABELS = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}
#: Letters that join, mark, turn, vanish or need no blanks around them; line ends of every kind.
PARTS = [
    *"the film bad an 7 42 Zoë naïve ß İstanbul e\u0301 a\u0308\u0323 n\u0303o".split(" "),
    "東京", "日本語", "ภาษาไทย", "กำ", "हिन्दी", "नि", "العَرَبِيَّة", "한국어", "한", "ﬁn",
    "👩‍👩‍👧", "👍🏽", "🇫🇷", "❤️", "😀😀", "don't", "U.S.", "e-mail", "#tag", "@user", "http://a.b/c?d=e", "[MASK]",
    "[SEP]", "\u200b", "\u200d", "\ufeff", "\ufffd", "\x00", "\x07", "\u0301", "x" * 120, "supercalifragilistic",
]  # fmt: skip
BLANKS = [" ", " ", " ", "", "", "\r\n", "\n", "\t", "\u00a0", "\u3000", "  "]
STRATEGIES = ["none", "simple", "first", "average", "max"]


def make_tagger(folder: Path, *, lower: bool) -> Path:
    chars = sorted({char for part in PARTS for char in part} - set(VOCABULARY))
    words = [*VOCABULARY, *chars, *(f"##{char}" for char in chars), "東京", "##語", "Zoë", "zoe"]
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(dict.fromkeys(words)),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
        initializer_range=0.5,
        id2label=LABELS,
    )
    BertForTokenClassification(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(words)) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower, "model_max_length": 32}))
    return folder


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def tagger(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tagger(tmp_path_factory.mktemp("tagger"), lower=request.param)


def texts(count: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        size = int(rng.integers(0, 40))
        found.append("".join(str(rng.choice(PARTS)) + str(rng.choice(BLANKS)) for _ in range(size)))
    return found


def check_entities(pipe: TokenClassificationPipeline, count: int, seed: int) -> int:
    drawn = texts(count, seed)
    total = 0
    for strategy in STRATEGIES:
        found = pipe(drawn, aggregation_strategy=strategy)
        for text, entities in zip(drawn, found, strict=True):
            total += len(entities)
            # Of a tokenizer of bytes two pieces may be one character.
            check_places(text, entities, pieces=strategy == "none")
    return total


def check_places(text: str, entities: list[dict[str, Any]], *, pieces: bool) -> None:
    before = 0
    for entity in entities:
        start, end = entity["start"], entity["end"]
        assert entity["word"] == text[start:end]
        assert start < end <= len(text)
        assert before <= start or (pieces and before <= end)
        assert 0.0 < entity["score"] <= 1.0
        assert entity["word"] == entity["word"].strip()
        before = end


@pytest.fixture(scope="module", params=["uncased", "cased", "roberta", "albert", "xlm-roberta"])
def pipe(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TokenClassificationPipeline:
    folder = tmp_path_factory.mktemp("tagger")
    if request.param in ("uncased", "cased"):
        make_tagger(folder, lower=request.param == "uncased")
        return pipeline("token-classification", model=folder, device="cpu")  # type: ignore[no-any-return]
    tokenizer: Any = small(request.param, request.getfixturevalue("shared"), folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        max_position_embeddings=32,
        initializer_range=0.5,
        id2label=LABELS,
    )
    return pipeline("ner", BertForTokenClassification(config), tokenizer)  # type: ignore[no-any-return]


def test_every_entity_is_a_slice_of_its_text(pipe: TokenClassificationPipeline) -> None:
    assert check_entities(pipe, 25, seed=1) > 400


@pytest.mark.campaign
def test_campaign_every_entity_is_a_slice_of_its_text(pipe: TokenClassificationPipeline) -> None:
    assert check_entities(pipe, 2000, seed=2) > 50_000


def check_windows(tokenizer: Any, count: int, seed: int) -> int:
    rng = np.random.default_rng([seed, 7])
    windowed = 0
    for text in texts(count, seed):
        several = [text, "a", text[::-1]]
        limit = int(rng.integers(3, 40))
        overlap = int(rng.integers(0, limit - 2))
        windows = windows_of_texts(several, tokenizer, max_length=limit, overlap=overlap)
        pieces = find_pieces(several, tokenizer, strip=True)
        assert np.array_equal(windows.rows.ids[windows.places], pieces.ids)
        assert windows.lengths.max() <= limit
        assert not windows.truncated.any()
        assert sorted(set(windows.row_texts.tolist())) == [0, 1, 2]
        begins = windows.rows.boundaries[:-1]
        assert (windows.rows.ids[begins] == tokenizer.cls_token_id).all()
        assert (windows.rows.ids[windows.rows.boundaries[1:] - 1] == tokenizer.sep_token_id).all()
        windowed += len(windows) > 3
    return windowed


def test_every_piece_is_read_once_where_it_stands(tagger: Path) -> None:
    assert check_windows(BertTokenizer.from_pretrained(tagger), 30, seed=3) > 15


@pytest.mark.parametrize(("room", "overlap"), [(5, 0), (5, 2), (6, 4), (7, 3), (1, 0)])
def test_pieces_are_read_in_the_window_that_shows_most_around_them(room: int, overlap: int, tagger: Path) -> None:
    tokenizer = BertTokenizer.from_pretrained(tagger)
    for size in range(1, 30):
        windows = windows_of_texts(["a " * size], tokenizer, max_length=room + 2, overlap=overlap)
        starts = cut_windows(np.array([size]), room, room - overlap, full_last=True).starts.tolist()
        assert starts[-1] + room == size or starts == [0]
        assert len(windows) == len(starts)
        rows = np.searchsorted(windows.rows.boundaries, windows.places, side="right") - 1
        for piece, row in enumerate(rows.tolist()):
            views = [
                min(piece - start, start + room - 1 - piece) if start <= piece < start + room else -1
                for start in starts
            ]
            assert views[row] == max(views)


def check_words(tokenizer: Any, count: int, seed: int) -> int:
    """The piece of a word is the first that shares a character with it, found here by looking at all of them."""
    rng = np.random.default_rng([seed, 11])
    without = 0
    for _ in range(count):
        words = [str(rng.choice(PARTS)) for _ in range(int(rng.integers(1, 20)))]
        joiner = str(rng.choice(["", " "]))
        text = joiner.join(words)
        ends = np.cumsum([len(word) + len(joiner) for word in words])
        spans = [
            (int(end) - len(word) - len(joiner), int(end) - len(joiner)) for word, end in zip(words, ends, strict=True)
        ]
        labels = [[int(rng.integers(0, 5)) for _ in words]]
        windows = windows_of_words([text], [spans], tokenizer, max_length=16, labels=labels)
        pieces = windows.pieces
        assert windows.first_pieces is not None
        assert windows.labels is not None
        for (start, end), first in zip(spans, windows.first_pieces.tolist(), strict=True):
            touching = [
                place
                for place, (left, right) in enumerate(zip(pieces.starts.tolist(), pieces.ends.tolist(), strict=True))
                if left < end and start < right
            ]
            assert first == (touching[0] if touching else -1), (words, start, end)
            without += not touching
        expected: dict[int, int] = {}
        for first, label in zip(windows.first_pieces.tolist(), labels[0], strict=True):
            if first >= 0:
                expected.setdefault(first, label)
        at_pieces = windows.labels[windows.places]
        assert {place: int(at_pieces[place]) for place in np.flatnonzero(at_pieces != -100).tolist()} == expected
        assert (windows.labels != -100).sum() == len(expected)
    return without


def test_words_find_their_first_piece(tagger: Path) -> None:
    assert check_words(BertTokenizer.from_pretrained(tagger), 40, seed=5) > 5


@pytest.mark.campaign
def test_campaign_windows_and_words(tagger: Path) -> None:
    tokenizer = BertTokenizer.from_pretrained(tagger)
    assert check_windows(tokenizer, 2500, seed=4) > 1000
    assert check_words(tokenizer, 2500, seed=6) > 500
