"""Many callers of one encoder: threads of Python, forked processes, encoders that come and go."""

from __future__ import annotations

import gc
import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit.engine.native.library import NativeLibrary, load
from native_helpers import Array, native_encoder, random_rows, random_weights, shape_of

pytestmark = pytest.mark.slow


def test_many_threads_call_one_encoder_at_once(any_library: NativeLibrary) -> None:
    """Texts of many lengths and numbers of threads, so that buffers grow and the pool is mostly taken."""
    shape = shape_of(48, 4, 96)
    encoder = native_encoder(any_library, shape, random_weights(shape))
    jobs = [random_rows(48, *range(1, 2 + number % 11), 1 + number * 7 % 90, seed=number) for number in range(40)]
    expected = [encoder(x, starts) for x, starts in jobs]

    def call(number: int) -> float:
        x, starts = jobs[number % 40]
        found = encoder(x, starts, threads=1 + number % 5)
        return float(np.abs(found - expected[number % 40]).max())

    with ThreadPoolExecutor(8) as pool:
        assert max(pool.map(call, range(800))) < 1e-6
    assert np.abs(expected[1] - native_encoder(any_library, shape, random_weights(shape, 9))(*jobs[1])).max() > 1e-2


def answer(encoder: Any, x: Array, starts: Array, end: Connection) -> None:
    end.send(encoder(x, starts, threads=2))
    end.close()


def test_a_forked_child_computes_as_well(native: NativeLibrary) -> None:
    """It has none of the threads that its parent's calls had started, and starts its own."""
    shape = shape_of(48, 4, 96)
    encoder = native_encoder(native, shape, random_weights(shape))
    x, starts = random_rows(48, 30, 80)
    expected = encoder(x, starts, threads=2)
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        ours, theirs = context.Pipe()
        child = context.Process(target=answer, args=(encoder, x, starts, theirs))
        child.start()
        try:
            assert ours.poll(60), "the child is stuck"
            np.testing.assert_allclose(ours.recv(), expected, atol=1e-6)
        finally:
            child.kill()
            child.join()
        np.testing.assert_allclose(encoder(x, starts, threads=2), expected, atol=1e-6)


def resident() -> int:
    """Bytes of this process in memory."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def come_and_go(path: Path, end: Connection) -> None:
    """Send what memory holds, in bytes of one encoder's weights: beside ten encoders, and after 200 that are gone."""
    library = load(path)
    shape = shape_of(256, 4, 1024, order=(0,))
    weights = random_weights(shape)
    x, starts = random_rows(256, 100)

    def use(count: int) -> int:
        for _ in range(count):
            native_encoder(library, shape, weights)(x, starts, threads=2)
        gc.collect()
        return resident()

    before = use(5)
    held = [native_encoder(library, shape, weights) for _ in range(10)]
    beside = resident()
    held.clear()
    one = 4 * (4 * 256 * 256 + 2 * 256 * 1024)
    end.send(((beside - before) / one, (use(200) - before) / one))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_encoders_are_freed(native: NativeLibrary) -> None:
    """In a process of its own: memory that earlier tests have freed would be taken first."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=come_and_go, args=(native.path, theirs))
    child.start()
    assert ours.poll(120)
    held, gone = ours.recv()
    child.join()
    assert held > 6  # the control: those that are held can be seen
    assert gone < 6
