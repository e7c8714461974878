"""What the scripts of this folder share: a process that answers requests about one model on one runtime.

The scripts are run, never imported by bertkit, and by an interpreter that need not have bertkit: they import their
runtime, numpy and this file. A script either prepares files once (``--prepare``), or loads its model, says that it is
ready, and then answers one request per line of standard input by one line of standard output, both JSON, until its
input ends:

* ``{"do": "vectors", "texts": FILE, "out": FILE}`` writes the mean vector of each text, float32 ``(B, D)``;
* ``{"do": "hidden", "texts": FILE, "out": FILE}`` writes the last hidden states, float32 ``(T, D)``;
* ``{"do": "calls", "texts": FILE, "budget": S}`` gives the seconds of single calls, one text each, for S seconds;
* ``{"do": "pass", "texts": FILE, "order": "arrival" | "sorted"}`` gives the seconds of one pass over all texts;
* ``{"do": "memory"}`` gives the most bytes that the process ever held.

A file of texts is an ``.npz`` with ``ids`` and ``segments`` ``(T,)``, texts end to end, and ``boundaries``
``(B + 1,)``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]
#: Texts of one padded batch.
BATCH_SIZE = 32
#: Texts that a quantizer sees.
NUM_CALIBRATION = 128
#: Fewest measured single calls, and calls before them that are not measured.
MIN_CALLS, WARM_UP = 5, 3


@dataclass(frozen=True)
class Texts:
    """Token ids and segments ``(T,)`` of texts, end to end, and their boundaries ``(B + 1,)``."""

    ids: Ints
    segments: Ints
    boundaries: Ints

    @classmethod
    def read(cls, path: str) -> Texts:
        """Of an ``.npz`` file."""
        with np.load(path) as arrays:
            return cls(*(arrays[name].astype(np.int64) for name in ("ids", "segments", "boundaries")))

    @property
    def lengths(self) -> Ints:
        """Tokens of each text."""
        return np.diff(self.boundaries)

    def rows(self, values: Ints) -> list[Ints]:
        """``ids`` or ``segments``, one array per text."""
        return np.split(values, self.boundaries[1:-1])

    def select(self, numbers: Ints) -> Texts:
        """These texts, in this order."""
        ids, segments = self.rows(self.ids), self.rows(self.segments)
        boundaries = np.concatenate([[0], np.cumsum(self.lengths[numbers])])
        return Texts(
            np.concatenate([ids[n] for n in numbers]), np.concatenate([segments[n] for n in numbers]), boundaries
        )


class Runner(Protocol):
    """A loaded model; ``batch_size``: most texts of a call; None: any number, which it sorts and splits itself."""

    batch_size: int | None

    def vectors(self, texts: Texts) -> Floats:
        """The mean vector of each text, in one call ``(B, D)``."""

    def hidden(self, texts: Texts) -> list[Floats]:
        """The last hidden states of each text, ``(S, D)``, in one call."""


#: Padded ids, mask and segments ``(B, S)`` to hidden states ``(B, S, D)``.
Encode = Callable[[Ints, Ints, Ints], Floats]


class PaddedRunner:
    """A runtime that takes padded batches."""

    batch_size: int | None = BATCH_SIZE

    def __init__(self, encode: Encode, pad_id: int = 0) -> None:
        self._encode = encode
        self._pad_id = pad_id

    def vectors(self, texts: Texts) -> Floats:
        return np.stack([rows.mean(axis=0) for rows in self.hidden(texts)])

    def hidden(self, texts: Texts) -> list[Floats]:
        lengths = texts.lengths
        mask = np.arange(lengths.max())[None, :] < lengths[:, None]
        ids, segments = np.full(mask.shape, self._pad_id, np.int64), np.zeros(mask.shape, np.int64)
        ids[mask], segments[mask] = texts.ids, texts.segments
        states = self._encode(ids, mask.astype(np.int64), segments)
        return [row[:length] for row, length in zip(states, lengths.tolist(), strict=True)]


def in_batches(texts: Texts, batch_size: int | None, order: str) -> tuple[Ints, list[Texts]]:
    """The texts' numbers in this order, and the texts in batches of it."""
    numbers = np.argsort(-texts.lengths, kind="stable") if order == "sorted" else np.arange(len(texts.lengths))
    size = batch_size or len(numbers)
    return numbers, [texts.select(numbers[first : first + size]) for first in range(0, len(numbers), size)]


