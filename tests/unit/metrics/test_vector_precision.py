"""Vectors in fewer bits: the numbers one by one, back again, and what they cost."""

from __future__ import annotations

import numpy as np
import pytest

from bertkit import InputError
from bertkit.metrics.vector_precision import VECTOR_PRECISIONS, precision_loss, quantized, ranges_of, restored

RANDOM = np.random.default_rng(1)
#: Three groups of vectors, of 18 numbers: no whole number of bytes.
VECTORS = (RANDOM.normal(size=(3, 1, 18)) + 0.5 * RANDOM.normal(size=(3, 40, 18))).reshape(120, 18).astype(np.float32)


def test_whole_numbers_one_by_one():
    low, high = VECTORS[:100].min(0), VECTORS[:100].max(0)
    found = quantized(VECTORS, "uint8", VECTORS[:100])
    for vector, row in zip(VECTORS.tolist(), found.tolist(), strict=True):
        for x, number, least, most in zip(vector, row, low.tolist(), high.tolist(), strict=True):
            assert number == pytest.approx(min(255, max(0, (x - least) * 255 / (most - least))), abs=1)
            assert abs(number - min(255, max(0, int((x - least) * 255 / (most - least))))) <= 1
    assert found.dtype == np.uint8
    less = quantized(VECTORS, "int8", VECTORS[:100])
    assert less.dtype == np.int8
    np.testing.assert_array_equal(less.astype(int) + 128, found)
    np.testing.assert_array_equal(quantized(VECTORS, "int8", ranges_of(VECTORS[:100])), less)  # ranges as well
    step = (high - low) / 255
    back = restored(less, "int8", 18, VECTORS[:100])
    assert (np.abs(back - VECTORS) <= 0.51 * step)[:100].all()
    np.testing.assert_array_equal(back, restored(found, "uint8", 18, VECTORS[:100]))


def test_one_bit_for_a_sign():
    found = quantized(VECTORS, "ubinary")
    assert (found.dtype, found.shape) == (np.dtype(np.uint8), (120, 3))
    bits = ["".join("1" if x > 0 else "0" for x in vector) + "000000" for vector in VECTORS]
    assert [[f"{byte:08b}" for byte in row] for row in found.tolist()] == [[b[:8], b[8:16], b[16:]] for b in bits]
    signed = quantized(VECTORS, "binary")
    np.testing.assert_array_equal(signed.astype(int) + 128, found)
    for values, precision in ((found, "ubinary"), (signed, "binary")):
        np.testing.assert_array_equal(restored(values, precision, 18), np.where(VECTORS > 0, 1, -1))


def test_a_number_that_is_always_the_same_stays_it():
    flat = VECTORS.copy()
    flat[:, 3] = 0.25
    back = restored(quantized(flat, "int8", flat), "int8", 18, flat)
    assert np.isfinite(back).all()


def test_the_loss_grows_with_fewer_bits():
    losses = {name: precision_loss(VECTORS, name) for name in VECTOR_PRECISIONS}
    assert losses["float32"].spearman == pytest.approx(1)
    assert losses["float32"].neighbors == 1
    assert 0.99 < losses["int8"].spearman == losses["uint8"].spearman < 1
    assert losses["binary"].spearman < losses["int8"].spearman
    assert losses["binary"].neighbors < losses["int8"].neighbors <= 1
    assert (losses["int8"].size, losses["ubinary"].size) == (0.25, 3 / 72)
    assert "int8 vectors have 25.0% of the size; of 120 vectors" in str(losses["int8"])
    other = precision_loss(VECTORS, "int8", VECTORS[:, ::-1].copy() * 0.01)  # control: ranges of other vectors
    assert other.spearman < losses["int8"].spearman - 0.05
    assert precision_loss(VECTORS[:5], "binary").nearest == 3


def test_neighbors_are_counted_as_by_hand():
    vectors = VECTORS[:6]
    loss = precision_loss(vectors, "binary", nearest=2)
    kept = 0
    for exact, coarse in ((vectors, restored(quantized(vectors, "binary"), "binary", 18)),):
        for row in range(6):
            order = []
            for x in (exact, coarse):
                unit = x / np.linalg.norm(x, axis=1, keepdims=True)
                near = sorted(
                    (other for other in range(6) if other != row), key=lambda o: (-float(unit[row] @ unit[o]), o)
                )
                order.append(set(near[:2]))
            kept += len(order[0] & order[1])
    assert loss.neighbors == pytest.approx(kept / 12)


def test_a_large_collection_is_thinned_out():
    many = np.random.default_rng(2).normal(size=(2_001, 8)).astype(np.float32)
    assert precision_loss(many, "int8").compared == 1_001


def test_bad_input():
    with pytest.raises(InputError, match=r"no precision 'int4' \(did you mean 'uint8'\?\)|no precision 'int4'"):
        quantized(VECTORS, "int4")
    with pytest.raises(InputError, match="int8 vectors need ranges: encode some hundred typical texts"):
        quantized(VECTORS, "int8")
    with pytest.raises(InputError, match="have 18 numbers, those of calibration= have 17"):
        quantized(VECTORS, "int8", VECTORS[:, :17])
    with pytest.raises(InputError, match="at least two vectors"):
        ranges_of(VECTORS[:1])
    with pytest.raises(InputError, match="at least three vectors"):
        precision_loss(VECTORS[:2], "int8")
