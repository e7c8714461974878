"""``bertkit serve`` as a process: its words, signals, workers that die, files that change under it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bertkit.engine.native import library
from bertkit.tasks import csv_task
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.finetuning.several_heads import finetune_heads
from finetune_data import QUICK, labelled_texts, no_pictures, tiny_start, write_table
from pipeline_helpers import Command, save_tiny
from server_helpers import Reply, ask, body_of, free_port, save_models

FILM = {"input": "a good film"}
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")


class Process(NamedTuple):
    """A running server, and what it has said so far."""

    process: subprocess.Popen[str]
    address: str
    said: list[str]

    @property
    def workers(self) -> list[int]:
        """Its child processes."""
        found = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False)
        return [int(number) for number in found.stdout.split()]

    def wait_for(self, words: str) -> None:
        """Until it has said so."""
        deadline = time.monotonic() + 60
        while not any(words in line for line in self.said):
            assert time.monotonic() < deadline, self.said
            assert self.process.poll() is None, self.said
            time.sleep(0.02)


@contextmanager
def served(*arguments: str, program: Sequence[str] = ("-m", "bertkit")) -> Iterator[Process]:
    command = [sys.executable, *program, "serve", *arguments, "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL)
    said: list[str] = []

    def listen() -> None:
        assert process.stderr is not None
        said.extend(process.stderr)  # line by line, as they come

    thread = threading.Thread(target=listen)
    thread.start()
    found = Process(process, "", said)
    try:
        found.wait_for("listening on")
        match = re.search(r"http://\S+", "".join(said))
        assert match is not None
        found = found._replace(address=match[0].rstrip(";"))
        found.wait_for("curl")
        yield found
    finally:
        workers = found.workers
        process.kill()
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):  # one that a reload replaced may end by itself
                os.kill(worker, signal.SIGKILL)
        process.wait()
        thread.join()


def test_what_bertkit_lite_lacks_is_said_with_what_to_install(tmp_path: Path) -> None:
    lite = Path(__file__).resolve().parents[1] / "lite_command.py"
    with served(*save_models(tmp_path, ("vectors", "answers")), program=[str(lite)]) as server:
        text = "it was good. the end."
        chunks = ask(server.address, "/v1/embed", {"input": text, "model": "vectors", "chunk": 4}).results[0]
        assert [text[one["start"] : one["end"]] for one in chunks] == ["it was good.", "the end."]
        reply = ask(server.address, "/v1/embed", {"input": text, "model": "vectors", "chunk": "sentence"})
        assert (reply.status, reply.body["error"]["type"]) == (501, "missing_package")
        assert reply.body["error"]["message"].endswith("Run: pip install nupunkt")
        tsne = ask(server.address, "/v1/map", {"input": list("abcde"), "model": "vectors", "method": "tsne"})
        assert (tsne.status, tsne.body["error"]["message"].endswith("Run: pip install bertkit")) == (501, True)
        explained = ask(server.address, "/v1/explain", {"input": ["was it", text], "model": "answers"}).results
        assert explained["label"] in text


def answered(address: str) -> Reply | None:
    """None where the connection broke."""
    try:
        return ask(address, "/v1/embed", FILM)
    except (OSError, HTTPException):
        return None


def test_it_says_where_it_listens_and_how_to_ask_and_stops_when_told(tmp_path: Path) -> None:
    with served(*save_models(tmp_path, ("labels", "vectors"))) as server:
        server.wait_for('"vectors"')  # the last one
        lines = [line for line in server.said if "curl" in line]
        assert len(lines) == 2
        command = lines[0].strip()
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
        assert '"results":[[{"label"' in done.stdout
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0


def test_ctrl_c_is_no_error(tmp_path: Path) -> None:
    with served(*save_models(tmp_path, ("vectors",))) as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(20) in (0, 130)
    assert not any("Traceback" in line for line in server.said)


#: A model that takes long to load, and words when the interpreter is taken apart.
LOADING = """
import atexit, sys, time
from bertkit.cli import main
from bertkit.server.models import Models
Models.load = lambda self, slot: time.sleep(60)
atexit.register(print, "taken apart")
sys.exit(main(["serve", "bertkit-tiny-en", "--port", "0"]))
"""


def test_a_server_that_is_stopped_while_it_loads_leaves_its_loader_alone() -> None:
    """Taking the interpreter apart beneath a thread in C crashed one process in a hundred."""
    process = subprocess.Popen(
        [sys.executable, "-c", LOADING], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        assert "listening on" in process.stderr.readline()
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=20)[0] == ""
        assert process.returncode == 0
    finally:
        process.kill()


#: A server whose models are loaded once a file is there.
HELD = """
import sys, time
from pathlib import Path
from bertkit.cli import main
from bertkit.server.models import Models
load, key = Models.load, Path(sys.argv[1])
def held(self, slot):
    while not key.exists():
        time.sleep(0.01)
    return load(self, slot)
