"""Ids and offsets of the tokenizers of the families equal those of transformers.

Three things are compared with the ``tokenizers`` package as transformers sets it up: calls with offsets, the fast path
(without and with Arrow), and for byte-level BPE the readable reference.
"""

from __future__ import annotations

import json
import pickle
import random
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bertkit.errors import CheckpointError, InputError
from bertkit.tokenization import BertTokenizer, GemmaTokenizer
from everyday import some
from mmbert_tokenizer import mmbert, trained
from oracles.unigram import UnigramModel
from tokenizer_families import FAMILIES, UNIGRAM, FamilyContestants, family_contestants, model_file, model_type, small
from tokenizer_helpers import CODE_POINTS, batches, data_files, read_lines, vocab_file

#: One family for each kind of tokenizer: byte-level BPE, unigram pieces, word pieces.
EACH_KIND = ("roberta", "camembert", "mpnet")


@pytest.fixture(params=some(FAMILIES, EACH_KIND))
def pair(request: pytest.FixtureRequest, shared: Path) -> FamilyContestants:
    return family_contestants(shared, request.param)


#: What is likely to go wrong: white space of all kinds, marks, special tokens and their parts, and what the fast path
#: writes itself.
NASTY_PARTS = """
    <mask> <s> </s> <pad> <unk> [MASK] [CLS] <mask ask> < [MA ▁ ▁▁ ▁a Ġ Ċ Hello hello world É e\u0301 \u0301
    \u0308\u0301 \u0340\u0301 \u0e33 \u0e33\u0301 \uff9e 中文 日本 한국 カ don't 's 'll 'S `` '' " , ... !! 123 2000, 9,
    １２ ﬁ ① ¨ ½ Ⅷ ª ² İ ǅ \U0001d400 \U000e0001 \ue000 \U0001f468\u200d\U0001f469 🙂🙂 🏻 \u200d \u200b \ufeff \ufffd
    \u00ad %20 =a ₀ ๏ [SEP] [UNK] [PAD] <extra_id_0> <extra_id_99> <extra_id_100> <0x41> |||EMAIL_ADDRESS||| [unused1]
    \u212a \u1fef ]\u0338 \u1100\u1161\u11a8 \u0344 <bos> <eos> <start_of_turn> <unused3> <table> </strong> <0x09>
""".split()
NASTY_PARTS += [" ", "  ", "   ", "\t", "\n", "\r\n", "\x0b", "\x1c", "\x1f", "\x85", "\xa0", "\u2028", "\u3000"]
NASTY_PARTS += ["\x00", "\x00=", "\x00%20", "\x000", "ab" * 35, "\x01", "\x7f", "\n\n\n"]
NASTY = st.lists(st.sampled_from(NASTY_PARTS), max_size=12).map("".join)


def nasty_texts(count: int, seed: int = 0) -> list[str]:
    chance = random.Random(seed)
    return ["".join(chance.choices(NASTY_PARTS, k=chance.randint(0, 9))) for _ in range(count)]


@cache
def sample(shared: Path) -> list[str]:
    """Some texts of every data set."""
    return [text for path in data_files(shared) for text in islice(read_lines(path), 0, 300, 30)]


def without_surrogates(text: str) -> str:
    return "".join("\ufffd" if 0xD800 <= ord(char) < 0xE000 else char for char in text)


def test_nasty_texts(pair: FamilyContestants) -> None:
    assert pair.mismatches(nasty_texts(250)) == []


def test_marks_behind_a_line_feed(pair: FamilyContestants) -> None:
    """They make up no character with it, as they do with a space; what a row has of other signs changes nothing."""
    joins = ("\u0301", "\u200d\u0301", "\u200d", "\u3099", "\u0e33")
    others = ("", "\x00", "\u30ab\ufb01")
    texts = [f"{other}a{space}{join}b" for other in others for space in ("\n", " ", "\t", "\r\n") for join in joins]
    assert pair.mismatches(texts) == []


