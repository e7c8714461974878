"""Kill -9 at random moments of ``bertkit pretrain``: the same command goes on to the weights of an undisturbed run.

A checkpoint is written after every step, so that kills fall into writes as well as into steps, evaluations and the last
save of the model. The sweep starts a new interpreter for every part of the run, as a user does; the short version forks
one that has loaded everything.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bertkit.cli import main
from everyday import some

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
WORDS = "the cat dog bird sat ran flew on under over mat tree house red blue old . a then".split()
SETTINGS = (
    "--max-seq-length 48 --batch-size 8 --learning-rate 1e-3 --dev-examples 32 "
    "--checkpoint-every-s 0 --no-curve --quiet"
).split()

BERT, T5 = ("--preset", "bert-tiny"), ("--recipe", "t5.toml")
#: A recipe beside the store.
SMALL_T5 = '# Small.\n[model]\npreset = "t5-efficient-tiny"\nnum_layers = 1\nd_model = 32\nd_ff = 64\nnum_heads = 2\n'

#: Starts the command; returns its process id and what waits for its exit code (negative: killed by that signal).
Start = Callable[[list[str]], tuple[int, Callable[[], int]]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    chance = random.Random(0)
    documents = [
        "\n".join(" ".join(chance.choices(WORDS, k=chance.randint(4, 14))) for _ in range(chance.randint(3, 12)))
        for _ in range(120)
    ]
    text = folder / "text.txt"
    text.write_text("\n\n".join(documents) + "\n")
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *(f"<extra_id_{n}>" for n in range(4))]
    (folder / "t5.toml").write_text(SMALL_T5)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    prepared = folder / "store"
    arguments = ["prepare", text, "--tokenizer", folder / "vocab.txt", "--out", prepared, "--sentences", "line"]
    assert main([*map(str, arguments), "--workers", "1", "--quiet"]) == 0
    return prepared


def new_interpreter(arguments: list[str]) -> tuple[int, Callable[[], int]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bertkit", *arguments], env=ENVIRONMENT, stdout=subprocess.DEVNULL
    )
    return process.pid, process.wait


PROGRAM = """
import json, os, sys
from bertkit.cli import main
import bertkit.cli.pretrain, bertkit.data.store.token_store
import bertkit.inference.open_pipeline, bertkit.training.pretraining.pretrain

for line in sys.stdin:
    if (child := os.fork()) == 0:
        os.close(1)
        os.open(os.devnull, os.O_WRONLY)
        os._exit(main(json.loads(line)))
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="module")
def forked() -> Iterator[Start]:
    server = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=ENVIRONMENT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdin is not None
    assert server.stdout is not None
    written, read = server.stdin, server.stdout

    def start(arguments: list[str]) -> tuple[int, Callable[[], int]]:
        written.write(json.dumps(arguments) + "\n")
        written.flush()
        return int(read.readline()), lambda: int(read.readline())

    yield start
    written.close()
    assert server.wait() == 0


def command(store: Path, out: Path, num_steps: int, seed: int = 3, model: tuple[str, str] = BERT) -> list[str]:
    option, name = model
    where = [option, store.parent / name if model == T5 else name]
    arguments = ["pretrain", store, *where, "--dev", store, "--out", out, "--max-steps", num_steps, "--seed", seed]
    return [*map(str, arguments), *SETTINGS]


def weights_of(out: Path) -> str:
    return hashlib.sha256((out / "model" / "model.safetensors").read_bytes()).hexdigest()


def steps_of(out: Path) -> list[dict[str, Any]]:
    """The log without what a clock says."""
    clocks = ("seconds", "per_s", "peak_share")
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if not key.endswith(clocks)} for line in lines]


def wait_for_training(out: Path, process: int, since: float) -> None:
    """Until the process has logged a step, or written or removed a checkpoint; at most a minute."""
    while time.time() - since < 60:
        for changed in (out / "log.jsonl", out / "checkpoints"):
            if changed.exists() and changed.stat().st_mtime > since:
                return
        if Path(f"/proc/{process}/stat").exists() and "Z" in Path(f"/proc/{process}/stat").read_text().split()[2:3]:
            return
        time.sleep(0.002)
    raise AssertionError("a minute without a step")


def sweep(
    start: Start, store: Path, folder: Path, *, num_kills: int, num_steps: int, model: tuple[str, str] = BERT
) -> dict[str, int]:
    """Kill a run that often, resume it each time, and compare what it leaves with an undisturbed run."""
    whole = folder / "whole"
    begun = time.time()
    process, wait = start(command(store, whole, num_steps, model=model))
    wait_for_training(whole, process, begun)
    trained_from = time.time()
    assert wait() == 0
    training_s = time.time() - trained_from
    expected, expected_steps = weights_of(whole), steps_of(whole)
    assert [line["step"] for line in expected_steps if "event" not in line] == list(range(1, num_steps + 1))

    chance = random.Random(num_kills)
    counts = {"killed": 0, "finished": 0, "while writing": 0}
    out = folder / "killed"
    while counts["killed"] < num_kills:
        begun = time.time()
        process, wait = start(command(store, out, num_steps, model=model))
        wait_for_training(out, process, begun)
        time.sleep(chance.uniform(0, 1.2 * training_s / num_kills))
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
        code = wait()
        assert code in (0, -signal.SIGKILL)
        if code and not (out / "metrics.json").exists():
            counts["killed"] += 1
            unfinished = list((out / "checkpoints").glob(".writing-*"))
            counts["while writing"] += len(unfinished)
            assert len(unfinished) <= 1  # each start has removed what the kill before it left
            continue
        # It was quicker than the kill. What it left must be right; the next one begins anew.
        assert (weights_of(out), steps_of(out)) == (expected, expected_steps)
        counts["finished"] += 1
        out = folder / f"killed-{counts['finished']}"
    assert start(command(store, out, num_steps, model=model))[1]() == 0
    assert weights_of(out) == expected
    assert steps_of(out) == expected_steps
    assert not list(out.rglob(".*"))
    return counts


@pytest.mark.parametrize(("model", "num_kills"), some(((BERT, 1), (BERT, 3), (T5, 2)), [(BERT, 1)]))
def test_killed_at_any_moment_it_goes_on(
    forked: Start, store: Path, tmp_path: Path, model: tuple[str, str], num_kills: int
) -> None:
    sweep(forked, store, tmp_path, num_kills=num_kills, num_steps=16, model=model)


def test_another_seed_gives_other_weights(forked: Start, store: Path, tmp_path: Path) -> None:
    """The control: the hash sees what the sweep looks for."""
    for name, seed in (("a", 3), ("b", 4)):
        assert forked(command(store, tmp_path / name, 2, seed))[1]() == 0
    assert weights_of(tmp_path / "a") != weights_of(tmp_path / "b")


@pytest.mark.campaign
@pytest.mark.parametrize("model", [BERT, T5])
def test_killed_twenty_times(store: Path, tmp_path: Path, model: tuple[str, str]) -> None:
    counts = sweep(new_interpreter, store, tmp_path, num_kills=20, num_steps=200, model=model)
    print(counts)
    assert counts["while writing"] > 0  # else the sweep says nothing about half-written checkpoints
