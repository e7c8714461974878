"""Keys and what each may ask for in a minute. Time is passed in."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.errors import ConfigError
from bertkit.server.failures import Failure
from bertkit.server.keys import ApiKey, KeyLimits, read_keys
from bertkit.server.settings import ServeSettings
from server_helpers import NDJSON, ask, body_of, lines_of, save_models, serving

FILM = {"input": "a good film"}
FIRST, SECOND = "key 0", "key 1"


def keys_in(folder: Path, text: str) -> list[ApiKey]:
    file = folder / "keys"
    file.write_text(text)
    return read_keys(ServeSettings(api_keys_file=file))


def test_lines_are_keys_with_limits(tmp_path: Path) -> None:
    found = keys_in(
        tmp_path, "# ours\nplain\n\n  one requests_per_minute=3\ntwo tokens_per_minute=9 requests_per_minute=1\n"
    )
    assert found == [ApiKey(b"plain"), ApiKey(b"one", 3), ApiKey(b"two", 1, 9)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("secret requests_per_hour=3", "requests_per_minute=N and tokens_per_minute=N only"),
        ("secret words", "requests_per_minute=N and tokens_per_minute=N only"),
        ("secret tokens_per_minute=0", "tokens_per_minute must be a whole number from 1"),
        ("secret tokens_per_minute=many", "tokens_per_minute must be a whole number from 1"),
    ],
)
def test_a_wrong_line_is_named_and_its_key_is_not(tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(ConfigError) as failed:
        keys_in(tmp_path, f"other\n{line}\n")
    assert "line 2" in str(failed.value)
    assert said in str(failed.value)
    assert "secret" not in str(failed.value)


def test_a_key_that_stands_twice_is_refused(tmp_path: Path) -> None:
    """Only the first would count, and the limits of the other would say nothing."""
    with pytest.raises(ConfigError, match="has a key twice"):
        keys_in(tmp_path, "secret\nother\nsecret requests_per_minute=3\n")


class Clock:
    """A time that stands still until it is told."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def refused(call: Callable[..., None], *given: Any) -> Failure | None:
    try:
        call(*given)
    except Failure as failure:
        return failure
    return None


def test_requests_of_one_key_are_counted_and_those_of_another_are_not() -> None:
    clock = Clock()
    limits = KeyLimits([ApiKey(b"a", requests_per_minute=6), ApiKey(b"b")], clock)
    assert [refused(limits.take_request, FIRST) for _ in range(6)] == [None] * 6
    failure = refused(limits.take_request, FIRST)
    assert failure is not None
    assert (failure.kind, failure.cause, failure.retry_after) == ("overloaded", "key_requests", 10.0)
    assert [refused(limits.take_request, SECOND) for _ in range(100)] == [None] * 100
    clock.now += 9.9
    assert refused(limits.take_request, FIRST) is not None
    clock.now += 0.2
    assert refused(limits.take_request, FIRST) is None
    assert refused(limits.take_request, FIRST) is not None
    clock.now += 1000
    assert [refused(limits.take_request, FIRST) is None for _ in range(7)] == [True] * 6 + [False], "a minute's at most"


def test_tokens_are_counted_once_they_are_known() -> None:
    clock = Clock()
    limits = KeyLimits([ApiKey(b"a", tokens_per_minute=60), ApiKey(b"b", tokens_per_minute=60)], clock)
    limits.check_tokens(FIRST)
    limits.spend(FIRST, 90)
    failure = refused(limits.take_request, FIRST)
    assert failure is not None
    assert (failure.cause, failure.retry_after) == ("key_tokens", 31.0)
    assert refused(limits.check_tokens, SECOND) is None
    clock.now += failure.retry_after
    assert refused(limits.check_tokens, FIRST) is None


@given(st.lists(st.tuples(st.floats(0, 20), st.integers(1, 5)), max_size=60))
def test_no_minute_has_more_than_twice_the_limit(steps: list[tuple[float, int]]) -> None:
    """What has gathered, and what comes back meanwhile; and in the long run no more than the limit."""
    clock, taken = Clock(), []
    limits = KeyLimits([ApiKey(b"a", requests_per_minute=7)], clock)
    for seconds, tries in steps:
        clock.now += seconds
        taken += [clock.now for _ in range(tries) if refused(limits.take_request, FIRST) is None]
    for begin in taken:
        assert sum(begin <= each < begin + 60 for each in taken) <= 14
    assert len(taken) <= 7 + (clock.now - 1000) / 60 * 7 + 1e-6


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="workers share memory on Linux")
def test_processes_count_together() -> None:
    limits = KeyLimits([ApiKey(b"a", requests_per_minute=1000)], Clock())
    workers = []
    for _ in range(4):
        worker = os.fork()
        if not worker:
            for _ in range(240):
                limits.take_request(FIRST)
            os._exit(0)
        workers.append(worker)
    assert [os.waitpid(worker, 0)[1] for worker in workers] == [0] * 4
    assert [refused(limits.take_request, FIRST) is None for _ in range(41)] == [True] * 40 + [False]


