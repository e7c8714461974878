r"""Does a pre-training run that is killed repeatedly end with the same result as an uninterrupted one?

    python benchmarks/pretrain_kills.py --data ../shared/data --out benchmarks/results/pretrain-kills.md

``bertkit pretrain`` on Wikipedia text, with a checkpoint saved after every step, so that kills hit writes as well as
steps and evaluations. One run is uninterrupted. The other is killed (SIGKILL) at random moments and restarted with the
same command each time. Their weights, and their logs apart from timings, must be identical byte for byte; as a
control, a run with another seed must differ. About 5 minutes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from machine import about, block, publish

SETTINGS = (
    "--preset bert-tiny --optimizer adamw --learning-rate 1e-3 --max-seq-length 64 --batch-size 16 --dev-examples 64 "
    "--eval-every-steps 50 --checkpoint-every-s 0 --no-curve --quiet"
).split()


def main() -> None:
    args = parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        stores = make_stores(args.data, work)
        whole = work / "whole"
        seconds = timed(start(stores, whole, args.steps, seed=1))
        kills, finished = kill_again_and_again(stores, work, args, moments=seconds)
        report: dict[str, Any] = {
            "about": about(os.cpu_count() or 1),
            "steps": args.steps,
            "whole_seconds": round(seconds, 1),
            "kills": kills,
            "weights": {"uninterrupted": weights_of(whole), "killed": weights_of(finished)},
            "logs_equal": steps_of(whole) == steps_of(finished),
        }
        timed(start(stores, work / "control", min(args.steps, 5), seed=2))
        timed(start(stores, work / "short", min(args.steps, 5), seed=1))
        report["another_seed_is_another_run"] = weights_of(work / "control") != weights_of(work / "short")
    same = report["weights"]["uninterrupted"] == report["weights"]["killed"]
    if not (same and report["logs_equal"] and report["another_seed_is_another_run"]):
        sys.exit(f"runs that must be equal differ, or the control does not differ: {json.dumps(report, indent=2)}")
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with pretrain_text/ and vocab/")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0, help="seed of the kill times")
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    return parser.parse_args()


def make_stores(data: Path, work: Path) -> tuple[Path, Path]:
    """Training and held-out text: 2 MB and 0.2 MB."""
    for part, size in (("train", 2_000_000), ("valid", 200_000)):
        with lzma.open(data / "pretrain_text" / f"wikipedia_en.{part}.txt.xz", "rt", encoding="utf-8") as text:
            (work / f"{part}.txt").write_text(text.read(size), encoding="utf-8")
        vocabulary = data / "vocab" / "bert-base-uncased-vocab.txt"
        bertkit("prepare", work / f"{part}.txt", "--tokenizer", vocabulary, "--out", work / part, "--quiet").wait()
    return work / "train", work / "valid"


def bertkit(*words: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bertkit", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def start(stores: tuple[Path, Path], out: Path, steps: int, *, seed: int) -> subprocess.Popen[bytes]:
    train, dev = stores
    return bertkit("pretrain", train, "--dev", dev, "--out", out, "--max-steps", steps, "--seed", seed, *SETTINGS)


def timed(process: subprocess.Popen[bytes]) -> float:
    """Seconds until a process exits successfully."""
    started = time.monotonic()
    if process.wait():
        sys.exit(f"failed with code {process.returncode}: {process.args}")
    return time.monotonic() - started


def kill_again_and_again(
    stores: tuple[Path, Path], work: Path, args: argparse.Namespace, *, moments: float
) -> tuple[list[dict[str, Any]], Path]:
    """What each kill hit, and the folder of the run, which is finally restarted and completed.

    A kill comes at a random time after the run has started or resumed, such that about that many fit into one run. If
    the run finishes before the kill, another run is started.
    """
    chance = random.Random(args.seed)
    kills: list[dict[str, Any]] = []
    number, out = 0, work / "killed-0"
    while len(kills) < args.kills:
        process = start(stores, out, args.steps, seed=1)
        wait_for_change(out, process)
        time.sleep(chance.uniform(0, 1.2 * moments / args.kills))
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            number += 1
            out = work / f"killed-{number}"
            continue
        logged = steps_of(out)
        kills.append(
            {
                "run": number,
                "after_step": logged[-1]["step"] if logged else 0,
                "while_writing": bool(list((out / "checkpoints").glob(".writing-*"))),
            }
        )
        print(f"kill {len(kills)}: {kills[-1]}", file=sys.stderr, flush=True)
    timed(start(stores, out, args.steps, seed=1))
    return kills, out


def wait_for_change(out: Path, process: subprocess.Popen[bytes]) -> None:
    """Wait until the run is under way: something in its folder is newer than this call."""
    since = time.time()
    while process.poll() is None:
        for path in (out / "log.jsonl", out / "checkpoints"):
            if path.exists() and path.stat().st_mtime > since:
                return
        time.sleep(0.005)


def weights_of(out: Path) -> str:
    return hashlib.sha256((out / "model" / "model.safetensors").read_bytes()).hexdigest()


def steps_of(out: Path) -> list[dict[str, Any]]:
    """The log without timings and without a last line truncated by a kill."""
    path = out / "log.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    records = [json.loads(line) for line in lines if line.endswith("\n")]
    clocks = ("seconds", "per_s", "peak_share")
    return [{key: value for key, value in record.items() if not key.endswith(clocks)} for record in records]


def render(report: dict[str, Any]) -> list[str]:
    kills = report["kills"]
    runs = len({kill["run"] for kill in kills})
    lines = ["# A pre-training run that is killed repeatedly", "", *block(report["about"]), ""]
    lines += [
        f"{len(kills)} kills (SIGKILL) of `bertkit pretrain`, {report['steps']} steps of bert-tiny on Wikipedia text, "
        f"with a checkpoint after every step; {sum(kill['while_writing'] for kill in kills)} kills hit a checkpoint "
        "write. "
        f"They were spread over {runs} run{'s' * (runs > 1)}.",
        "",
        "| run | sha256 of the weights |",
        "|---|---|",
        *(f"| {name} | `{digest}` |" for name, digest in report["weights"].items()),
        "",
        "The weights are equal bit for bit, and so are the logs apart from timings. A run with another seed differs.",
        "",
        "Last logged step at each kill: " + ", ".join(str(kill["after_step"]) for kill in kills) + ".",
        "",
        f"Settings: `{' '.join(SETTINGS)}`.",
    ]
    return lines


if __name__ == "__main__":
    main()