def test_signs_that_become_blanks(pair: FamilyContestants) -> None:
    """DeBERTa collapses blanks after normalization, so these count with the blanks beside them."""
    signs = ("\ufffd", "\u200b", "\u2028", "\u3000", "\u00a0", "\u00ad", "\ufeff", "\u2581", "\u00a8", "\u00b4")
    around = [(left, right) for left in ("", " ", "a", "a ") for right in ("", "\n", "b", " b")]
    texts = [f"{left}{sign}{right}" for sign in signs for left, right in around]
    assert pair.mismatches([*texts, *(text * 2 for text in texts), "3.33333333333333"]) == []


@settings(suppress_health_check=list(HealthCheck))
@given(texts=st.lists(st.one_of(st.text(max_size=40), NASTY), min_size=10, max_size=10))
def test_hypothesis_strings(pair: FamilyContestants, texts: list[str]) -> None:
    # CamemBERT's unused tokens, which transformers never splits unless they come in a tokenizer.json
    assert pair.mismatches([without_surrogates(text) for text in texts if "NOTUSED" not in text]) == []


@pytest.mark.parametrize(
    ("add_prefix_space", "trim_offsets"), some(((True, True), (True, False), (False, False)), [(True, True)])
)
def test_settings_of_byte_level_bpe(shared: Path, add_prefix_space: bool, trim_offsets: bool) -> None:
    pair = FamilyContestants("roberta", shared, add_prefix_space=add_prefix_space, trim_offsets=trim_offsets)
    assert pair.mismatches(nasty_texts(100, seed=1)) == []


def test_gemma_that_cuts_nowhere(shared: Path) -> None:
    pair = FamilyContestants("mmbert", shared, add_prefix_space=False)
    assert pair.mismatches(nasty_texts(250, seed=4)) == []
    assert pair.mismatches(sample(shared)[::3]) == []
    # The fast path cuts nevertheless, which would be wrong if a token spanned two words.
    vocab, merges = dict(pair.ours.vocab), pair.ours._vocabulary.merges
    vocab["t▁t"] = len(vocab)
    joins = GemmaTokenizer(vocab, (("t", "▁t"), *merges), add_prefix_space=False)
    assert joins._fast is None
    assert joins.tokenize("ut to") == ["u", "t▁t", "o"]
    assert [row.tolist() for row in joins.encode_ragged(["ut to"])] == [joins("ut to").input_ids]


@pytest.mark.parametrize(("lower", "accents"), some(((False, False), (True, True), (False, True)), [(False, False)]))
def test_settings_of_albert(shared: Path, lower: bool, accents: bool) -> None:
    pair = FamilyContestants("albert", shared, do_lower_case=lower, keep_accents=accents)
    assert pair.mismatches(nasty_texts(100, seed=2)) == []


@pytest.mark.parametrize("family", some(("albert", "xlm-roberta", "camembert"), ["albert"]))
def test_words_that_begin_with_nothing(shared: Path, family: str) -> None:
    pair = FamilyContestants(family, shared, add_prefix_space=False)
    assert pair.mismatches(nasty_texts(100, seed=3)) == []


def test_samples_of_every_data_set(pair: FamilyContestants, shared: Path) -> None:
    assert len(sample(shared)) > 300
    assert pair.mismatches(sample(shared)) == []


def test_code_points(pair: FamilyContestants) -> None:
    """A sample of the blocks that are all alike stands for them; the campaign has every code point."""
    chars = [*CODE_POINTS[:0x3400:7], *CODE_POINTS[0x3400::499]]
    texts = [" ".join(f"{char} ab{char}cd" for char in some) for some in batches(chars, 200)]
    assert pair.mismatches(texts) == []


@pytest.mark.campaign
def test_every_code_point(pair: FamilyContestants) -> None:
    """Each code point as a text of its own, and inside, before and behind letters."""
    count = 0
    for chars in batches(CODE_POINTS, 50_000):
        texts = [*chars, *(f"ab{char}cd" for char in chars), *(f"a {char}b {char}" for char in chars)]
        assert pair.mismatches(texts) == []
        count += len(texts)
    print(f"\n{count:,} texts")