def test_only_the_key_with_a_limit_is_refused_in_the_words_of_its_client(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("free\nfew requests_per_minute=2\nshort tokens_per_minute=12\n")
    with serving(*save_models(tmp_path, ("vectors",)), api_keys_file=keys) as (app, address):
        app._guarded._limits._clock = Clock()  # type: ignore[union-attr]

        def status(key: str, path: str = "/v1/embed", body: Any = FILM) -> int:
            return ask(address, path, body, authorization=f"Bearer {key}").status

        assert [status("few") for _ in range(2)] == [200, 200]
        for path, body, words in (
            ("/v1/embed", FILM, ("error", "type")),
            ("/v1/embeddings", {**FILM, "model": "vectors"}, ("error", "message")),
            ("/embed", {"inputs": "a film"}, ("error_type",)),
        ):
            reply = ask(address, path, body, authorization="Bearer few")
            assert (reply.status, reply.headers["retry-after"]) == (429, "30"), reply.body
            assert reply.headers["retry-after-ms"] == "30000"
            said = reply.body
            for word in words:
                said = said[word]
            assert said in ("overloaded", "Overloaded") or said.startswith("this key may have 2 requests a minute")
        assert ask(address, "/v1/info", authorization="Bearer few").status == 200, "what asks no model is not counted"
        assert [status("free") for _ in range(5)] == [200] * 5
        assert [status("short") for _ in range(4)] == [200, 200, 200, 429], "3 times 5 tokens"
        assert status("free") == 200
        page = ask(address, "/metrics").body.decode()
    assert 'bertkit_rejected_total{cause="key_requests"} 3.0' in page
    assert 'bertkit_rejected_total{cause="key_tokens"} 1.0' in page


def test_lines_wait_until_their_key_has_tokens_again(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("slow tokens_per_minute=600\n")  # ten in a second
    with serving(*save_models(tmp_path, ("vectors",)), api_keys_file=keys, max_bulk_lines=1) as (_, address):
        lines = body_of(*[{"input": ["a good film"] * 121} for _ in range(2)])
        found = lines_of(ask(address, "/v1/bulk/embed", lines, authorization="Bearer slow", **NDJSON))
        assert [len(each["results"]) for each in found] == [121] * 2


def test_tools_of_a_language_model_count_for_their_key(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    keys = tmp_path / "keys"
    keys.write_text("short tokens_per_minute=3\n")
    call = {"name": "classify", "arguments": FILM}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    accepted = {"accept": "application/json, text/event-stream", "authorization": "Bearer short"}
    with serving(*save_models(tmp_path, ("labels",)), api_keys_file=keys, mcp=True) as (_, address):
        reply = ask(address, "/mcp", body, **accepted)
        assert (reply.status, reply.body["result"].get("isError", False)) == (200, False), reply.body
        assert ask(address, "/mcp", body, **accepted).status == 429


def test_tokens_count_when_they_are_computed_and_not_when_they_are_answered(tmp_path: Path) -> None:
    """Of a request that fails in its last part, the others cost; an answer that was kept costs nothing."""
    (tmp_path / "keys").write_text("secret tokens_per_minute=100000\n")
    models = save_models(tmp_path, ("masks",))
    options = {"api_keys_file": tmp_path / "keys", "max_batch_tokens": 64, "cache_bytes": 100_000}
    with serving(*models, **options) as (app, address):
        limits = app.service._limits
        assert limits is not None
        limits._clock = Clock()

        def left() -> float:
            with limits._left(0) as found:
                return found[1]

        first = left()
        key = {"authorization": "Bearer secret"}
        wrong = {"input": ["a [MASK] film"] * 40 + ["a film"]}
        assert ask(address, "/v1/fill-mask", wrong, **key).status == 422
        after = left()
        assert after <= first - 40
        body = {"input": "the [MASK]"}
        assert ask(address, "/v1/fill-mask", body, **key).status == 200
        once = left()
        assert once < after
        assert ask(address, "/v1/fill-mask", body, **key).status == 200
        assert left() == once
