"""Keys, hosts, health, metrics, reloading, loading on demand, stopping."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bertkit.errors import ConfigError
from bertkit.server.app import ServerApp
from bertkit.server.dialects.table import routes
from bertkit.server.http import protocol
from bertkit.server.http.guards import OPEN_PATHS
from bertkit.server.openapi import describe
from bertkit.server.settings import ServeSettings, read_serve_settings
from pipeline_helpers import save_tiny
from server_helpers import ask, save_models, serving

FILM = {"input": "a good film"}


def test_keys(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# ours\nsecond\nthird\n")
    with serving(*save_models(tmp_path, ("vectors",)), api_key="first", api_keys_file=keys) as (_, address):
        for path in ("/v1/embed", "/v1/info", "/openapi.json"):
            reply = ask(address, path, FILM if path == "/v1/embed" else None)
            assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
        for key in ("first", "second", "third"):
            assert ask(address, "/v1/embed", FILM, authorization=f"Bearer {key}").status == 200
            assert ask(address, "/v1/embed", FILM, x_api_key=key).status == 200
        for key in ("none", "First", "firsts", "firs", "# ours"):
            assert ask(address, "/v1/embed", FILM, x_api_key=key).status == 401
        for path in OPEN_PATHS - {"/ping"}:
            assert ask(address, path).status == 200
        for path in OPEN_PATHS:
            assert ask(address, path, {"inputs": "a good film"}).status in (401, 405), "asking at / needs a key"


KEY = "a key is needed: Authorization: Bearer KEY"
OURS = {"error": {"type": "unauthorized", "message": KEY}}
OPENAI = {"error": {"message": KEY, "type": "invalid_request_error", "param": None, "code": "invalid_api_key"}}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embed", OURS),
        ("/models/owner/name", {"error": KEY}),
        ("/models/x/info", {"error": KEY}),
        ("/models/x/pipeline/feature-extraction", {"error": KEY}),
        ("/models/x/embed", b""),
        ("/embed", b""),
        ("/v1/models/owner/name", OPENAI),
        ("/v1/embeddings", OPENAI),
        ("/nowhere", OURS),
    ],
)
def test_a_missing_key_is_said_as_the_clients_of_the_path_expect(guarded: str, path: str, body: Any) -> None:
    """Of paths with the name of a model, too; also where they are asked with another method."""
    for asked in (None, {"inputs": "a"}):
        missing = ask(guarded, path, asked)
        assert (missing.status, missing.body) == (401, body)
        strange = ask(guarded, path, asked, host="evil.example")
        assert strange.status == 403
        own = {"error", "error_type"} if body == b"" else body.keys()
        assert strange.body.keys() == own
        assert "evil.example" in str(strange.body)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that asks for a key."""
    with serving(*save_models(tmp_path_factory.mktemp("guarded"), ("vectors",)), api_key="first") as (_, address):
        yield address


def test_no_admin_without_its_key(tmp_path: Path) -> None:
    models = save_models(tmp_path, ("vectors",))
    with serving(*models) as (_, address):
        assert ask(address, "/admin/reload", {}).status == 404
    with serving(*models, admin_key="for admins only") as (_, address):
        assert ask(address, "/admin/reload", {}).status == 401
        assert ask(address, "/admin/reload", {}, x_api_key="for admins only").body == {"reloaded": {"vectors": True}}


def test_pages_of_other_sites_and_rebound_names_are_refused(server: Any) -> None:
    port = server.address.rpartition(":")[2]
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", "localhost"):
        assert ask(server.address, "/health", host=host).status == 200
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", ""):
        assert ask(server.address, "/health", host=host).status == 403
    same = f"localhost:{port}"
    assert ask(server.address, "/health", host=same, origin=f"http://{same}").status == 200
    for origin in ("http://evil.example", "null", f"http://localhost:{int(port) + 1}"):
        assert ask(server.address, "/v1/embed", FILM, host=same, origin=origin).status == 403


