"""CRC-32C (Castagnoli), the checksum in TensorFlow checkpoints, at nearly memory speed with numpy alone.

A CRC is the remainder of the data, as a polynomial over {0, 1}, modulo a fixed polynomial P. Two facts make it fast
without a compiled loop. Some sparse polynomials are multiples of P, here ``x^a + x^b + x^c + 1`` with a, b and c whole
numbers of 64-bit words: a word may be removed from the front if it is XORed into three later ones, and numpy moves
thousands of words with three calls. The rest is halved repeatedly: two neighbouring pieces become one,
``left * x^n + right``, where the product takes four look-ups in tables of 256 entries.

Source: RFC 3720, appendix B.4 (polynomial and check values).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint32]
Bytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]

#: P, with the highest power in the last bit.
_POLYNOMIAL = 0x82F63B78
_ALL = 0xFFFFFFFF
#: ``x^(64 a) + x^(64 b) + x^(64 c) + 1`` is a multiple of P, as ``(a - b, a - c, a)``: the distances at which a word
#: from the front is added. Its powers with exponent 2^k are multiples too.
_TAPS = (4323, 5259, 5685)
#: Largest distance in words (of 8 bytes), so that the working set stays in the cache.
_FAR = 1 << 16
_MASK_DELTA = 0xA282EAD8


def crc32c(data: Bytes) -> int:
    """The checksum of contiguous bytes, 32 bits, as RFC 3720 has it."""
    view = memoryview(data).cast("B")  # type: ignore[arg-type]
    whole = len(view) // 8 * 8
    register = _register(np.frombuffer(view, "<u8", whole // 8)) if whole else 0
    table = _after(0)[0]
    for byte in view[whole:]:
        register = int(table[(register ^ byte) & 255]) ^ (register >> 8)
    return register ^ _pushed(_ALL, len(view)) ^ _ALL


def masked(crc: int) -> int:
    """The form in which checkpoints store a CRC, so that a CRC of data with CRCs in it stays meaningful."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _ALL


def _register(words: npt.NDArray[np.uint64]) -> int:
    """The state after all words, from the state 0."""
    scale = 1
    while 4 * scale * _TAPS[2] <= len(words) and 2 * scale * _TAPS[2] <= _FAR:
        scale *= 2
    while scale:
        if 2 * scale * _TAPS[2] <= len(words):
            words = _folded(words, scale)
        scale //= 2
    pieces, level = words.view("<u4"), 2  # of 2^2 bytes
    while len(pieces) > 1:  # neighbours are combined
        if len(pieces) % 2:
            pieces = np.concatenate([np.zeros(1, np.uint32), pieces])  # zeros in front change nothing
        pieces = _pushed_all(pieces[0::2], level) ^ pieces[1::2]
        level += 1
    return int(_pushed_all(pieces, 2)[0])


def _folded(words: npt.NDArray[np.uint64], scale: int) -> npt.NDArray[np.uint64]:
    """Fewer words with the same remainder: all but the last ``_TAPS[2] * scale`` are folded into those."""
    near, middle, far = (scale * tap for tap in _TAPS)
    stop = len(words) - far
    moved = np.zeros(4 * far, np.uint64)  # the last `far` words taken, and room for more
    filled, taken = far, 0
    while taken < stop:
        if filled == len(moved):
            moved[:far] = moved[-far:]
            filled = far
        count = min(near, stop - taken, len(moved) - filled)
        word = moved[filled : filled + count]
        np.bitwise_xor(words[taken : taken + count], moved[filled - near : filled - near + count], out=word)
        np.bitwise_xor(word, moved[filled - middle : filled - middle + count], out=word)
        np.bitwise_xor(word, moved[filled - far : filled - far + count], out=word)
        filled, taken = filled + count, taken + count
    rest = words[stop:] ^ moved[filled - far : filled]
    rest[:middle] ^= moved[filled - middle : filled]
    rest[:near] ^= moved[filled - near : filled]
    return rest


def _pushed(register: int, count: int) -> int:
    """A state after ``count`` further bytes of 0."""
    level = 0
    while count:
        if count & 1:
            register = int(_pushed_all(np.array([register], np.uint32), level)[0])
        count >>= 1
        level += 1
    return register


def _pushed_all(registers: Words, level: int) -> Words:
    """States after ``2^level`` further bytes of 0."""
    tables = _after(level)
    return (  # type: ignore[no-any-return]
        tables[0][registers & 255]
        ^ tables[1][(registers >> 8) & 255]
        ^ tables[2][(registers >> 16) & 255]
        ^ tables[3][registers >> 24]
    )


@cache
def _after(level: int) -> Words:
    """``[place, byte]``: the state after ``2^level`` bytes of 0, from a state with only that byte set."""
    if level:
        return _pushed_all(_after(level - 1), level - 1)
    single: Words = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        single = (single >> np.uint32(1)) ^ (single & np.uint32(1)) * np.uint32(_POLYNOMIAL)
    states: Words = np.arange(256, dtype=np.uint32) << np.arange(0, 32, 8, dtype=np.uint32)[:, None]
    after: Words = single[states & np.uint32(255)] ^ (states >> np.uint32(8))
    return after
