"""Which model answers, and what happens to it: loading on demand, reloading, loads that fail."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from pydantic import ValidationError

from bertkit.errors import ConfigError
from bertkit.server.app import ServerApp
from bertkit.server.dialects.bertkit_bodies import Embed
from bertkit.server.dialects.openai import EmbeddingRequest
from bertkit.server.failures import Failure
from bertkit.server.http.guards import Guarded
from bertkit.server.items import characters_read
from bertkit.server.models import Slot
from bertkit.server.open_model import OpenModel
from bertkit.server.running import in_thread
from bertkit.server.settings import ServeSettings, read_serve_settings
from pipeline_helpers import save_tiny
from server_helpers import MODELS, ask, save_models, serving


def test_who_answers_does_not_depend_on_what_is_loaded(tmp_path: Path) -> None:
    """The first model makes vectors as well, but it is a classifier."""
    with serving(*save_models(tmp_path, ("labels", "vectors")), lazy=True) as (_, address):
        ask_until_ready(address, "/v1/classify", {"input": "good"})
        found = ask_until_ready(address, "/v1/embed", {"input": "good"})
        assert found["model"] == "vectors"


def test_an_own_task_of_a_model_by_its_name_waits_for_it(tmp_path: Path) -> None:
    with serving(*save_models(tmp_path, ("answers",)), lazy=True) as (_, address):
        body = {"inputs": {"question": "what?", "context": "a good film"}}
        assert ask(address, "/models/answers", body).status == 503
        assert "answer" in ask_until_ready(address, "/models/answers", body)


@pytest.mark.parametrize("settings", [{"keep_alive": 0.05}, pytest.param({"memory": 1}, marks=pytest.mark.campaign)])
def test_an_unloaded_model_comes_back(tmp_path: Path, settings: dict[str, float]) -> None:
    with serving(*save_models(tmp_path, ("labels",)), **settings) as (app, address):
        models = app.service.models
        assert ask(address, "/v1/classify", {"input": "good"}).status == 200
        models.unload(models.slots["labels"])
        assert ask(address, "/ready").status == 200
        assert models.in_use() == []
        assert ask_until_ready(address, "/v1/classify", {"input": "good"})["model"] == "labels"


def test_answers_of_a_model_that_is_replaced_have_its_own_labels(tmp_path: Path) -> None:
    with serving(*save_models(tmp_path, ("labels",))) as (app, _):
        models = app.service.models
        slot = models.slots["labels"]
        before = slot.batcher
        assert before is not None
        renamed = {0: "x", 1: "y", 2: "z"}
        save_tiny(tmp_path / "labels", MODELS["labels"][0], id2label=renamed)
        assert models.load(slot)
        assert list(before.facts.labels or ()) == ["bad", "good", "dull"]
        assert list(slot.facts.labels or ()) == ["x", "y", "z"]
        assert slot.facts.revision != before.facts.revision != ""


def test_a_fault_while_loading_ends_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def broken(self: OpenModel, *given: object, **named: object) -> None:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(OpenModel, "__init__", broken)
    with serving(*save_models(tmp_path, ("labels",))) as (app, address):
        assert app.service.models.settled
        reply = ask(address, "/v1/classify", {"input": "good"})
        assert (reply.status, "the log has more" in str(reply.body)) == (424, True)
    assert "CUDA out of memory" in capfd.readouterr().err


def test_reloading_is_the_supervisors_where_there_are_workers(tmp_path: Path) -> None:
    with serving(*save_models(tmp_path, ("labels",)), admin_key="12345678", workers=1) as (app, address):
        app.service.settings = app.service.settings.model_copy(update={"workers": 2})
        reply = ask(address, "/admin/reload", {}, authorization="Bearer 12345678")
        assert (reply.status, "SIGHUP" in str(reply.body)) == (422, True)


def test_a_text_that_is_read_with_several_counts_with_each() -> None:
    ranked = {"query": "12345", "documents": ["1", "12", ""]}
    assert characters_read(ranked, "rerank", {}) == 3 * 5 + 3
    assert characters_read({"context": "12345", "choices": ["1", "12"]}, "choose", {}) == 2 * 5 + 3
    assert characters_read("12345", "zero-shot", {"candidate_labels": ["a", "bc"]}) == 2 * 5 + 3
    assert characters_read(("12", "345"), "classify", {}) == characters_read("12345", "embed", {}) == 5


def test_a_name_of_the_machine_in_the_environment_does_not_open_the_server() -> None:
    assert read_serve_settings({}, environment={"HOSTNAME": "0.0.0.0"}).host == ServeSettings().host == "127.0.0.1"
    assert read_serve_settings({}, environment={"HOSTNAME": "0.0.0.0", "MODEL_ID": "m"}).host == "0.0.0.0"


def test_names_of_text_embeddings_inference_in_the_environment_mean_the_same() -> None:
    theirs = {
        "OTLP_ENDPOINT": "http://collector:4318",
        "CORS_ALLOW_ORIGIN": "https://a.example, https://b.example",
        "JSON_OUTPUT": "true",
        "DTYPE": "float16",
        "SERVED_MODEL_NAME": "ours",
    }
    assert read_serve_settings({}, environment=theirs) == ServeSettings(), "they may be meant for others"
    found = read_serve_settings({}, environment={**theirs, "MODEL_ID": "owner/name"})
    assert (found.models, found.otlp_endpoint) == (("ours=owner/name",), "http://collector:4318")
    assert found.allowed_origins == ("https://a.example", "https://b.example")
    assert (found.log, found.precision) == ("json", "fp16")
    own = {"BERTKIT_LOG": "none", "BERTKIT_PRECISION": "fp32", "BERTKIT_MODELS": "mine=m"}
    found = read_serve_settings({}, environment={**theirs, "MODEL_ID": "owner/name", **own})
    assert (found.log, found.precision, found.models) == ("none", "fp32", ("mine=m",))
    for name, value in (("DTYPE", "int4"), ("JSON_OUTPUT", "perhaps"), ("SERVED_MODEL_NAME", "owner/name")):
        with pytest.raises(ConfigError, match=name):
            read_serve_settings({}, environment={"MODEL_ID": "m", name: value})


def test_a_revision_is_null_until_all_weights_have_been_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed, revision = threading.Event(), OpenModel.revision

    def late(self: OpenModel) -> str:
        assert hashed.wait(60)
        return revision.__get__(self)

    monkeypatch.setattr(OpenModel, "revision", property(late))
    with serving(*save_models(tmp_path, ("vectors",)), lazy=True) as (_, address):
        facts = {"input": "a", "facts": True}
        while (reply := ask(address, "/v1/embed", facts)).status == 503:
            time.sleep(0.01)
        assert reply.body["facts"]["revision"] is None
        assert ask(address, "/v1/info").body["models"][0]["revision"] is None
        assert ask(address, "/info").body["model_sha"] is None
        hashed.set()
        while (found := ask(address, "/v1/info").body["models"][0]["revision"]) is None:
            time.sleep(0.01)
        assert len(found) == 64


def test_an_unknown_model_is_named(tmp_path: Path) -> None:
    with serving(*save_models(tmp_path, ("labels",))) as (app, _):
        with pytest.raises(Failure, match="no model 'other'"):
            app.service.models.slot("other")
        assert isinstance(app.service.models.slot("labels"), Slot)


def ask_until_ready(address: str, path: str, body: dict[str, object]) -> dict[str, object]:
    end = time.monotonic() + 20
    while (reply := ask(address, path, body)).status == 503 and time.monotonic() < end:
        time.sleep(0.02)
    assert reply.status == 200, reply.body
    found: dict[str, object] = reply.body
    return found


@pytest.mark.parametrize("wrong", [1.5, "", None, [0.5]])
def test_a_body_of_many_faults_has_few_errors(wrong: object) -> None:
    for kind, field in ((EmbeddingRequest, "input"), (Embed, "input")):
        with pytest.raises(ValidationError) as found:
            kind.model_validate({field: [wrong if wrong != "" else {"text": 1}] * 10_000})
        assert found.value.error_count() < 12


def test_parts_in_their_context_refuse_what_does_not_go_with_them(tmp_path: Path) -> None:
    with serving(*save_models(tmp_path, ("vectors",))) as (_, address):
        body = {"input": "A good film. The end.", "chunk": "sentence"}
        for name, value in (("encoding", "base64"), ("tokens", True), ("overflow", "truncate")):
            reply = ask(address, "/v1/embed", {**body, name: value})
            assert (reply.status, f"`{name}` does not go with `chunk`" in str(reply.body)) == (422, True)
        assert len(ask(address, "/v1/embed", {**body, "dimensions": 8}).results[0][0]["vector"]) == 8


def test_a_length_above_that_of_the_model_is_an_upper_bound(tmp_path: Path) -> None:
    with serving(*save_models(tmp_path, ("ranks",))) as (_, address):
        body = {"model": "ranks", "query": "a film", "documents": ["good", "bad"], "max_tokens_per_doc": 4096}
        assert ask(address, "/v2/rerank", body).status == 200


def test_paths_of_strangers_are_counted_together_and_forge_no_lines(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    models = tuple(save_models(tmp_path, ("labels",)))
    app = ServerApp(ServeSettings(models=models, port=0, log="text", api_key="secret"))
    with in_thread(app) as address:
        assert ask(address, "/guess%0AFORGED%1b[2J").status == 401
        assert ask(address, "/v1/info", authorization="Bearer secret").status == 200
        page = ask(address, "/metrics").body.decode()
    assert "guess" not in page
    assert 'path="/v1/info"' in page
    logged = capfd.readouterr().err
    assert "/guess\\nFORGED\\x1b[2J 401" in logged


def test_an_address_of_ipv6_is_its_own_host(tmp_path: Path) -> None:
    models = tuple(save_models(tmp_path, ("labels",)))
    app = ServerApp(ServeSettings(models=models, port=0, log="none", host="::1"))
    app.settings = app.settings.model_copy(update={"host": "fd00::5"})
    guards = Guarded(None, app.settings, None, None, print)  # type: ignore[arg-type]
    guards._check_host({"headers": [(b"host", b"[fd00::5]:8080")]}, "")
    with pytest.raises(Failure, match="not allowed"):
        guards._check_host({"headers": [(b"host", b"[fd00::6]:8080")]}, "")
