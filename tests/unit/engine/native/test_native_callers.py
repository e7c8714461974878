"""Many callers of one encoder: threads of Python, forked processes, encoders that come and go."""

from __future__ import annotations

import copy
import ctypes
import gc
import multiprocessing
import os
import pickle
import platform
import resource
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit.engine.native.library import NativeLibrary, load
from bertkit.engine.native.native_encoder import NativeEncoder
from bertkit.errors import ResourceError
from bertkit.weights.parts import FloatMatrix, Layer
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


def spawned(target: Callable[[Path, Connection], None], path: Path) -> tuple[Connection, SpawnProcess]:
    """``target`` of the library and one end of a pipe in a new process, and the other end."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=target, args=(path, theirs), daemon=True)
    child.start()
    return ours, child


def encode_on(path: Path, end: Connection) -> None:
    """Leave a daemon thread in the library when the interpreter exits."""
    shape = shape_of(256, 4, 1024)
    encoder = native_encoder(load(path), shape, random_weights(shape))
    x, starts = random_rows(256, 400)

    def calls() -> None:
        while True:
            encoder(x, starts)

    threading.Thread(target=calls, daemon=True).start()
    time.sleep(0.3)
    end.send("started")


def test_a_daemon_thread_may_compute_when_the_interpreter_exits(native: NativeLibrary) -> None:
    ours, child = spawned(encode_on, native.path)
    assert ours.poll(60)
    child.join(60)
    assert child.exitcode == 0


#: Children; each takes some milliseconds to come and go.
FORKS = 50


def fork_often(path: Path, end: Connection) -> None:
    """Send how many forked children can encode, while four threads do so in this process."""
    shape = shape_of(2, 1, 2, order=(0,))
    encoder = native_encoder(load(path), shape, random_weights(shape))
    x, starts = random_rows(2, 1)

    def calls() -> None:
        while True:
            encoder(x, starts)

    for _ in range(4):
        threading.Thread(target=calls, daemon=True).start()
    good = 0
    for _ in range(FORKS):
        child = os.fork()
        if not child:
            signal.alarm(10)  # kills one that is stuck
            encoder(x, starts)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            break
        good += 1
    end.send(good)
    os._exit(0)


def test_a_child_can_be_forked_at_any_moment(native: NativeLibrary) -> None:
    ours, child = spawned(fork_often, native.path)
    assert ours.poll(120)
    assert ours.recv() == FORKS
    child.join()


def resident() -> int:
    """Bytes of this process in memory."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def return_freed_memory() -> None:
    """From now on what this process frees is no longer resident, but for small pieces."""
    ctypes.CDLL(None).mallopt(-3, 1 << 16)  # M_MMAP_THRESHOLD of glibc


def come_and_go(path: Path, end: Connection) -> None:
    """Send what memory holds, in bytes of one encoder's weights: beside ten encoders, and after 60 that are gone."""
    return_freed_memory()
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
    end.send(((beside - before) / one, (use(60) - before) / one))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
def test_encoders_are_freed(native: NativeLibrary) -> None:
    """In a process of its own: memory that earlier tests have freed would be taken first."""
    ours, child = spawned(come_and_go, native.path)
    assert ours.poll(120)
    held, gone = ours.recv()
    child.join()
    assert held > 6  # the control: those that are held can be seen
    assert gone < 6


def peak_and_rest(path: Path, end: Connection) -> None:
    """Send what buffers hold, in bytes of those of one call: while 24 threads call, and afterwards."""
    return_freed_memory()
    shape = shape_of(256, 4, 1024, order=(0,))
    encoder = native_encoder(load(path), shape, random_weights(shape))
    x, starts = random_rows(256, 2000)
    before = resident()
    encoder(x, starts)
    one = resident() - before
    together = threading.Barrier(24)

    def call() -> None:
        together.wait()
        encoder(x, starts)

    callers = [threading.Thread(target=call) for _ in range(24)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    end.send(((peak - before) / one, (resident() - before) / one))


@pytest.mark.campaign
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_buffers_of_many_callers_at_once_are_freed(native: NativeLibrary) -> None:
    ours, child = spawned(peak_and_rest, native.path)
    assert ours.poll(120)
    peak, rest = ours.recv()
    child.join()
    assert peak > 12  # the control: so many were in use
    assert rest < 7


def test_no_copy_shares_an_encoder(native: NativeLibrary) -> None:
    shape = shape_of(26, 2, 30)
    encoder = native_encoder(native, shape, random_weights(shape))
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="NativeEncoder can be neither copied nor pickled"):
            make(encoder)


def test_an_encoder_that_does_not_fit_in_memory(native: NativeLibrary) -> None:
    """Its first matrix alone would take another 3 GiB, more than earlier tests may have freed; zeros take no memory."""
    matrix = FloatMatrix(np.zeros((3 * 16384, 16384), np.float32), np.zeros(3 * 16384, np.float32))
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), hard))
    try:
        with pytest.raises(ResourceError, match="no memory for BERTKIT_QKV of layer 0: use shorter texts"):
            NativeEncoder(native, shape_of(16384, 128, 64, order=(0,)), [Layer((matrix,), ())])
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