Models.load = held
sys.exit(main(["serve", *sys.argv[2:], "--port", "0"]))
"""


@contextmanager
def held_server(key: Path, *arguments: str) -> Iterator[Process]:
    """A server that is loading its models."""
    command = [sys.executable, "-c", HELD, str(key), *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL)
    assert process.stderr is not None
    said = [process.stderr.readline()]
    thread = threading.Thread(target=lambda: said.extend(process.stderr or ()))
    thread.start()
    found = re.search(r"listening on (http://\S+);", said[0])
    assert found is not None, said
    server = Process(process, found[1], said)
    try:
        yield server
    finally:
        key.touch()
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        thread.join()


@pytest.mark.parametrize("workers", [pytest.param("1", marks=pytest.mark.campaign), "2"])
def test_while_models_are_loaded_it_answers_that_they_are(tmp_path: Path, workers: str) -> None:
    key = tmp_path / "key"
    with held_server(key, *save_models(tmp_path, ("vectors",)), "--workers", workers) as server:
        place = urlsplit(server.address)
        kept = HTTPConnection(place.hostname or "", place.port, timeout=60)  # open over the change
        kept.request("GET", "/health")
        assert kept.getresponse().read() is not None
        for _ in range(8):  # however connections are spread
            reply = ask(server.address, "/v1/embed", FILM)
            assert (reply.status, reply.headers["retry-after"]) == (503, "1")
            assert reply.body["error"]["type"] == "not_ready"
            assert ask(server.address, "/ready").body == {"ready": False, "reason": "loading models"}
        assert ask(server.address, "/health").status == 200
        assert ask(server.address, "/health", host="evil.example").status == 403
        if workers == "2":
            server.process.send_signal(signal.SIGHUP)
        assert answered(server.address) is not None, "it is still there"
        key.touch()
        while ask(server.address, "/ready").status == 503:
            assert server.process.poll() is None
        for _ in range(20):
            assert ask(server.address, "/v1/embed", FILM).status == 200
        if workers == "2":
            server.wait_for("reloaded")
            wait_until(lambda: len(server.workers) == 2)
        kept.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.campaign)])
def test_workers_that_do_not_exist_yet_can_be_stopped(tmp_path: Path, number: int) -> None:
    with held_server(tmp_path / "key", *save_models(tmp_path, ("vectors",)), "--workers", "2") as server:
        assert ask(server.address, "/ready").status == 503
        (stand_in,) = server.workers
        server.process.send_signal(number)
        assert server.process.wait(20) == 0  # although nothing has been loaded
        assert not Path(f"/proc/{stand_in}").exists()
        assert answered(server.address) is None


@pytest.mark.campaign
def test_who_stands_in_for_workers_ends_with_their_supervisor(tmp_path: Path) -> None:
    with held_server(tmp_path / "key", *save_models(tmp_path, ("vectors",)), "--workers", "2") as server:
        assert ask(server.address, "/ready").status == 503
        server.process.kill()
        wait_until(lambda: answered(server.address) is None)


@pytest.mark.campaign
def test_a_model_that_cannot_be_loaded_ends_workers_before_they_begin(tmp_path: Path) -> None:
    models = save_models(tmp_path, ("vectors",))
    (tmp_path / "vectors" / "model.safetensors").write_bytes(b"no")
    with held_server(tmp_path / "key", *models, "--workers", "2") as server:
        assert ask(server.address, "/ready").status == 503
        (tmp_path / "key").touch()
        assert server.process.wait(20) == 4
        assert answered(server.address) is None


#: A server with a fault of its own, libraries that warn, and a thread that fails.
FAULTY = """
import logging, sys, threading, warnings
from bertkit.cli import main
from bertkit.server.batcher import Batcher
from bertkit.server.models import Models
computed, load = Batcher._computed, Models.load
def faulty(self, batch):
    texts = [item for entry in batch for item in entry.payload.items]
    if "secret" in texts[0]:
        threading.Thread(target=lambda: int(texts[0])).start()
        int(texts[0])
    return computed(self, batch)
