"""Is bertkit the fastest BERT on this CPU? Every mode of its engine beside the peers, and beside an earlier commit.

    python benchmarks/cpu_engine.py --peers-python peers/bin/python --data ../shared/data --before e8804a0

MiniLM-L6 with its real weights and a BERT-base with random ones, through the machinery of ``bertkit benchmark``: every
system a live process, answers compared before anything is timed, rounds in turn. Single texts of 16, 128 and 512
tokens, and ragged texts: bertkit's in order of arrival, the peers' in padded batches of 32 sorted by length. Ratios are
medians of the ratios within a round. With ``--data`` also on real texts, and in int8, for which MiniLM-L6 is first
quantized with other texts of the same kind; with ``--before`` also the work of ``before_after.py``. The peers are those
of the extra ``bench``. A model takes about 15 minutes on two cores. Each is written to the results
file once it is finished; ``--models`` selects some of them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import before_after
import embed
from bertkit.benchmark.benchmark_report import EXACT, BenchmarkReport
from bertkit.benchmark.measure import run_benchmark
from bertkit.benchmark.runtimes import INT8, PRECISIONS, Mode
from bertkit.engine.closeness import NEAR_ENOUGH
from bertkit.quantization.quantize import quantize
from bertkit.system.processor import Processor, find_processor
from machine import about, block, minilm_folder, publish, random_base, save

#: Sections of the results: real weights, random weights, real weights on real texts.
MINILM, BASE, REAL_TEXT = "MiniLM-L6", "BERT-base, random weights", "MiniLM-L6, real texts"
#: Of single texts, by tokens, the most that our time may be of the best peer's, answers as in fp32.
SINGLE_TARGETS = {16: 0.8, 128: 1.0, 512: 1.0}
#: With and without AVX-512, how many times as fast ragged text must be as the fastest peer's sorted one.
RAGGED_TARGETS = {MINILM: (1.4, 1.2), BASE: (1.6, 1.4)}
BF16_TARGET, INT8_TARGET, INT8_SINGLE_TARGET = 1.5, 1.2, 1.1
#: Cosine, mean over texts, from which an int8 peer counts.
INT8_PEER_COSINE = 0.995
MOST_OVERHEAD_MS = 0.3
#: Real texts that are measured, and others that calibrate int8.
NUM_TEXTS, NUM_CALIBRATION = 512, 1000
OVERHEAD_ROUNDS, OVERHEAD_CALLS = 9, 100


@dataclass(frozen=True)
class Target:
    """A line of the table of targets.

    value: None where it could not be measured. limit: None for what is only reported.
    """

    what: str
    value: float | None
    limit: float | None
    at_most: bool
    beside: str = ""

    def line(self) -> str:
        """As a row of Markdown."""
        limit = "" if self.limit is None else f"{'<=' if self.at_most else '>='} {self.limit}"
        value = "not measured" if self.value is None else f"{self.value:.3f}"
        met = ""
        if self.value is not None and self.limit is not None:
            met = "yes" if (self.value <= self.limit if self.at_most else self.value >= self.limit) else "NO"
        return f"| {self.what} | {self.beside} | {value} | {limit} | {met} |"


def main() -> None:
    args = parse_args()
    if args.overhead is not None:
        print(json.dumps(overhead(args.overhead)))
        return
    processor = find_processor()
    out = args.out or Path(__file__).parent / "results" / f"cpu-engine_{slug(processor)}_{time.strftime('%Y-%m-%d')}.md"
    lines = ["# The engine on a CPU", "", *block(about(args.threads)), ""]
    targets: list[Target] = []
    report: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, folder, int8, texts in sections(args, Path(scratch)):
            found = run_benchmark(
                folder,
                int8=int8,
                texts=texts,
                against=args.against,
                precisions=args.precisions,
                rounds=args.rounds,
                threads=args.threads,
                python=args.peers_python,
            )
            found.model = name
            lines += ["", f"## {name}", "", "```", found.render(), "```"]
            report[name] = found.to_dict()
            targets += list(targets_of(name, found, processor))
            save([*lines, *table(targets)], out)
            if found.interrupted is not None:
                publish([*lines, *table(targets)], report, out)
                sys.exit(found.interrupted.exit_code)
    costs = overhead_of(minilm_folder(), args.threads)
    report["overhead_ms"] = costs
    what = "pipeline over the engine at 16 tokens, ms, tokenizing included"
    targets.append(Target(what, statistics.median(costs), MOST_OVERHEAD_MS, at_most=True))
    lines += table(targets)
    if args.before:
        figures = before_after.compare(args.before, args.data, args.rounds, args.threads)
        lines += ["", f"## Before ({args.before}) and after", "", *before_after.table(figures, args.rounds)]
        report["before_after"] = figures
    publish(lines, report, out)


def table(targets: Sequence[Target]) -> list[str]:
    """The targets, in Markdown."""
    lines = ["", "## Targets", "", "| what | beside | measured | target | met |", "|---|---|--:|--:|---|"]
    return lines + [target.line() for target in targets]


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=[MINILM, BASE, REAL_TEXT], choices=[MINILM, BASE, REAL_TEXT])
    parser.add_argument("--against", nargs="*", help="peers; default: all that are installed")
    parser.add_argument("--precisions", nargs="*", choices=PRECISIONS, help="of all systems; default: all there are")
    parser.add_argument("--peers-python", default=sys.executable, help="Python interpreter that has the peers")
    parser.add_argument("--data", type=Path, help="folder with glue/, imdb/, tweet_sentiment/ and pretrain_text/")
    parser.add_argument("--before", help="compare with this commit too; needs --data")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--overhead", type=Path, help=argparse.SUPPRESS)  # in this process; see overhead_of()
    parser.add_argument("--out", type=Path, help="Markdown file; default: benchmarks/results/cpu-engine_CPU_DATE.md")
    args = parser.parse_args()
    if args.before and not args.data:
        parser.error("--before needs --data")
    return args


def slug(processor: Processor) -> str:
    """``epyc-avx512-2-cores``, for the name of a file."""
    name = re.sub(r"\W+", "-", processor.name.lower().replace("amd", "").replace("intel(r)", "")).strip("-")
    widest = next((flag for flag in ("AVX-512", "AVX2", "NEON") if flag in processor.instruction_sets), "plain")
    return f"{name}-{widest.lower().replace('-', '')}-{processor.cores}-cores"


def sections(args: argparse.Namespace, scratch: Path) -> Iterator[tuple[str, Path, Path | None, list[str] | None]]:
    """What is measured: a title, the model, the same in int8, and texts (None: built-in lengths)."""
    int8, texts = None, []
    if args.data is not None and {MINILM, REAL_TEXT} & set(args.models):
        texts = embed.draw_texts(args.data, NUM_TEXTS + NUM_CALIBRATION, args.seed)
    if texts and "int8" in (args.precisions or PRECISIONS):
        int8 = quantize(minilm_folder(), scratch / "int8", texts[NUM_TEXTS:], any_speed=True).folder
    if MINILM in args.models:
        yield MINILM, minilm_folder(), int8, None
    if BASE in args.models:
        yield BASE, random_base(scratch / "base", args.seed), None, None
    if REAL_TEXT in args.models and args.data is not None:
        yield REAL_TEXT, minilm_folder(), int8, texts[:NUM_TEXTS]


def targets_of(name: str, report: BenchmarkReport, processor: Processor) -> Iterator[Target]:
    """What a section must show."""
    ours = report.best_mode(EXACT)
    if name in RAGGED_TARGETS:
        for length in report.lengths:
            figure = f"single_{length}"
            peer = best_peer(report, figure, ("fp32",))
            ratio = None if peer is None else paired(report, ours, figure, peer, figure)
            yield Target(f"{name}, 1 x {length}, time", ratio, SINGLE_TARGETS[length], True, f"{ours}, {peer}")
        peer = best_peer(report, "pass_sorted", ("fp32",))
        ratio = None if peer is None else paired(report, peer, "pass_sorted", ours, "pass_arrival")
        limit = RAGGED_TARGETS[name]["AVX-512" not in processor.instruction_sets]
        yield Target(f"{name}, ragged, times as fast", ratio, limit, False, f"{ours}, {peer}")
    yield from own_targets(name, report, ours)


def own_targets(name: str, report: BenchmarkReport, exact: Mode) -> Iterator[Target]:
    """What bf16 and int8 must bring, where their answers are near enough."""
    for mode in (mode for mode in report.systems if mode.is_ours and mode.precision in ("bf16", "int8")):
        passes = report.passes(mode)
        if mode.precision == "bf16":
            ratio = paired(report, exact, "pass_arrival", mode, "pass_arrival") if passes else None
            yield Target(f"{name}, ragged, bf16, times as fast", ratio, BF16_TARGET, False, f"{mode}, {exact}")
        elif name == REAL_TEXT:  # int8 is never judged on random weights or tokens
            yield from gate_targets(name, report)
            peer = best_peer(report, "pass_sorted", ("int8",), INT8_PEER_COSINE)
            ratio = paired(report, peer, "pass_sorted", mode, "pass_arrival") if passes and peer else None
            yield Target(f"{name}, ragged, int8, times as fast", ratio, INT8_TARGET, False, f"{mode}, {peer}")
            for length, figure in zip(report.lengths, report.single_figures(), strict=True):
                for least in (None, 0.0):  # peers of any precision that pass our gate, and all int8 ones
                    peer = best_peer(report, figure, PRECISIONS if least is None else ("int8",), least)
                    ratio = paired(report, mode, figure, peer, figure) if passes and peer else None
                    limit = INT8_SINGLE_TARGET if least is None else None
                    yield Target(f"{name}, 1 x {length}, int8, time", ratio, limit, True, f"{mode}, {peer}")


def gate_targets(name: str, report: BenchmarkReport) -> Iterator[Target]:
    """How near int8's answers must be to those of fp32."""
    quality = report.systems[INT8].quality
    found = {} if quality is None else asdict(quality.closeness)
    for figure in ("cosine_mean", "cosine_p1", "near_neighbour"):
        what = f"{name}, int8, {figure.replace('_', ' ')}"
        yield Target(what, found.get(figure), getattr(NEAR_ENOUGH, figure), False, str(INT8))


