"""Learning a vocabulary: beside a naive learner, beside the tokenizers package, and the same however the text comes."""

from __future__ import annotations

import random
import re
from collections import Counter
from itertools import islice, pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bertkit.errors import ConfigError, DataError, InputError
from bertkit.tokenization import BasicTokenizer, BertTokenizer, load_vocab
from bertkit.tokenization.learn.word_counts import MIN_MEMORY, WordCounter, count_words
from bertkit.tokenization.learn.wordpiece_learner import (
    _Joiner,
    extend_counts,
    fertility,
    reserved_tokens,
    vocabulary_from_counts,
)
from tokenizer_helpers import learn_vocabulary, read_lines, vocab_file


def naive_pieces(counts: dict[str, int], alphabet: list[str], size: int) -> list[str]:
    """Byte-pair encoding by the book: every pair is counted anew for every piece."""
    pieces = list(alphabet)
    words = {word: [word[0], *("##" + char for char in word[1:])] for word in counts}
    while len(pieces) < size:
        pairs: Counter[tuple[int, int]] = Counter()
        for word, cut in words.items():
            for left, right in pairwise(cut):
                pairs[pieces.index(left), pieces.index(right)] += counts[word]
        if not pairs or max(pairs.values()) < 2:
            break
        left, right = min(pairs, key=lambda pair: (-pairs[pair], pair))
        piece = pieces[left] + pieces[right][2:]
        if piece not in pieces:
            pieces.append(piece)
        for cut in words.values():
            at = 0
            while at < len(cut) - 1:
                if cut[at] == pieces[left] and cut[at + 1] == pieces[right]:
                    cut[at : at + 2] = [piece]
                at += 1
    return pieces


COUNTS = st.dictionaries(st.text("abc", min_size=1, max_size=9), st.integers(1, 2**40), min_size=1, max_size=25)
ALPHABET = ["a", "b", "c", "##a", "##b", "##c"]


@given(COUNTS, st.integers(6, 60))
def test_pieces_are_those_of_the_naive_learner(counts: dict[str, int], size: int) -> None:
    assert _Joiner(counts, ALPHABET).learn(size) == naive_pieces(counts, ALPHABET, size)


@given(COUNTS, st.randoms(use_true_random=False))
def test_the_order_of_words_does_not_matter(counts: dict[str, int], draw: random.Random) -> None:
    shuffled = list(counts.items())
    draw.shuffle(shuffled)
    assert vocabulary_from_counts(dict(shuffled), 140) == vocabulary_from_counts(counts, 140)


def test_counts_do_not_overflow() -> None:
    """A pair that appears 3 thousand million times is negative in 32 bits, and would never be joined."""
    counts = {"ab": 3_000_000_000, "cd": 2**62, "ce": 5}
    learned = _Joiner(counts, ["a", "c", "##b", "##d", "##e"]).learn(7)
    assert learned[-2:] == ["cd", "ab"]


def test_a_vocabulary_of_known_shape() -> None:
    learned = learn_vocabulary(["Hug, hug; pug! 中文 hugs", "pugs hugs [MASK]"], 130)
    assert learned[:2] == ["[PAD]", "[unused0]"]
    assert learned[100:104] == ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert learned[104:118] == [*"!,;ghpsu", "中", "文", *"##g ##h ##p ##s".split()]
    assert learned[118] == "##u"
    # hug(s) appears 4 times, pug(s) twice: ##u ##g (6) comes first, then h ##ug (4), then two pairs that appear twice.
    assert learned[119:] == ["##ug", "hug", "pug", "hugs"]
    assert len(set(learned)) == len(learned)


def test_special_tokens_stand_where_bert_base_has_them(shared: Path) -> None:
    published = list(load_vocab(vocab_file(shared, "uncased")))
    assert reserved_tokens() == published[:999]
    assert vocabulary_from_counts({"a": 1}, 8192)[:999] == published[:999]


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_words_are_those_of_the_readable_tokenizer(shared: Path, do_lower_case: bool) -> None:
    lines = [*islice(read_lines(shared / "data/pretrain_text/wikipedia_en.valid.txt.xz"), 400)]
    lines += [
        "\u1e9e\x1cx\x85y\u2028z Ａ\u0301 \ud800 ½ 한국어 日本語テスト \u302e\u1baa a\x00b",
        "x" * 300,
        "",
        "\u3000",
        "[MASK]",
    ]
    basic = BasicTokenizer(do_lower_case)
    expected = Counter(word for line in lines for word in basic.tokenize(line.replace("[MASK]", " ")))
    with count_words(lines, do_lower_case) as words:
        assert dict(words.items()) == dict(expected)
        assert list(words.items()) == sorted(expected.items())


