"""Very long input, any input, wrong arguments, and the bounds of the fast path's dictionaries."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit.errors import CheckpointError, InputError
from bertkit.tokenization import (
    AddedToken,
    BasicTokenizer,
    BertTokenizer,
    FullTokenizer,
    Ragged,
    WordpieceTokenizer,
    XLMRobertaTokenizer,
)
from bertkit.tokenization.characters import RUNNING_PYTHON
from bertkit.tokenization.fast import chunk_cache as chunks
from bertkit.tokenization.fast import fast_wordpiece as fast
from bertkit.tokenization.fast.chunk_cache import ARROW_CHARS
from bertkit.tokenization.vocabulary import SPECIAL_TOKENS
from everyday import some
from tokenizer_helpers import contestants, vocab_file

TWO_MILLION = 2_000_000
#: Two million characters of one kind, and how many tokens they are, without [CLS] and [SEP].
LONG = {
    "a word": ("a", 1),
    "ideographs": ("中", TWO_MILLION),
    "marks": ("\u0301", 0),
    "marks out of order": ("\u0301\u0316", 0),
    "punctuation": ("!", TWO_MILLION),
    "control characters": ("\x00", 0),
    "white space": ("\u3000", 0),
    "special tokens": ("[MASK]", TWO_MILLION // 6),
    "words": ("the cat ", TWO_MILLION // 4),
    "surrogates": ("\ud800", 0),
    "hangul": ("한", 1),
}


@pytest.fixture(scope="module")
def tokenizer(shared: Path) -> BertTokenizer:
    return BertTokenizer(vocab_file(shared, "uncased"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", LONG)
def test_two_million_characters(tokenizer: BertTokenizer, kind: str) -> None:
    """Time is linear: a quadratic step anywhere would take hours, not seconds."""
    unit, count = LONG[kind]
    text = unit * (TWO_MILLION // len(unit))
    started = time.monotonic()
    ragged = tokenizer.encode_ragged([text], max_length=512)
    assert ragged.num_tokens_before.tolist() == [count + 2]
    assert ragged.lengths.tolist() == [min(count + 2, 512)]
    assert time.monotonic() - started < 100


@pytest.mark.campaign
@pytest.mark.slow
def test_a_million_marks_that_change_places_and_stay(tokenizer: BertTokenizer) -> None:
    assert tokenizer.encode_ragged(["\u302e\u1baa" * 500_000]).ids.tolist() == [101, 100, 102]


@pytest.mark.slow
@pytest.mark.parametrize("kind", some(("a word", "marks", "marks out of order", "surrogates"), ["a word"]))
def test_two_million_characters_with_offsets(tokenizer: BertTokenizer, kind: str) -> None:
    unit, count = LONG[kind]
    text = unit * (TWO_MILLION // len(unit))
    encoded = tokenizer(text, return_offsets_mapping=True)
    assert len(encoded.input_ids) == count + 2
    assert encoded.offset_mapping[1] == ((0, TWO_MILLION) if count else (0, 0))


@pytest.mark.slow
@pytest.mark.parametrize("kind", LONG)
def test_the_reference_is_linear(shared: Path, kind: str) -> None:
    unit, count = LONG[kind]
    pieces = list(FullTokenizer(vocab_file(shared, "uncased")).pieces(unit * (100_000 // len(unit))))
    assert abs(len(pieces) - count * 100_000 / TWO_MILLION) <= 1


def test_over_long_text_comes_back_whole(tokenizer: BertTokenizer, recwarn: pytest.WarningsRecorder) -> None:
    assert len(tokenizer("word " * 2000, truncation=False).input_ids) == 2002
    assert len(tokenizer("word " * 2000).input_ids) == 2002
    assert not recwarn.list


@pytest.mark.parametrize("empty", [[], ()])
def test_no_texts(tokenizer: BertTokenizer, empty: Any) -> None:
    assert dict(tokenizer(empty, padding=True)) == {"input_ids": [], "token_type_ids": [], "attention_mask": []}
    assert dict(tokenizer(empty, return_offsets_mapping=True))["offset_mapping"] == []
    ragged = tokenizer.encode_ragged(empty)
    assert (len(ragged), ragged.ids.shape, ragged.boundaries.tolist(), list(ragged)) == (0, (0,), [0], [])
    pairs = tokenizer.encode_ragged(empty, empty, max_length=8)
    assert (len(pairs), pairs.truncated.tolist()) == (0, [])


def test_inputs_of_other_kinds(tokenizer: BertTokenizer) -> None:
    import pandas
    import pyarrow

    expected = tokenizer(["a b", "c"]).input_ids
    for texts in (("a b", "c"), np.array(["a b", "c"]), pandas.Series(["a b", "c"]), pyarrow.array(["a b", "c"])):
        assert tokenizer(texts).input_ids == expected
    assert tokenizer([("a", "b"), ("c", "d")]).input_ids == tokenizer(["a", "c"], ["b", "d"]).input_ids
    assert [row.tolist() for row in tokenizer.encode_ragged(np.array(["a b", "c"]))] == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": None}, "a text must be a str"),
        ({"text": 5}, "got int 5"),
        ({"text": ["a", None]}, "text 1 is not a text: got NoneType"),
        ({"text": ["a", ["b"]]}, "text 1 is not a text: got list"),
        ({"text": b"a"}, "got bytes"),
        ({"text": ["a", "b"], "text_pair": ["c"]}, "2 texts but 1 in text_pair"),
        ({"text": ["a"], "text_pair": "c"}, "a list of as many second texts"),
        ({"text": "a", "text_pair": ["c"]}, "a text must be a str"),
        ({"text": "a", "is_split_into_words": True}, "must be words"),
        ({"text": ["a", 1], "is_split_into_words": True}, "must be words"),
        ({"text": "a", "padding": "longst"}, "did you mean 'longest'"),
        ({"text": "a", "truncation": "only_frist"}, "did you mean 'only_first'"),
        ({"text": "a", "max_length": -1}, "max_length must be a whole number"),
        ({"text": "a", "max_length": 2.5}, "max_length must be a whole number"),
        ({"text": "a", "stride": "1"}, "stride must be a whole number"),
        ({"text": "a", "truncation": True, "max_length": 1}, "max_length=1 leaves no room: 2 special tokens"),
        ({"text": "a", "truncation": "only_second", "max_length": 9}, "needs a second text"),
        ({"text": "a", "padding_side": "top"}, "padding_side must be one of"),
        ({"text": ["a", "b c"], "return_tensors": "pt"}, "rows have 3 to 4 tokens; pass padding=True"),
        ({"text": "a", "return_tensors": "tf"}, "return_tensors must be 'pt', 'np' or None"),
        ({"text": "a", "padding": True, "truncation": True, "max_length": 9, "pad_to_multiple_of": 8}, "max_length=8$"),
        ({"text": "a", "padding": True, "truncation": True, "max_length": 5, "pad_to_multiple_of": 8}, "max_length=8$"),
        ({"text": "a b c", "truncation": True, "max_length": 4, "stride": 2, "return_overflowing_tokens": True}, "str"),
        ({"text": "a b", "text_pair": "d e f", "truncation": "only_first", "max_length": 6}, "the other text of the p"),
    ],
)  # fmt: skip
def test_wrong_arguments(tokenizer: BertTokenizer, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        tokenizer(**arguments)


def test_wrong_arguments_of_the_fast_path(tokenizer: BertTokenizer) -> None:
    with pytest.raises(InputError, match="a list of texts"):
        tokenizer.encode_ragged("one text")
    with pytest.raises(InputError, match="text 1 is not a text"):
        tokenizer.encode_ragged(["a", 3])  # type: ignore[list-item]
    with pytest.raises(InputError, match="1 text but 2 text_pairs"):
        tokenizer.encode_ragged(["a"], ["b", "c"])
    with pytest.raises(InputError, match="leaves no room: 3 special"):
        tokenizer.encode_ragged(["a"], ["b"], max_length=2)


@pytest.mark.parametrize("number", [30522, -1, "the", None, True, 1.5])
def test_numbers_that_no_token_has(tokenizer: BertTokenizer, number: Any) -> None:
    with pytest.raises(InputError, match=r"ids are 0 to 30,521"):
        tokenizer.decode([number])
    with pytest.raises(InputError, match="is not the id of a token"):
        tokenizer.convert_ids_to_tokens([number])


def test_pad_needs_rows(tokenizer: BertTokenizer) -> None:
    for wrong in ({"input_ids": [1, 2]}, {"labels": [1]}, [], [{"labels": 1}]):
        with pytest.raises(InputError, match="pad needs rows of input_ids"):
            tokenizer.pad(wrong)


def test_results_know_what_they_lack(tokenizer: BertTokenizer) -> None:
    encoded = tokenizer(["a b", "c"])
    with pytest.raises(AttributeError, match="there are input_ids, token_type_ids, attention_mask"):
        encoded.offset_mapping  # noqa: B018
    with pytest.raises(InputError, match="no row 2: the batch has 2"):
        encoded.word_ids(2)


def test_ragged_rows(tokenizer: BertTokenizer) -> None:
    ragged = tokenizer.encode_ragged(["a b c", "", "d"], ["e", "f g", ""], max_length=5)
    assert isinstance(ragged, Ragged)
    assert [row.tolist() for row in ragged] == [ragged[row].tolist() for row in range(-3, 0)]
    assert ragged[0].base is ragged.ids
    assert ragged.types(0).tolist() == [0, 0, 0, 1, 1]
    assert ragged.truncated.tolist() == [True, False, False]
    assert ragged.num_tokens_before.tolist() == [7, 5, 4]
    with pytest.raises(IndexError, match="row 3 of 3"):
        ragged[3]


# The dictionaries of the fast path


@pytest.mark.parametrize("arrow_chars", [0, 10**9])
def test_results_do_not_depend_on_what_was_seen_before(
    shared: Path, monkeypatch: pytest.MonkeyPatch, arrow_chars: int
) -> None:
    """With room for hardly anything, and blocks of hardly any text, the ids are the same."""
    for name, value in {"MAX_CHUNKS": 8, "MAX_CHUNK_IDS": 30, "BLOCK_CHARS": 40, "BATCH_CHARS": 90,
                        "MAX_CACHED_CHARS": 6, "ARROW_CHARS": arrow_chars}.items():  # fmt: skip
        monkeypatch.setattr(chunks, name, value)
    monkeypatch.setattr(fast, "SLICE_CHARS", 50)
    monkeypatch.setattr(fast, "MAX_CHARS", 3)
    path = shared / "data" / "pretrain_text" / "google_bert_sample_text.txt"
    texts = path.read_text(encoding="utf-8").split("\n")
    texts += ["[MASK] İ 中文 e\u0301\x1cx", "\u302e\u1baa" * 9, "a" * 200]
    three = contestants(shared, "uncased")
    small = BertTokenizer(three.ours.vocab)
    for _ in range(3):
        assert small.encode_ragged(texts).ids.tolist() == [n for row in three.peer(texts).input_ids for n in row]
    encoder = small._fast
    assert encoder is not None
    new = list(encoder._chunks)[encoder._num_known :]
    assert len(new) < 200
    assert max(map(len, new), default=0) <= 6


@pytest.mark.parametrize("most", [2, 1 << 19])
def test_few_chunks_are_looked_up_as_many_are(shared: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Also with empty texts, words of no token and of many, and a dictionary that is cleared again and again; pieces by
    the reference and by the engine, with the usual words known and not.
    """
    sets = [["the cat", "", "unbelievably \x00 ok"], [""], ["中文 !!!"], ["a " * 30 + "tokenization"], ["the" * 40]]
    found = []
    for few in (0, 1 << 30):
        monkeypatch.setattr(chunks, "FEW_CHUNKS", few)
        monkeypatch.setattr(chunks, "MANY_CHUNKS", few)
        monkeypatch.setattr(fast, "FEW_CHARS", few)
        fresh = BertTokenizer(vocab_file(shared, "uncased"))
        fresh.limit_memory(most)
        found.append([fresh.encode_ragged(texts) for texts in sets])
        encoder = fresh._fast
        assert encoder is not None
        assert ("_words" in vars(encoder), encoder._has_usual) == (few == 0, few == 0)
        assert fresh._built.cache_info().currsize == 0  # only offsets need the tokenizers package's engine
    for many, one_by_one in zip(*found, strict=True):
        assert many.ids.dtype == one_by_one.ids.dtype == np.int32
        assert many.ids.tolist() == one_by_one.ids.tolist()
        assert many.boundaries.tolist() == one_by_one.boundaries.tolist()
        assert many.num_tokens_before.tolist() == one_by_one.num_tokens_before.tolist()


