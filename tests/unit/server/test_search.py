"""Indexes beside the models: what ``bertkit search query`` finds, by vectors of the model that they were built with."""

from __future__ import annotations

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bertkit.cli import main
from bertkit.errors import CheckpointError, ConfigError, DataError
from bertkit.inference.retrieval.search_index import SearchIndex
from bertkit.server.app import ServerApp
from bertkit.server.mcp import mcp_server
from bertkit.server.settings import ServeSettings
from mcp_helpers import talk, tools_of
from server_helpers import NDJSON, ask, body_of, lines_of, save_models, serving

TEXTS = ["a good film", "not bad", "the dull end of a very bad scene is great", "in it was a start", "the film is bad"]
QUERIES = ["a film", "the bad end"]


class Served(NamedTuple):
    """A server with an index, and the same index without a server."""

    app: ServerApp
    address: str
    folder: Path
    index: SearchIndex

    def search(self, query: Any, **body: Any) -> Any:
        return ask(self.address, "/v1/search", {"query": query, **body})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("search")
    models = save_models(folder, ("labels", "vectors"))
    index = SearchIndex.build(folder / "texts", TEXTS, model=folder / "vectors", query_prompt="a ")
    SearchIndex.build(folder / "other", TEXTS[:2], model=folder / "vectors", pooling="cls", number_type="int8")
    with serving(*models, indexes=(str(folder / "texts"), f"second={folder / 'other'}")) as (app, address):
        yield Served(app, address, folder, index)


@pytest.mark.parametrize("by", [None, "vectors", "words", "both"])
def test_hits_are_those_of_the_index(served: Served, by: Any) -> None:
    reply = served.search(QUERIES, top_k=3, by=by)
    for found, hits in zip(reply.results, served.index.search(QUERIES, 3, by=by), strict=True):
        assert (found["index"], found["by"]) == ("texts", by or "vectors")
        assert [each["id"] for each in found["hits"]] == [hit.id for hit in hits]
        for each, hit in zip(found["hits"], hits, strict=True):
            assert each == {**hit.to_dict(), "score": pytest.approx(hit.score, abs=1e-4)}
    assert reply.body["model"] == ("vectors" if by != "words" else "")


def test_an_index_by_its_name(served: Served) -> None:
    (found,) = served.search("a film", index="second").results
    (hits,) = SearchIndex(served.folder / "other").search("a film")
    assert [each["id"] for each in found["hits"]] == [hit.id for hit in hits]
    assert len(found["hits"]) == 2
    info = ask(served.address, "/v1/info").body["indexes"]
    assert [(each["name"], each["num_texts"], each["model"]) for each in info] == [
        ("texts", 5, "vectors"),
        ("second", 2, "vectors"),
    ]


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [
        ({"query": "a", "index": "text"}, "unknown_model", "did you mean 'texts'?"),
        ({"query": ""}, "empty", "input 0"),
        ({"query": ["a", " "]}, "empty", "input 1"),
        ({"query": []}, "empty", "empty"),
        ({"query": "a", "top_k": 0}, "invalid", "top_k"),
        ({"query": "a", "top_k": 1001}, "invalid", "top_k"),
        ({"query": "a", "by": "colour"}, "invalid", "by"),
        ({"query": "a", "model": "vectors"}, "invalid", "model"),
        ({"query": "a " * 300}, "too_long", "tokens"),
    ],
)
def test_bad_searches(served: Served, body: dict[str, Any], kind: str, said: str) -> None:
    reply = ask(served.address, "/v1/search", body)
    assert reply.body["error"]["type"] == kind
    assert said in reply.body["error"]["message"]


def test_a_long_query_is_cut_if_asked_and_it_is_said(served: Served) -> None:
    reply = served.search(["a " * 300, "a"], overflow="truncate")
    assert reply.body["truncated"] == [True, False]


def test_many_at_once_and_in_lines(served: Served) -> None:
    queries = [f"{text} {number}" for number in range(20) for text in TEXTS]
    hits = served.index.search(queries, 2)
    expected = [[hit.id for hit in each] for each in hits]
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda query: served.search(query, top_k=2).results[0], queries))
    assert [[hit["id"] for hit in each["hits"]] for each in found] == expected
    lines = body_of(*[{"query": query, "top_k": 2} for query in queries], {"query": " "})
    *answers, last = lines_of(ask(served.address, "/v1/bulk/search", lines, **NDJSON))
    assert [[hit["id"] for hit in each["results"][0]["hits"]] for each in answers] == expected
    assert last["error"]["type"] == "empty"
    assert served.app.service.open_requests == 0