def warned(self, slot):
    warnings.warn("a warning of\\ntwo lines")
    logging.getLogger("other").error("an error of a library")
    return load(self, slot)
Batcher._computed, Models.load = faulty, warned
sys.exit(main(["serve", *sys.argv[1:], "--port", "0", "--log", "json"]))
"""


def log_of(*arguments: str, ask_it: Callable[[subprocess.Popen[str], str, Callable[[str], None]], None]) -> list[Any]:
    """All lines of a server's standard error; ``ask_it`` gets its address, and a function that waits for words."""
    command = [sys.executable, "-c", FAULTY, *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL)
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.extend(process.stderr or ()))
    thread.start()

    def wait_for(words: str) -> None:
        wait_until(lambda: any(words in line for line in said) or process.poll() is not None)

    try:
        wait_for("listening on")
        found = re.search(r"listening on (http://[^;]+);", "".join(said))
        if found is not None:
            ask_it(process, found[1], wait_for)
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    finally:
        process.kill()
        thread.join()
    lines = [json.loads(line) for line in said]
    assert all(line.keys() >= {"time", "level", "id", "message"} for line in lines)
    return lines


@pytest.mark.parametrize(
    ("workers", "texts"),
    [
        ("1", ()),
        pytest.param("1", ("--log-texts",), marks=pytest.mark.campaign),
        pytest.param("2", (), marks=pytest.mark.campaign),
    ],
)
def test_every_line_of_a_json_log_is_an_object_and_faults_name_their_request(
    tmp_path: Path, workers: str, texts: tuple[str, ...]
) -> None:
    models = save_models(tmp_path, ("vectors",))

    def ask_it(process: subprocess.Popen[str], address: str, wait_for: Callable[[str], None]) -> None:
        wait_for("curl")
        assert ask(address, "/v1/embed", {"input": "a plain word"}, x_request_id="good").status == 200
        assert ask(address, "/v1/embed", {"input": "a secret word"}, x_request_id="bad").status == 500
        (tmp_path / "vectors" / "model.safetensors").write_bytes(b"no")
        process.send_signal(signal.SIGHUP)
        wait_for("not reloaded" if workers == "2" else "cannot be loaded")

    lines = log_of(*models, "--workers", workers, *texts, ask_it=ask_it)
    whole = json.dumps(lines)
    assert {line["level"] for line in lines} == {"info", "warning", "error"}
    (fault,) = [line for line in lines if "a fault at POST /v1/embed" in line["message"]]
    assert (fault["id"], fault["level"]) == ("bad", "error")
    assert "in faulty" in fault["traceback"]
    assert "ValueError" in fault["traceback"]
    assert "<lambda>" in next(line for line in lines if "an unhandled ValueError" in line["message"])["traceback"]
    asked = {line["id"]: line for line in lines if line.get("path") == "/v1/embed"}
    assert [(asked[name]["status"], asked[name]["level"]) for name in ("good", "bad")] == [
        (200, "info"),
        (500, "error"),
    ]
    for words in ("a warning of", "an error of a library", "cannot be loaded", "listening on", "curl"):
        assert words in whole
    assert ("plain word" in whole, "secret word" in fault["traceback"], "secret word" in whole) == (bool(texts),) * 3


