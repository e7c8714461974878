"""How many requests a second does a server answer? bertkit's beside others, with many clients on the same cores.

    python benchmarks/serve.py --data ../shared/data --infinity infinity_emb --llama llama-server MINILM.gguf ...

Vectors of MiniLM-L6 with its real weights, in base64 as OpenAI's client asks for them, closed loop and keep-alive;
a request has one tweet, 32 of them, or one paragraph of Wikipedia of at most 700 characters. The client is ``wrk`` for
all servers, in this machine, so that it takes its share of the cores. Beside bertkit stand ``infinity-emb`` as it is
shipped (its torch engine; ``--infinity``), llama.cpp's ``llama-server`` with the best of three numbers of slots
(``--llama``; ``serving/bert_gguf.py`` makes the file), and FastAPI around sentence-transformers and ONNX Runtime with a
batcher that waits a little and sorts by length (``serving/peer_server.py``), with the best of three sizes and waits.
Servers take turns within each round; medians of rounds are reported. Then requests come to bertkit at twice the rate
that it answered (``serving/open_loop.py``). Before anything is timed, vectors must agree to 1e-3.
"""

from __future__ import annotations

import argparse
import base64
import csv
import json
import lzma
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bertkit import pipeline
from bertkit.server.settings import ServeSettings
from cpu_engine import Target, table
from machine import about, block, minilm_folder, publish, resident_bytes, version_of

HERE = Path(__file__).parent
MOST_DIFFERENCE = 1e-3
NUM_BODIES = 4000
#: Texts of a request that has several.
MANY = 32
#: Characters of a paragraph, so that hardly any has more than 256 tokens.
LEAST_CHARACTERS, MOST_CHARACTERS = 200, 700
#: What the batchers of FastAPI are tried with, and llama.cpp's server, whose slots are the texts of a batch.
BATCHERS = {
    f"batches of {size}, {wait} ms": ["--batch", str(size), "--wait", str(wait)]
    for size, wait in ((16, 2), (32, 5), (64, 10))
}
SLOTS: dict[str, list[str]] = {
    "4 slots": [],
    **{f"{slots} slots": ["--parallel", str(slots), "--ubatch-size", "2048"] for slots in (16, 64)},
}
#: Clients, and times the best server as shipped and the best batcher of our own, that are aimed at.
AIMED_CLIENTS, BESIDE_SHIPPED, BESIDE_OWN = 64, 2.0, 1.4
#: Milliseconds of one client's request beyond the bare pipeline.
MOST_OVERHEAD = 1.5
#: At twice the load: share of the capacity, milliseconds beyond what the queue takes, and of a refusal.
LEAST_GOODPUT, QUEUE_GRACE, MOST_REFUSAL = 0.9, 100.0, 20.0
#: Seconds from the start of the process to its first answer, and million bytes at rest; and starts that are measured.
MOST_START, MOST_MEMORY, STARTS = 1.2, 250.0, 5


Command = list[str | Path]


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs: its port, and the path and model that it takes."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    path: str
    model: str

    def body(self, text: str | Sequence[str]) -> str:
        """A request for the vector of a text, or for those of several."""
        return json.dumps({"model": self.model, "input": text, "encoding_format": "base64"})

    def vector(self, text: str) -> np.ndarray:
        """The vector of a text."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", self.path, self.body(text), {"content-type": "application/json"})
        content = connection.getresponse().read()
        connection.close()
        found = json.loads(content)["data"][0]["embedding"]  # llama.cpp's server sends numbers whatever it is asked for
        return np.array(found, np.float32) if isinstance(found, list) else np.frombuffer(base64.b64decode(found), "<f4")

    def tokens(self) -> float:
        """Tokens that bertkit has computed so far."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("bertkit_tokens_total"))

    def memory(self) -> float:
        """Resident memory in million bytes."""
        return resident_bytes(self.process.pid) / 1e6


class Load(NamedTuple):
    """What wrk measured: good answers a second, failures, milliseconds, and its own share of one core."""

    rate: float
    failed: int
    p50: float
    p99: float
    client: float


@contextmanager
def alone(server: Server, servers: Iterable[Server]) -> Iterator[None]:
    """The other servers are stopped meanwhile: some look for work many times a second."""
    others = [each.process for each in servers if each is not server]
    for process in others:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in others:
            process.send_signal(signal.SIGCONT)