@pytest.mark.parametrize("bound", ["0.0.0.0", "::", "0::0"])
def test_a_server_on_all_addresses_is_reached_by_addresses_and_known_names_only(tmp_path: Path, bound: str) -> None:
    settings = {"host": bound, "allowed_hosts": ("models.example.org",)}
    with serving(*save_models(tmp_path, ("vectors",)), **settings) as (_, address):
        port = address.rpartition(":")[2]
        place = f"http://localhost:{port}" if bound == "0.0.0.0" else f"http://[::1]:{port}"
        own = socket.gethostname()
        for host in ("localhost", "10.0.0.7", "[::1]", "[fe80::1]", own, own.partition(".")[0], "Models.example.org"):
            for given in (host, f"{host}:{port}"):
                assert ask(place, "/health", host=given).status == 200, given
        for host in ("evil.example", "10.0.0.7.evil.example", "example.org", "bertkit", "::1", "", "1.2.3"):
            refused = ask(place, "/health", host=host)
            assert refused.status == 403, host
        assert "--allowed-hosts 1.2.3 or BERTKIT_ALLOWED_HOSTS" in refused.body["error"]["message"]
        assert ask(place, "/health", host="evil.example", origin="http://evil.example").status == 403, "rebound"


def test_an_allowed_page_gets_the_headers_that_browsers_ask_for(tmp_path: Path) -> None:
    page = "https://page.example"
    with serving(*save_models(tmp_path, ("vectors",)), allowed_origins=(page,)) as (_, address):
        reply = ask(address, "/v1/embed", FILM, origin=page)
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, page)
        assert "access-control-allow-origin" not in ask(address, "/health").headers


def test_ids_of_requests_and_traces_come_back(server: Any) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    reply = ask(server.address, "/v1/embed", FILM, x_request_id="mine", traceparent=trace)
    assert (reply.headers["x-request-id"], reply.headers["traceparent"]) == ("mine", trace)
    own = ask(server.address, "/health").headers["x-request-id"]
    assert len(own) == 32
    assert ask(server.address, "/health", x_request_id="x" * 1000).headers["x-request-id"] != "x" * 1000


def test_metrics_count_what_happened(tmp_path: Path) -> None:
    with serving(*save_models(tmp_path, ("vectors",))) as (_, address):
        for _ in range(3):
            ask(address, "/v1/embed", FILM)
        ask(address, "/v1/embed", {"input": ""})
        ask(address, "/nowhere", {})
        page = ask(address, "/metrics").body.decode()
    found = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert found["bertkit_requests_total", "/v1/embed", "200"] == 3
    assert found["bertkit_requests_total", "/v1/embed", "422"] == 1
    assert found["bertkit_tokens_total", "vectors"] == 15
    assert found["bertkit_batcher_requests_total", "vectors"] == 3
    assert found["bertkit_rejected_total", "empty"] == found["bertkit_rejected_total", "no_route"] == 1
    assert found["bertkit_batch_tokens_sum",] == found["te_batch_next_tokens_sum",] == 15
    assert (found["te_request_count",], found["te_request_success",], found["te_request_duration_count",]) == (4, 3, 3)
    assert (found["te_batch_next_size_sum",], found["te_queue_size",]) == (3, 0)
    assert not any("nowhere" in label for key in found for label in key)


def test_a_queue_that_is_full_of_tokens_or_of_requests_is_not_ready(tmp_path: Path) -> None:
    texts = [f"{number} the film was good ." for number in range(30)]  # 8 tokens each
    for settings, cause in (({"max_queue_tokens": 300}, "queue_tokens"), ({"max_requests": 2}, "queue_requests")):
        with serving(*save_models(tmp_path, ("vectors",)), max_batch_tokens=16, **settings) as (app, address):
            batcher = app.service.models.slots["vectors"].batcher
            assert batcher is not None
            with ThreadPoolExecutor(2) as pool, batcher.model._lock:  # nothing is computed
                assert ask(address, "/ready").status == 200
                sent = [pool.submit(ask, address, "/v1/embed", {"input": texts[:25]}) for _ in range(2)]
                deadline = time.monotonic() + 30
                while batcher.queue.requests < 2 and time.monotonic() < deadline:
                    time.sleep(0.005)
                reply = ask(address, "/ready")
                assert (reply.status, reply.body["reason"]) == (503, "the queue of vectors is full")
                assert ask(address, "/v1/embed", {"input": texts}).status == 429
                page = ask(address, "/metrics").body.decode()
                assert f'bertkit_rejected_total{{cause="{cause}"}} 1.0' in page
                assert "te_queue_size 0.0" not in page
            assert [future.result().status for future in sent] == [200] * 2
            assert ask(address, "/ready").status == 200


