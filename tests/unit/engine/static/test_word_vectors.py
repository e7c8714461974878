"""Tables of words: files against gensim's own reading where it is there, neighbours against numpy, and bad files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from bertkit import BertTokenizer, errors
from bertkit.engine.static.word_vectors import split_words
from bertkit.static import WordVectors

pytestmark = pytest.mark.slow

WORDS = ["king", "queen", "man", "woman", "apple", "."]
VECTORS = np.array([[2, 1, 0], [2, -1, 0.1], [0.1, 1, 0], [0.1, -1, 0], [0, 0.1, 3], [0.3, 0.1, -1]], np.float32)


@pytest.fixture
def words() -> WordVectors:
    return WordVectors(WORDS, VECTORS)


@pytest.mark.parametrize("ending", [".vec", ".txt", ".vec.gz"])
def test_text_comes_back(tmp_path: Path, words: WordVectors, ending: str) -> None:
    file = words.save(tmp_path / f"own{ending}")
    again = WordVectors.load(file)
    assert again.words == tuple(WORDS)
    np.testing.assert_allclose(again.vectors, VECTORS, rtol=1e-5)
    first = (gzip.decompress(file.read_bytes()) if ending.endswith("gz") else file.read_bytes()).split(b"\n")[0]
    assert first == b"6 3"
    assert WordVectors.load(file, max_words=2).words == ("king", "queen")
    assert words.save(tmp_path / f"twice{ending}").read_bytes() == file.read_bytes()


def test_files_of_others(tmp_path: Path) -> None:
    """GloVe has no first line and words with blanks; fastText has a blank at the end of each line."""
    glove, fasttext = tmp_path / "glove.txt", tmp_path / "cc.vec"
    glove.write_text("the 0.1 -2\nat name@domain.com 1 2e-3\n. . . 3 4\nñ 0 1\n", encoding="utf-8")
    found = WordVectors.load(glove)
    assert found.words == ("the", "at name@domain.com", ". . .", "ñ")
    np.testing.assert_allclose(found.vectors, [[0.1, -2], [1, 2e-3], [3, 4], [0, 1]], rtol=1e-6)
    fasttext.write_text("2 2\nthe 0.1 -2 \n</s> 1 2 \n")
    assert WordVectors.load(fasttext).words == ("the", "</s>")


def test_neighbours_are_those_of_plain_cosines(words: WordVectors) -> None:
    unit = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
    cosines = unit @ unit[0]
    order = [at for at in np.argsort(-cosines) if at != 0]
    found = words.nearest("king", 3)
    assert [each.word for each in found] == [WORDS[at] for at in order[:3]]
    np.testing.assert_allclose([each.score for each in found], cosines[order[:3]], atol=1e-6)
    assert words.nearest(VECTORS[0], 1)[0].word == "king"
    assert words.analogy("man", "king", "woman")[0].word == "queen"
    assert len(words.nearest("king", 100)) == 5


def test_an_unknown_word_names_those_spelled_alike(words: WordVectors) -> None:
    with pytest.raises(errors.InputError, match=r"'quen' is not among the 6 words; near it: queen"):
        words["quen"]
    cased = WordVectors(["King", "queen"], VECTORS[:2])
    with pytest.raises(errors.InputError, match="near it: King"):
        cased.nearest("KING")
    with pytest.raises(errors.InputError, match=r"words$"):
        words.analogy("man", "king", "zzzzzzz")
    assert "apple" in words
    assert "pear" not in words


def test_a_word_is_found_as_a_list_in_lower_case_has_it(words: WordVectors) -> None:
    """Accents are left out where no word of the list has any."""
    for written in ("KING", "King", "K\u00edng"):
        np.testing.assert_array_equal(words[written], VECTORS[0])
        assert words.nearest(written, 3) == words.nearest("king", 3), "not the word itself"
    assert words.analogy("Man", "KING", "Woman") == words.analogy("man", "king", "woman")
    accents = WordVectors(["caf\u00e9", "cafe"], VECTORS[:2])
    np.testing.assert_array_equal(accents["CAF\u00c9"], VECTORS[0])
    with pytest.raises(errors.InputError, match="'c\u00e0fe' is not among"):
        accents["c\u00e0fe"]


def test_one_word_is_enough() -> None:
    one = WordVectors(["alone"], np.ones((1, 2), np.float32))
    assert one.nearest("alone") == []


BAD_LINES = {
    "a 1 2\nb 1\n": ":2: expected a word and 2 numbers, got 1",
    "a 1 2\nb 1 2 3\n": ":2: expected a word and 2 numbers, got 3",
    "a 1 2\nb 1 x\n": ":2: 'x' is not a number",
    "a 1 2\nb 1 nan\n": ":2: the vector of 'b' has a number that is not finite",
    "a 1 2\nb 1 1e39\n": ":2: the vector of 'b' has a number that is not finite in 32 bits",
    "a 1 2\na 1 3\n": ":2 repeats 'a', which line 1 has already",
    "3 2\na 1 2\nb 1 2\n": ":1 says that there are 3 words, and 2 follow",
    "1 2\na 1 2\nb 1 2\n": ":1 says that there are 1 words, and 2 follow",
    "2 999999\na 1 2\n": ":1 says that vectors have 999,999 numbers",
    "1 2\n": ":1 says that there are 1 words|has no words",
    "a\n": ":1: expected a word and its numbers",
    " 1 2\n": ":1: expected a word and",
    "": "is empty",
}


@pytest.mark.parametrize("content", BAD_LINES)
def test_a_bad_line_is_named(tmp_path: Path, content: str) -> None:
    file = tmp_path / "bad.vec"
    file.write_text(content)
    with pytest.raises(errors.DataError, match=BAD_LINES[content]):
        WordVectors.load(file)


def test_bad_files(tmp_path: Path, words: WordVectors) -> None:
    file = words.save(tmp_path / "own.vec.gz")
    cut, text, long = tmp_path / "cut.vec.gz", tmp_path / "text.vec.gz", tmp_path / "long.vec"
    cut.write_bytes(file.read_bytes()[:-12])
    text.write_text("a 1 2\n")
    long.write_bytes(b"a" * (2 << 20))
    bad = tmp_path / "bad.vec"
    bad.write_bytes(b"ok 1 2\ncaf\xe9 1 2\n")
    for path, message in (
        (cut, "damaged"),
        (text, "damaged"),
        (long, ":1 is longer than"),
        (bad, ":2: not UTF-8"),
        (tmp_path / "none.vec", "no file"),
    ):
        with pytest.raises(errors.DataError, match=message):
            WordVectors.load(path)
    with pytest.raises(errors.ConfigError, match="unknown format"):
        words.save(tmp_path / "own.bin")
    with pytest.raises(errors.DataError, match="white space"):
        WordVectors(["a b"], np.ones((1, 2), np.float32)).save(tmp_path / "x.vec")
    assert not (tmp_path / "x.vec").exists()


@pytest.mark.parametrize(
    ("names", "vectors"),
    [([], np.ones((0, 2))), (["a"], np.ones((2, 2))), (["a", "a"], np.ones((2, 2))), (["a"], np.array([[np.nan, 1]]))],
)
def test_words_and_vectors_must_fit(names: list[str], vectors: np.ndarray) -> None:
    with pytest.raises(errors.InputError):
        WordVectors(names, vectors)


def test_what_a_word_list_lacks_and_word_pieces_read(words: WordVectors) -> None:
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "king", "##s", "##dom", "the", "."]
    tokenizer = BertTokenizer({word: at for at, word in enumerate(vocab)})
    found = words.coverage(["The kings .", "kings kingdoms zzz king."], tokenizer)
    assert (found.words, found.different, found.unknown, found.different_unknown) == (8, 6, 5, 4)
    assert found.readable == 3  # the, kings, kingdoms
    assert found.pieces == pytest.approx((1 + 2 + 3) / 3)
    assert found.examples[0] == ("kings", 2, "'king', '##s'")
    assert "75.0% of the different ones" in found.render()
    with pytest.raises(errors.DataError, match="no words"):
        words.coverage(["", " "], tokenizer)


@pytest.mark.parametrize(
    ("listed", "text", "unknown"),
    [
        (["caf\u00e9", "king"], "Caf\u00e9 king cafe", {"cafe": 1}),
        (["cafe", "king"], "Caf\u00e9 king", {}),
        (["\ud55c\uad6d", "king"], "\ud55c\uad6d king", {}),
        (["Caf\u00e9", "king"], "Caf\u00e9 caf\u00e9", {"caf\u00e9": 1}),
    ],
    ids=["a list with accents", "one without", "Korean", "with capitals"],
)
def test_texts_keep_the_accents_that_a_list_has(listed: list[str], text: str, unknown: dict[str, int]) -> None:
    tokenizer = BertTokenizer({word: at for at, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])})
    found = WordVectors(listed, VECTORS[:2]).coverage([text], tokenizer)
    assert {word: count for word, count, _ in found.examples} == unknown


def test_words_are_those_of_bert() -> None:
    assert split_words("Don't naïvely, OK?") == ["don", "'", "t", "naively", ",", "ok", "?"]
    assert split_words("Naïve", strip_accents=False) == ["naïve"]
    assert split_words("Straße\ud800", lower=False)[0].startswith("Straße")
