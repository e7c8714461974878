"""Corpus to token store: speed, size and memory, compared with the original's procedure.

    python benchmarks/prepare_speed.py --data ../shared/data --out benchmarks/results/prepare.md

``bertkit prepare`` as whole processes on the Wikipedia text (50 MB), with one and two workers: on one sentence per
line, and on running text that it splits. The peer is original_data.py (uncached tokenization and examples with
dupe_factor 1) on the first part of the same lines; its time is proportional to the text. The systems alternate. First,
the ids of every sentence in that part must be identical in both. Peak memory is the sum over all processes
(proportional set size, where shared pages count once), sampled in separate, untimed runs. About 10 minutes; --mb 2
--rounds 1 for a quick run.
"""

from __future__ import annotations

import argparse
import lzma
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from machine import about, block, family, publish

SMALL_BYTES = 2_000_000
#: The project's targets.
PER_CORE, LINES_MB_S, SPLIT_MB_S, MEMORY_GROWTH, STORE_SHARE = 10.0, 4.0, 2.0, 0.20, 0.55


@dataclass(frozen=True)
class Inputs:
    """Plain-text files: unchanged, one sentence per line, the first part of those for the peer, 2 MB, and the news."""

    text: Path
    lines: Path
    sample: Path
    small: Path
    news: Path


@dataclass(frozen=True)
class Run:
    """One finished process: wall time, CPU time including children, and peak memory of all processes if sampled."""

    seconds: float
    cpu_s: float
    peak_bytes: int


