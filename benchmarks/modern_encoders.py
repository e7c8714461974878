"""How fast are ModernBERT and DeBERTa-v3 on ragged text? bertkit beside transformers, random weights, fp32.

    python benchmarks/modern_encoders.py --out benchmarks/results/modern-encoders.md
    python benchmarks/modern_encoders.py --tokens 12000 --rounds 3      quicker

From ids to mean vectors. ModernBERT-base and the shape of DeBERTa-v3-small read two sets: short texts, with lengths as
tweets have, and long ones (lognormal, 512 to 8,192 tokens; 2,048 for DeBERTa). bertkit takes them as they come,
transformers sorted by length, in padded batches (SDPA; DeBERTa has eager attention only). Each system is a process of
its own; they alternate, ratios are taken within a round and their median is reported. Vectors must agree to 1e-3 in
every round, or no result is printed. A last line has one text of 8,192 tokens and the memory above that of the loaded
model.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from machine import about, block, publish

TOLERANCE = 1e-3
#: By the shape of the model: what its config has besides the defaults of its class, and the longest text.
SHAPES: dict[str, tuple[str, dict[str, Any], int]] = {
    "ModernBERT-base": ("ModernBert", {}, 8192),
    "DeBERTa-v3-small": (
        "DebertaV2",
        {
            "hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 3072,
            "relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
            "pos_att_type": "p2c|c2p", "position_biased_input": False, "max_position_embeddings": 2048,
        },
        2048,
    ),
}  # fmt: skip
#: Texts of a padded batch of transformers: as many as suit it.
BATCHES = {"short": 32, "long": 4, "one": 1}


@dataclass(frozen=True)
class Job:
    """What a process runs: a model's folder on texts of these lengths."""

    system: str
    folder: str
    prefix: str
    lengths: tuple[int, ...]
    batch: int
    threads: int


def main() -> None:
    args = parse_args()
    report: dict[str, Any] = {"about": about(args.threads), "sets": []}
    with tempfile.TemporaryDirectory() as scratch:
        for shape in args.shapes:
            prefix, _, longest = SHAPES[shape]
            folder = save(shape, Path(scratch) / prefix)
            for kind in args.sets:
                if kind == "one" and longest < 8192:
                    continue
                lengths = draw_lengths(kind, longest, args.tokens)
                say(f"{shape}, {kind}: {len(lengths)} texts, {sum(lengths):,} tokens")
                jobs = [Job(name, str(folder), prefix, lengths, BATCHES[kind], args.threads) for name in RUN]
                report["sets"].append({"model": shape, "set": kind, **compare(jobs, args.rounds)})
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=60_000, help="of each set at most (default 60,000)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--sets", nargs="+", choices=BATCHES, default=list(BATCHES))
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    return parser.parse_args()


def draw_lengths(kind: str, longest: int, tokens: int) -> tuple[int, ...]:
    """Tweets have a median of 22 tokens; long texts here one of 1,300. The same numbers on every machine."""
    if kind == "one":
        return (longest,)
    chance = np.random.default_rng(1)
    middle, spread, least, most = (3.1, 0.45, 4, 128) if kind == "short" else (7.2, 0.7, 512, longest)
    drawn = np.clip(np.rint(np.exp(chance.normal(middle, spread, 20_000))), least, most).astype(int)
    return tuple(drawn[np.cumsum(drawn) <= tokens].tolist())


def save(shape: str, folder: Path) -> Path:
    """A model of this shape with random weights."""
    import torch
    import transformers

    prefix, values, _ = SHAPES[shape]
    torch.manual_seed(0)
    getattr(transformers, f"{prefix}Model")(getattr(transformers, f"{prefix}Config")(**values)).save_pretrained(folder)
    return folder


