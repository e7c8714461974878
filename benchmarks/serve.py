"""How many requests a second does a server answer? bertkit's beside others, with many clients on the same cores.

    python benchmarks/serve.py --data ../shared/data --infinity infinity_emb --llama llama-server MINILM.gguf ...
    python benchmarks/serve.py --data ../shared/data --infinity infinity_emb --task classify ...

Vectors of MiniLM-L6 with its real weights, in base64 as OpenAI's client asks for them, closed loop and keep-alive;
a request has one tweet, 32 of them, or one paragraph of Wikipedia of at most 700 characters. The client is ``wrk`` for
all servers, in this machine, so that it takes its share of the cores. Beside bertkit stand ``infinity-emb`` as it is
shipped (its torch engine; ``--infinity``), llama.cpp's ``llama-server`` with the best of three numbers of slots
(``--llama``; ``serving/bert_gguf.py`` makes the file), and FastAPI around sentence-transformers and ONNX Runtime with a
batcher that waits a little and sorts by length (``serving/peer_server.py``), with the best of three sizes and waits.
Servers take turns within each round; medians of rounds are reported. Then requests come to bertkit at twice the rate
that it answered (``serving/open_loop.py``). Before anything is timed, vectors must agree to 1e-3.

With ``--task classify`` it is a classifier of two labels, MiniLM with a head of random weights, asked in Infinity's
words; in the place of sentence-transformers is ``transformers``, and llama.cpp's server has no such task.
"""

from __future__ import annotations

import argparse
import base64
import csv
import json
import lzma
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from bertkit import AutoTokenizer, BertForSequenceClassification, pipeline
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
#: Most clients that send many texts a request, for twice the time: with 64 the slowest servers answer none in seconds.
MOST_OF_MANY = 16
#: Milliseconds of one client's request beyond the bare pipeline, and how often it is measured.
MOST_OVERHEAD, OVERHEADS = 1.5, 5
#: At twice the load: share of the capacity, milliseconds beyond what the queue takes, and of a refusal.
LEAST_GOODPUT, QUEUE_GRACE, MOST_REFUSAL = 0.9, 100.0, 20.0
#: Share of the processor time of bertkit's process that the thread of HTTP uses, with texts of about so many tokens.
MOST_HTTP, SHORT = 0.25, range(14, 19)
#: Seconds from the start of the process to its first answer, and million bytes at rest; and starts that are measured.
MOST_START, MOST_MEMORY, STARTS = 1.2, 250.0, 5


Command = list[str | Path]
#: A path, and the name of the model there.
Place = tuple[str, str]


def vector_in(found: Mapping[str, Any]) -> np.ndarray:
    """That of the first embedding of an answer; llama.cpp's server sends numbers whatever it is asked for."""
    vector = found["embedding"]
    return np.array(vector, np.float32) if isinstance(vector, list) else np.frombuffer(base64.b64decode(vector), "<f4")