def main() -> None:
    args = parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = args.work or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        vocab = args.data / "vocab" / "bert-base-uncased-vocab.txt"
        inputs = make_inputs(args, work)
        report: dict[str, Any] = {"about": about(os.cpu_count() or 1), "text_bytes": inputs.text.stat().st_size}
        report["sample_bytes"] = inputs.sample.stat().st_size
        report["sentences_checked"] = check_same_ids(inputs.sample, vocab, work)
        report["speed"] = time_all(inputs, vocab, work, args)
        report["store"] = store_size(inputs, work)
        if not args.no_memory:
            # From a process with few imports: pages that it shared with the others would count only in part.
            with ProcessPoolExecutor(1, get_context("spawn")) as apart:
                report["memory"] = apart.submit(measure_memory, inputs, vocab, work, args).result()
    publish(render(report, args), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with pretrain_text/ and vocab/")
    parser.add_argument("--mb", type=float, help="use only this many MB of each text")
    parser.add_argument("--sample-mb", type=float, default=3.0, help="text for the peer")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--no-memory", action="store_true", help="skip the memory runs")
    parser.add_argument("--work", type=Path, help="keep texts and stores here; default: a temporary folder")
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    return parser.parse_args()


def make_inputs(args: argparse.Namespace, work: Path) -> Inputs:
    """Decompress the texts, and split one into sentences in advance."""
    from bertkit.data.corpus.documents import read_documents

    limit = None if args.mb is None else int(args.mb * 1e6)
    texts = args.data / "pretrain_text"
    inputs = Inputs(*(work / f"{name}.txt" for name in ("text", "lines", "sample", "small", "news")))
    head(lzma.decompress((texts / "wikipedia_en.train.txt.xz").read_bytes()), limit, inputs.text)
    head(lzma.decompress((texts / "wikinews_en.train.txt.xz").read_bytes()), limit, inputs.news)
    head(inputs.text.read_bytes(), SMALL_BYTES, inputs.small)
    with inputs.lines.open("w", encoding="utf-8") as lines:
        for document in read_documents(inputs.text, sentences="split"):
            lines.write("\n".join(document.sentences) + "\n\n")
    head(inputs.lines.read_bytes(), int(args.sample_mb * 1e6), inputs.sample)
    return inputs


def head(content: bytes, limit: int | None, path: Path) -> None:
    """Whole documents of at most ``limit`` bytes."""
    if limit is not None and limit < len(content):
        content = content[: content.rindex(b"\n\n", 0, limit) + 1]
    path.write_bytes(content)


def check_same_ids(sample: Path, vocab: Path, work: Path) -> int:
    """Check that the peer's tokenizer and the store agree on every sentence; returns the number of sentences."""
    from bertkit.data.store.prepare import prepare
    from bertkit.data.store.token_store import TokenStore
    from bertkit.tokenization import BertTokenizer
    from original_data import PlainTokenizer, read

    plain = PlainTokenizer(vocab)
    documents = read(sample, plain)
    theirs = [[plain.vocab[token] for token in sentence] for document in documents for sentence in document]
    shutil.rmtree(work / "check", ignore_errors=True)
    prepare(sample, BertTokenizer(vocab_file=vocab), work / "check", sentences="line", workers=1)
    store = TokenStore(work / "check")
    if len(store) != len(documents) or len(store.sentence_lengths) != len(theirs):
        sys.exit(f"the store has {len(store)} documents, the peer {len(documents)}; no result is printed")
    different = sum(store.tokens(n, n + 1).tolist() != ids for n, ids in enumerate(theirs))
    if different:
        sys.exit(f"{different} of {len(theirs)} sentences have ids that differ from the peer's; no result is printed")
    return len(theirs)


def time_all(inputs: Inputs, vocab: Path, work: Path, args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Run every system once per round; MB are millions of bytes of text."""
    kinds = {"one sentence per line": (inputs.lines, "line"), "split into sentences": (inputs.text, "split")}
    found: dict[str, list[tuple[float, float]]] = {}
    for number in range(args.rounds):
        peer = run([sys.executable, str(Path(__file__).with_name("original_data.py")), str(inputs.sample),
                    "--vocab", str(vocab), "--out", str(work / "features.bin")])  # fmt: skip
        size = inputs.sample.stat().st_size / 1e6
        found.setdefault("original procedure", []).append((size / peer.seconds, size / peer.cpu_s))
        for workers in args.workers:
            for kind, (text, sentences) in kinds.items():
                one = run(prepare_command([text], vocab, store_of(work, sentences), sentences, workers))
                size = text.stat().st_size / 1e6
                name = f"bertkit, {kind}, {workers} worker{'s' * (workers > 1)}"
                found.setdefault(name, []).append((size / one.seconds, size / one.cpu_s))
        told = {name: round(speeds[-1][0], 2) for name, speeds in found.items()}
        print(f"round {number + 1}: MB/s {told}", file=sys.stderr, flush=True)
    peers = [per_core for _, per_core in found["original procedure"]]
    return {
        name: {
            "mb_per_s": round(statistics.median(wall for wall, _ in speeds), 3),
            "mb_per_cpu_s": round(statistics.median(cpu for _, cpu in speeds), 3),
            "times_the_original_per_core": round(
                statistics.median(cpu / peer for (_, cpu), peer in zip(speeds, peers, strict=True)), 2
            ),
            "rounds_mb_per_s": [round(wall, 3) for wall, _ in speeds],
        }
        for name, speeds in found.items()
    }


def store_of(work: Path, sentences: str) -> Path:
    return work / f"store-{sentences}"


def prepare_command(texts: list[Path], vocab: Path, store: Path, sentences: str, workers: int) -> list[str]:
    shutil.rmtree(store, ignore_errors=True)
    return [
        sys.executable, "-m", "bertkit", "prepare", *map(str, texts), "--tokenizer", str(vocab), "--out", str(store),
        "--sentences", sentences, "--workers", str(workers), "--quiet", "--json",
    ]  # fmt: skip


def run(command: list[str], *, sample_memory: bool = False) -> Run:
    """Run a process to completion."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    peak = 0
    while sample_memory and process_state(process.pid) not in ("", "Z"):
        peak = max(peak, sum(map(proportional_bytes, family(process.pid))))
        time.sleep(0.05)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if status:
        sys.exit(f"failed with status {os.waitstatus_to_exitcode(status)}: {' '.join(command)}")
    return Run(seconds, used.ru_utime + used.ru_stime, peak)


def process_state(process: int) -> str:
    """The process state letter from Linux; empty if the process is gone."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def proportional_bytes(process: int) -> int:
    """Memory of a process; a page shared by n processes counts as 1/n."""
    try:
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def store_size(inputs: Inputs, work: Path) -> dict[str, Any]:
    """Size of the store of the whole text, in bytes and as a share of the text."""
    sizes = {}
    for sentences, text in (("line", inputs.lines), ("split", inputs.text)):
        files = [path for path in store_of(work, sentences).rglob("*") if path.is_file()]
        total = sum(path.stat().st_size for path in files)
        sizes[sentences] = {
            "bytes": total,
            "tokenizer_bytes": sum(path.stat().st_size for path in files if path.suffix != ".parquet"),
            "share_of_text": round(total / text.stat().st_size, 4),
        }
    return sizes


def measure_memory(inputs: Inputs, vocab: Path, work: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Peak memory on the smallest text and on all of it."""
    rows = []
    for workers in args.workers:
        for sentences, whole in (("split", [inputs.text, inputs.news]), ("line", [inputs.text, inputs.news])):
            peaks = []
            for texts in ([inputs.small], whole):
                command = prepare_command(texts, vocab, work / "memory", sentences, workers)
                peaks.append(run(command, sample_memory=True).peak_bytes)
            rows.append(
                {
                    "sentences": sentences,
                    "workers": workers,
                    "small_input_bytes": inputs.small.stat().st_size,
                    "large_input_bytes": sum(text.stat().st_size for text in whole),
                    "small_peak_mb": round(peaks[0] / 1e6, 1),
                    "large_peak_mb": round(peaks[1] / 1e6, 1),
                    "growth": round(peaks[1] / peaks[0] - 1, 4),
                }
            )
            print(rows[-1], file=sys.stderr, flush=True)
    return rows


def render(report: dict[str, Any], args: argparse.Namespace) -> list[str]:
    lines = ["# Text to token store", "", *block(report["about"]), ""]
    lines += [
        f"{report['text_bytes'] / 1e6:.1f} MB of Wikipedia text; the original procedure on the first "
        f"{report['sample_bytes'] / 1e6:.1f} MB of the same lines. Median of {args.rounds} rounds, whole processes. "
        f"The ids of all {report['sentences_checked']:,} sentences in that part are identical in both.",
        "",
        "| | MB/s | MB per second of CPU time | speed-up per core over the original | MB/s, each round |",
        "|---|---|---|---|---|",
    ]
    for name, r in report["speed"].items():
        rounds = " ".join(map(str, r["rounds_mb_per_s"]))
        lines.append(
            f"| {name} | {r['mb_per_s']:.2f} | {r['mb_per_cpu_s']:.2f} | {r['times_the_original_per_core']:.1f} | "
            f"{rounds} |"
        )
    lines += ["", f"Targets: lines at least {LINES_MB_S:g} MB/s per core and {PER_CORE:g} times the original; "
              f"split {SPLIT_MB_S:g} MB/s.", ""]  # fmt: skip
    for sentences, size in report["store"].items():
        lines.append(
            f"- store ({sentences}): {size['bytes'] / 1e6:.1f} MB, {size['share_of_text']:.3f} of the text "
            f"(target {STORE_SHARE}), of which tokenizer and manifest {size['tokenizer_bytes'] / 1e6:.2f} MB"
        )
    if "memory" in report:
        lines += ["", f"Peak memory of all processes; target: growth of at most {MEMORY_GROWTH:.0%}.", "",
                  "| sentences | workers | small input | peak | large input | peak | growth |",
                  "|---|---|---|---|---|---|---|"]  # fmt: skip
        for r in report["memory"]:
            lines.append(
                f"| {r['sentences']} | {r['workers']} | {r['small_input_bytes'] / 1e6:.1f} MB | "
                f"{r['small_peak_mb']:.0f} MB | {r['large_input_bytes'] / 1e6:.1f} MB | {r['large_peak_mb']:.0f} MB | "
                f"**{r['growth']:+.1%}** |"
            )
    return lines


if __name__ == "__main__":
    main()