def all_vectors(runner: Runner, texts: Texts) -> Floats:
    """The mean vector of each text, in the texts' own order ``(B, D)``."""
    numbers, batches = in_batches(texts, runner.batch_size, "sorted")
    return np.concatenate([runner.vectors(batch) for batch in batches])[np.argsort(numbers)]


@dataclass(frozen=True)
class Setup:
    """What a script was started with: the model's folder, a folder for converted files, precision and threads."""

    model: Path
    work: Path
    precision: str
    threads: int

    @property
    def calibration(self) -> Texts:
        """Texts on which a quantizer may look at activations: some of those that are measured."""
        texts = Texts.read(str(self.work / "texts-texts.npz"))
        return texts.select(np.arange(min(len(texts.lengths), NUM_CALIBRATION)))

    @property
    def config(self) -> dict[str, Any]:
        """The model's config.json."""
        found: dict[str, Any] = json.loads((self.model / "config.json").read_text(encoding="utf-8"))
        return found


def main(load: Callable[[Setup], Runner], prepare: Callable[[Setup], None] = lambda setup: None) -> None:
    """Run a script: ``prepare`` writes converted files, ``load`` opens the model."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prepare", action="store_true")
    given = vars(parser.parse_args())
    only_prepare = given.pop("prepare")
    setup = Setup(**given)
    answers = _own_stdout()
    if only_prepare:
        prepare(setup)
        return
    runner = load(setup)
    answers(ready=True)
    for line in sys.stdin:
        answers(**_answer(runner, json.loads(line)))


def _own_stdout() -> Callable[..., None]:
    """Writes answers; whatever else the process prints goes to standard error."""
    stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def write(**answer: object) -> None:
        stream.write(json.dumps(answer) + "\n")
        stream.flush()

    return write


def _answer(runner: Runner, request: dict[str, Any]) -> dict[str, Any]:
    if request["do"] == "memory":
        return {"bytes": peak_memory()}
    texts = Texts.read(request["texts"])
    if request["do"] == "vectors":
        np.save(request["out"], all_vectors(runner, texts))
        return {}
    if request["do"] == "hidden":
        np.save(request["out"], np.concatenate(runner.hidden(texts)))
        return {}
    if request["do"] == "calls":
        return {"seconds": _seconds_of_calls(runner, texts, request["budget"])}
    assert request["do"] == "pass", request
    _, batches = in_batches(texts, runner.batch_size, request["order"])
    start = time.perf_counter()
    for batch in batches:
        runner.vectors(batch)
    return {"seconds": [time.perf_counter() - start]}


def _seconds_of_calls(runner: Runner, texts: Texts, budget: float) -> list[float]:
    """Seconds of calls with one text each, all texts in turn: each at least once, and for about ``budget`` seconds."""
    singles = [texts.select(np.array([number])) for number in range(len(texts.lengths))]
    for single in (WARM_UP * singles)[:WARM_UP]:
        runner.vectors(single)
    seconds: list[float] = []
    started = time.perf_counter()
    while len(seconds) < MIN_CALLS or time.perf_counter() - started < budget:
        for single in singles:
            start = time.perf_counter()
            runner.vectors(single)
            seconds.append(time.perf_counter() - start)
    return seconds


def peak_memory() -> int:
    """Most bytes of memory that this process held; ``getrusage`` counts the parent's from before the script began."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return 1024 * int(line.split()[1])
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
