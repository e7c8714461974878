"""Embeddings in C: sums of rows of tables in float32 and in 8 bits, normalized, and ids that are in no table."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertkit import BertConfig, BertModel
from bertkit.batch import Batch, Layout
from bertkit.engine.fused_modules import FusedEmbeddings
from bertkit.engine.native.library import NativeLibrary
from bertkit.engine.native.native_encoder import NativeEmbeddings
from bertkit.errors import InputError
from bertkit.weights.parts import ByteTable
from native_helpers import Array, normalized

pytestmark = pytest.mark.slow

SIZES = (50, 12, 2)


def tables(width: int) -> list[Array]:
    chance = np.random.default_rng(width)
    return [chance.normal(0.0, 1.0, (size, width)).astype(np.float32) for size in SIZES]


def norm_of(width: int) -> tuple[Array, Array]:
    chance = np.random.default_rng(width + 1)
    return chance.uniform(0.5, 1.5, width).astype(np.float32), chance.normal(0.0, 0.3, width).astype(np.float32)


def ids_of(tokens: int) -> list[Array]:
    chance = np.random.default_rng(tokens)
    return [chance.integers(0, size, tokens) for size in SIZES]


@pytest.mark.parametrize("width", [1, 26, 312])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_sums_are_normalized(any_library: NativeLibrary, width: int, count: int) -> None:
    held, norm = tables(width)[:count], norm_of(width)
    embed = NativeEmbeddings(any_library, held, norm, 1e-6)
    for tokens in (1, 7, 200):
        ids = ids_of(tokens)[:count]
        total = sum(table[numbers].astype(np.float64) for table, numbers in zip(held, ids, strict=True))
        found = embed(ids)
        assert found is not None
        np.testing.assert_allclose(found, normalized(np.asarray(total), norm, 1e-6), atol=1e-5)


@pytest.mark.parametrize("width", [26, 312])
def test_tables_in_8_bits(any_library: NativeLibrary, width: int) -> None:
    """Beside one in float32, as positions mostly are."""
    chance, norm = np.random.default_rng(0), norm_of(width)
    words = chance.integers(-127, 128, (SIZES[0], width)).astype(np.int8)
    units = chance.uniform(0.001, 0.02, SIZES[0]).astype(np.float32)
    columns = chance.uniform(0.1, 10.0, width).astype(np.float32)
    positions = tables(width)[1]
    embed = NativeEmbeddings(any_library, [ByteTable(words, units, columns), positions], norm, 1e-6)
    ids = ids_of(90)[:2]
    found = embed(ids)
    assert found is not None
    total = words[ids[0]].astype(np.float64) * units[ids[0], None] * columns + positions[ids[1]]
    np.testing.assert_allclose(found, normalized(total, norm, 1e-6), atol=1e-5)
    ids[1][89] = SIZES[1]
    assert embed(ids) is None


def test_changes_of_a_table_are_seen(native: NativeLibrary) -> None:
    held = tables(26)
    embed = NativeEmbeddings(native, held, norm_of(26), 1e-6)
    ids = [np.array([3, 4]) % size for size in SIZES]
    before = embed(ids)
    held[0][3] += 1.0 + np.arange(26)
    after = embed(ids)
    assert before is not None
    assert after is not None
    np.testing.assert_array_equal(before[1], after[1])
    assert np.abs(before[0] - after[0]).max() > 0.1


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("value", [-1, 10**12, None])
def test_an_id_that_is_in_no_table(native: NativeLibrary, place: int, value: int | None) -> None:
    embed = NativeEmbeddings(native, tables(26), norm_of(26), 1e-6)
    ids = ids_of(9)
    assert embed(ids) is not None
    ids[place][4] = SIZES[place] if value is None else value
    assert embed(ids) is None


def test_the_model_says_what_is_wrong_with_an_id(native: NativeLibrary) -> None:
    config = BertConfig(
        vocab_size=50, hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8,
        max_position_embeddings=12,
    )  # fmt: skip
    plain = BertModel(config).eval().embeddings
    fused = FusedEmbeddings(plain, config, native)

    def batch(token: int = 5, position: int = 1, segment: int = 0) -> Batch:
        rows = ([7, token], [0, position], [0, segment])
        ids, positions, segments = (torch.tensor(row) for row in rows)
        return Batch(input_ids=ids, token_type_ids=segments, position_ids=positions, layout=Layout((2,)))

    with torch.inference_mode():
        assert torch.allclose(fused(batch()), plain(batch()), atol=1e-6)
        for wrong, said in (
            (batch(token=50), r"input_ids has 50, outside 0 \.\.\. 49 \(vocab_size of the model\)"),
            (batch(token=-1), "input_ids has -1"),
            (batch(position=12), r"position_ids has 12, outside 0 \.\.\. 11"),
            (batch(segment=2), "token_type_ids has 2"),
        ):
            with pytest.raises(InputError, match=said):
                fused(wrong)