def test_a_json_log_says_why_a_server_does_not_start(tmp_path: Path) -> None:
    models = save_models(tmp_path, ("vectors",))
    (tmp_path / "vectors" / "model.safetensors").write_bytes(b"no")
    ended: list[int] = []
    lines = log_of(*models, "--workers", "2", ask_it=lambda process, address, wait_for: ended.append(process.wait(30)))
    assert ended == [4]
    assert "vectors/model.safetensors" in lines[-1]["message"]


def run_of_two_heads(folder: Path) -> Path:
    """A small run of ``bertkit finetune multi``."""
    tiny_start(folder / "start")
    write_table(folder / "mood.csv", ("text", "label"), labelled_texts(48, 1), delimiter=",")
    heads = {name: (csv_task(folder / "mood.csv", label="label"), folder / "mood.csv") for name in ("mood", "tone")}
    with no_pictures():
        finetune_heads(heads, folder / "start", folder / "run", FinetuneConfig(**QUICK), cache=None)
    return folder / "run"


@pytest.mark.parametrize(
    ("workers", "route"), [("1", "embed"), ("2", "embed"), pytest.param("2", "analyze", marks=pytest.mark.campaign)]
)
def test_files_that_are_cut_or_overwritten_change_no_answer(tmp_path: Path, workers: str, route: str) -> None:
    """Of a model with one head, and of a run with several."""
    model = run_of_two_heads(tmp_path) if route == "analyze" else save_tiny(tmp_path / "vectors")
    with served(str(model), "--workers", workers) as server:

        def answer() -> Any:
            return ask(server.address, f"/v1/{route}", FILM).results

        before, files = answer(), list(Path(model).rglob("*.safetensors"))
        assert (len(files) > 2) == (route == "analyze")
        for weights in files:
            size = weights.stat().st_size
            with weights.open("r+b") as file:
                file.write(os.urandom(size))
                file.flush()
                assert answer() == before
                file.truncate(0)
        for _ in range(4):
            assert answer() == before


@pytest.mark.campaign
def test_the_limits_of_a_key_hold_for_all_workers_together(tmp_path: Path) -> None:
    keys, most = tmp_path / "keys", 40
    keys.write_text(f"few requests_per_minute={most}\nfree\n")
    models = save_models(tmp_path, ("vectors",))
    begun = time.monotonic()
    with served(*models, "--workers", "2", "--api-keys-file", str(keys)) as server:
        found = [ask(server.address, "/v1/embed", FILM, x_api_key="few").status for _ in range(3 * most)]
        back = int((time.monotonic() - begun) * most / 60) + 1
        assert most <= found.count(200) <= most + back < 2 * most, "by connections of its own, each for either worker"
        assert set(found) == {200, 429}
        assert ask(server.address, "/v1/embed", FILM, x_api_key="free").status == 200


def test_a_worker_that_is_killed_is_replaced_and_the_others_go_on(tmp_path: Path) -> None:
    with served(*save_models(tmp_path, ("vectors",)), "--workers", "2") as server:
        expected = ask(server.address, "/v1/embed", FILM).results
        assert len(server.workers) == 2
        replies: list[Reply | None] = []
        with ThreadPoolExecutor(8) as pool:
            futures = [pool.submit(answered, server.address) for _ in range(200)]
            os.kill(server.workers[0], signal.SIGKILL)
            replies = [future.result() for future in futures]
        good = [reply for reply in replies if reply is not None]
        assert len(good) >= 180
        assert all(reply.status == 200 and reply.results == expected for reply in good)
        deadline = time.monotonic() + 20
        while len(server.workers) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(server.workers) == 2
        assert ask(server.address, "/v1/embed", FILM).results == expected
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0


def counted_by(place: str) -> dict[tuple[str, ...], float]:
    """The metrics of a server, by their names and labels."""
    page = ask(place, "/metrics").body.decode()
    families = text_string_to_metric_families(page)
    return {(one.name, *sorted(one.labels.values())): one.value for family in families for one in family.samples}


