"""Is the present tree as fast as an earlier commit? The same work through both, in turn, in processes of their own.

    python benchmarks/before_after.py --data ../shared/data --base 47da807 --out benchmarks/results/before-after.md

The work uses public names and commands only, so that both trees can do it. Rounds go A B, B A, A B, ...; each figure is
the median of its rounds, and the ratio the median of the ratios within a round (below 1: the present tree is faster).
Peers are measured by the other benchmarks; ratios to them follow from these, because the peers did not change.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from machine import about, block, minilm_folder, publish

REPOSITORY = Path(__file__).resolve().parent.parent

#: Ready to be measured: every call gives the seconds of each figure.
Work = Callable[[], dict[str, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with glue/ and pretrain_text/")
    parser.add_argument("--base", default="47da807", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--work", help=argparse.SUPPRESS)  # one of WORK, in this process; see start()
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    args = parser.parse_args()
    if args.work:
        work = WORK[args.work](args.folder)
        for _ in sys.stdin:
            print(json.dumps(work()), flush=True)
        return
    figures = compare(args.base, args.data, args.rounds, args.threads)
    lines = [f"# Before ({args.base}) and after", "", *block(about(args.threads)), "", *table(figures, args.rounds)]
    publish(lines, {"base": args.base, "seconds": figures}, args.out)


#: Of a figure the values of every round, before and after.
Figures = dict[str, tuple[list[float], list[float]]]


def compare(commit: str, data: Path, rounds: int, threads: int) -> Figures:
    """Seconds of every round by an earlier commit, checked out for the time being, and by the present tree."""
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch) / "base"
        subprocess.run(["git", "-C", REPOSITORY, "worktree", "add", "-q", "--detach", base, commit], check=True)
        try:
            return measure(base, Path(scratch), data, rounds, threads)
        finally:
            subprocess.run(["git", "-C", REPOSITORY, "worktree", "remove", "--force", base], check=True)


def table(figures: Figures, rounds: int) -> list[str]:
    """The figures as Markdown."""
    rows = [
        f"| {name} | {statistics.median(a):.4g} | {statistics.median(b):.4g} | "
        f"{statistics.median(y / x for x, y in zip(a, b, strict=True)):.3f} | "
        f"{min(y / x for x, y in zip(a, b, strict=True)):.3f} to {max(y / x for x, y in zip(a, b, strict=True)):.3f} |"
        for name, (a, b) in figures.items()
    ]
    return [
        f"Seconds, and MB of memory, {rounds} rounds in turn.",
        "",
        "| work | before | after | after / before | range |",
        "|---|--:|--:|--:|--:|",
        *rows,
    ]


def measure(base: Path, scratch: Path, data: Path, rounds: int, threads: int) -> Figures:
    """Of each figure the values of every round, before and after."""
    make_material(data, scratch)
    figures: Figures = {}
    for name in WORK:
        # Both processes live through all rounds: where one lands in memory and on the cores moves short calls by 10 %.
        sides = [start(name, tree, scratch, threads) for tree in (base, REPOSITORY)]
        for number in range(rounds + 1):  # the first round warms caches and is not counted
            for side in (0, 1) if number % 2 else (1, 0):
                for figure, seconds in ask(sides[side]).items():
                    if number:
                        figures.setdefault(figure, ([], []))[side].append(seconds)
            print(f"{name}: round {number} of {rounds}", file=sys.stderr)
        for side in sides:
            side.communicate()
    return figures


def start(name: str, tree: Path, folder: Path, threads: int) -> subprocess.Popen[str]:
    """A process that does one piece of work, by one tree, once for every line that it is sent."""
    environment = {**os.environ, "PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, "--data", ".", "--work", name, "--folder", str(folder)]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(side: subprocess.Popen[str]) -> dict[str, float]:
    """The figures of one round."""
    assert side.stdin is not None
    assert side.stdout is not None
    side.stdin.write("\n")
    side.stdin.flush()
    told: dict[str, float] = json.loads(side.stdout.readline())
    return told


def make_material(data: Path, folder: Path) -> None:
    """Texts, rows and a corpus, the same for both trees."""
    with lzma.open(data / "glue" / "SST-2" / "train.tsv.xz", "rt", encoding="utf-8") as file:
        sentences = file.read().splitlines()[1:]
    texts = [line.rpartition("\t")[0] for line in sentences]
    rng = random.Random(0)
    rng.shuffle(texts)
    ragged = [" ".join(texts[5 * n : 5 * n + rng.choice((1, 1, 2, 3, 5))]) for n in range(1000)]
    (folder / "texts.json").write_text(json.dumps(ragged))
    rows = rng.sample(sentences, 600)
    for name, part in (("train", rows[:500]), ("dev", rows[500:])):
        lines = [f"{line.rpartition(chr(9))[2]}\t{line.rpartition(chr(9))[0]}" for line in part]
        (folder / f"{name}.tsv").write_text("label\ttext\n" + "\n".join(lines) + "\n", encoding="utf-8")
    (folder / "corpus.txt").write_text("\n\n".join("\n".join(texts[n : n + 40]) for n in range(0, 20_000, 40)))


def seconds_of(work: Callable[[], object], repeats: int) -> float:
    """The median of several runs, after one that is not counted."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def embed(folder: Path) -> Work:
    """Sentence vectors: one short text, one of 128 tokens, ragged texts in order of arrival."""
    from bertkit import pipeline

    texts = json.loads((folder / "texts.json").read_text())
    pipe = pipeline("feature-extraction", model=str(minilm_folder()), device="cpu")
    short, long = " ".join(["film"] * 14), " ".join(["film"] * 126)

    def vectors(what: object) -> object:
        return pipe(what, pooling="mean", truncation=True)

    return lambda: {
        "embed, 1 text of 16 tokens": seconds_of(lambda: vectors(short), 60),
        "embed, 1 text of 128 tokens": seconds_of(lambda: vectors(long), 30),
        "embed, 1,000 ragged texts": seconds_of(lambda: vectors(texts), 3),
    }


