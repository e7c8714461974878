"""Locks that a thread held when the process was forked."""

from __future__ import annotations

import ast
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import bertkit
from bertkit.checkpoints.safetensors_format import _begun, read_header, reading_ahead, write_arrays
from bertkit.ragged import Ids, Ints
from bertkit.system import fork_locks
from bertkit.system.fork_locks import ForkSafeLock
from bertkit.tokenization.fast.chunk_cache import END, ChunkEncoder
from forked_child import succeeds

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


@contextmanager
def in_thread(work: Callable[[threading.Event, threading.Event], object]) -> Iterator[None]:
    """The block runs once the thread has set the first event, and the thread waits for the second one until then."""
    ready, done = threading.Event(), threading.Event()
    thread = threading.Thread(target=work, args=(ready, done))
    thread.start()
    assert ready.wait(30)
    try:
        yield
    finally:
        done.set()
        thread.join()


def succeeds_in_child(check: Callable[[], bool]) -> bool:
    """Whether it does in a forked child; one that is stuck is ended."""
    child = os.fork()
    if not child:
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    return succeeds(child)


class Guarded:
    def __init__(self) -> None:
        self.repaired = 0
        self.lock = ForkSafeLock(self.repair)

    def repair(self) -> None:
        self.repaired += 1

    def hold(self, ready: threading.Event, done: threading.Event) -> None:
        with self.lock:
            ready.set()
            done.wait()

    def can_be_held(self) -> bool:
        with self.lock:
            return self.repaired == 1


def test_a_lock_that_another_thread_holds_is_free_in_a_forked_child() -> None:
    guarded, idle = Guarded(), Guarded()
    with in_thread(guarded.hold):
        assert succeeds_in_child(guarded.can_be_held)
        assert succeeds_in_child(lambda: not idle.repaired), "what was not being changed needs no repair"
    assert not guarded.repaired, "only the child repairs"


def test_a_lock_of_the_thread_that_forks_stays_its_own() -> None:
    guarded = Guarded()

    def leave_and_take_again() -> bool:
        guarded.lock.__exit__()
        with guarded.lock:
            return not guarded.repaired

    with guarded.lock:
        assert succeeds_in_child(leave_and_take_again)


def test_it_keeps_nothing_alive() -> None:
    guarded = Guarded()
    before = len(fork_locks._all)
    gc.disable()
    try:
        del guarded
        assert len(fork_locks._all) == before - 1
    finally:
        gc.enable()


def test_a_child_that_is_forked_while_a_thread_opens_a_checkpoint(tmp_path: Path) -> None:
    file, usual = tmp_path / "model.safetensors", sys.getswitchinterval()
    write_arrays(file, {"a": np.ones(3, np.float32)})

    def open_slowly(ready: threading.Event, done: threading.Event) -> None:
        with reading_ahead(file):
            next(iter(_begun.headers.values())).result()
            ready.set()
            done.wait()
            assert "a" in read_header(file)

    with in_thread(open_slowly):
        assert sys.getswitchinterval() < usual
        assert succeeds_in_child(lambda: sys.getswitchinterval() == usual and "a" in read_header(file))
        write_arrays(file, {"b": np.ones(3, np.float32)})
        assert "b" in read_header(file), "what a thread has begun is its own"


class SlowEncoder(ChunkEncoder):
    """Each chunk's id is its length; a chunk "wait" takes until the event."""

    def __init__(self) -> None:
        super().__init__({})
        self.ready, self.done = threading.Event(), threading.Event()

    def _blocks(self, texts: Iterable[str]) -> Iterator[str]:
        for text in texts:
            yield f"{text} {END}"

    def _work_out(self, new: Sequence[str]) -> Iterator[tuple[Ints, Ids, Ints]]:
        if "wait" in new and not self.done.is_set():
            self.ready.set()
            assert self.done.wait(30)
        ids = np.array([len(chunk) for chunk in new], np.int32)
        yield np.arange(len(new)), ids, np.ones(len(new), np.int64)


def test_a_tokenizer_that_was_learning_words_gives_their_ids_in_a_forked_child() -> None:
    encoder = SlowEncoder()

    def learn(ready: threading.Event, done: threading.Event) -> None:
        encoder.ready, encoder.done = ready, done
        encoder.encode(["some words wait here"])

    def encodes() -> bool:
        encoder.done.set()
        return encoder.encode(["words wait"])[0].tolist() == [5, 4]

    with in_thread(learn):
        assert succeeds_in_child(encodes)
    assert encodes()


@pytest.mark.slow
def test_every_lock_of_bertkit_is_one_of_these() -> None:
    kinds = {"Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier"}
    found = []
    for path in sorted(Path(bertkit.__file__).parent.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if not any(f"{kind}(" in text for kind in kinds):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                elsewhere = ast.unparse(node.func).startswith(("asyncio.", "torch.cuda."))
                if name in kinds and not elsewhere:
                    found.append(path.name)
    # A batcher waits for its own thread, which no child has either: the server forks before the first request.
    assert found == ["batcher.py", *["fork_locks.py"] * 2]
