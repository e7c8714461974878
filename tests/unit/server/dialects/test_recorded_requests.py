"""What official clients sent to a running server (tests/clients, tests/clients/record.py) is still understood."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bertkit.server.calls import Look
from dialect_helpers import MODELS, ask

RECORDED = [json.loads(line) for line in Path(__file__).with_name("recorded_requests.jsonl").read_text().splitlines()]


def texts_in(value: Any) -> Iterator[str]:
    """All texts of a value, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts_in(each)


@pytest.mark.parametrize("sent", RECORDED, ids=lambda sent: f"{sent['client']} {sent['path']}")
def test_recorded_requests_become_calls(sent: Any) -> None:
    asking = ask(sent["method"], sent["path"], sent["body"])
    call = asking.planned.call
    body = sent["body"] or {}
    named = body.get("model") or next((name for name in MODELS if f"/models/{name}" in sent["path"]), None)
    unknown_to_the_dialect = sent["path"] == "/rerank" and "texts" in body
    assert call.model == (None if named is None or unknown_to_the_dialect else named.removesuffix(":latest"))
    if isinstance(call, Look):
        return
    if call.model is not None:
        assert call.task in MODELS[call.model].tasks
    asked_of = {key: body[key] for key in ("input", "inputs", "texts", "documents", "query", "prompt") if body.get(key)}
    if "content" not in json.dumps(asked_of):
        assert sorted(texts_in(call.items)) == sorted(texts_in(asked_of))
    assert all(value is not None for value in call.options.values())
    assert hash(tuple(call.options.items())) is not None