def test_info_says_what_answers(server: Any) -> None:
    models = {one["name"]: one for one in ask(server.address, "/v1/info").body["models"]}
    assert models["labels"]["labels"] == ["bad", "good", "dull"]
    assert models["labels"]["tasks"][0] == "classify"
    assert models["ranks"]["tasks"][0] == "rerank"
    assert "zero-shot" in models["nli"]["tasks"]
    assert "zero-shot" not in models["labels"]["tasks"]
    for name in models:  # text-embeddings-inference's form says them, too
        said = ask(server.address, f"/models/{name}/info").body
        ours = {key: models[name][key] for key in ("engine", "temperature", "dev_scores")}
        assert {key: said[key] for key in ours} == ours
    assert ask(server.address, "/info").body["engine"] == models["labels"]["engine"]
    deadline = time.monotonic() + 10
    while not all(one["revision"] for one in models.values()) and time.monotonic() < deadline:
        models = {one["name"]: one for one in ask(server.address, "/v1/info").body["models"]}
    assert len({one["revision"] for one in models.values()}) == len(models)
    assert all(one["engine"] for one in models.values())
    facts = ask(server.address, "/v1/classify", {**FILM, "model": "labels", "facts": True}).body["facts"]
    assert facts["revision"] == models["labels"]["revision"]


def test_clients_are_not_told_where_the_models_lie(tmp_path: Path) -> None:
    models = save_models(tmp_path, ("vectors", "labels"))
    (tmp_path / "labels" / "model.safetensors").write_bytes(b"no")
    with serving(*models, admin_key="for admins only") as (_, address):
        assert ask(address, "/admin/models").status == 401
        known = ask(address, "/admin/models", x_api_key="for admins only").body["models"]
        assert [one["source"] for one in known] == [str(tmp_path / name) for name in ("vectors", "labels")]
        found = ask(address, "/v1/info").body["models"]
        assert [one["source"] for one in found] == ["vectors", "labels"]
        refused = ask(address, "/v1/classify", {**FILM, "model": "labels"})
        assert (refused.status, "labels/model.safetensors" in str(refused.body)) == (424, True)
        for said in (found, refused.body):
            assert str(tmp_path) not in json.dumps(said)


def test_models_that_torch_computes_have_a_precision(tmp_path: Path) -> None:
    save_tiny(tmp_path / "model", attention_direction="left-to-right")
    with serving(str(tmp_path / "model")) as (_, address):
        (found,) = ask(address, "/v1/info").body["models"]
    assert (found["engine"], found["precision"]) == ("torch", "torch.float32")


def described(document: Any) -> set[tuple[str, str]]:
    """Methods and paths."""
    return {(method.upper(), path) for path, there in document["paths"].items() for method in there}


