"""The servers that faults happen to, their models, and what these answer while nothing is wrong."""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from bertkit import pipeline
from bertkit.system.model_sources import resolve
from serving.fault_client import Connection, Query, embedding, until, vectors_right

ADMIN = "the key of the faults"
WORDS = "the a river bank film was good bad dull end of in it loan money water late early very and letter".split()
#: From this position on one model computes NaN; all texts but the poisonous one are shorter.
TAINT = 110


@dataclass(frozen=True, slots=True)
class Models:
    """Folders of a model, of the same with other weights, and of one that cannot compute :data:`TAINT`."""

    folder: Path
    queries: Sequence[Query]
    other_queries: Sequence[Query]
    either: Sequence[Query]
    texts: Sequence[str]
    vectors: np.ndarray

    def copy(self, to: Path) -> Path:
        """The model where it may be damaged."""
        return Path(shutil.copytree(self.folder / "model", to))


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def workers(self) -> list[int]:
        found = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return [int(number) for number in found.split()]

    def proportional_bytes(self) -> list[int]:
        """Memory (PSS) of the process itself, and of each worker: what several share is divided among them."""
        return [_proportional_bytes(process) for process in (self.process.pid, *self.workers)]

    def said(self, words: str) -> int:
        """How many lines of the log have these words."""
        return sum(words in line for line in self.log.read_text(errors="replace").splitlines())

    async def ask(self, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        connection = Connection(self.port)
        try:
            return await connection.ask(path, body, **headers)
        finally:
            connection.close()

    async def ready(self) -> bool:
        with suppress(OSError, asyncio.IncompleteReadError):
            return (await self.ask("/ready"))[0] == 200
        return False

    async def metric(self, name: str) -> float:
        """The sum of a metric."""
        page = (await self.ask("/metrics"))[1].decode()
        return sum(map(float, re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", page, re.MULTILINE)))

    async def reload(self) -> float:
        """Load the models again; seconds until the new ones answer everybody."""
        begun, old = time.monotonic(), set(self.workers)
        if old:
            self.process.send_signal(signal.SIGHUP)
            await until(lambda: self.said("reloaded") - self.said("not reloaded") > 0)
            await until(lambda: not old & set(self.workers))
        else:
            await self.ask("/admin/reload", b"{}", x_api_key=ADMIN)
        return time.monotonic() - begun

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    async def ended(self) -> float:
        return await until(lambda: self.process.poll() is not None)


def _proportional_bytes(process: int) -> int:
    rollup = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii")
    return int(rollup.partition("Pss:")[2].split()[0]) * 1024


@contextmanager
def served(folder: Path, *arguments: str, log: Path | None = None) -> Iterator[Server]:
    """``bertkit serve`` on a port that was free, with all that it says in a file."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    written = log or folder / f"log-{port}"
    command = [sys.executable, "-m", "bertkit", "serve", *arguments, "--port", str(port), "--precision", "fp32"]
    with written.open("wb") as file:
        process = subprocess.Popen([*command, "--admin-key", ADMIN], stdout=file, stderr=file)
    server = Server(process, port, written)
    try:
        yield server
    except Exception:
        lines = written.read_text(errors="replace").splitlines() if log is None else []
        print("\n".join([line for line in lines if " /ready " not in line][-20:]), file=sys.stderr)
        raise
    finally:
        workers = server.workers if process.poll() is None else []
        process.kill()
        process.wait()
        for worker in workers:
            with suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)


def prepared(source: str, folder: Path) -> Models:
    """The models, and what they answer."""
    shutil.copytree(resolve(source), folder / "model")
    chance = random.Random(0)
    texts = [" ".join(chance.choices(WORDS, k=chance.choice((1, 4, 10, 30, 100)))) for _ in range(120)]
    vectors = _vectors(folder / "model", texts)
    _changed(folder / "model", folder / "other", "word_embeddings.weight", lambda table: table[::-1])

    def taint(table: np.ndarray) -> np.ndarray:
        table = table.astype(np.float32)
        table[TAINT:] = 3e38  # whose sum is infinite; a checkpoint with NaN is not loaded
        return table

    _changed(folder / "model", folder / "tainted", "position_embeddings.weight", taint)
    other = _vectors(folder / "other", texts)
    assert float(np.abs(other - vectors).max()) > 0.01, "the other model answers otherwise"

    def queries(*answers: np.ndarray) -> list[Query]:
        made = []
        for first in range(len(texts) - 8):
            part = slice(first, first + chance.choice((1, 1, 1, 8)))
            made.append(embedding(texts[part], "model", vectors_right(*(one[part] for one in answers))))
        return made

    return Models(folder, queries(vectors), queries(other), queries(vectors, other), texts, vectors)


def _vectors(folder: Path, texts: Sequence[str]) -> np.ndarray:
    return np.stack(pipeline("feature-extraction", model=folder, pooling="model", precision="fp32")(list(texts)))


def _changed(folder: Path, to: Path, tensor: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    """A copy of a model with another tensor, given by the end of its name."""
    shutil.copytree(folder, to)
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if name.endswith(tensor))
    weights[name] = np.ascontiguousarray(change(weights[name]))
    save_file(weights, to / "model.safetensors", metadata={"format": "pt"})
    (to / "fingerprint.json").unlink(missing_ok=True)