def best_peer(
    report: BenchmarkReport, figure: str, precisions: Sequence[str], least_cosine: float | None = None
) -> Mode | None:
    """The fastest peer that passes the gate, or whose mean cosine is at least so much."""

    def counts(mode: Mode) -> bool:
        quality = report.systems[mode].quality
        if least_cosine is None or quality is None:
            return report.passes(mode)
        return quality.closeness.cosine_mean >= least_cosine

    medians = {
        mode: value
        for mode, system in report.shown()
        if not mode.is_ours and mode.precision in precisions and counts(mode) and (value := system.median(figure))
    }
    return min(medians, key=medians.__getitem__, default=None)


def paired(report: BenchmarkReport, a: Mode, figure_a: str, b: Mode, figure_b: str) -> float | None:
    """The median over rounds of a's figure by b's; None if one of them was not measured."""
    pairs = zip(report.systems[a].figures.get(figure_a, ()), report.systems[b].figures.get(figure_b, ()), strict=False)
    ratios = [x / y for x, y in pairs]
    return statistics.median(ratios) if ratios else None


def overhead_of(model: Path, threads: int) -> list[float]:
    """Milliseconds, of every round, that a pipeline takes longer than its engine; in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, __file__, "--overhead", str(model)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def overhead(model: Path) -> list[float]:
    """The same in this process: calls with a text of 16 tokens, and with its ids, one by one in turn."""
    from bertkit import pipeline
    from bertkit.inference.feature_extraction import hidden_states

    pipe = pipeline("feature-extraction", model=model, device="cpu")
    text = " ".join(["film"] * 14)
    rows = pipe.tokenizer.encode_ragged([text])
    assert rows.lengths.tolist() == [16]
    wanted, read = hidden_states(("mean",))

    def seconds(call: object) -> float:
        start = time.perf_counter()
        call()  # type: ignore[operator]
        return time.perf_counter() - start

    found = []
    for number in range(OVERHEAD_ROUNDS + 1):
        times = [
            (seconds(lambda: pipe(text, pooling="mean")), seconds(lambda: pipe.engine.run(rows, wanted, read)))
            for _ in range(OVERHEAD_CALLS)
        ]
        whole, engine = (statistics.median(values) for values in zip(*times, strict=True))
        if number:  # the first round warms up
            found.append(1000 * (whole - engine))
    return found


if __name__ == "__main__":
    main()
