"""CRC-32C equals its definition for every length and place, and the published check values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.checkpoints.tensorflow import crc as tensorflow_crc
from bertkit.checkpoints.tensorflow.crc import crc32c, masked
from tensorflow_helpers import crc32c_by_bits, crc32c_by_bytes, masked_by_bytes

#: RFC 3720, appendix B.4.
CHECKS = {
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
    b"123456789": 0xE3069283,
    b"": 0,
}


@pytest.mark.parametrize("data", CHECKS, ids=lambda data: data[:9].hex() or "empty")
def test_published_values(data: bytes) -> None:
    assert crc32c(data) == CHECKS[data] == crc32c_by_bits(data)


@given(st.binary(max_size=200), st.integers(0, 9))
def test_any_bytes(data: bytes, skipped: int) -> None:
    assert crc32c(memoryview(data)[skipped:]) == crc32c_by_bits(data[skipped:])
    assert crc32c_by_bytes(data) == crc32c_by_bits(data)
    assert masked(crc32c(data)) == masked_by_bytes(data)


@pytest.mark.parametrize("words", [5685, 2 * 5685 - 1, 2 * 5685, 2 * 5685 + 4323, 4 * 5685 + 1, 8 * 5685 + 7, 100_001])
def test_long_data_is_folded_right(words: int) -> None:
    """Bytes are the oracle, and bits the oracle of these, where bits would take too long."""
    data = np.random.default_rng(words).integers(0, 256, 8 * words + words % 8, dtype=np.uint8)
    right = crc32c_by_bytes(data.tobytes())
    assert crc32c(data) == right
    data[len(data) // 2] ^= 16
    assert crc32c(data) != right  # control: one bit is seen


def test_the_sparse_multiple_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """With other places, the folded checksum is wrong: they are what makes it right."""
    data = np.random.default_rng(0).integers(0, 256, 1 << 18, dtype=np.uint8)
    right = crc32c(data)
    near, middle, far = tensorflow_crc._TAPS
    monkeypatch.setattr(tensorflow_crc, "_TAPS", (near, middle + 1, far))
    assert crc32c(data) != right


def test_one_bit_at_every_place() -> None:
    data = bytearray(64)
    seen = {crc32c(data)}
    for place in range(512):
        data[place // 8] ^= 1 << place % 8
        seen.add(crc32c(data))
        data[place // 8] ^= 1 << place % 8
    assert len(seen) == 513