@pytest.mark.campaign
def test_every_data_set(pair: FamilyContestants, shared: Path) -> None:
    """All data sets and the validation text of Wikipedia and Wikinews, whole."""
    count = chars = 0
    for path in data_files(shared):
        texts = list(read_lines(path))
        for batch in batches(texts, 20_000):
            assert pair.mismatches(batch) == [], path
        count += len(texts)
        chars += sum(map(len, texts))
    print(f"\n{count:,} texts of {chars:,} characters")


@pytest.mark.campaign
def test_one_hundred_thousand_nasty_texts(pair: FamilyContestants) -> None:
    for seed in range(10, 20):
        assert pair.mismatches(nasty_texts(10_000, seed)) == []


def test_the_comparison_can_fail(shared: Path) -> None:
    """A control: with a merge, or a score, that is another one, other texts differ."""
    pair = family_contestants(shared, "roberta")
    assert pair.reference is not None
    first = next(iter(pair.reference.ranks))  # Ġ t
    rank = pair.reference.ranks.pop(first)
    try:
        assert pair.mismatches(["plain", "a tx"]) == ["a tx"]
    finally:
        pair.reference.ranks[first] = rank
    albert = FamilyContestants("albert", shared)
    assert albert.ours._fast is not None
    albert.ours._fast._parts, parts = pair.ours._fast._parts, albert.ours._fast._parts
    try:
        assert albert.mismatches(["plain"]) == ["plain"]
    finally:
        albert.ours._fast._parts = parts


def test_lone_surrogates_become_the_replacement_character(pair: FamilyContestants) -> None:
    texts = ["\ud800", "a\ud800b", "\udc00\ud800 x", "<mask>\udfff", "\ud83d\ude00"]
    expected = pair.peer([without_surrogates(text) for text in texts]).input_ids
    assert [row.tolist() for row in pair.ours.encode_ragged(texts)] == expected
    assert pair.ours(texts, return_offsets_mapping=True).input_ids == expected


def test_the_reference_of_unigram_pieces(shared: Path) -> None:
    """The best way to cut a word, beside the model of the ``tokenizers`` package."""
    pair = family_contestants(shared, "albert")
    vocabulary = pair.ours._vocabulary
    reference = UnigramModel(vocabulary.pieces, vocabulary.unk_token)
    model = pair.peer.backend_tokenizer.model
    chance = random.Random(4)
    words = ["▁" + "".join(chance.choices("abcdeinrst,2'中é\U0001f642▁", k=chance.randint(1, 25))) for _ in range(600)]
    for word in words:
        theirs = [(token.value, *token.offsets) for token in model.tokenize(word)]
        ends = [len(word[: piece.end].encode()) for piece in reference.pieces(word)]
        ours = [
            piece.token if piece.token != vocabulary.unk_token else word[piece.start : piece.end]
            for piece in reference.pieces(word)
        ]
        assert ours == [value for value, _, _ in theirs]
        assert ends == [end for _, _, end in theirs]


@pytest.mark.parametrize(
    ("splits", "lower"),
    [
        ("at blanks", False),
        *(pytest.param(*case, marks=pytest.mark.campaign)
          for case in (("at blanks", True), ("at blanks of NFC", False), ("at blanks of NFC", True))),
    ],
)  # fmt: skip
def test_forms_of_deberta(shared: Path, splits: str, lower: bool) -> None:
    pair = FamilyContestants("deberta-v2", shared, splits=splits, do_lower_case=lower)
    assert pair.mismatches(nasty_texts(250, seed=3)) == []
    assert pair.mismatches(sample(shared)[::3]) == []