def test_the_description_has_every_route_and_no_other(server: Any) -> None:
    document = ask(server.address, "/openapi.json").body
    assert document["openapi"] == "3.1.0"
    assert described(document) == {*routes(), *server.app.operations._routes}
    assert ("POST", "/mcp") in described(describe(routes(), mcp=True))
    body = document["paths"]["/v1/tag"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    name = body["$ref"].rpartition("/")[2]
    assert set(document["components"]["schemas"][name]["required"]) == {"input"}
    assert {"bearer", "key"} == document["components"]["securitySchemes"].keys()
    assert {} in document["security"]
    assert {} not in describe(routes(), keys=True)["security"]


def test_failures_are_described_by_route(server: Any) -> None:
    document = ask(server.address, "/openapi.json").body

    def responses(method: str, path: str) -> dict[str, Any]:
        found = document["paths"][path][method]["responses"]
        kept = document["components"]["responses"]
        return {status: kept[one["$ref"].rpartition("/")[2]] if "$ref" in one else one for status, one in found.items()}

    assert set(responses("get", "/v1/info")) == {"200", "401", "403", "500"}
    assert set(responses("get", "/v1/models/{model}")) == {"200", "401", "403", "404", "500"}
    tag, plane = responses("post", "/v1/tag"), responses("post", "/v1/map")
    assert set(plane) - set(tag) == {"501"}
    assert {"400", "413", "415", "422", "424", "429", "503", "504"} <= set(tag)
    assert {"Retry-After", "retry-after-ms"} <= set(tag["429"]["headers"])
    assert "Retry-After" not in tag["422"]["headers"]
    said = ask(server.address, "/v1/tag", {"model": "tags", "input": ""})
    (example,) = [one["value"] for name, one in tag["422"]["content"]["application/json"]["examples"].items()
                  if name == "bertkit: empty"]  # fmt: skip
    assert example["error"].keys() == said.body["error"].keys()
    assert example["error"]["type"] == said.body["error"]["type"] == "empty"
    assert set(responses("post", "/v1/bulk/tag")) < set(tag)
    for path, status in (("/admin/reload", "404"), ("/health", "503"), ("/ready", "503")):
        assert status in document["paths"][path]["post" if "admin" in path else "get"]["responses"]


def test_reloading_keeps_the_old_model_until_the_new_one_answers(tmp_path: Path) -> None:
    models = save_models(tmp_path, ("vectors",))
    with serving(*models, admin_key="for admins only") as (_, address):
        before = ask(address, "/v1/embed", FILM).results
        weights = tmp_path / "vectors" / "model.safetensors"
        good = weights.read_bytes()
        shutil.move(weights, tmp_path / "kept")
        weights.write_bytes(good[:1000])
        reply = ask(address, "/admin/reload", {}, x_api_key="for admins only")
        assert (reply.status, reply.body) == (424, {"reloaded": {"vectors": False}})
        assert ask(address, "/v1/embed", FILM).results == before
        assert ask(address, "/ready").status == 200
        save_tiny(tmp_path / "vectors", initializer_range=0.2)
        stop, statuses = threading.Event(), []

        def load() -> None:
            while not stop.is_set():
                statuses.append(ask(address, "/v1/embed", FILM).status)

        threads = [threading.Thread(target=load) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert ask(address, "/admin/reload", {}, x_api_key="for admins only").status == 200
        stop.set()
        for thread in threads:
            thread.join()
        assert set(statuses) == {200}, "nobody noticed"
        assert ask(address, "/v1/embed", FILM).results != before


def wait_for(address: str, body: Any) -> int:
    deadline = time.monotonic() + 20
    while (status := ask(address, "/v1/embed", body).status) == 503 and time.monotonic() < deadline:
        time.sleep(0.02)
    return status


def test_models_are_loaded_on_demand_and_leave_when_they_are_not_used(tmp_path: Path) -> None:
    for name in ("one", "two"):
        save_tiny(tmp_path / name, vocab_size=200_000)  # 26 MB each
    models = [f"{name}={tmp_path / name}" for name in ("one", "two")]
    with serving(*models, lazy=True, memory=30) as (app, address):

        def state(name: str) -> str:
            return app.service.models.slots[name].facts.state

        assert (state("one"), state("two")) == ("unloaded", "unloaded")
        first = ask(address, "/v1/embed", {**FILM, "model": "one"})
        assert (first.status, first.headers["retry-after"]) == (503, "1")
        assert wait_for(address, {**FILM, "model": "one"}) == 200
        assert (state("one"), state("two")) == ("ready", "unloaded")
        assert wait_for(address, {**FILM, "model": "two"}) == 200
        deadline = time.monotonic() + 10
        while state("one") != "unloaded" and time.monotonic() < deadline:
            time.sleep(0.02)
        assert (state("one"), state("two")) == ("unloaded", "ready")
        assert wait_for(address, {**FILM, "model": "one"}) == 200


def test_an_idle_model_is_unloaded(tmp_path: Path) -> None:
    with serving(*save_models(tmp_path, ("vectors",)), lazy=True, keep_alive=0.05) as (app, address):
        assert wait_for(address, FILM) == 200
        time.sleep(0.1)
        app.service.models.unload_idle()
        assert app.service.models.slots["vectors"].facts.state == "unloaded"
        assert wait_for(address, FILM) == 200


def test_stopping_finishes_what_was_taken(tmp_path: Path) -> None:
    statuses: list[int] = []
    with serving(*save_models(tmp_path, ("vectors",)), max_batch_tokens=16) as (_, address):
        threads = [
            threading.Thread(target=lambda: statuses.append(ask(address, "/v1/embed", FILM).status)) for _ in range(20)
        ]
        for thread in threads:
            thread.start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    assert statuses.count(200) == 20


def test_a_request_that_is_on_its_way_when_the_server_stops_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "LINGER", 20.0)
    found: list[bytes] = []
    with serving(*save_models(tmp_path, ("vectors",))) as (_, address):
        place = urlsplit(address)
        where = (place.hostname, place.port)
        connections = [socket.create_connection(where, timeout=30) for _ in range(2)]
        request = b"GET /v1/info HTTP/1.1\r\nhost: localhost\r\n\r\n"
        connections[1].sendall(request)  # one that was used before, and one that was not
        assert connections[1].recv(100).startswith(b"HTTP/1.1 200")

        def send_late() -> None:
            with contextlib.suppress(ConnectionRefusedError):
                while True:  # until the server stops
                    socket.create_connection(where, timeout=30).close()
                    time.sleep(0.02)
            for connection in connections:
                connection.sendall(request)
                with connection.makefile("rb") as file:
                    found.append(file.read())  # to its end

        late = threading.Thread(target=send_late)
        late.start()
    late.join()
    assert len(found) == 2
    for answer in found:
        assert b"HTTP/1.1 200" in answer
        assert b"connection: close" in answer


def test_settings_of_the_environment_a_file_and_the_call(tmp_path: Path) -> None:
    file = tmp_path / "serve.toml"
    file.write_text('port = 1\nhost = "0.0.0.0"\nmodels = ["a"]\n')
    environment = {"BERTKIT_PORT": "2", "MAX_BATCH_TOKENS": "512", "BERTKIT_ALLOWED_HOSTS": "x, y", "BERTKIT_LAZY": "1"}
    found = read_serve_settings({}, file, environment)
    assert (found.port, found.host, found.max_batch_tokens) == (2, "0.0.0.0", 512)
    assert (found.allowed_hosts, found.lazy, found.models) == (("x", "y"), True, ("a",))
    assert read_serve_settings({"port": 3}, file, environment).port == 3
    file.write_text("prot = 1\n")
    with pytest.raises(ConfigError, match=r"serve\.toml: .*'prot' \(did you mean 'port'\?\)"):
        read_serve_settings({}, file, {})
    with pytest.raises(ConfigError, match="BERTKIT_PORT: port"):
        read_serve_settings({}, None, {"BERTKIT_PORT": "many"})


def test_two_models_of_one_name_are_refused(tmp_path: Path) -> None:
    save_tiny(tmp_path / "a")
    with pytest.raises(ConfigError, match="two models are called 'a'"):
        ServerApp(ServeSettings(models=(str(tmp_path / "a"), f"a={tmp_path / 'a'}")))


def test_a_json_log_has_no_texts(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    app_settings = ServeSettings(models=tuple(save_models(tmp_path, ("vectors",))), port=0, log="json")
    from bertkit.server.running import in_thread

    with in_thread(ServerApp(app_settings)) as address:
        ask(address, "/v1/embed", {"input": "a good film"})
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    asked = [line for line in lines if line["path"] == "/v1/embed"]
    assert [(line["status"], line["method"]) for line in asked] == [(200, "POST")]
    assert "film" not in json.dumps(lines)


def test_the_same_request_is_answered_from_the_cache_until_the_model_changes(tmp_path: Path) -> None:
    models = save_models(tmp_path, ("vectors", "labels"))
    with serving(*models, cache_bytes=100_000, admin_key="for admins only") as (app, address):

        def batcher() -> Any:
            return app.service.models.slots["vectors"].batcher

        first = ask(address, "/v1/embed", {**FILM, "model": "vectors"})
        again = ask(address, "/v1/embed", {**FILM, "model": "vectors"})
        assert first.body == again.body
        other = ask(address, "/v1/embed", {**FILM, "model": "vectors", "normalize": True})
        assert other.results != first.results
        assert (batcher().counts.requests, batcher().cache.hits) == (2, 1)
        page = ask(address, "/metrics").body.decode()
        assert 'bertkit_cache_hits_total{model="vectors"} 1.0' in page
        assert 'bertkit_cache_misses_total{model="vectors"} 2.0' in page
        for number in range(300):
            ask(address, "/v1/embed", {"input": f"film {number}", "model": "vectors"})
        assert batcher().cache.num_bytes <= 100_000
        save_tiny(tmp_path / "vectors", initializer_range=0.2)
        assert ask(address, "/admin/reload", {}, x_api_key="for admins only").status == 200
        assert ask(address, "/v1/embed", {**FILM, "model": "vectors"}).results != first.results