@pytest.mark.campaign
def test_metrics_are_the_sums_of_all_workers_also_of_those_that_have_ended(tmp_path: Path) -> None:
    with served(*save_models(tmp_path, ("vectors",)), "--workers", "2") as server:
        for number in (1, 2):
            victim = server.workers[0]
            for _ in range(100):
                assert ask(server.address, "/v1/embed", FILM).status == 200
            time.sleep(1.2)
            found = counted_by(server.address)
            assert found["bertkit_requests_total", "/v1/embed", "200"] == 100 * number
            assert found["bertkit_tokens_total", "vectors"] == 500 * number
            assert found["bertkit_phase_seconds_bucket", "+Inf", "embed", "queue"] == 100 * number
            assert found["bertkit_workers",] == 2
            os.kill(victim, signal.SIGKILL if number == 1 else signal.SIGTERM)
            wait_until(lambda gone=victim: len(server.workers) == 2 and gone not in server.workers)
            wait_until(lambda: counted_by(server.address)["bertkit_workers",] == 2)
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("reloaded")
        wait_until(lambda: counted_by(server.address)["bertkit_workers",] == 2)
        found = counted_by(server.address)
        assert found["bertkit_requests_total", "/v1/embed", "200"] == 200
        assert found["bertkit_requests_created", "/v1/embed", "200"] < time.time()


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="connections are spread by Linux")
def test_connections_are_spread_among_workers_and_nobody_else_can_join(tmp_path: Path) -> None:
    models = save_models(tmp_path, ("vectors",))
    with served(*models, "--workers", "2") as server, contextlib.ExitStack() as stack:
        where = urlsplit(server.address)

        def sockets(worker: int) -> int:
            held = [os.readlink(each) for each in Path(f"/proc/{worker}/fd").iterdir() if each.is_symlink()]
            return sum(place.startswith("socket") for place in held)

        before = [sockets(worker) for worker in server.workers]
        for _ in range(60):
            connection = stack.enter_context(contextlib.closing(HTTPConnection(where.hostname or "", where.port)))
            connection.request("GET", "/health")
            assert connection.getresponse().read()
        more = [sockets(worker) - base for worker, base in zip(server.workers, before, strict=True)]
        assert sum(more) >= 60
        assert min(more) >= 10, "were each thrown by a fair coin, fewer would come once in a million times"
        command = [sys.executable, "-m", "bertkit", "serve", *models, "--workers", "2", "--port", str(where.port)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, "cannot listen" in done.stderr) == (5, True)