@pytest.mark.parametrize("family", some(UNIGRAM, ["albert"]))
def test_pieces_are_those_of_sentencepiece(shared: Path, tmp_path: Path, family: str) -> None:
    """SentencePiece itself, on text that it and the ``tokenizers`` package normalize alike."""
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor(model_file=str(model_file(family, shared, tmp_path)))
    ours = family_contestants(shared, family).ours
    texts = [text.lower() for text in sample(shared) if text.isascii() and "``" not in text and "''" not in text]
    assert len(texts) > 50
    number_and_comma = ours._vocabulary.pieces if family == "albert" else ()
    worse = {piece for piece, score in number_and_comma if score < -50}
    compared, vocab = 0, ours.vocab
    for text in texts:
        expected = processor.encode(text, out_type=str)
        if worse.isdisjoint(expected) and not any(piece.startswith("<0x") for piece in expected):
            assert [token for token in ours.tokenize(text) if token != "<unk>"] == [
                piece for piece in expected if piece in vocab
            ]
            compared += 1
    assert compared > 40


def test_tokens_of_gemma_are_those_of_sentencepiece(shared: Path) -> None:
    """SentencePiece itself; a cut before each blank is the same for it unless there are two in a row."""
    from sentencepiece import SentencePieceProcessor

    processor = SentencePieceProcessor(model_proto=trained(shared, 6000))
    prefixed, whole = family_contestants(shared, "mmbert").ours, mmbert(shared, add_prefix_space=False)
    compared = 0
    for text in sample(shared):
        assert whole.encode(text, add_special_tokens=False) == processor.encode(text)
        if text and "  " not in text and "\n" not in text and not text.endswith(" "):
            expected = processor.encode(f" {text.removeprefix(' ')}")
            assert prefixed.encode(text, add_special_tokens=False) == expected
            compared += 1
    assert compared > 200


def test_names_and_numbers(pair: FamilyContestants) -> None:
    ours, peer = pair.ours, pair.peer
    for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"):
        assert getattr(ours, f"{name}_token") == getattr(peer, f"{name}_token")
        assert getattr(ours, f"{name}_token_id") == getattr(peer, f"{name}_token_id")
    assert ours.vocab == peer.get_vocab()
    assert (len(ours), ours.vocab_size) == (len(peer), peer.vocab_size)
    assert ours.special_tokens_map == peer.special_tokens_map
    extra = set(peer.all_special_ids) - set(ours.all_special_ids)
    assert set(ours.all_special_ids) <= set(peer.all_special_ids)
    assert all("NOTUSED" in token for token in peer.convert_ids_to_tokens(list(extra)))
    for paired in (False, True):
        assert ours.num_special_tokens_to_add(paired) == peer.num_special_tokens_to_add(paired)


def test_decode(pair: FamilyContestants) -> None:
    chance = random.Random(5)
    rows: list[Any] = [[chance.randrange(len(pair.ours)) for _ in range(12)] for _ in range(100)]
    rows += pair.ours(["Hello world, don't <mask> [MASK]!", "", " 中文 é"]).input_ids
    for skip in (False, True):
        for row in rows:
            text = pair.ours.decode(row, skip)
            assert text == pair.peer.decode(row, skip_special_tokens=skip) or "NOTUSED" in text
    assert pair.ours.convert_ids_to_tokens(rows[0]) == pair.peer.convert_ids_to_tokens(rows[0])