def test_a_language_model_gets_a_tool_to_search(served: Served) -> None:
    async def conversation(client: Any) -> Any:
        tool = (await tools_of(client))["search"]
        assert tool.input_schema["properties"]["index"]["enum"] == ["texts", "second"]
        wrong = await client.call_tool("search", {"query": "a", "index": "third"})
        assert wrong.is_error
        return await client.call_tool("search", {"query": "a film", "top_k": 1})

    # in a loop of its own, beside that of the server
    app = ServerApp(served.app.settings)
    assert app.service.models.load_all()
    result = talk(mcp_server(app.service), conversation)
    (hits,) = served.index.search("a film", 1)
    assert result.structured_content["results"][0]["hits"][0]["id"] == hits[0].id
    app.service.models.stop(5)


def test_an_index_of_another_model_is_searched_by_words_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models = save_models(tmp_path, ("labels", "vectors"))
    SearchIndex.build(tmp_path / "index", TEXTS, model=tmp_path / "vectors")
    with serving(models[0], indexes=(str(tmp_path / "index"),)) as (_, address):
        refused = ask(address, "/v1/search", {"query": "a film"})
        assert (refused.status, refused.body["error"]["type"]) == (424, "wrong_task")
        message = refused.body["error"]["message"]
        assert f"built with {tmp_path / 'vectors'}" in message
        assert "labels" in message
        assert "'by': 'words'" in message
        assert ask(address, "/v1/search", {"query": "film", "by": "words"}).results[0]["hits"]
    assert main(["serve", models[0], "--index", str(tmp_path / "index"), "--check"]) == CheckpointError.exit_code
    assert "was built with" in capsys.readouterr().err
    assert main(["serve", models[1], "--index", str(tmp_path / "index"), "--check"]) == 0
    assert "index: search, 5 texts; vectors of vectors" in capsys.readouterr().out


def test_no_index_and_no_folder_of_one(tmp_path: Path) -> None:
    models = tuple(save_models(tmp_path, ("vectors",)))
    with serving(*models) as (_, address):
        assert "--index" in ask(address, "/v1/search", {"query": "a"}).body["error"]["message"]
    with pytest.raises(DataError, match="bertkit search build"):
        ServerApp(ServeSettings(models=models, indexes=(str(tmp_path),)))
    SearchIndex.build(tmp_path / "index", TEXTS, model=tmp_path / "vectors")
    with pytest.raises(ConfigError, match="two indexes are called 'index'"):
        ServerApp(ServeSettings(models=models, indexes=(str(tmp_path / "index"), f"index={tmp_path / 'index'}")))


def test_changes_of_an_index_are_seen_and_another_model_is_refused(tmp_path: Path) -> None:
    models = save_models(tmp_path, ("vectors", "labels"))
    index = SearchIndex.build(tmp_path / "index", TEXTS, model=tmp_path / "vectors")
    with serving(*models, indexes=(str(tmp_path / "index"),), admin_key="secret key") as (_, address):

        def found() -> set[str]:
            reply = ask(address, "/v1/search", {"query": "a film", "top_k": 100})
            return {hit["id"] for hit in reply.results[0]["hits"]}

        assert found() == set("01234")
        index.add(["was it in the scene"])
        index.delete("0")
        assert found() == set("12345")
        shutil.rmtree(tmp_path / "index")
        SearchIndex.build(tmp_path / "index", TEXTS, model=tmp_path / "labels")
        refused = ask(address, "/v1/search", {"query": "a film"})
        assert (refused.status, refused.body["error"]["type"]) == (424, "damaged_model")
        assert ask(address, "/admin/reload", {}, authorization="Bearer secret key").status == 200
        assert found() == set("01234")


def test_a_damaged_index_is_no_answer_and_no_fault(tmp_path: Path) -> None:
    models = save_models(tmp_path, ("vectors",))
    SearchIndex.build(tmp_path / "index", TEXTS, model=tmp_path / "vectors")
    with serving(*models, indexes=(str(tmp_path / "index"),)) as (_, address):
        file = tmp_path / "index" / "block-000000.npy"
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
        reply = ask(address, "/v1/search", {"query": "a film"})
        assert (reply.status, reply.body["error"]["type"]) == (424, "damaged_model")
        shutil.rmtree(tmp_path / "index")
        assert ask(address, "/v1/search", {"query": "a film"}).status == 424
        assert ask(address, "/v1/embed", {"input": "a film"}).status == 200


def test_a_model_is_loaded_for_a_search(tmp_path: Path) -> None:
    models = save_models(tmp_path, ("labels", "vectors"))
    SearchIndex.build(tmp_path / "index", TEXTS, model=tmp_path / "vectors")
    with serving(*models, indexes=(str(tmp_path / "index"),), lazy=True) as (_, address):
        end = time.monotonic() + 30
        while (reply := ask(address, "/v1/search", {"query": "a film"})).status == 503 and time.monotonic() < end:
            assert reply.headers["retry-after"]
            time.sleep(0.05)
        assert reply.status == 200
