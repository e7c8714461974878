"""Ids and offsets equal those of the ``tokenizers`` package, set up by transformers' own BertTokenizer.

The reference (:class:`FullTokenizer`) is compared in tokens and character offsets, the fast path in ids. The call that
returns offsets is built on the ``tokenizers`` package; that it passes them on rightly is tested in
``test_tokenizer_call_parity``.
"""

from __future__ import annotations

import random
import unicodedata
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertkit.tokenization import BasicTokenizer
from bertkit.tokenization.characters import RUNNING_PYTHON
from tokenizer_helpers import CASES, CODE_POINTS, Contestants, batches, contestants, data_files, read_lines

#: Blocks of thousands of characters that are all alike, of which a sample stands for all in the quick sweep.
ALIKE = [
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0xE000, 0xF8FF),
    (0x17000, 0x18CFF),
    (0x20000, 0x10FFFF),
]


@pytest.fixture(params=CASES)
def three(request: pytest.FixtureRequest, shared: Path) -> Contestants:
    return contestants(shared, request.param)


def in_rows(parts: list[str], size: int = 500) -> list[str]:
    """Words joined to texts: white space keeps them apart."""
    return [" ".join(row) for row in batches(parts, size)]


def code_points() -> list[str]:
    """Some of each range in which all are alike, and all others."""
    chars = [char for char in CODE_POINTS if not any(a <= ord(char) <= b for a, b in ALIKE)]
    for first, last in ALIKE:
        chars += [chr(point) for point in range(first, last + 1, 197)] + [chr(last)]
    assert len(chars) > 50_000
    return chars


def test_code_points_in_the_fast_path(shared: Path) -> None:
    """Some, uncased, where more is done to a character; the campaign has every one, and the cased one too."""
    texts = in_rows([f"{char} ab{char}cd" for char in code_points()[::5]])
    assert contestants(shared, "uncased").mismatches(texts, reference=False) == []


@pytest.mark.campaign
def test_code_points_in_the_reference(three: Contestants) -> None:
    texts = in_rows([f"{char} ab{char}cd" for char in code_points()], 100)
    assert three.mismatches(texts) == []


@pytest.mark.campaign
def test_every_code_point_alone_and_inside_a_word(three: Contestants) -> None:
    """Each code point as a text of its own, and inside one, so that nothing around it can help."""
    count = 0
    for chars in batches(CODE_POINTS, 50_000):
        texts = [*chars, *(f"ab{char}cd" for char in chars), *(f"Ab{char}" for char in chars)]
        assert three.mismatches(texts) == []
        count += len(texts)
    print(f"\n{count:,} texts of one code point each")


def test_combining_marks_and_their_order(three: Contestants) -> None:
    """Canonical ordering moves marks across each other; those that are not accents survive it."""
    marks = (
        "\u0301\u0316\u0334\u034f\u302e\u302f\U0001d165\U0001d16d\U0001d166\u1baa\u1b44\u08d4\u1dfb\u3099\u0344\u0f73"
    )
    letters = "aÉ\u1ebf\ud55c\u0958\u2260İ\u1e9b"
    chance = random.Random(0)
    texts = ["".join(chance.choices(marks + letters, k=chance.randint(1, 12))) for _ in range(5000)]
    assert three.mismatches(texts) == []


@settings(suppress_health_check=list(HealthCheck))
@given(texts=st.lists(st.text(max_size=60), min_size=20, max_size=20))
def test_hypothesis_strings(three: Contestants, texts: list[str]) -> None:
    assert three.mismatches([_without_surrogates(text) for text in texts]) == []


#: What is likely to go wrong: white space of all kinds, controls, marks, special tokens and their parts.
NASTY_PARTS = """
    [MASK] [CLS] [mask] [MA SK] [ ] ## a B The unaffable É \u0301 e\u0301 \u302e\u0327 İ Σ ß 中 日本 한국 カ ! don't $ …
    9 ﬁ \u1e9e \U0001d400 \U000e0001 \ue000 \u0e01\u0e33 \u0bcb \U0001f468\u200d\U0001f469 \u200d \ufeff \ufffd
""".split()
NASTY_PARTS += [
    " ",
    "\t",
    "\n",
    "\x1c",
    "\x1f",
    "\x85",
    "\xa0",
    "\u2028",
    "\u3000",
    "\x00",
    "\x000",
    "x" * 99,
    "a" * 101,
]
NASTY = st.lists(st.sampled_from(NASTY_PARTS), max_size=14).map("".join)


