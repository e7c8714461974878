"""Stateless random numbers: each is a pure function of a key and a counter, computed for whole arrays at once.

The result of a stateful generator depends on everything drawn before. Here the 64 bits at counter ``c`` of a stream
depend on nothing else, so any worker can make any example, in any order, and a resumed run replays nothing. The
function is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014), whose state is a
counter anyway: its n-th number from seed ``k`` is ``bits(k, n)``. Not for cryptography.
"""

from __future__ import annotations

from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from bertkit.ragged import Ints

UInt64 = NDArray[np.uint64]
#: Counters of any integer type.
Integers = NDArray[np.integer]
#: A key, or one key per counter.
Key = int | UInt64

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_FIRST_FACTOR = 0xBF58476D1CE4E5B9
_SECOND_FACTOR = 0x94D049BB133111EB


def stream(seed: int, name: str, *parts: int) -> int:
    """64-bit key of the stream ``name`` for any integer seed and further numbers, e.g. the epoch."""
    key = 0
    for part in (seed, crc32(name.encode()), *parts):
        key = int(bits((key + _STEP + part) & _MASK, np.zeros(1, np.uint64))[0])
    return key


def bits(key: Key, counters: Integers) -> UInt64:
    """64 random bits for each counter of an array; the key is from :func:`stream`, or an array that broadcasts."""
    numbers = np.atleast_1d(counters).astype(np.uint64)
    return _mix(numbers * np.uint64(_STEP) + np.asarray(key, np.uint64))


def counters_of(key: int, drawn: UInt64) -> UInt64:
    """The inverse of :func:`bits`, which returns no number twice, with the same key."""

    def inverse(factor: int) -> np.uint64:
        return np.uint64(pow(factor, -1, 1 << 64))

    # x ^ (x >> n) is undone by the shifts n, 2 n, ... together, a product with an odd factor by its inverse.
    x = drawn ^ (drawn >> np.uint64(31)) ^ (drawn >> np.uint64(62))
    x = x * inverse(_SECOND_FACTOR)
    x = x ^ (x >> np.uint64(27)) ^ (x >> np.uint64(54))
    x = x * inverse(_FIRST_FACTOR)
    x = x ^ (x >> np.uint64(30)) ^ (x >> np.uint64(60))
    counters: UInt64 = (x - np.uint64(key)) * inverse(_STEP)
    return counters


def uniform(key: Key, counters: Integers) -> NDArray[np.float64]:
    """Numbers in [0, 1), multiples of 2**-53; arguments as in :func:`bits`."""
    return (bits(key, counters) >> np.uint64(11)).astype(np.float64) * np.float64(2.0**-53)


def below(key: Key, counters: Integers, bound: int | Ints) -> Ints:
    """Integers from 0 to ``bound`` - 1 (or one bound for each counter), equally likely up to ``bound`` / 2**53."""
    # The largest uniform number is 1 - 2**-53, and its product with any bound under 2**53 rounds to less than bound.
    return (uniform(key, counters) * bound).astype(np.int64)


def _mix(x: UInt64) -> UInt64:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(_FIRST_FACTOR)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(_SECOND_FACTOR)
    return x ^ (x >> np.uint64(31))
