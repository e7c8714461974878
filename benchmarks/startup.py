"""How long does the command line take to start, and does it import torch?

    python benchmarks/startup.py --out benchmarks/results/startup.md

Wall time of whole processes, median of several runs, after one that warms the disk cache.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from machine import cpu_name, publish

RUNS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    args = parser.parse_args()
    script = shutil.which("bertkit", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    command = [script] if script else [sys.executable, "-m", "bertkit"]
    cases = {
        "bertkit --help": [*command, "--help"],
        "bertkit finetune --help": [*command, "finetune", "--help"],
        'python -c "import bertkit"': [sys.executable, "-c", "import bertkit"],
        'python -c "pass"': [sys.executable, "-c", "pass"],
        'python -c "import torch"': [sys.executable, "-c", "import torch"],
    }
    times = {name: measure(case, args.runs) for name, case in cases.items()}
    torch_free = {name: not imports_torch(case) for name, case in list(cases.items())[:3]}
    lines = [
        "# Start-up",
        "",
        f"{cpu_name()}, {platform.platform()}, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}, "
        f"median of {args.runs} runs",
        "",
        "| command | ms | lowest | highest | imports torch |",
        "|---|---|---|---|---|",
    ]
    for name, runs in times.items():
        torch = {True: "no", False: "yes"}.get(torch_free.get(name), "")
        lines.append(f"| `{name}` | {statistics.median(runs):.0f} | {min(runs):.0f} | {max(runs):.0f} | {torch} |")
    medians = {name: round(statistics.median(runs), 1) for name, runs in times.items()}
    publish(lines, {"median_ms": medians, "torch_free": torch_free}, args.out)


def measure(command: list[str], runs: int) -> list[float]:
    """Milliseconds of each run."""
    found = []
    for number in range(runs + 1):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if number:
            found.append(1000 * (time.perf_counter() - started))
    return found


def imports_torch(command: list[str]) -> bool:
    """Whether the process imports torch, according to the interpreter's import log."""
    log = subprocess.run(
        command, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONPROFILEIMPORTTIME": "1"}
    ).stderr
    return any(line.rpartition("|")[2].strip() == "torch" for line in log.splitlines())


if __name__ == "__main__":
    main()
