"""Texts to features with the real tokenizer: truncation in every form, pairs, labels, and what is refused."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.errors import ConfigError, InputError
from bertkit.tasks import TASKS, load_split
from bertkit.tokenization import BertTokenizer
from bertkit.tokenization.features import featurize_texts
from bertkit.tokenization.templates import ROBERTA

WORDS = "the film was good and long but not too long to be dull".split()


@pytest.fixture(scope="module")
def tokenizer() -> BertTokenizer:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(WORDS), *map(str, range(1000))]
    return BertTokenizer({piece: number for number, piece in enumerate(pieces)})


def numbers(count: int) -> str:
    return " ".join(str(number % 1000) for number in range(count))


def test_equal_to_the_tokenizers_call(shared: Path, minilm: Path) -> None:
    tokenizer = BertTokenizer.from_pretrained(minilm)
    for name in ("rte", "cola"):
        rows = load_split(TASKS[name], shared / "data", "dev")[:150]
        texts, pairs = [row.text for row in rows], [row.text_pair or "" for row in rows] if name == "rte" else None
        features = featurize_texts(texts, pairs, tokenizer, max_length=64)
        plain = tokenizer(texts, pairs, truncation=True, max_length=64)
        whole = tokenizer(texts, pairs)
        assert [ids.tolist() for ids in features] == plain["input_ids"]
        assert [features.types(row).tolist() for row in range(len(features))] == plain["token_type_ids"]
        assert features.num_tokens_before.tolist() == [len(ids) for ids in whole["input_ids"]]
        assert features.truncated.tolist() == [len(ids) > 64 for ids in whole["input_ids"]]


def test_head_and_tail_as_in_the_paper(tokenizer: BertTokenizer) -> None:
    texts = [numbers(900), numbers(510), "good film", numbers(511)]
    features = featurize_texts(texts, None, tokenizer, max_length=512, truncation="head_tail")
    assert features.lengths.tolist() == [512, 512, 4, 512]
    assert features.num_tokens_before.tolist() == [902, 512, 4, 513]
    assert features.truncated.tolist() == [True, False, False, True]
    whole = tokenizer.encode_ragged(texts)
    ids = whole[0]
    assert features[0].tolist() == [*ids[:129], *ids[-383:]]  # [CLS] + 128, 382 + [SEP]
    assert features[1].tolist() == whole[1].tolist()
    assert features[2].tolist() == whole[2].tolist()
    assert features[3].tolist() == [*whole[3][:129], *whole[3][-383:]]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(3, 50))
def test_head_and_tail_at_any_limit(counts: list[int], limit: int) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(1000))]
    tokenizer = BertTokenizer({piece: number for number, piece in enumerate(pieces)})
    texts = [numbers(count) for count in counts]
    features = featurize_texts(texts, None, tokenizer, max_length=limit, truncation="head_tail")
    whole = tokenizer.encode_ragged(texts)
    for row, count in enumerate(counts):
        got, every = features[row].tolist(), whole[row].tolist()
        assert len(got) == min(count + 2, limit)
        head = next((place for place, (a, b) in enumerate(zip(got, every, strict=False)) if a != b), len(got))
        assert head >= min(2, len(got) - 1)
        assert got[head:] == every[len(every) - (len(got) - head) :]
        assert (got[0], got[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)


def test_too_long_is_an_error_when_asked_for(tokenizer: BertTokenizer) -> None:
    fine = featurize_texts([numbers(8)], None, tokenizer, max_length=10, truncation="error")
    assert fine.lengths.tolist() == [10]
    with pytest.raises(InputError, match=r"1 of 2 texts has more than 10 tokens \('text 1: 11'\).*allow truncation"):
        featurize_texts([numbers(8), numbers(9)], None, tokenizer, max_length=10, truncation="error")
    with pytest.raises(InputError, match="more than 512 tokens"):  # the tokenizer's own limit
        featurize_texts([numbers(600)], None, tokenizer, truncation="error")


def test_pairs_in_every_truncation(tokenizer: BertTokenizer) -> None:
    first, second = [numbers(10)], ["good " * 6]

    def lengths(truncation: str) -> list[int]:
        features = featurize_texts(first, second, tokenizer, max_length=11, truncation=truncation)
        types = features.token_type_ids.tolist()
        return [types.count(0) - 2, types.count(1) - 1]

    assert lengths("longest_first") == [4, 4]
    assert lengths("only_first") == [2, 6]
    with pytest.raises(InputError, match="single texts"):
        lengths("head_tail")


def test_the_largest_length_of_files_is_no_limit(tokenizer: BertTokenizer) -> None:
    """``transformers`` writes int(1e30) for a tokenizer without a limit, as that of T5."""
    no_limit = int(1e30)
    for truncation in ("longest_first", "only_first"):
        rows = featurize_texts([numbers(600)], ["good " * 9], tokenizer, max_length=no_limit, truncation=truncation)
        assert rows.lengths.tolist() == [612]
    assert featurize_texts([numbers(600)], None, tokenizer, max_length=no_limit).lengths.tolist() == [602]
    whole = featurize_texts([numbers(600)], None, tokenizer, max_length=no_limit, truncation="head_tail")
    assert whole.lengths.tolist() == [602]
    called = tokenizer(["good film"], ["bad"], truncation=True, max_length=no_limit)
    assert [len(row) for row in called["input_ids"]] == [6]


def test_settings_are_checked(tokenizer: BertTokenizer) -> None:
    with pytest.raises(ConfigError, match="unknown truncation 'longest'"):
        featurize_texts(["good"], None, tokenizer, truncation="longest")
    with pytest.raises(ConfigError, match="max_length=2 leaves no room for text beside the 2 special tokens"):
        featurize_texts(["good"], None, tokenizer, max_length=2)
    roberta = copy.copy(tokenizer)
    roberta.template = ROBERTA
    with pytest.raises(ConfigError, match="max_length=4 leaves no room for text beside the 4 special tokens"):
        featurize_texts(["good"], ["film"], roberta, max_length=4)