class Overload(NamedTuple):
    """Good answers a second, milliseconds of the slowest hundredth of them and of refusals, refusals, tokens/s."""

    goodput: float
    p99: float
    refusal_p99: float
    refusals: int
    tokens: float


@contextmanager
def running(name: str, command: Command, port: int, path: str, model: str) -> Iterator[Server]:
    """A server, from its first answer on."""
    quiet = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}
    process = subprocess.Popen(
        list(map(str, command)), env={**os.environ, **quiet}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    server = Server(name, port, process, path, model)
    try:
        end = time.monotonic() + 300
        while True:
            try:
                server.vector("Are you there?")
                break
            except (OSError, ValueError, KeyError):  # it does not listen yet, or says 503
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{name} did not start: {' '.join(map(str, command))}") from None
                time.sleep(0.02)
        yield server
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def measure(server: Server, inputs: Inputs, clients: int, seconds: float, scratch: Path) -> Load:
    """A closed loop of so many clients."""
    bodies = scratch / f"{server.port}.txt"
    bodies.write_text("\n".join(map(server.body, inputs)) + "\n", encoding="utf-8")
    environment = {**os.environ, "BODIES": str(bodies), "TARGET": server.path}
    script = str(HERE / "serving" / "requests.lua")
    command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds:g}s", "--timeout", "30s", "-s", script]
    begun = os.times()
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{server.port}"], env=environment, capture_output=True, text=True, check=True
    )
    ended = os.times()
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))
    requests, failed, duration, p50, p99 = map(float, line.split()[1:])
    used = ended.children_user + ended.children_system - begun.children_user - begun.children_system
    return Load((requests - failed) / duration * 1e6, int(failed), p50 / 1000, p99 / 1000, used / (duration / 1e6))


def tweets(data: Path) -> list[str]:
    """Tweets as they are."""
    with lzma.open(data / "tweet_sentiment" / "dev.csv.xz", "rt", encoding="utf-8", newline="") as file:
        return [row["text"].strip() for row in csv.DictReader(file) if row["text"].strip()]


def paragraphs(data: Path) -> list[str]:
    """Paragraphs of Wikipedia, of which long ones are cut."""
    with lzma.open(data / "pretrain_text" / "wikipedia_en.valid.txt.xz", "rt", encoding="utf-8") as file:
        lines = [line.strip() for line in file]
    return [line[:MOST_CHARACTERS] for line in lines if len(line) >= LEAST_CHARACTERS]


def many_tweets(data: Path) -> list[list[str]]:
    """So many tweets a request."""
    found = tweets(data)
    return [found[start : start + MANY] for start in range(0, len(found) - MANY + 1, MANY)]


Inputs = Sequence[str] | Sequence[list[str]]
INPUTS: dict[str, Callable[[Path], Inputs]] = {
    "tweets": tweets,
    "Wikipedia": paragraphs,
    f"{MANY} tweets a request": many_tweets,
}


def cases(clients: Sequence[int]) -> list[tuple[str, int]]:
    """Kinds of requests, and how many clients send them; 256 clients with many texts each would fill the queue."""
    return [
        (kind, each)
        for kind, read in INPUTS.items()
        for each in clients
        if read != many_tweets or each <= AIMED_CLIENTS
    ]


def best_of(
    name: str, command: Command, tried: dict[str, list[str]], texts: Sequence[str], scratch: Path
) -> tuple[Command, str]:
    """The command of a server with the best of some arguments, and these in words."""
    found: dict[str, float] = {}
    for number, (words, more) in enumerate(tried.items()):
        port = 8870 + number
        with running(name, [*command, *more, "--port", str(port)], port, "/v1/embeddings", "m") as server:
            measure(server, texts, AIMED_CLIENTS, 1, scratch)
            found[words] = measure(server, texts, AIMED_CLIENTS, 3, scratch).rate
    best = max(found, key=lambda words: found[words])
    return [*command, *tried[best]], f"{name}: best with {best} of {', '.join(tried)}."


def start_of(command: Command) -> tuple[float, float]:
    """Seconds to the first answer of a server that is started, and its memory then in million bytes."""
    begun = time.perf_counter()
    with running("bertkit", [*command, "--port", "8869"], 8869, "/v1/embeddings", "m") as server:
        return time.perf_counter() - begun, server.memory()


