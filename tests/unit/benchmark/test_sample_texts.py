"""The texts of a benchmark: their lengths, their tokens, and which of a user's are taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bertkit import BertConfig, BertTokenizer
from bertkit.benchmark.sample_texts import (
    SampleTexts,
    builtin_lengths,
    make_sample,
    num_texts_for,
    random_rows,
    read_sample,
    save_rows,
)
from bertkit.errors import DataError
from pipeline_helpers import VOCABULARY, save_tiny


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> BertTokenizer:
    return BertTokenizer.from_pretrained(save_tiny(tmp_path_factory.mktemp("tiny")))


def test_builtin_lengths_are_as_documented() -> None:
    lengths = builtin_lengths(512, 512, seed=0)
    assert lengths.mean() == pytest.approx(33, abs=0.7)
    assert np.median(lengths) == 24
    assert np.percentile(lengths, 95) == pytest.approx(90, abs=2)
    assert (lengths.min(), lengths.max()) == (4, 239)


def test_the_seed_decides_only_the_order() -> None:
    first, again, other = (builtin_lengths(200, 512, seed=seed) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.array_equal(np.sort(first), np.sort(other))
    assert builtin_lengths(200, 64, seed=0).max() == 64


def test_random_rows_hold_ordinary_tokens_between_the_special_ones(tokenizer: BertTokenizer) -> None:
    rows = random_rows([2, 5, 64], tokenizer, seed=0)
    assert rows.lengths.tolist() == [2, 5, 64]
    for ids in rows:
        tokens = [VOCABULARY[number] for number in ids]
        assert (tokens[0], tokens[-1]) == ("[CLS]", "[SEP]")
        assert not set(tokens[1:-1]) & {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
    assert len(set(rows[2].tolist())) > 20
    assert np.array_equal(rows.ids, random_rows([2, 5, 64], tokenizer, seed=0).ids)
    assert not np.array_equal(rows.ids, random_rows([2, 5, 64], tokenizer, seed=1).ids)


def test_given_texts_keep_their_order(tokenizer: BertTokenizer) -> None:
    texts = ["a " * (number + 1) for number in range(30)]
    every = read_sample(texts, tokenizer, 100, 64, seed=0)
    assert every.rows.lengths.tolist() == [number + 3 for number in range(30)]
    assert every.origin == "given, 0 truncated"
    some = read_sample(texts, tokenizer, 10, 20, seed=0)
    assert len(some.rows) == 10
    assert (np.diff(some.rows.lengths) >= 0).all()
    assert some.rows.lengths.max() <= 20
    assert some.origin.startswith("drawn from the 30 given, ")
    with pytest.raises(DataError, match="no text to measure with"):
        read_sample([], tokenizer, 10, 20, seed=0)


def test_larger_models_read_fewer_texts() -> None:
    small = {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}
    assert num_texts_for(BertConfig(**small, num_hidden_layers=6)) == 512
    assert num_texts_for(BertConfig(**small, num_hidden_layers=12)) == 256
    assert num_texts_for(BertConfig(**small, num_hidden_layers=1)) == 512
    assert num_texts_for(BertConfig()) == 96


def test_a_description_and_a_file(tokenizer: BertTokenizer, tmp_path: Path) -> None:
    sample = make_sample(tokenizer, 100, 64, seed=0)
    assert isinstance(sample, SampleTexts)
    assert sample.describe().startswith(f"100 texts, {sample.rows.lengths.sum():,} tokens (mean ")
    assert sample.describe().endswith("built-in lengths, random tokens")
    with np.load(save_rows(sample.rows, tmp_path / "rows.npz")) as arrays:
        assert np.array_equal(arrays["ids"], sample.rows.ids)
        assert np.array_equal(arrays["boundaries"], sample.rows.boundaries)