def shares_in(found: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Those of the labels, by their names."""
    return np.array([each["score"] for each in sorted(found, key=lambda each: str(each["label"]))])


class Job(NamedTuple):
    """What servers are asked.

    task: of bertkit's pipeline. asked: what a body has beside model and input. path, bertkit_path, infinity_path: of
    peers of our own and llama.cpp, of bertkit, and of Infinity. engine: beside ONNX Runtime. read: numbers of the
    first of ``data`` in an answer.
    """

    title: str
    task: str
    asked: Mapping[str, str]
    path: str
    bertkit_path: str
    infinity_path: str
    engine: str
    read: Callable[[Any], np.ndarray]


JOBS = {
    "embed": Job(
        "vectors", "feature-extraction", {"encoding_format": "base64"}, "/v1/embeddings", "/v1/embeddings",
        "/embeddings", "sentence-transformers", vector_in,
    ),
    "classify": Job(
        "a classifier", "text-classification", {}, "/classify", "/infinity/classify", "/classify", "transformers",
        shares_in,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs: its port, and the path and model that it takes."""

    name: str
    port: int
    process: subprocess.Popen[bytes]
    job: Job
    path: str
    model: str

    def body(self, text: str | Sequence[str]) -> str:
        """A request about a text, or about several."""
        texts = [text] if isinstance(text, str) and not self.job.asked else text  # Infinity takes lists only
        return json.dumps({"model": self.model, "input": texts, **self.job.asked})

    def numbers(self, text: str) -> np.ndarray:
        """The vector of a text, or the shares of its labels."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("POST", self.path, self.body(text), {"content-type": "application/json"})
        content = connection.getresponse().read()
        connection.close()
        return self.job.read(json.loads(content)["data"][0])

    def tokens(self) -> float:
        """Tokens that bertkit has computed so far."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith("bertkit_tokens_total"))

    def processor_seconds(self) -> tuple[float, float]:
        """That the thread of HTTP used, its first, and all threads."""
        place = Path(f"/proc/{self.process.pid}")
        fields = [(place / name).read_text().rpartition(")")[2].split() for name in (f"task/{place.name}/stat", "stat")]
        own, whole = (sum(map(int, each[11:13])) / os.sysconf("SC_CLK_TCK") for each in fields)
        return own, whole

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
def running(name: str, command: Command, port: int, job: Job, place: Place) -> Iterator[Server]:
    """A server, from its first answer on."""
    quiet = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0"}
    process = subprocess.Popen(
        list(map(str, command)), env={**os.environ, **quiet}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    server = Server(name, port, process, job, *place)
    try:
        end = time.monotonic() + 300
        while True:
            try:
                server.numbers("Are you there?")
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
    """Kinds of requests, and how many clients send them."""
    return [
        (kind, each) for kind, read in INPUTS.items() for each in clients if read != many_tweets or each <= MOST_OF_MANY
    ]


def best_of(
    name: str, command: Command, tried: dict[str, list[str]], job: Job, texts: Sequence[str], scratch: Path
) -> tuple[Command, str]:
    """The command of a server with the best of some arguments, and these in words."""
    found: dict[str, float] = {}
    for number, (words, more) in enumerate(tried.items()):
        port = 8870 + number
        with running(name, [*command, *more, "--port", str(port)], port, job, (job.path, "m")) as server:
            measure(server, texts, AIMED_CLIENTS, 1, scratch)
            found[words] = measure(server, texts, AIMED_CLIENTS, 3, scratch).rate
    best = max(found, key=lambda words: found[words])
    return [*command, *tried[best]], f"{name}: best with {best} of {', '.join(tried)}."


def start_of(command: Command, job: Job, place: Place) -> tuple[float, float]:
    """Seconds to the first answer of a server that is started, and its memory then in million bytes."""
    begun = time.perf_counter()
    with running("bertkit", [*command, "--port", "8869"], 8869, job, place) as server:
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


def opened(job: Job, model: Path, **options: Any) -> Callable[[str], Any]:
    """The pipeline itself, asked about one text."""
    if job.task == "feature-extraction":
        vectors = pipeline(job.task, model=model, pooling="model", **options)
        return lambda text: vectors(text, truncation=True)
    labels = pipeline(job.task, model=model, **options)
    return lambda text: labels(text, truncation=True, top_k=None)


def make_classifier(model: Path, folder: Path) -> None:
    """The encoder with a head of two labels, whose weights are random and large enough to tell texts apart."""
    torch.manual_seed(0)
    made = BertForSequenceClassification.from_pretrained(model, num_labels=2, pooling="cls")
    torch.nn.init.normal_(made.classifier.weight, std=0.5)
    made.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)


def http_share(server: Server, texts: Sequence[str], seconds: float, scratch: Path) -> float:
    """Of the processor time of a server that is busy with short texts, what reading and writing HTTP takes."""
    tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    short = [text for text in texts if len(tokenizer(text)["input_ids"]) in SHORT]
    measure(server, short, AIMED_CLIENTS, 1, scratch)
    before = server.processor_seconds()
    measure(server, short, AIMED_CLIENTS, seconds, scratch)
    own, whole = (after - first for after, first in zip(server.processor_seconds(), before, strict=True))
    return own / whole


def overhead_of(server: Server, model: Path, texts: Sequence[str], seconds: float, scratch: Path) -> float:
    """Milliseconds of one client's request beyond a call of the pipeline: medians of both, in turns, and theirs."""
    pipe = opened(server.job, model)
    more = []
    for _ in range(OVERHEADS):
        asked = measure(server, texts, 1, seconds, scratch).p50
        times = []
        for text in texts[:300]:
            begun = time.perf_counter()
            pipe(text)
            times.append(time.perf_counter() - begun)
        more.append(asked - statistics.median(times[50:]) * 1000)
    return statistics.median(more)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--task", choices=JOBS, default="embed")
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
    job = JOBS[given.task]
    if given.llama is not None and given.task != "embed":
        parser.error("llama.cpp's server has vectors only: leave --llama out")
    inputs: dict[str, Inputs] = {
        name: random.sample(found := read(given.data), min(len(found), NUM_BODIES)) for name, read in INPUTS.items()
    }
    texts = tweets(given.data)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder, model = scratch / "model", minilm_folder()
        if given.task == "classify":
            model = scratch / "classifier"
            make_classifier(minilm_folder(), model)
        shutil.copytree(model, folder)
        export = [sys.executable, "-m", "bertkit", "export", model, "--out", scratch / "onnx", "--variant", "padded"]
        subprocess.run(list(map(str, [*export, "--quiet"])), check=True, stdout=subprocess.DEVNULL)
        for file in (scratch / "onnx").glob("model.onnx*"):
            shutil.copy(file, folder)
        ours: Command = [sys.executable, "-m", "bertkit", "serve", f"m={model}", "--log", "none"]
        commands: dict[str, tuple[Command, Place]] = {"bertkit": (ours, (job.bertkit_path, "m"))}
        notes = []
        for engine in (job.engine, "onnxruntime"):
            own: Command = [sys.executable, HERE / "serving" / "peer_server.py", engine, folder]
            own += ["--classify"] * (given.task == "classify")
            command, words = best_of(f"FastAPI, {engine}", own, BATCHERS, job, texts, scratch)
            commands[f"FastAPI, {engine}"] = (command, (job.path, "m"))
            notes.append(f"{words} Version {version_of(engine)}.")
        if given.infinity is not None:
            own = [given.infinity, "v2", "--engine", "torch", "--device", "cpu", "--no-bettertransformer"]
            place = job.infinity_path, "/".join(model.parts[-2:])
            commands["infinity"] = ([*own, "--model-id", model], place)
        if given.llama is not None:
            program, file = given.llama
            own = [program, "--model", file, "--embeddings", "--device", "none"]
            command, words = best_of("llama.cpp", own, SLOTS, job, texts, scratch)
            commands["llama.cpp"] = (command, (job.path, "m"))
            said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
            version = next(line for line in (said.stdout + said.stderr).splitlines() if "version" in line)
            notes.append(f"{words} {version.strip()}; the matrices are in float16, as its converter writes them.")
        notes.append("text-embeddings-inference is not measured: neither PyPI nor npm nor Debian has a build for CPUs.")
        servers = {
            name: stack.enter_context(
                running(name, [*command, "--port", str(8880 + number)], 8880 + number, job, place)
            )
            for number, (name, (command, place)) in enumerate(commands.items())
        }
        expected = opened(job, model, precision="fp32")
        for server in servers.values():
            for text in texts[:64]:
                own_numbers = expected(text)
                wanted = shares_in(own_numbers) if given.task == "classify" else np.asarray(own_numbers)
                far = float(np.abs(server.numbers(text) - wanted).max())
                if far > MOST_DIFFERENCE:
                    raise SystemExit(f"{server.name} differs by {far:.1e} at {text!r}")
        found: dict[tuple[str, int, str], list[Load]] = {}
        with alone(servers["bertkit"], servers.values()):
            started = [start_of(ours, job, commands["bertkit"][1]) for _ in range(STARTS)]
        for _ in range(given.rounds):
            for kind, clients in cases(given.clients):
                for name, server in servers.items():
                    with alone(server, servers.values()):
                        seconds = given.seconds * (2 if INPUTS[kind] == many_tweets else 1)
                        load = measure(server, inputs[kind], clients, seconds, scratch)
                    found.setdefault((kind, clients, name), []).append(load)
                    print(f"{kind}, {clients} clients, {name}: {load.rate:,.1f} a second", file=sys.stderr, flush=True)
        rate = statistics.median(load.rate for load in found["tweets", AIMED_CLIENTS, "bertkit"])
        with alone(servers["bertkit"], servers.values()):
            share = http_share(servers["bertkit"], texts, given.seconds, scratch)
            above = overload(servers["bertkit"], texts, rate, given.open_seconds, scratch)
            overhead = overhead_of(servers["bertkit"], model, texts, given.seconds, scratch)
        memory = {name: server.memory() for name, server in servers.items()}
    seconds, at_rest = map(statistics.median, zip(*started, strict=True))
    report(given, found, memory, notes, above, (overhead, seconds, at_rest, share))


def report(
    given: argparse.Namespace,
    found: dict[tuple[str, int, str], list[Load]],
    memory: dict[str, float],
    notes: Sequence[str],
    above: Overload,
    own: tuple[float, float, float, float],
) -> None:
    """Publish medians, and what was aimed at.

    own: bertkit's overhead in milliseconds, start in seconds, memory at rest in million bytes, :func:`http_share`.
    """
    overhead, start, at_rest, share = own
    medians = {key: Load(*map(statistics.median, zip(*loads, strict=True))) for key, loads in found.items()}
    names = list(memory)
    targets = []
    for kind in INPUTS:
        aimed = max((each for its, each in cases(given.clients) if its == kind and each <= AIMED_CLIENTS), default=0)
        if not aimed:
            continue
        rate = {name: medians[kind, aimed, name].rate for name in names}
        for others, factor in ((["infinity", "llama.cpp"], BESIDE_SHIPPED), (names[1:3], BESIDE_OWN)):
            known = [name for name in others if name in rate]
            if known:
                best = max(known, key=lambda name: rate[name])
                what = f"requests a second, {kind}, {aimed} clients, times"
                times = rate["bertkit"] / rate[best] if rate[best] else math.inf
                targets.append(Target(what, times, factor, at_most=False, beside=best))
    what = "milliseconds beyond the bare pipeline, one client"
    targets.append(Target(what, overhead, MOST_OVERHEAD, at_most=True))
    limit = ServeSettings().max_queue_tokens / above.tokens * 1000 + QUEUE_GRACE
    rate = medians["tweets", AIMED_CLIENTS, "bertkit"].rate
    targets.append(
        Target("twice the load: good answers, of capacity", above.goodput / rate, LEAST_GOODPUT, at_most=False)
    )
    targets.append(Target("twice the load: 99th percentile of accepted, ms", above.p99, limit, at_most=True))
    targets.append(
        Target("twice the load: 99th percentile of refusals, ms", above.refusal_p99, MOST_REFUSAL, at_most=True)
    )
    what = f"processor time of the thread of HTTP, {SHORT.start} to {SHORT.stop - 1} tokens, {AIMED_CLIENTS} clients"
    targets.append(Target(what, share, MOST_HTTP, at_most=True))
    targets.append(Target("seconds from the start to the first answer", start, MOST_START, at_most=True))
    targets.append(Target("memory at rest, million bytes", at_rest, MOST_MEMORY, at_most=True))
    lines = [f"# Serving {JOBS[given.task].title} over HTTP", "", *block(about(os.cpu_count() or 1))]
    lines += table(targets)
    for kind in INPUTS:
        lines += ["", f"## {kind}: requests a second (median and 99th percentile in milliseconds)", ""]
        lines += ["| clients | " + " | ".join(names) + " |", "|--:|" + "--:|" * len(names)]
        for clients in [clients for its, clients in cases(given.clients) if its == kind]:
            loads = [medians[kind, clients, name] for name in names]
            cells = [f"{load.rate:,.{load.rate < 10:d}f} ({load.p50:.1f}, {load.p99:.1f})" for load in loads]
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
