"""The tokenizer of the page "try it here", compiled for this machine, beside BertTokenizer: ids, words and places."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path

import pytest

from bertkit.tokenization import BertTokenizer
from browser_model import TOKENIZER, Piece, WordPieceInC, compiled
from tokenizer_helpers import data_files, read_lines

REPOSITORY = Path(__file__).parents[3]
MODEL = REPOSITORY / "src" / "bertkit" / "included" / "bertkit-tiny-en"
#: Ends of ranges of code points from which a text is drawn: Latin, Cyrillic, Indic, CJK, emoji, everything.
ENDS = (0x250, 0x500, 0x1000, 0x3000, 0xFFFF, 0x1FFFF, 0x10FFFF)
#: Blanks, signs, marks that change places, jamo, and what a special token begins with.
SIGNS = "ab ,.#\u0301\u0308\u0323\u0345\u0591\u05ae\u0f71\u1161\u11a8\u0130\u2028\ufeff\u4e2d\uac01[]"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("wordpiece"), TOKENIZER)


def pieces(tokenizer: BertTokenizer, texts: Sequence[str]) -> Iterator[list[Piece]]:
    found = tokenizer(list(texts), add_special_tokens=False, return_offsets_mapping=True)
    for row, (ids, places) in enumerate(zip(found["input_ids"], found["offset_mapping"], strict=True)):
        yield [
            Piece(number, word, *place) for number, word, place in zip(ids, found.word_ids(row), places, strict=True)
        ]


def random_text(chance: random.Random) -> str:
    """Characters of anywhere, of one script, and of those that need care."""
    end, script = chance.choice(ENDS), chance.randrange(0x20000)
    drawn = [
        chance.choice((chance.randrange(end), script + chance.randrange(128), ord(chance.choice(SIGNS))))
        for _ in range(chance.randint(1, 30))
    ]
    text = "".join(map(chr, drawn))
    return text + chance.choice(("[MASK]", "[UNK]x", "[CLS]", "x[SEP]")) + text[:3] if chance.random() < 0.1 else text


def differences(tokenizer: BertTokenizer, in_c: WordPieceInC, texts: Iterable[str]) -> list[str]:
    wrong: list[str] = []
    rest = iter(texts)
    while some := list(islice(rest, 1000)):
        wrong += [
            text for text, expected in zip(some, pieces(tokenizer, some), strict=True) if in_c.cut(text) != expected
        ]
    return wrong


def random_texts(seed: int, number: int) -> Iterator[str]:
    chance = random.Random(seed)
    return (random_text(chance) for _ in range(number))


def test_random_texts_of_all_scripts(library: Path) -> None:
    tokenizer = BertTokenizer.from_pretrained(MODEL)
    in_c = WordPieceInC(library, tokenizer.get_vocab())
    assert not differences(tokenizer, in_c, random_texts(0, 2000))


@pytest.mark.parametrize(("strip", "chinese"), [(True, True), (False, True), (False, False), (None, True)])
@pytest.mark.parametrize("lower", [True, False])
def test_every_option(library: Path, lower: bool, strip: bool | None, chinese: bool) -> None:
    vocab = BertTokenizer.from_pretrained(MODEL).get_vocab()
    tokenizer = BertTokenizer(vocab, do_lower_case=lower, strip_accents=strip, tokenize_chinese_chars=chinese)
    in_c = WordPieceInC(library, vocab, lower=lower, strip_accents=strip, chinese=chinese)
    assert not differences(tokenizer, in_c, random_texts(1, 200))


def test_the_comparison_sees_another_rule(library: Path) -> None:
    tokenizer = BertTokenizer.from_pretrained(MODEL)
    cased = WordPieceInC(library, tokenizer.get_vocab(), strip_accents=False)
    assert len(differences(tokenizer, cased, random_texts(0, 200))) > 20


def test_long_words_and_bytes_that_are_not_text(library: Path) -> None:
    tokenizer = BertTokenizer.from_pretrained(MODEL)
    in_c = WordPieceInC(library, tokenizer.get_vocab())
    for length in (99, 100, 101, 5000):
        assert in_c.cut("ab" * length) == next(pieces(tokenizer, ["ab" * length]))
    assert in_c.cut(b"a\xffb\xc3") == [Piece(number, 0, 0, 3) for number in tokenizer("ab")["input_ids"][1:-1]]
    assert in_c.cut(b"\xf4\x90\x80\x80\xc0\xaf") == []
    assert in_c.cut("a\ud800b") == next(pieces(tokenizer, ["a\ud800b"]))


def test_wrong_vocabularies_are_refused(library: Path) -> None:
    with pytest.raises(ValueError, match="longest_word is 0"):
        WordPieceInC(library, {"[UNK]": 0}, whole=(), longest_word=0)
    with pytest.raises(ValueError, match="do not end with a line feed"):
        WordPieceInC(library, {}, whole=(), unknown=0)


@pytest.mark.campaign
def test_the_tables_are_those_of_the_tokenizer() -> None:
    spec = importlib.util.spec_from_file_location("unicode_tables", REPOSITORY / "packaging" / "unicode_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.TARGET.read_text(encoding="utf-8") == module.tables()


@pytest.mark.campaign
def test_campaign_hundred_thousand_lines(library: Path, shared: Path) -> None:
    """60,000 random texts, and 1,000 lines or strings of every real data file."""
    lines = chain.from_iterable(islice(read_lines(path), 1000) for path in data_files(shared))
    texts = [*random_texts(2, 60_000), *lines]
    assert len(texts) >= 100_000
    tokenizer = BertTokenizer.from_pretrained(MODEL)
    assert not differences(tokenizer, WordPieceInC(library, tokenizer.get_vocab()), texts)
