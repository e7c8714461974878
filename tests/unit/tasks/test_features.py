"""Texts to features with the real tokenizer: truncation in every form, pairs, labels, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertkit.errors import ConfigError, InputError
from bertkit.tasks import TASKS, Example, load_split
from bertkit.tasks.text.features import featurize, featurize_texts
from bertkit.tokenization import BertTokenizer

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
        features = featurize(rows, tokenizer, 64)
        pairs = [row.text_pair for row in rows] if name == "rte" else None
        plain = tokenizer([row.text for row in rows], pairs, truncation=True, max_length=64)
        whole = tokenizer([row.text for row in rows], pairs)
        for number, feature in enumerate(features[row] for row in range(len(features))):
            assert feature.input_ids.tolist() == plain["input_ids"][number]
            assert feature.token_type_ids.tolist() == plain["token_type_ids"][number]
            assert feature.num_tokens == len(whole["input_ids"][number])
            assert feature.truncated == (feature.num_tokens > 64)
            assert feature.label == rows[number].label
    assert features.labels is not None
    assert features.labels.dtype == np.int64


def test_head_and_tail_as_in_the_paper(tokenizer: BertTokenizer) -> None:
    texts = [numbers(900), numbers(510), "good film", numbers(511)]
    features = featurize_texts(texts, None, tokenizer, max_length=512, truncation="head_tail")
    assert features.lengths.tolist() == [512, 512, 4, 512]
    assert features.num_tokens.tolist() == [902, 512, 4, 513]
    assert features.truncated.tolist() == [True, False, False, True]
    whole = tokenizer.encode_ragged(texts)
    ids = whole[0]
    assert features[0].input_ids.tolist() == [*ids[:129], *ids[-383:]]  # [CLS] + 128, 382 + [SEP]
    assert features[1].input_ids.tolist() == whole[1].tolist()
    assert features[2].input_ids.tolist() == whole[2].tolist()
    assert features[3].input_ids.tolist() == [*whole[3][:129], *whole[3][-383:]]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(3, 50))
@settings(max_examples=100, deadline=None)
def test_head_and_tail_at_any_limit(counts: list[int], limit: int) -> None:
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(1000))]
    tokenizer = BertTokenizer({piece: number for number, piece in enumerate(pieces)})
    texts = [numbers(count) for count in counts]
    features = featurize_texts(texts, None, tokenizer, max_length=limit, truncation="head_tail")
    whole = tokenizer.encode_ragged(texts)
    for row, count in enumerate(counts):
        got, every = features[row].input_ids.tolist(), whole[row].tolist()
        assert len(got) == min(count + 2, limit)
        head = next((place for place, (a, b) in enumerate(zip(got, every, strict=False)) if a != b), len(got))
        assert head >= min(2, len(got) - 1)
        assert got[head:] == every[len(every) - (len(got) - head) :]
        assert (got[0], got[-1]) == (tokenizer.cls_token_id, tokenizer.sep_token_id)


def test_too_long_is_an_error_when_asked_for(tokenizer: BertTokenizer) -> None:
    fine = featurize_texts([numbers(8)], None, tokenizer, max_length=10, truncation="error")
    assert fine.lengths.tolist() == [10]
    with pytest.raises(InputError, match=r"1 of 2 texts have more than 10 tokens \('text 1: 11'\).*allow truncation"):
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


def test_labels(tokenizer: BertTokenizer) -> None:
    scores = featurize([Example("good", None, 1.0), Example("film", None, 2.5)], tokenizer)
    assert scores.labels is not None
    assert (scores.labels.dtype, scores.labels.tolist()) == (np.float32, [1.0, 2.5])
    assert featurize([Example("good"), Example("film")], tokenizer).labels is None
    with pytest.raises(InputError, match="1 of 2 examples have a label"):
        featurize([Example("good", None, 1), Example("film")], tokenizer)
    with pytest.raises(InputError, match="1 of 2 examples are pairs"):
        featurize([Example("good", "film", 1), Example("film", None, 1)], tokenizer)
    with pytest.raises(InputError, match="no examples"):
        featurize([], tokenizer)
    with pytest.raises(InputError, match="no texts"):
        featurize_texts([], None, tokenizer)


def test_settings_are_checked(tokenizer: BertTokenizer) -> None:
    with pytest.raises(ConfigError, match="unknown truncation 'longest'"):
        featurize_texts(["good"], None, tokenizer, truncation="longest")
    with pytest.raises(ConfigError, match="max_length=2 leaves no room beside 2 special tokens"):
        featurize_texts(["good"], None, tokenizer, max_length=2)