@pytest.mark.slow
def test_memory_is_bounded(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text in which no word ever comes back."""
    monkeypatch.setattr(chunks, "MAX_CHUNKS", 5000)
    small = BertTokenizer(vocab_file(shared, "uncased"))
    encoder = small._fast
    assert encoder is not None
    for start in range(0, 200_000, 20_000):
        small.encode_ragged([f"{number:x}q" for number in range(start, start + 20_000)])
        assert len(encoder._chunks) <= encoder._num_known + 25_000
        assert len(encoder._ids) < 500_000


def test_an_interrupted_call_leaves_nothing_half_done(shared: Path) -> None:
    """Ctrl-C between numbering new words and working out their ids."""

    class Interrupting(str):
        __slots__ = ()

        def isprintable(self) -> bool:
            raise KeyboardInterrupt

    tokenizer, other = (BertTokenizer(vocab_file(shared, "uncased")) for _ in range(2))
    texts = [f"zyx{number}" for number in range(9000)]
    with pytest.raises(KeyboardInterrupt):
        tokenizer.encode_ragged([*texts, Interrupting("x")])
    assert tokenizer.encode_ragged(texts).ids.tolist() == other.encode_ragged(texts).ids.tolist()


@pytest.mark.slow
def test_threads_share_a_tokenizer(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "MAX_CHUNKS", 500)
    monkeypatch.setattr(chunks, "BATCH_CHARS", 200)
    texts = [f"word{number} un{number}affable [MASK] {number % 7}" for number in range(1000)]
    tokenizer = BertTokenizer(vocab_file(shared, "uncased"))
    expected = BertTokenizer(vocab_file(shared, "uncased")).encode_ragged(texts).ids
    wrong: list[int] = []

    def work(part: int) -> None:
        for _ in range(5):
            ragged = tokenizer.encode_ragged(texts)
            if not np.array_equal(ragged.ids, expected):
                wrong.append(part)

    threads = [threading.Thread(target=work, args=(part,)) for part in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# The reference by itself


def test_the_papers_and_the_originals_examples() -> None:
    vocab = {token: number for number, token in enumerate(["[UNK]", "un", "##aff", "##able", "want", "##want", "##ed"])}
    pieces = WordpieceTokenizer(vocab)
    assert pieces.tokenize("unaffable") == ["un", "##aff", "##able"]
    assert pieces.tokenize("unwanted running") == ["un", "##want", "##ed", "[UNK]"]
    assert pieces.tokenize("") == []
    assert WordpieceTokenizer(vocab, max_input_chars_per_word=8).tokenize("unaffable") == ["[UNK]"]
    assert BasicTokenizer().tokenize(" \tHeLLo!how  \n Are yoU?  ") == ["hello", "!", "how", "are", "you", "?"]
    assert BasicTokenizer(do_lower_case=False).tokenize("HäLLo!") == ["HäLLo", "!"]
    assert BasicTokenizer(strip_accents=False).tokenize("HäLLo!") == ["hällo", "!"]
    assert BasicTokenizer(do_lower_case=False, strip_accents=True).tokenize("HäLLo!") == ["HaLLo", "!"]
    assert BasicTokenizer().tokenize("ah\u535a\u63a8zz") == ["ah", "\u535a", "\u63a8", "zz"]
    assert BasicTokenizer(tokenize_chinese_chars=False).tokenize("ah\u535a\u63a8zz") == ["ah\u535a\u63a8zz"]
    assert BasicTokenizer(never_split=["[UNK]", "[UNK]s"]).tokenize("A[UNK]sB") == ["a", "[UNK]s", "b"]


def test_offsets_lead_back_to_the_text(shared: Path) -> None:
    text = "\x00Ça  fai\u0302t  ﬁne\u200b, İstanbul [MASK]中文 e\u0301\u0316!"
    reference = FullTokenizer(vocab_file(shared, "uncased"))
    assert [text[start:end] for _, start, end in reference.pieces(text)] == [
        "Ça", "fai", "t", "ﬁ", "ne", ",", "İstanbul", "[MASK]", "中", "文", "e", "!",
    ]  # fmt: skip
    assert reference.convert_tokens_to_ids(["the"]) == [1996]
    assert reference.convert_ids_to_tokens([1996]) == ["the"]
    with pytest.raises(InputError, match="'nosuch' is not in the vocabulary"):
        reference.convert_tokens_to_ids(["nosuch"])
    with pytest.raises(InputError, match="99999 is not in the vocabulary"):
        reference.convert_ids_to_tokens([99999])


def test_the_original_definitions(shared: Path) -> None:
    """The 2018 code: Unicode of the running Python, words of up to 200 characters."""
    path = vocab_file(shared, "uncased")
    original = FullTokenizer(path, classes=RUNNING_PYTHON, max_input_chars_per_word=200)
    assert original.tokenize("a" * 150) == WordpieceTokenizer(original.vocab, "[UNK]", 200).tokenize("a" * 150)
    assert FullTokenizer(path).tokenize("a" * 150) == ["[UNK]"]
    assert original.tokenize("x\u1ac1y") == original.tokenize("xy")  # a mark of Unicode 14
    assert FullTokenizer(path).tokenize("x\u1ac1y") == ["[UNK]"]
    assert original.tokenize("plain Words, café [MASK]") == FullTokenizer(path).tokenize("plain Words, café [MASK]")


@pytest.mark.parametrize("length", [0, -1, float("inf"), float("nan"), None, True, "512"])
def test_a_length_that_is_none(length: Any) -> None:
    with pytest.raises(InputError, match="model_max_length must be a finite number from 1"):
        BertTokenizer({token: number for number, token in enumerate(SPECIAL_TOKENS)}, model_max_length=length)


def test_half_of_a_character_is_no_token() -> None:
    vocab = {token: number for number, token in enumerate(SPECIAL_TOKENS)}
    with pytest.raises(CheckpointError, match=r"the token '\\ud800' has half of a character"):
        BertTokenizer({**vocab, "\ud800": len(vocab)})
    with pytest.raises(CheckpointError, match=r"the token 'x\\udfff' has half of a character"):
        BertTokenizer(vocab, added_tokens=[AddedToken("x\udfff", len(vocab))])
    pieces = [(token, -1.0) for token in ("<s>", "<pad>", "</s>", "<unk>", "\ud800", "<mask>")]
    with pytest.raises(CheckpointError, match=r"the token '\\ud800' has half of a character"):
        XLMRobertaTokenizer(pieces)


WITHOUT_ARROW = """
import sys
sys.modules["pyarrow"] = None  # as where it is not installed
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name == "pyarrow" else find_spec(name, *more)
from bertkit.tokenization import BertTokenizer
from bertkit.tokenization.fast import chunk_cache
tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "b"]
tokenizer = BertTokenizer({token: number for number, token in enumerate(tokens)})
tokenizer._fast.arrow_chars = 0
text = "ab b a " * (chunk_cache.ARROW_CHARS // 4)
ids = tokenizer.encode_ragged([text, "b"])
print(len(ids[0]), ids[1].tolist())
"""


def test_large_texts_without_pyarrow() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_ARROW], capture_output=True, text=True, check=False)
    assert done.stdout == f"{2 + 4 * (ARROW_CHARS // 4)} [2, 7, 3]\n", done.stderr