@pytest.mark.parametrize(
    ("family", "special"),
    [
        ("bert", False),
        ("bert", True),
        ("xlm-roberta", False),
        ("roberta", True),
        *(pytest.param(family, special, marks=pytest.mark.campaign)
          for family in FAMILIES for special in (False, True)
          if (family, special) not in (("xlm-roberta", False), ("roberta", True))),
    ],
)  # fmt: skip
def test_added_tokens(family: str, special: bool, shared: Path, tmp_path: Path) -> None:
    """Tokens that a user adds, one of them already in the vocabulary: ids, offsets, decoding; saved and pickled."""
    transformers = pytest.importorskip("transformers")
    if family == "bert":
        file = str(vocab_file(shared, "uncased"))
        ours: Any = BertTokenizer(file)
        ours.save_pretrained(tmp_path / "before")
        peer: Any = transformers.BertTokenizer.from_pretrained(tmp_path / "before")
    else:
        contestants = FamilyContestants(family, shared)
        ours, peer = contestants.ours, contestants.peer
    known = ours.convert_ids_to_tokens(len(ours) - 200)
    names = ["Covid19", "<user>", "Z\u00fcrich", known, "Covid19"]
    size = len(ours)
    assert ours.add_tokens(names, special_tokens=special) == 4
    assert ours.add_tokens(names[0], special_tokens=special) == 0
    assert len(ours) == size + 3
    peer.add_tokens(names, special_tokens=special)
    texts = [
        "Covid19 in Z\u00fcrich",
        "covid19s,zurich <user><user> x",
        f"a{known}b {known}",
        "nothing new",
        *nasty_texts(60),
    ]
    ours.save_pretrained(tmp_path / "after")
    for each in (ours, type(ours).from_pretrained(tmp_path / "after"), pickle.loads(pickle.dumps(ours))):
        found, expected = (side(texts, return_offsets_mapping=True) for side in (each, peer))
        assert found["input_ids"] == expected["input_ids"]
        assert found["offset_mapping"] == expected["offset_mapping"]
        assert [row.tolist() for row in each.encode_ragged(texts)] == expected["input_ids"]
        for row in expected["input_ids"][:4]:
            assert each.decode(row, skip_special_tokens=True) == peer.decode(row, skip_special_tokens=True)


def test_added_tokens_that_are_none(shared: Path) -> None:
    tokenizer = BertTokenizer(str(vocab_file(shared, "uncased")))
    size = len(tokenizer)
    for bad, error in (([""], InputError), ([3], InputError), (["\ud800"], CheckpointError)):
        with pytest.raises(error):
            tokenizer.add_tokens(bad)
        assert len(tokenizer) == size


def test_sentinels(shared: Path) -> None:
    """As transformers has them, in their order; one that a user writes is that sentinel."""
    pair = family_contestants(shared, "t5")
    ours = pair.ours
    assert ours.get_sentinel_tokens() == [f"<extra_id_{number}>" for number in range(100)]
    assert ours.get_sentinel_token_ids() == list(range(len(ours) - 1, len(ours) - 101, -1))
    expected = pair.peer.convert_tokens_to_ids([f"<extra_id_{number}>" for number in range(100)])
    assert ours.get_sentinel_token_ids() == expected
    ids = ours("The <extra_id_0> sat.<extra_id_1>", "x").input_ids
    assert ids == pair.peer("The <extra_id_0> sat.<extra_id_1>", "x").input_ids
    assert [ids.count(number) for number in ours.get_sentinel_token_ids()[:3]] == [1, 1, 0]


@pytest.mark.parametrize("family", some(FAMILIES, ["roberta"]))
def test_transformers_chooses_its_class_for_what_is_saved(family: str, shared: Path, tmp_path: Path) -> None:
    """By ``config.json`` too; its class for DeBERTa replaces the normalization of any file by NFC."""
    transformers = pytest.importorskip("transformers")
    forms = {"splits": "at blanks of NFC"} if family == "deberta-v2" else {}
    ours = small(family, shared, tmp_path, **forms)
    ours.save_pretrained(tmp_path / "saved")
    (tmp_path / "saved" / "config.json").write_text(json.dumps({"model_type": model_type(family)}), encoding="utf-8")
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    for text in (
        "Hello <mask> [MASK] world, don't",
        "  \u00e9 \ufb01 \u4e2d\u6587 x[E1]y  z",
        "",
        "a\tb \n c 9,<extra_id_3>",
    ):
        found, expected = ours(text, "b \u00e9"), peer(text, "b \u00e9")
        assert found.input_ids == expected.input_ids
        assert set(found) == set(expected) | ({"token_type_ids"} if family == "albert" else set())
