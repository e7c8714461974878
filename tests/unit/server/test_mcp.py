"""Tools of a language model, asked by the official client: in the process, over HTTP, over stdio."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from bertkit.server.app import ServerApp
from bertkit.server.mcp import TOOLS, mcp_server
from bertkit.server.settings import ServeSettings
from mcp_helpers import talk, tools_of
from server_helpers import ask, save_models, serving

#: A call of each tool, with the route that must answer the same.
CALLS = {
    "classify": {"input": "a good film", "model": "labels"},
    "zero-shot": {"input": ["a good film"], "labels": ["film", "scene"]},
    "tag": {"input": "a good film"},
    "redact": {"input": ["a good film", "not bad"]},
    "similarity": {"source": "a film", "sentences": ["the film", "the end"], "model": "vectors"},
    "answer": {"input": {"question": "what", "context": "a good film"}},
    "fill-mask": {"input": "a [MASK] film", "top_k": 2},
}


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with serving(*save_models(tmp_path_factory.mktemp("models")), mcp=True, max_items=4) as (_, address):
        yield address


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_tools_say_what_the_routes_say(http: str, mode: str) -> None:
    async def conversation(client: Client) -> None:
        found = await tools_of(client)
        assert found.keys() == CALLS.keys() == TOOLS.keys() - {"search"}
        for name, arguments in CALLS.items():
            result = await client.call_tool(name, arguments)
            assert not result.is_error, result.content
            expected = ask(http, f"/v1/{name}", arguments).body
            assert result.structured_content == expected
            assert json.loads(result.content[0].text) == expected

    talk(f"{http}/mcp", conversation, mode)


def test_tools_are_those_of_the_models_and_name_them(tmp_path: Path) -> None:
    app = ServerApp(ServeSettings(models=tuple(save_models(tmp_path, ("labels", "nli", "vectors")))))
    assert app.service.models.load_all()
    found = talk(mcp_server(app.service), tools_of)
    assert found.keys() == {"classify", "zero-shot", "similarity"}
    choices = {name: tool.input_schema["properties"]["model"]["enum"] for name, tool in found.items()}
    assert choices["classify"] == ["labels", "nli"]
    assert choices["zero-shot"] == ["nli", "vectors"]
    schema = found["classify"].input_schema
    assert schema["required"] == ["input"]
    assert not {"timeout", "priority", "facts"} & schema["properties"].keys()
    assert found["classify"].annotations.read_only_hint
    app.service.models.stop(5)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("classify", {}, "input"),
        ("classify", {"input": "a", "labels": ["b"]}, "labels"),
        ("classify", {"input": " "}, "input 0 (counted from 0) has no text"),
        ("classify", {"input": "a", "model": "label"}, "did you mean 'labels'?"),
        ("tag", {"input": "a", "model": "labels"}, "does not do 'tag'"),
        ("fill-mask", {"input": "a film"}, "[MASK]"),
        ("similarity", {"source": "a " * 200, "sentences": ["a"], "model": "vectors"}, "the model reads"),
        ("tag", {"input": ["a"] * 5}, "one request may have 4"),
        ("embed", {"input": "a"}, "no tool 'embed'; there are: classify"),
    ],
)
def test_what_is_wrong_with_a_call_is_a_tool_error_with_our_message(
    http: str, name: str, arguments: dict[str, Any], said: str
) -> None:
    async def conversation(client: Client) -> Any:
        refused = await client.call_tool(name, arguments)
        assert not (await client.call_tool("tag", CALLS["tag"])).is_error
        return refused

    refused = talk(f"{http}/mcp", conversation)
    assert refused.is_error
    assert said in refused.content[0].text


def test_calls_at_once_are_computed_together(http: str) -> None:
    async def conversation(client: Client) -> None:
        texts = [f"a film {number}" for number in range(12)]
        arguments = [{"source": text, "sentences": [text], "model": "vectors"} for text in texts]
        results = await asyncio.gather(*(client.call_tool("similarity", each) for each in arguments))
        assert [round(each.structured_content["results"][0], 3) for each in results] == [1.0] * 12

    talk(f"{http}/mcp", conversation)


def test_other_requests_at_the_path(http: str, tmp_path: Path) -> None:
    assert ask(http, "/mcp").status == 405
    nonsense = ask(http, "/mcp", b"{", accept="application/json, text/event-stream")
    assert nonsense.status == 400
    page = ask(http, "/mcp", {}, origin="http://elsewhere.example")
    assert (page.status, page.body["error"]["type"]) == (403, "forbidden")
    named = ask(http, "/mcp", {}, host="elsewhere.example")
    assert (named.status, named.body["error"]["type"]) == (403, "forbidden")
    large = ask(http, "/mcp", b"[" + b" " * 5_000_000, accept="application/json, text/event-stream")
    assert large.status == 413
    with serving(*save_models(tmp_path, ("vectors",))) as (_, address):
        assert ask(address, "/mcp", {}).status == 404, "only where it was asked for"


def test_keys_are_for_tools_too(tmp_path: Path) -> None:
    with serving(*save_models(tmp_path, ("tags",)), mcp=True, api_key="secret") as (_, address):
        assert ask(address, "/mcp", {}).status == 401
        with pytest.raises(BaseExceptionGroup):
            talk(f"{address}/mcp", tools_of)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", pytest.param("legacy", marks=pytest.mark.campaign)])
def test_a_process_on_stdio(tmp_path: Path, mode: str) -> None:
    arguments = ["-m", "bertkit", "mcp", *save_models(tmp_path, ("tags", "vectors"))]
    process = StdioServerParameters(command=sys.executable, args=arguments, env=environment())

    async def conversation(client: Client) -> None:
        assert (await tools_of(client)).keys() == {"tag", "redact", "similarity", "zero-shot"}
        assert not (await client.call_tool("tag", CALLS["tag"])).is_error
        assert (await client.call_tool("tag", {})).is_error

    talk(process, conversation, mode)


@pytest.mark.slow
@pytest.mark.parametrize(("said", "answers"), [pytest.param("", 0, marks=pytest.mark.campaign), ("nonsense\n", 1)])
def test_a_process_ends_when_its_client_does_and_writes_nothing_else(tmp_path: Path, said: str, answers: int) -> None:
    command = [sys.executable, "-m", "bertkit", "mcp", *save_models(tmp_path, ("tags",))]
    done = subprocess.run(
        command, input=said, capture_output=True, text=True, env=environment(), timeout=60, check=False
    )
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) <= answers
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in lines)


@pytest.mark.campaign
@pytest.mark.slow
@pytest.mark.parametrize(("signal", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_process_ends_on_a_signal(tmp_path: Path, signal: str, code: int) -> None:
    import signal as signals

    command = [sys.executable, "-m", "bertkit", "mcp", *save_models(tmp_path, ("tags",))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asked = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        process.stdin.write(json.dumps(asked).encode() + b"\n")
        process.stdin.flush()
        process.stdout.readline()
        late = threading.Timer(20, process.kill)
        late.start()
        process.send_signal(getattr(signals, signal))
        assert process.wait() in (code, -getattr(signals, signal)), "and does not hang"
        late.cancel()


def test_what_the_command_needs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from bertkit.cli import main

    assert main(["mcp"]) == 2
    assert "bertkit mcp bertkit-tiny-en" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert main(["mcp", "bertkit-tiny-en"]) == 5
    assert "pip install 'bertkit[mcp]'" in capsys.readouterr().err