def compare(jobs: list[Job], rounds: int) -> dict[str, Any]:
    """Seconds of each system in rounds that alternate, their ratio, and the memory above that of the loaded model."""
    spawn = multiprocessing.get_context("spawn")
    ends: dict[str, Connection] = {}
    workers = []
    for job in jobs:
        ours, theirs = spawn.Pipe()
        workers.append(spawn.Process(target=serve, args=(job, theirs), daemon=True))
        workers[-1].start()
        ends[job.system] = ours
    seconds: dict[str, list[float]] = {name: [] for name in ends}
    memory: dict[str, int] = {}
    for number in range(rounds + 1):  # the first one warms up
        vectors = {}
        for name, end in ends.items():
            end.send("run")
            taken, vectors[name], memory[name] = end.recv()
            if number:
                seconds[name].append(taken)
            say(f"  round {number or 'warm-up'}  {name:<14} {taken:7.2f} s")
        difference = float(np.abs(vectors["bertkit"] - vectors["transformers"]).max())
        if difference > TOLERANCE:
            sys.exit(f"the systems differ by {difference:.1e}; no result is printed")
    for end, worker in zip(ends.values(), workers, strict=True):
        end.send(None)
        worker.join()
    ratios = [b / a for a, b in zip(seconds["bertkit"], seconds["transformers"], strict=True)]
    return {
        "texts": len(jobs[0].lengths),
        "tokens": sum(jobs[0].lengths),
        "seconds": {name: round(statistics.median(each), 2) for name, each in seconds.items()},
        "ratio": round(statistics.median(ratios), 2),
        "lowest": round(min(ratios), 2),
        "highest": round(max(ratios), 2),
        "megabytes": memory,
        "difference": difference,
    }


def serve(job: Job, end: Connection) -> None:
    """In a process of its own: load, then run whenever asked."""
    import torch

    torch.set_num_threads(job.threads)
    chance = np.random.default_rng(2)
    rows = [chance.integers(5, 30_000, length) for length in job.lengths]
    run = RUN[job.system](job, rows)
    before = status("VmRSS")
    while end.recv() is not None:
        started = time.perf_counter()
        vectors = run()
        end.send((time.perf_counter() - started, vectors, (status("VmHWM") - before) // 1024))


def status(field: str) -> int:
    """A line of this process's memory, in KB; 0 where the system has no such file."""
    file = Path("/proc/self/status")
    lines = file.read_text().splitlines() if file.exists() else []
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0)


def make_bertkit(job: Job, rows: list[np.ndarray]) -> Any:
    from bertkit.engine.backend import Wanted
    from bertkit.engine.inference_engine import InferenceEngine
    from bertkit.ragged import Ragged, boundaries_of

    engine = InferenceEngine.load(Path(job.folder), "BertModel", device="cpu", threads=job.threads)
    lengths, ids = np.array(job.lengths), np.concatenate(rows).astype(np.int32)
    wanted = Wanted(("last_hidden_state",), ("mean",))

    def ragged(ids: np.ndarray, lengths: np.ndarray) -> Ragged:
        return Ragged(ids, boundaries_of(lengths), np.zeros(len(ids), np.int8), lengths)

    engine.row_outputs(ragged(ids[:8], np.array([8])), wanted)  # packs the weights, which belongs to loading
    given = ragged(ids, lengths)
    return lambda: engine.row_outputs(given, wanted)


def make_transformers(job: Job, rows: list[np.ndarray]) -> Any:
    import torch
    import transformers

    attention = "sdpa" if job.prefix == "ModernBert" else "eager"
    model = transformers.AutoModel.from_pretrained(job.folder, attn_implementation=attention).eval()
    order = sorted(range(len(rows)), key=lambda row: len(rows[row]), reverse=True)

    @torch.inference_mode()
    def run() -> np.ndarray:
        vectors = np.empty((len(rows), model.config.hidden_size), np.float32)
        for start in range(0, len(order), job.batch):
            some = order[start : start + job.batch]
            ids = torch.zeros(len(some), max(len(rows[row]) for row in some), dtype=torch.int64)
            mask = torch.zeros_like(ids)
            for place, row in enumerate(some):
                ids[place, : len(rows[row])] = torch.from_numpy(rows[row])
                mask[place, : len(rows[row])] = 1
            hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
            sums = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            vectors[some] = sums.numpy()
        return vectors

    return run


RUN = {"bertkit": make_bertkit, "transformers": make_transformers}


def render(report: dict[str, Any]) -> list[str]:
    lines = ["# Encoders of today on ragged text", "", *block(report["about"]), ""]
    lines += ["| model | set | texts | tokens | bertkit, s | transformers, s | times as fast | MB above the model |"]
    lines += ["|---|---|--:|--:|--:|--:|--:|--:|"]
    for row in report["sets"]:
        took, memory = row["seconds"], row["megabytes"]
        lines.append(
            f"| {row['model']} | {row['set']} | {row['texts']:,} | {row['tokens']:,} | {took['bertkit']} | "
            f"{took['transformers']} | {row['ratio']} ({row['lowest']} to {row['highest']}) | "
            f"{memory['bertkit']:,} and {memory['transformers']:,} |"
        )
    return lines


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
