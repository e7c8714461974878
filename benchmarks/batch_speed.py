r"""What does computing in blocks cost, and how fast is it beside Ray Data with sentence-transformers?

    python benchmarks/batch_speed.py --out benchmarks/results/batch-speed.md
    python benchmarks/batch_speed.py --parts overhead --rows 1000000 --threads 1

``overhead``: short texts become vectors in Parquet, by ``bertkit embed FILE --out DIR --workers 1`` with ``--rows``
texts, and before and after it by the pipeline and one Parquet file in one process, with a tenth of them. The command's
time counts from its start to its end, driver and worker, less that of the same command with one text, because the
pipeline's is without imports and opening of the model. Resident memory of driver and worker is sampled all the time.
``files``: ``--files`` files of one text are planned, and a run of as many finished blocks is looked through by the
command that would resume it; of these blocks ten are computed and the others copied from them.
``peer``: Ray Data maps ragged texts (2 to 200 words) in an actor of one core by sentence-transformers and by
``BatchPredictor``, in turns, with MiniLM-L6; vectors must agree to 1e-3, and time counts from the beginning of the
first batch to the end of the last, with the model open. A third actor has the model that ``bertkit quantize`` makes of
it with other such texts: its vectors differ, and the page says by how much. The time of the model's matrix products
alone, in float32 by torch on one core, is measured too.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bertkit.system.model_sources import INCLUDED
from machine import about, block, family, minilm_folder, publish, resident_bytes, version_of

PARTS = ("overhead", "files", "peer")
WORDS = "the film was good bad long and very dull or lovely in parts of a story that nobody knows yet".split()
MOST_OVERHEAD, MOST_RESUME_S, BESIDE_PEER, MOST_DIFFERENCE = 0.05, 5.0, 2.0, 1e-3
#: The actors of the third part.
PEER, OURS, IN_8_BITS = "sentence-transformers", "bertkit", "bertkit, 8 bits"
#: Share of the texts that the pipeline gets, each of two times; texts of one call.
SHARE, TOGETHER = 10, 16_384


def main() -> None:
    args = parse_args()
    if args.plain is not None:
        print(json.dumps(plain(args.model, args.plain)))
        return
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    lines, report = ["# Batches: overhead, planning, resuming, and beside Ray Data", ""], dict[str, Any]()
    for name in args.parts:
        with tempfile.TemporaryDirectory() as folder:
            lines += ["", *PART[name](args, Path(folder), report)]
    packages = {name: version_of(name) for name in ("ray", "sentence-transformers", "pyarrow")}
    publish([*lines, "", *block({**about(args.threads), **packages})], report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--model", default=INCLUDED, help="of the first two parts")
    parser.add_argument("--rows", type=int, default=1_000_000, help="short texts")
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--ragged", type=int, default=3_000, help="texts of the third part")
    parser.add_argument("--rounds", type=int, default=3, help="of the third part")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="of the first part")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plain", type=int, help=argparse.SUPPRESS)
    return parser.parse_args()


def texts(number: int, least: int, most: int) -> Iterator[str]:
    drawn = random.Random(0)
    for _ in range(number):
        yield " ".join(drawn.choices(WORDS, k=int(least * (most / least) ** drawn.random())))


def cpu_s(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


# ------------------------------------------------------------------------------------------------ overhead


def plain(model: str, number: int) -> dict[str, float]:
    """Processor seconds and seconds of the pipeline for so many short texts, with one Parquet file."""
    from bertkit import pipeline
    from bertkit.cli.embed import write_parquet

    pipe, given = pipeline("feature-extraction", model), list(texts(number, 4, 24))
    list(pipe(given[:512], pooling="model"))
    starts = range(0, number, TOGETHER)
    with tempfile.TemporaryDirectory() as folder:
        began, used = time.perf_counter(), cpu_s(resource.RUSAGE_SELF)
        parts = (given[start : start + TOGETHER] for start in starts)
        rows = (pair for part in parts for pair in zip(part, pipe(part, pooling="model", progress=False), strict=True))
        write_parquet(rows, Path(folder) / "vectors.parquet")
        return {"cpu_s": cpu_s(resource.RUSAGE_SELF) - used, "s": time.perf_counter() - began}


def overhead(args: argparse.Namespace, work: Path, report: dict[str, Any]) -> list[str]:
    some = max(1000, args.rows // SHARE)
    command = [sys.executable, __file__, "--model", args.model, "--plain", str(some)]

    def run_plain() -> dict[str, float]:
        return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])

    first = run_plain()
    print(f"the command will take about {first['s'] / some * args.rows:,.0f} s", file=sys.stderr)
    start, _ = in_blocks(args, work / "one", 1)
    total, memory = in_blocks(args, work / "all", args.rows)
    ours = {unit: total[unit] - start[unit] for unit in total}
    second = run_plain()
    per = {unit: statistics.fmean(each[unit] / some for each in (first, second)) for unit in ours}
    ratios = {unit: ours[unit] / args.rows / per[unit] for unit in ours}
    report["overhead"] = {
        "rows": args.rows, "blocks": total, "start": start, "plain": [first, second], "ratio": ratios, "mb": memory
    }  # fmt: skip
    return [
        f"## {args.rows:,} short texts, one worker, {args.threads} threads",
        "",
        "| | pipeline | in blocks | ratio |",
        "|---|---:|---:|---:|",
        f"| texts/s | {1 / per['s']:,.0f} | {args.rows / ours['s']:,.0f} | {ratios['s']:.3f} of the time |",
        f"| processor seconds per 1,000 texts | {per['cpu_s'] * 1e3:.3f} | {ours['cpu_s'] / args.rows * 1e3:.3f} "
        f"| {ratios['cpu_s']:.3f} |",
        "",
        f"At most {1 + MOST_OVERHEAD:.2f} is aimed at. The command takes {start['s']:.1f} s to start, which is in "
        f"neither column; with it the ratio is {total['s'] / args.rows / per['s']:.3f}. "
        "The pipeline before and after: "
        + ", ".join(f"{some / each['s']:,.0f} texts/s" for each in (first, second))
        + ". Resident memory of driver and worker, in MB: "
        + ", ".join(f"{at} % of the time {mb:,.0f}" for at, mb in memory.items())
        + ".",
    ]


def in_blocks(args: argparse.Namespace, work: Path, rows: int) -> tuple[dict[str, float], dict[int, float]]:
    """Processor seconds and seconds of the command with so many texts, and its memory."""
    work.mkdir()
    source = work / "texts.txt"
    source.write_text("".join(f"{text}\n" for text in texts(rows, 4, 24)))
    began, used = time.perf_counter(), cpu_s(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "bertkit", "embed", str(source), "--model", args.model, "--out", str(work / "out")]
    running = subprocess.Popen([*command, "--workers", "1", "--format", "parquet"])
    memory = watched(running)
    assert running.returncode == 0
    return {"cpu_s": cpu_s(resource.RUSAGE_CHILDREN) - used, "s": time.perf_counter() - began}, memory


def watched(running: subprocess.Popen[bytes]) -> dict[int, float]:
    """Resident memory in MB of a process and its children, at shares of its time in percent."""
    seen, ended = list[float](), threading.Event()

    def look() -> None:
        while not ended.wait(0.2):
            seen.append(sum(map(resident_mb, family(running.pid))))

    looking = threading.Thread(target=look)
    looking.start()
    running.wait()
    ended.set()
    looking.join()
    return {at: seen[min(len(seen) - 1, len(seen) * at // 100)] for at in (10, 25, 50, 75, 95)} if seen else {}


def resident_mb(process: int) -> float:
    try:
        return resident_bytes(process) / 1e6
    except (OSError, IndexError):  # it is gone, or ending
        return 0.0


# -------------------------------------------------------------------------------------------- many files


def files(args: argparse.Namespace, work: Path, report: dict[str, Any]) -> list[str]:
    from bertkit.bulk.planner import How, What, compute_folder
    from bertkit.system.console import set_quiet

    set_quiet(True)
    (work / "in").mkdir()
    for number, text in enumerate(texts(args.files, 4, 24)):
        (work / "in" / f"{number:06}.txt").write_text(text + "\n")
    pattern, out = str(work / "in" / "*.txt"), work / "out"

    def timed(how: How) -> tuple[float, float]:
        began, used = time.perf_counter(), cpu_s(resource.RUSAGE_SELF)
        compute_folder(What(args.model, "embed"), [pattern], out, how)
        return time.perf_counter() - began, cpu_s(resource.RUSAGE_SELF) - used

    planned = timed(How(shard=(args.files + 1, args.files + 1)))  # which has no blocks
    compute_folder(What(args.model, "embed"), [pattern], out, How(shard=(1, max(1, args.files // 10))))
    finish(out)
    resumed = [timed(How()) for _ in range(5)]
    report["files"] = {"files": args.files, "plan": planned, "resume": resumed}
    seconds, processor = (statistics.median(each) for each in zip(*resumed, strict=True))
    return [
        f"## {args.files:,} files of one text",
        "",
        "| | seconds | processor seconds |",
        "|---|---:|---:|",
        f"| plan them, with opening the model | {planned[0]:.2f} | {planned[1]:.2f} |",
        f"| resume when all blocks are finished, median of five | {seconds:.2f} | {processor:.2f} |",
        "",
        f"At most {MOST_RESUME_S:.0f} s are aimed at for the resume.",
    ]


def finish(out: Path) -> None:
    """Give all blocks of a folder the manifest and part of one that is computed."""
    from dataclasses import asdict, replace

    from bertkit.bulk.state import State

    state = State(out)
    plan, known = state.plan(), state.manifests()
    assert plan is not None
    some = next(iter(known.values()))
    content = (out / some.part).read_bytes()
    for number, key in enumerate(plan.keys):
        if key not in known:
            (out / plan.part(number)).write_bytes(content)
            manifest = replace(some, key=key, part=plan.part(number))
            (state.blocks / f"{key}.json").write_text(json.dumps(asdict(manifest)))


# -------------------------------------------------------------------------------- beside Ray Data and a peer


class Timed:
    """An actor: vectors of a batch, and when it was computed."""

    def __init__(self, peer: bool, model: str) -> None:
        self.peer = peer
        if peer:
            from sentence_transformers import SentenceTransformer

            self.model: Any = SentenceTransformer(model, device="cpu")
        else:
            from bertkit import BatchPredictor

            self.model = BatchPredictor(model, "feature-extraction")
        self.vectors(["a film"])

    def vectors(self, given: Sequence[str]) -> Any:
        import numpy as np
        import pyarrow as pa

        if self.peer:
            return self.model.encode(list(given), show_progress_bar=False)
        return np.stack(self.model(pa.table({"text": list(given)}))["vector"].to_numpy())

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        began, used = time.time(), time.process_time()
        vectors = self.vectors(batch["text"])
        each = {"began": began, "ended": time.time(), "cpu_s": (time.process_time() - used) / len(vectors)}
        return {"n": batch["n"], "vector": vectors, **{name: [value] * len(vectors) for name, value in each.items()}}


def peer(args: argparse.Namespace, work: Path, report: dict[str, Any]) -> list[str]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    import ray

    given = list(texts(args.ragged, 2, 200))
    pq.write_table(pa.table({"n": range(len(given)), "text": given}), work / "texts.parquet")
    whole, eight = str(minilm_folder()), str(work / "in-8-bits")
    others = "".join(f"{text}\n" for text in list(texts(args.ragged + 500, 2, 200))[args.ragged :])
    (work / "others.txt").write_text(others)
    quantize = ["quantize", whole, "--calibrate", str(work / "others.txt"), "--out", eight]
    subprocess.run([sys.executable, "-m", "bertkit", *quantize], check=True)
    one_core = {"env_vars": {"OMP_NUM_THREADS": "1"}}  # else torch takes the threads of this process
    ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False, runtime_env=one_core)
    ray.data.DataContext.get_current().enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)

    def run(of_peer: bool, model: str) -> tuple[float, float, Any]:
        rows = ray.data.read_parquet(str(work / "texts.parquet")).map_batches(
            Timed,
            fn_constructor_kwargs={"peer": of_peer, "model": model},
            batch_size=1024,
            num_cpus=1,
            concurrency=1,
        )
        found = sorted(rows.take_all(), key=lambda row: row["n"])
        took = max(row["ended"] for row in found) - min(row["began"] for row in found)
        used = sum(row["cpu_s"] for row in found)
        return len(given) / took, used / len(given) * 1e3, np.stack([row["vector"] for row in found])

    actors = {PEER: (True, whole), OURS: (False, whole), IN_8_BITS: (False, eight)}
    rates: dict[str, list[float]] = {name: [] for name in actors}
    used: dict[str, list[float]] = {name: [] for name in actors}
    for _ in range(args.rounds):
        vectors = {}
        for name, actor in actors.items():
            rate, cpu, vectors[name] = run(*actor)
            rates[name].append(rate)
            used[name].append(cpu)
        differ = float(np.abs(vectors[OURS] - vectors[PEER]).max())
        assert differ < MOST_DIFFERENCE, f"vectors differ by {differ}"
    ray.shutdown()
    near = float((vectors[IN_8_BITS] * vectors[PEER]).sum(1).min())
    times = {
        name: statistics.median(b / a for a, b in zip(rates[PEER], rates[name], strict=True))
        for name in (OURS, IN_8_BITS)
    }
    alone = products_s(whole, given) / len(given) * 1e3
    report["peer"] = {
        "texts": len(given), "texts_per_s": rates, "cpu_s_per_1000": used, "times": times, "least_cosine": near,
        "products_s_per_1000": alone,
    }  # fmt: skip
    return [
        f"## {len(given):,} ragged texts in an actor of Ray Data with one core, MiniLM-L6",
        "",
        "| actor | texts/s, median | rounds | processor seconds per 1,000 texts |",
        "|---|---:|---|---:|",
        *(
            f"| {name} | {statistics.median(found):,.0f} | {', '.join(f'{each:,.0f}' for each in found)} "
            f"| {statistics.median(used[name]):.2f} |"
            for name, found in rates.items()
        ),
        "",
        f"bertkit is {times[OURS]:.2f} times as fast in float32, with the same vectors, and {times[IN_8_BITS]:.2f} "
        f"times in 8 bits, whose vectors have a cosine of at least {near:.4f} with these (medians of the rounds' "
        f"ratios); {BESIDE_PEER:.0f} is aimed at. The matrix products of the model alone, without padding, take torch "
        f"(MKL) {alone:.2f} processor seconds per 1,000 texts in float32.",
    ]


def products_s(model: str, given: Sequence[str]) -> float:
    """Processor seconds of torch, on one core, for the products with the weights of all layers; attention not."""
    import torch

    from bertkit.tokenization import AutoTokenizer

    tokens = sum(map(len, AutoTokenizer.from_pretrained(model)(list(given))["input_ids"]))
    config = json.loads((Path(model) / "config.json").read_text())
    wide, high, layers = (config[name] for name in ("hidden_size", "intermediate_size", "num_hidden_layers"))
    torch.set_num_threads(1)
    used = 0.0
    for rows, columns, times in ((wide, wide, 4), (wide, high, 1), (high, wide, 1)):
        left, right = torch.rand(1024, rows), torch.rand(columns, rows).t()
        left @ right
        began = time.process_time()
        for _ in range(50):
            left @ right
        used += times * (time.process_time() - began) / 50
    return used * layers * tokens / 1024


PART = {"overhead": overhead, "files": files, "peer": peer}

if __name__ == "__main__":
    main()
