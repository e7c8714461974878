"""How large is bertkit-lite, and how soon does it give its first vector?

    python benchmarks/lite_start.py --data ../shared/data --out benchmarks/results/lite-start.md

Installs the wheel of ``bertkit-lite`` and its requirements in a temporary environment (this needs a package index), or
uses the one given with ``--lite``, and reports its size, bytecode included. MiniLM-L6 is exported in fp32 and int8, and
the fp32 vectors must agree with torch's before anything is timed. Whole processes of ``bertkit embed`` with one text
then run, fp32 and int8 in turns, and are timed to the first byte of output and to their end, with all files in the page
cache. Finally, the time of the imports is broken down by package.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import embed
from cpu_engine import Target, table
from machine import about, block, minilm_folder, publish

ROOT = Path(__file__).resolve().parents[1]
#: Million bytes of site-packages, seconds to the first vector, largest difference of a number from torch's.
MOST_MB, MOST_SECONDS, MOST_DIFFERENCE = 250.0, 0.6, 1e-4
TEXT = "How soon does the first vector come?"
NUM_TEXTS, NUM_CALIBRATION = 64, 1000
#: How many of the packages that take longest to import are listed.
NUM_PACKAGES = 10
BERTKIT = [sys.executable, "-m", "bertkit"]


def main() -> None:
    args = parse_args()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        lite = args.lite or environment(scratch)
        texts = embed.draw_texts(args.data, NUM_TEXTS + NUM_CALIBRATION, seed=0)
        models = exports(scratch, texts[NUM_TEXTS:])
        agreement = compare(lite, models, scratch, texts[:NUM_TEXTS])
        size = size_of(lite)
        times = start_times(lite, models, args.rounds)
        imports = import_times(lite, models["fp32"])
    targets = [Target("size of site-packages, million bytes", size / 1e6, MOST_MB, at_most=True)]
    for precision, runs in times.items():
        first = statistics.median(first for first, _ in runs)
        targets.append(Target(f"first vector, {precision}, seconds", first, MOST_SECONDS, at_most=True))
    report = {"size": size, "agreement": agreement, "seconds": times, "imports_ms": imports}
    publish(render(targets, agreement, times, imports), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with glue/, imdb/, tweet_sentiment/ ..")
    parser.add_argument("--lite", type=Path, help="an environment that has bertkit-lite alone; default: a new one")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    return parser.parse_args()


def environment(scratch: Path) -> Path:
    """A new environment with the wheel of this source tree and what it requires, in the versions of constraints.txt."""
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    run(*pip, "wheel", "--no-deps", "--wheel-dir", scratch, ROOT / "packaging/lite")
    (wheel,) = scratch.glob("*.whl")
    folder = scratch / "environment"
    venv.create(folder, with_pip=False)
    python = folder / "bin/python"
    run(*pip, "--python", python, "install", wheel, "-c", ROOT / "constraints.txt")
    return folder


def run(*command: object) -> None:
    """Run a command and discard its standard output."""
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)


def exports(scratch: Path, calibration: Sequence[str]) -> dict[str, Path]:
    """MiniLM-L6 as graphs, by precision."""
    (scratch / "calibration.txt").write_text("\n".join(calibration) + "\n", encoding="utf-8")
    run(*BERTKIT, "quantize", minilm_folder(), "--out", scratch / "q8", "--calibrate", scratch / "calibration.txt",
        "--any-speed", "--quiet")  # fmt: skip
    found = {"fp32": scratch / "export-fp32", "int8": scratch / "export-int8"}
    run(*BERTKIT, "export", minilm_folder(), "--out", found["fp32"], "--quiet")
    run(*BERTKIT, "export", scratch / "q8", "--out", found["int8"], "--quiet")
    return found


def compare(lite: Path, models: dict[str, Path], scratch: Path, texts: Sequence[str]) -> dict[str, float]:
    """Vectors without torch beside torch's: the largest difference in fp32, and the mean cosine in int8."""
    file = scratch / "texts.txt"
    file.write_text("\n".join(" ".join(text.split()) for text in texts) + "\n", encoding="utf-8")

    def vectors(command: Sequence[object], model: Path) -> np.ndarray:
        target = scratch / "vectors.npy"
        run(
            *command, "embed", "--model", model, "--file", file, "--normalize", "--truncate", "--out", target, "--quiet"
        )
        found: np.ndarray = np.load(target)
        target.unlink()
        return found

    torchs = vectors(BERTKIT, minilm_folder())
    exact, small = (vectors([lite / "bin/bertkit"], models[precision]) for precision in ("fp32", "int8"))
    found = {"fp32": float(np.abs(exact - torchs).max()), "int8": float((small * torchs).sum(1).mean())}
    if found["fp32"] > MOST_DIFFERENCE:
        sys.exit(f"vectors differ from torch's by {found['fp32']:.1e}, more than {MOST_DIFFERENCE}: nothing was timed")
    return found


def size_of(lite: Path) -> int:
    """Bytes of all files in site-packages."""
    (packages,) = lite.glob("lib/python*/site-packages")
    return sum(file.stat().st_size for file in packages.rglob("*") if file.is_file())


def start_times(lite: Path, models: dict[str, Path], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds to the first byte of output and to the end, of every round but one that warms the page cache."""
    found: dict[str, list[tuple[float, float]]] = {precision: [] for precision in models}
    for number in range(rounds + 1):
        for precision, model in models.items():
            began = time.perf_counter()
            command = [lite / "bin/bertkit", "embed", "--model", model, TEXT]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                process.stdout.read(1)
                first = time.perf_counter() - began
                process.stdout.read()
            if process.returncode:
                sys.exit(process.returncode)
            if number:
                found[precision].append((first, time.perf_counter() - began))
    return found


def import_times(lite: Path, model: Path) -> dict[str, float]:
    """Milliseconds that the imports of each package take, in one process that takes the time of each."""
    command = [lite / "bin/python", "-X", "importtime", "-m", "bertkit", "embed", "--model", model, TEXT]
    log = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    found: Counter[str] = Counter()
    for line in log.splitlines():
        own, bar, module = line.removeprefix("import time:").partition("|")
        if bar and own.strip().isdigit():
            found[module.rpartition("|")[2].strip().partition(".")[0]] += int(own)
    rest = sum(found.values())
    most = {package: own / 1000 for package, own in found.most_common(NUM_PACKAGES)}
    return {**most, "all others": rest / 1000 - sum(most.values())}


def render(
    targets: Sequence[Target],
    agreement: dict[str, float],
    times: dict[str, list[tuple[float, float]]],
    imports: dict[str, float],
) -> list[str]:
    lines = ["# The start of bertkit-lite", "", *block(about(os.cpu_count() or 1)), *table(targets), ""]
    lines += ["| export | first vector, s | lowest | highest | process ended, s |", "|---|--:|--:|--:|--:|"]
    for precision, runs in times.items():
        first, ended = zip(*runs, strict=True)
        lines.append(
            f"| {precision} | {statistics.median(first):.2f} | {min(first):.2f} | {max(first):.2f} | "
            f"{statistics.median(ended):.2f} |"
        )
    taken = ", ".join(f"{package} {own:.0f}" for package, own in imports.items())
    return [
        *lines,
        "",
        f"- {NUM_TEXTS} texts beside torch: numbers of the fp32 export differ by {agreement['fp32']:.1e} at most, "
        f"cosines of the int8 export are {agreement['int8']:.4f} on average.",
        f"- Milliseconds of the imports, in a process that measures each: {taken}.",
    ]


if __name__ == "__main__":
    main()