def overload(server: Server, texts: Sequence[str], rate: float, seconds: float, scratch: Path) -> Overload:
    """An open loop: requests come at twice the rate that the server answered in a closed loop."""
    bodies = scratch / "open.txt"
    bodies.write_text("\n".join(map(server.body, texts)) + "\n", encoding="utf-8")
    url = f"http://127.0.0.1:{server.port}{server.path}"
    command = [sys.executable, HERE / "serving" / "open_loop.py", url, bodies, "--rate", 2 * rate]
    before = server.tokens()
    done = subprocess.run(list(map(str, [*command, "--seconds", seconds])), capture_output=True, text=True, check=True)
    per_second = (server.tokens() - before) / seconds
    found = json.loads(done.stdout.splitlines()[-1])
    good, full = found.pop("200"), found.pop("429", {"answers": 0, "p99": 0.0})  # a short run may not fill the queue
    if found:
        raise SystemExit(f"answers with other statuses: {found}")
    return Overload(good["answers"] / seconds, good["p99"], full["p99"], full["answers"], per_second)


def bare_seconds(folder: Path, texts: Sequence[str]) -> float:
    """Median time of a call of the pipeline with one text."""
    pipe = pipeline("feature-extraction", model=folder, pooling="model")
    times = []
    for text in texts[:300]:
        begun = time.perf_counter()
        pipe(text, truncation=True)
        times.append(time.perf_counter() - begun)
    return statistics.median(times[50:])


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--infinity", type=Path, help="the command infinity_emb of an environment of its own")
    parser.add_argument(
        "--llama", nargs=2, metavar=("LLAMA-SERVER", "GGUF"), help="the command, and MiniLM as its file"
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 16, 64, 256], help=f"{AIMED_CLIENTS} among them")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--open-seconds", type=float, default=20.0, help="of the overload")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("this benchmark needs wrk: apt-get install wrk")
    random.seed(0)
    model = minilm_folder()
    inputs: dict[str, Inputs] = {
        name: random.sample(found := read(given.data), min(len(found), NUM_BODIES)) for name, read in INPUTS.items()
    }
    texts = tweets(given.data)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder = scratch / "model"
        shutil.copytree(model, folder)
        export = [sys.executable, "-m", "bertkit", "export", model, "--out", scratch / "onnx", "--variant", "padded"]
        subprocess.run(list(map(str, [*export, "--quiet"])), check=True, stdout=subprocess.DEVNULL)
        for file in (scratch / "onnx").glob("model.onnx*"):
            shutil.copy(file, folder)
        commands: dict[str, tuple[Command, str, str]] = {
            "bertkit": (
                [sys.executable, "-m", "bertkit", "serve", f"m={model}", "--log", "none"],
                "/v1/embeddings",
                "m",
            )
        }
        notes = []
        for engine in ("sentence-transformers", "onnxruntime"):
            own: Command = [sys.executable, HERE / "serving" / "peer_server.py", engine, folder]
            command, words = best_of(f"FastAPI, {engine}", own, BATCHERS, texts, scratch)
            commands[f"FastAPI, {engine}"] = (command, "/v1/embeddings", "m")
            notes.append(f"{words} Version {version_of(engine)}.")
        if given.infinity is not None:
            own = [given.infinity, "v2", "--engine", "torch", "--device", "cpu", "--no-bettertransformer"]
            commands["infinity"] = ([*own, "--model-id", model], "/embeddings", "/".join(model.parts[-2:]))
        if given.llama is not None:
            program, file = given.llama
            own = [program, "--model", file, "--embeddings", "--device", "none"]
            command, words = best_of("llama.cpp", own, SLOTS, texts, scratch)
            commands["llama.cpp"] = (command, "/v1/embeddings", "m")
            said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
            version = next(line for line in (said.stdout + said.stderr).splitlines() if "version" in line)
            notes.append(f"{words} {version.strip()}; the matrices are in float16, as its converter writes them.")
        notes.append("text-embeddings-inference is not measured: neither PyPI nor npm nor Debian has a build for CPUs.")
        servers = {
            name: stack.enter_context(running(name, [*command, "--port", str(8880 + number)], 8880 + number, *place))
            for number, (name, (command, *place)) in enumerate(commands.items())
        }
        expected = pipeline("feature-extraction", model=model, pooling="model", precision="fp32")
        for server in servers.values():
            for text in texts[:64]:
                far = float(np.abs(server.vector(text) - np.asarray(expected(text, truncation=True))).max())
                if far > MOST_DIFFERENCE:
                    raise SystemExit(f"{server.name} differs by {far:.1e} at {text!r}")
        found: dict[tuple[str, int, str], list[Load]] = {}
        started = [start_of(commands["bertkit"][0]) for _ in range(STARTS)]
        for _ in range(given.rounds):
            for kind, clients in cases(given.clients):
                for name, server in servers.items():
                    with alone(server, servers.values()):
                        load = measure(server, inputs[kind], clients, given.seconds, scratch)
                    found.setdefault((kind, clients, name), []).append(load)
        rate = statistics.median(load.rate for load in found["tweets", AIMED_CLIENTS, "bertkit"])
        with alone(servers["bertkit"], servers.values()):
            above = overload(servers["bertkit"], texts, rate, given.open_seconds, scratch)
        memory = {name: server.memory() for name, server in servers.items()}
    seconds, at_rest = map(statistics.median, zip(*started, strict=True))
    report(given, found, memory, notes, above, (bare_seconds(model, texts), seconds, at_rest))


