"""What would hold up the event loop of a server: many answers at once, and garbage that only the collector finds."""

from __future__ import annotations

import asyncio
import gc
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bertkit.server import service as service_module
from bertkit.server.calls import Call
from bertkit.server.failures import Failure
from bertkit.server.parts import Work
from bertkit.server.service import Service
from server_helpers import ask, held, itself, save_models, serving, with_service


def most_answers_between_turns(folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of 100 answers of one batch or two, how many are handed out without another coroutine having its turn."""
    found: list[int] = []

    async def use(service: Service) -> None:
        turns = 0

        async def taking_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        with held(monkeypatch) as may_go_on:
            texts = [f"a good film {number}" for number in range(100)]
            sent = [service.submit(Call(task="embed", items=[text]), itself) for text in texts]
            other = asyncio.ensure_future(taking_turns())
            at: list[int] = []
            for future in sent:
                future.add_done_callback(lambda _: at.append(turns))
            may_go_on.set()
            await asyncio.gather(*sent)
            other.cancel()
        found.append(max(map(at.count, at)))

    with_service(folder, ("vectors",), use)
    return found[0]


def test_answers_of_a_batch_leave_room_for_other_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 2 * service_module._AT_ONCE  # of two batches: the first begins while the others are sent
    assert most_answers_between_turns(tmp_path / "slices", monkeypatch) <= most
    monkeypatch.setattr(service_module, "_AT_ONCE", 1_000)  # as a control
    assert most_answers_between_turns(tmp_path / "whole", monkeypatch) > most


def calls_alive() -> int:
    """Calls that the server has not forgotten."""
    return sum(type(each) is Work for each in gc.get_objects())


def test_what_is_over_is_gone_without_the_collector(tmp_path: Path) -> None:
    models = save_models(tmp_path, ("vectors",))
    with serving(*models, precision="fp32", max_batch_tokens=64) as (_, address):
        gc.collect()
        gc.disable()
        others = calls_alive()
        try:
            for number in range(4):
                text = f"a good film {number}"
                assert ask(address, "/v1/embed", {"input": text}).status == 200
                assert ask(address, "/v1/embed", {"input": [text] * 20}).status == 200, "in parts"
                assert ask(address, "/v1/embed", {"input": [text * 200], "overflow": "error"}).status == 422
                assert ask(address, "/v1/embed", {"input": text, "timeout": 0.001}).status in (200, 504)
            end = time.monotonic() + 20
            while calls_alive() > others + 4:  # a worker knows those of its last batch
                assert time.monotonic() < end, calls_alive()
                time.sleep(0.05)
        finally:
            gc.enable()


def test_a_refused_call_is_gone_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(service: Service) -> None:
        def submitted(number: int, wait: float | None = None) -> asyncio.Future[Any] | None:
            try:
                return service.submit(Call(task="embed", items=[f"a good film {number}"] * 8, wait=wait), itself)
            except Failure as failure:
                if failure.cause != "queue_tokens":
                    raise
                return None

        others = calls_alive()
        with held(monkeypatch) as may_go_on:
            accepted = []
            while (future := submitted(len(accepted))) is not None:
                accepted.append(future)
            assert not any(map(submitted, range(20)))
            for _ in range(5):
                with suppress(Failure):
                    await service.answer(Call(task="embed", items=["a good film"] * 8, wait=0.05), itself)
            assert calls_alive() <= others + len(accepted)
            may_go_on.set()
            await asyncio.gather(*accepted)

    gc.collect()
    gc.disable()
    try:
        with_service(tmp_path, ("vectors",), use, max_queue_tokens=256, max_batch_tokens=64)
    finally:
        gc.enable()