def test_sighup_reloads_and_a_broken_folder_changes_nothing(tmp_path: Path) -> None:
    with served(*save_models(tmp_path, ("vectors",)), "--workers", "2") as server:
        before = ask(server.address, "/v1/embed", FILM).results
        weights = tmp_path / "vectors" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:999])
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("not reloaded")
        assert ask(server.address, "/v1/embed", FILM).results == before
        save_tiny(tmp_path / "vectors", initializer_range=0.2)
        server.process.send_signal(signal.SIGHUP)
        statuses = set()
        while not any(line.startswith("reloaded") for line in server.said):
            reply = answered(server.address)
            statuses.add(None if reply is None else reply.status)
        assert statuses <= {200}
        deadline = time.monotonic() + 20
        # A worker that stops still answers what has come to it.
        while any(ask(server.address, "/v1/embed", FILM).results == before for _ in range(10)):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def sent_without_an_end(place: str, lines: int) -> tuple[socket.socket, threading.Thread]:
    """A bulk request whose body is sent as fast as it is read, for ever; its connection and the thread that sends."""
    where = urlsplit(place)
    connection = socket.create_connection((where.hostname, where.port), timeout=60)
    head = "POST /v1/bulk/embed HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n"
    connection.sendall(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
    part = body_of(*[FILM] * lines)

    def send() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection.sendall(b"%x\r\n%b\r\n" % (len(part), part))

    sending = threading.Thread(target=send)
    sending.start()
    return connection, sending


@pytest.mark.campaign
def test_a_bulk_request_ends_with_the_server_and_says_where(tmp_path: Path) -> None:
    arguments = ("--grace", "2", "--workers", "2", "--max-bulk-lines", "64")
    with served(*save_models(tmp_path, ("vectors",)), *arguments) as server:
        expected = ask(server.address, "/v1/embed", FILM).results
        connection, sending = sent_without_an_end(server.address, 20)
        answer = HTTPResponse(connection)
        answer.begin()
        lines = [answer.readline() for _ in range(50)]
        server.process.send_signal(signal.SIGTERM)
        lines += answer.readlines()  # IncompleteRead if the stream is broken off
        connection.close()
        sending.join()
        assert server.process.wait(20) == 0
    found = [json.loads(line) for line in lines]
    assert [one["line"] for one in found] == list(range(1, len(found) + 1)), "no line is missing"
    np.testing.assert_allclose([one["results"][0] for one in found[:-1]], [expected[0]] * (len(found) - 1), atol=1e-5)
    assert found[-1]["error"]["type"] == "not_ready"
    assert len(found) > 100


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_log_that_cannot_be_written_stops_nothing(tmp_path: Path, workers: str) -> None:
    port = free_port()
    models = save_models(tmp_path, ("vectors",))
    command = [sys.executable, "-m", "bertkit", "serve", *models, "--port", str(port), "--log", "json"]
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen([*command, "--workers", workers], stderr=full, stdout=full)
    try:
        deadline = time.monotonic() + 60
        while (reply := answered(f"http://127.0.0.1:{port}")) is None or reply.status == 503:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert all(ask(f"http://127.0.0.1:{port}", "/v1/embed", FILM).status == 200 for _ in range(20))
        assert ask(f"http://127.0.0.1:{port}", "/v1/embed", {"input": ""}).status == 422
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()


def test_check_asks_each_model_and_stops(tmp_path: Path, command: Command) -> None:
    models = save_models(tmp_path, ("labels", "tags", "answers", "choices", "masks", "next", "ranks"))
    code, out, err = command("serve", "--check", *models)
    assert (code, len(out.splitlines())) == (0, 7), err
    (tmp_path / "tags" / "model.safetensors").write_bytes(b"no")
    code, _, err = command("serve", "--check", *models)
    assert code == 4
    assert "the model tags cannot be served" in err


@pytest.mark.parametrize(
    ("engine", "hidden", "code", "said"),
    [
        ("native", True, 4, "is computed by torch (BERTKIT_NATIVE=0"),
        pytest.param("auto", True, 0, "by torch", marks=pytest.mark.campaign),
        pytest.param("native", False, 0, "by bertkit", marks=pytest.mark.campaign),
        pytest.param("torch", False, 0, "by torch", marks=pytest.mark.campaign),
        pytest.param("onnx", False, 4, "is computed by native, and --engine asks for onnx", marks=pytest.mark.campaign),
    ],
)
def test_a_model_that_something_else_computes_than_was_asked_for_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command, engine: str, hidden: bool, code: int, said: str
) -> None:
    if hidden:
        monkeypatch.setenv("BERTKIT_NATIVE", "0")
    library._attempt.cache_clear()
    try:
        found, out, err = command("serve", *save_models(tmp_path, ("labels",)), "--engine", engine, "--check")
    finally:
        library._attempt.cache_clear()
    assert found == code, err
    assert said in out + err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "name a model"),
        (["/nowhere/model"], 4, "/nowhere/model"),
        (["bertkit-tiny-en", "--port", "99999"], 2, "port"),
        (["bertkit-tiny-en", "--max-items", "0"], 2, "max-items"),
    ],
)
def test_what_cannot_be_served(arguments: list[str], code: int, said: str, command: Command) -> None:
    found, _, err = command("serve", *arguments, "--check")  # so that it ends in any case
    assert (found, said in err) == (code, True), err


def test_an_address_of_another_machine() -> None:
    command = [sys.executable, "-m", "bertkit", "serve", "bertkit-tiny-en", "--host", "192.0.2.1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "cannot listen" in done.stderr) == (5, True), done.stderr