def report(
    given: argparse.Namespace,
    found: dict[tuple[str, int, str], list[Load]],
    memory: dict[str, float],
    notes: Sequence[str],
    above: Overload,
    own: tuple[float, float, float],
) -> None:
    """Publish medians, and what was aimed at. own: bertkit's bare call and start in seconds, and memory at rest."""
    bare, start, at_rest = own
    medians = {key: Load(*map(statistics.median, zip(*loads, strict=True))) for key, loads in found.items()}
    names = list(memory)
    targets = []
    for kind in INPUTS:
        rate = {name: medians[kind, AIMED_CLIENTS, name].rate for name in names}
        for others, factor in ((["infinity", "llama.cpp"], BESIDE_SHIPPED), (names[1:3], BESIDE_OWN)):
            known = [name for name in others if name in rate]
            if known:
                best = max(known, key=lambda name: rate[name])
                what = f"requests a second, {kind}, {AIMED_CLIENTS} clients, times"
                targets.append(Target(what, rate["bertkit"] / rate[best], factor, at_most=False, beside=best))
    if 1 in given.clients:
        overhead = medians["tweets", 1, "bertkit"].p50 - bare * 1000
        targets.append(
            Target("milliseconds beyond the bare pipeline, one client", overhead, MOST_OVERHEAD, at_most=True)
        )
    limit = ServeSettings().max_queue_tokens / above.tokens * 1000 + QUEUE_GRACE
    rate = medians["tweets", AIMED_CLIENTS, "bertkit"].rate
    targets.append(
        Target("twice the load: good answers, of capacity", above.goodput / rate, LEAST_GOODPUT, at_most=False)
    )
    targets.append(Target("twice the load: 99th percentile of accepted, ms", above.p99, limit, at_most=True))
    targets.append(
        Target("twice the load: 99th percentile of refusals, ms", above.refusal_p99, MOST_REFUSAL, at_most=True)
    )
    targets.append(Target("seconds from the start to the first answer", start, MOST_START, at_most=True))
    targets.append(Target("memory at rest, million bytes", at_rest, MOST_MEMORY, at_most=True))
    lines = ["# Serving vectors over HTTP", "", *block(about(os.cpu_count() or 1))]
    lines += table(targets)
    for kind in INPUTS:
        lines += ["", f"## {kind}: requests a second (median and 99th percentile in milliseconds)", ""]
        lines += ["| clients | " + " | ".join(names) + " |", "|--:|" + "--:|" * len(names)]
        for clients in [clients for its, clients in cases(given.clients) if its == kind]:
            loads = [medians[kind, clients, name] for name in names]
            cells = [f"{load.rate:,.0f} ({load.p50:.1f}, {load.p99:.1f})" for load in loads]
            lines.append(f"| {clients} | " + " | ".join(cells) + " |")
    client = statistics.median(load.client for load in medians.values())
    failed = sum(load.failed for loads in found.values() for load in loads)
    lines += ["", *(f"- {note}" for note in notes)]
    lines.append(f"- wrk used {client:.2f} of a core in the median; {failed} requests failed.")
    lines.append("- Memory at the end, million bytes: " + ", ".join(f"{n} {m:.0f}" for n, m in memory.items()) + ".")
    plain = [[*key, *load] for key, load in medians.items()]
    publish(lines, {"medians": plain, "memory": memory}, given.out)


if __name__ == "__main__":
    main()