def load(folder: Path) -> Work:
    """Open a pipeline in a fresh process: seconds including all imports, and peak memory.

    Imports are included because some commits import torch early and others only when the first model is opened.
    """
    code = (
        "import sys, time, re, pathlib\n"
        "start = time.perf_counter()\n"
        "import bertkit.inference.pipelines as p\n"
        "p.pipeline('feature-extraction', model=sys.argv[1], device='cpu')\n"
        "peak = re.search(r'VmHWM:\\s+(\\d+)', pathlib.Path('/proc/self/status').read_text())[1]\n"
        "print(time.perf_counter() - start, int(peak) / 1024)"
    )
    command = [sys.executable, "-c", code, str(minilm_folder())]

    def work() -> dict[str, float]:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds, peak = map(float, done.stdout.split())
        return {"load a pipeline": seconds, "load a pipeline, peak MB": peak}

    return work


def tokenize(folder: Path) -> Work:
    """Ids of a text, by a new tokenizer and by one that has seen it."""
    from bertkit import BertTokenizer

    texts = (folder / "corpus.txt").read_text().split("\n")

    def work() -> dict[str, float]:
        tokenizer = BertTokenizer.from_pretrained(str(minilm_folder()))
        start = time.perf_counter()
        tokenizer(texts)
        cold = time.perf_counter() - start
        return {"tokenize, cold": cold, "tokenize, warm": seconds_of(lambda: tokenizer(texts), 3)}

    return work


def finetune(folder: Path) -> Work:
    """A whole fine-tuning of 500 rows, one epoch, as a user runs it."""
    options = ["--model", str(minilm_folder()), "--epochs", "1", "--seeds", "1", "--quiet", "--device", "cpu"]
    options += ["--precision", "fp32"]

    def work() -> dict[str, float]:
        with tempfile.TemporaryDirectory() as out:
            seconds = command("finetune", "csv", "--data", str(folder), "--out", f"{out}/run", *options)
        return {"finetune, 500 rows": seconds}

    return work


def pretrain(folder: Path) -> Work:
    """Vocabulary, store and 30 steps of pre-training."""
    corpus = str(folder / "corpus.txt")
    options = ["--recipe", "tiny", "--max-steps", "30", "--batch-size", "64", "--quiet", "--device", "cpu"]

    def work() -> dict[str, float]:
        with tempfile.TemporaryDirectory() as out:
            tokenizer, store = f"{out}/tokenizer", f"{out}/store"
            return {
                "vocab": command("vocab", corpus, "--size", "4096", "--out", tokenizer, "--quiet"),
                "prepare": command("prepare", corpus, "--tokenizer", tokenizer, "--out", store, "--quiet"),
                "pretrain, 30 steps": command("pretrain", store, "--out", f"{out}/own", *options),
            }

    return work


def startup(folder: Path) -> Work:
    """The command line without any work."""
    return lambda: {
        "bertkit --help": seconds_of(lambda: command("--help"), 5),
        "bertkit finetune --help": seconds_of(lambda: command("finetune", "--help"), 3),
    }


def command(*arguments: str) -> float:
    """Seconds of a ``bertkit`` command in a process of its own."""
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "bertkit", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return time.perf_counter() - start


WORK: dict[str, Callable[[Path], Work]] = {
    "embed": embed,
    "load": load,
    "tokenize": tokenize,
    "finetune": finetune,
    "pretrain": pretrain,
    "startup": startup,
}

if __name__ == "__main__":
    main()