@given(st.lists(st.text(max_size=40), max_size=10), st.booleans())
@example(["[SEP]", "a[MASK]b", "[sep]"], True)
def test_any_text_is_counted_like_the_readable_tokenizer(texts: list[str], do_lower_case: bool) -> None:
    """But for special tokens, which no tokenizer cuts and nobody learns."""
    basic = BasicTokenizer(do_lower_case)
    plain = [re.sub(r"\[(PAD|UNK|CLS|SEP|MASK)]", " ", text) for text in texts]
    with count_words(texts, do_lower_case) as words:
        assert dict(words.items()) == dict(Counter(word for text in plain for word in basic.tokenize(text)))


def made_up_words(number: int) -> list[str]:
    draw = random.Random(3)
    return ["".join(draw.choices("abcdefghij", k=6)) for _ in range(number)]


def test_memory_is_bounded_and_changes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made_up = made_up_words(30_000)
    texts = [" ".join(made_up[start : start + 50]) for start in range(0, 30_000, 50)]
    expected = Counter(word for text in texts for word in text.split())
    monkeypatch.setattr("bertkit.tokenization.learn.word_counts.BYTES_PER_WORD", MIN_MEMORY // 1000)
    monkeypatch.setattr("bertkit.tokenization.learn.word_counts.BYTES_PER_CHUNK", MIN_MEMORY // 100)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with WordCounter(memory=MIN_MEMORY) as words:
        for text in texts:
            words.add([text])
            assert len(words._words) <= 1000
            assert len(words._chunks) <= 100
        assert len(words._runs) > 10
        assert dict(words.items()) == dict(expected)
        best = sorted(expected.items(), key=lambda item: (-item[1], item[0]))[:500]
        assert list(words.most_frequent(500).items()) == best
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_any_order_division_and_number_of_workers_give_the_same(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [*islice(read_lines(shared / "data/pretrain_text/wikinews_en.valid.txt.xz"), 500)]
    one = learn_vocabulary(lines, 1500)
    shuffled = random.Random(0).sample(lines, len(lines))
    assert learn_vocabulary(shuffled, 1500) == one
    assert learn_vocabulary(["\n".join(lines)], 1500) == one
    monkeypatch.setattr("bertkit.tokenization.learn.word_counts.BATCH_CHARS", 7_000)
    assert learn_vocabulary(shuffled, 1500, workers=2) == one
    # Control: other text gives another vocabulary.
    assert learn_vocabulary(lines[:-100], 1500) != one


@pytest.mark.campaign
@pytest.mark.slow
def test_as_good_as_the_trainer_of_the_tokenizers_package(shared: Path) -> None:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers

    lines = [*islice(read_lines(shared / "data/pretrain_text/wikipedia_en.valid.txt.xz"), 6000)]
    train, held_out = lines[:5000], lines[5000:]
    size = 4000
    peer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    peer.normalizer = normalizers.BertNormalizer()
    peer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    reserved = reserved_tokens(99)
    peer.train_from_iterator(
        train, trainers.WordPieceTrainer(vocab_size=size, special_tokens=reserved, show_progress=False)
    )
    ours = learn_vocabulary(train, size)
    assert len(ours) == size
    with count_words(held_out) as words:
        mine, theirs = (fertility(words.items(), vocab) for vocab in (ours, peer.get_vocab()))
    assert mine.pieces_per_word <= theirs.pieces_per_word * 1.01
    assert mine.unknown_rate < 0.005


def test_fertility_is_what_the_tokenizer_makes(shared: Path) -> None:
    lines = [*islice(read_lines(shared / "data/pretrain_text/wikinews_en.valid.txt.xz"), 300)]
    tokenizer = BertTokenizer(vocab_file(shared, "uncased"))
    with count_words(lines) as words:
        measured = fertility(words.items(), tokenizer.vocab)
        none = fertility(words.items(), ["[UNK]"])
    ids = tokenizer.encode_ragged(lines, add_special_tokens=False).ids
    assert measured.pieces == len(ids)
    assert measured.unknown == (ids == tokenizer.unk_token_id).sum()
    assert (none.unknown_rate, none.pieces_per_word) == (1.0, 1.0)


def test_extending_fills_unused_places_first_and_keeps_every_id(shared: Path) -> None:
    base = list(load_vocab(vocab_file(shared, "uncased")))
    domain = ["myocarditis pericarditis ↯ ↯ and the heart"] * 50 + ["once myxomatosis"]
    same_size = learn_vocabulary(domain, len(base), extend=base)
    assert len(same_size) == len(base)
    changed = {old: new for old, new in zip(base, same_size, strict=True) if old != new}
    assert list(changed) == ["[unused0]", "[unused1]", "[unused2]", "[unused3]"]
    # Characters that are missing first, then words by what they save; a word seen once is not worth a place.
    assert list(changed.values())[:2] == ["↯", "##↯"]
    assert set(list(changed.values())[2:]) == {"myocarditis", "pericarditis"}
    BertTokenizer({token: number for number, token in enumerate(same_size)})

    cut = base[:1] + base[100:104] + base[999:]
    larger = learn_vocabulary(domain, len(cut) + 3, extend=cut)
    assert larger[: len(cut)] == cut
    assert len(larger) == len(cut) + 3
    with count_words(domain) as words:
        before, after = (fertility(words.items(), vocab) for vocab in (base, same_size))
    assert after.pieces_per_word == pytest.approx(1, abs=0.02)
    assert before.pieces_per_word > 1.5
    assert before.unknown > after.unknown == 0


def test_a_learned_vocabulary_survives_saving(tmp_path: Path) -> None:
    learned = learn_vocabulary(["some words, some more words: größer, 中文"], 300, do_lower_case=False)
    tokenizer = BertTokenizer({token: number for number, token in enumerate(learned)}, do_lower_case=False)
    tokenizer.save_pretrained(tmp_path)
    again = BertTokenizer.from_pretrained(tmp_path)
    assert list(load_vocab(tmp_path / "vocab.txt")) == learned
    assert again.tokenize("größer words") == tokenizer.tokenize("größer words")
    assert "[UNK]" not in again.tokenize("größer, 中文")


def test_wrong_input() -> None:
    with pytest.raises(InputError, match="got one string"):
        learn_vocabulary("a text")
    with pytest.raises(InputError, match="text 1 must be a string, got int"):
        learn_vocabulary(["a", 1])  # type: ignore[list-item]
    with pytest.raises(DataError, match="no word"):
        learn_vocabulary(["", "\u3000"])
    with pytest.raises(ConfigError, match="size must be over 104"):
        learn_vocabulary(["a"], 104)
    with pytest.raises(ConfigError, match=r"memory=.* is too little for counting words: give at least 16MB"):
        learn_vocabulary(["a"], memory=1)
    with pytest.raises(ConfigError, match="workers"):
        learn_vocabulary(["a"], workers=0)
    with pytest.raises(InputError, match="'x' more than once"):
        extend_counts({"a": 1}, ["x", "x"], 10)
    with pytest.raises(ConfigError, match="size must be at least that of the vocabulary to extend, 3, got 2"):
        extend_counts({"a": 1}, ["x", "y", "z"], 2)


@pytest.mark.campaign
@settings(deadline=None, max_examples=20_000)
@given(COUNTS, st.integers(6, 200))
def test_pieces_are_those_of_the_naive_learner_at_length(counts: dict[str, int], size: int) -> None:
    assert _Joiner(counts, ALPHABET).learn(size) == naive_pieces(counts, ALPHABET, size)


def test_long_words_are_left_out() -> None:
    learned = vocabulary_from_counts({"x" * 101: 1000, "ab": 2}, 200)
    assert not [token for token in learned if re.fullmatch(r"(##)?x+", token)]