@settings(suppress_health_check=list(HealthCheck))
@given(texts=st.lists(NASTY, min_size=20, max_size=20))
def test_nasty_strings(three: Contestants, texts: list[str]) -> None:
    assert three.mismatches(texts) == []


@pytest.mark.campaign
def test_one_hundred_thousand_hypothesis_strings(three: Contestants) -> None:
    count = 0

    @settings(max_examples=500, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(texts=st.lists(st.one_of(st.text(max_size=80), NASTY), min_size=200, max_size=220))
    def check(texts: list[str]) -> None:
        nonlocal count
        assert three.mismatches([_without_surrogates(text) for text in texts]) == []
        count += len(texts)

    check()
    print(f"\n{count:,} strings")
    assert count >= 100_000


def test_words_around_the_length_limit(three: Contestants) -> None:
    texts = [
        unit * length for unit in ("a", "É", "e\u0301", "中", "1", "\u0301") for length in (99, 100, 101, 200, 201)
    ]
    assert three.mismatches(texts) == []


def test_samples_of_every_data_set(three: Contestants, shared: Path) -> None:
    texts = [text for path in data_files(shared) for text in islice(read_lines(path), 0, 900, 30)]
    assert len(texts) > 800
    assert three.mismatches(texts) == []


@pytest.mark.campaign
def test_every_data_set(three: Contestants, shared: Path) -> None:
    """Wikipedia and Wikinews validation text and all data sets, whole: ids, tokens and offsets."""
    count = chars = 0
    for path in data_files(shared):
        texts = list(read_lines(path))
        for some in batches(texts, 20_000):
            assert three.mismatches(some) == [], path
        count += len(texts)
        chars += sum(map(len, texts))
    print(f"\n{count:,} texts of {chars:,} characters")


@pytest.mark.campaign
@pytest.mark.parametrize("name", ["wikipedia_en", "wikinews_en"])
def test_training_text_in_the_fast_path(three: Contestants, shared: Path, name: str) -> None:
    texts = list(read_lines(shared / "data" / "pretrain_text" / f"{name}.train.txt.xz"))
    for some in batches(texts, 20_000):
        assert three.mismatches(some, reference=False) == []
    print(f"\n{len(texts):,} texts of {sum(map(len, texts)):,} characters")


def test_lone_surrogates_are_removed_like_the_replacement_character(three: Contestants) -> None:
    texts = ["\ud800", "a\ud800b", "\udc00\ud800 x", "[MASK]\udfff", "\ud83d\ude00", "x \udcff y"]
    replaced = [_without_surrogates(text) for text in texts]
    for ours, expected, text in zip(
        three.ours.encode_ragged(texts), three.peer(replaced).input_ids, texts, strict=True
    ):
        assert ours.tolist() == expected
        assert three.ours(text, return_offsets_mapping=True).input_ids == expected
        assert three.reference.tokenize(text) == three.peer.convert_ids_to_tokens(expected)[1:-1]


def test_the_comparison_can_fail(three: Contestants) -> None:
    """A control: with the 2018 definitions, other texts differ, and only those."""
    three.reference.basic_tokenizer.classes, frozen = RUNNING_PYTHON, three.reference.basic_tokenizer.classes
    try:
        assert three.mismatches(["plain words", "a\ue000b", "a\U0002b820b"]) == ["a\ue000b", "a\U0002b820b"]
    finally:
        three.reference.basic_tokenizer.classes = frozen


def test_the_original_definitions_follow_the_running_python() -> None:
    basic = BasicTokenizer(classes=RUNNING_PYTHON)
    assert basic.tokenize("a\ue000b a\U0002b820b a\u061db") == ["a\ue000b", "a", "\U0002b820", "b", "a", "\u061d", "b"]
    assert unicodedata.category("\u061d") == "Po"


def _without_surrogates(text: str) -> str:
    return "".join("\ufffd" if 0xD800 <= ord(char) < 0xE000 else char for char in text)
