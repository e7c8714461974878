"""How fast do T5 and BART write? bertkit beside transformers, random weights, fp32, greedy.

    python benchmarks/generation.py --out benchmarks/results/generation.md
    python benchmarks/generation.py --prompts 16 --rounds 2      quicker

64 prompts with lengths as paragraphs have them (lognormal, 8 to 400 tokens) in the shapes of T5-small and BART-base;
64 tokens are written for each, so that no row ends early. bertkit takes the prompts as they come in one call;
transformers sorted by length, in padded batches with its cache, of the size that is the fastest of 16, 32 and 64. Both
are in one process and alternate; ratios are taken within a round and their median is reported. The tokens must agree
but for 1 % of the rows, where two scores were too near, or no result is printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from machine import about, block, publish

#: By the shape of the model: the prefix of its class, and what its config has besides the defaults.
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "T5-small": ("T5", {"decoder_start_token_id": 0}),
    "BART-base": (
        "Bart",
        {
            "d_model": 768, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 12,
            "decoder_attention_heads": 12, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072,
            "forced_eos_token_id": None,
        },
    ),
}  # fmt: skip
MOST_DIFFERENT = 0.01


def main() -> None:
    args = parse_args()
    import torch
    import transformers

    import bertkit

    torch.set_num_threads(args.threads)
    report: dict[str, Any] = {"about": about(args.threads), "models": []}
    for shape in args.shapes:
        prefix, values = SHAPES[shape]
        torch.manual_seed(0)
        config = getattr(transformers, f"{prefix}Config")(**values)
        peer = getattr(transformers, f"{prefix}ForConditionalGeneration")(config).eval()
        with tempfile.TemporaryDirectory() as folder:
            peer.save_pretrained(folder)
            ours = bertkit.AutoModelForSeq2SeqLM.from_pretrained(folder)
        prompts = draw_prompts(args.prompts, config.vocab_size)
        ids, mask = padded(prompts, config.pad_token_id)
        limits = {"max_new_tokens": args.new, "min_new_tokens": args.new}
        batch = fastest_batch(peer, prompts, limits) if args.batch is None else args.batch
        runs: dict[str, Callable[[], np.ndarray]] = {
            "bertkit": partial(in_one_call, ours, ids, mask, limits),
            "transformers": partial(sorted_batches, peer, prompts, batch, limits),
        }
        row = compare(runs, args.rounds)
        report["models"].append({"model": shape, "tokens": int(mask.sum()), "batch": batch, **row})
    publish(render(report, args), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--new", type=int, default=64, help="tokens to write for each (default 64)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, help="of transformers; default: the fastest of 16, 32 and 64")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    return parser.parse_args()


def draw_prompts(count: int, vocab_size: int) -> list[np.ndarray]:
    """The same on every machine."""
    chance = np.random.default_rng(1)
    lengths = np.clip(np.rint(np.exp(chance.normal(4.2, 0.9, count))), 8, 400).astype(int)
    return [chance.integers(5, vocab_size, length) for length in lengths]


def padded(prompts: list[np.ndarray], pad: int) -> Any:
    import torch

    ids = torch.full((len(prompts), max(map(len, prompts))), pad)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)], mask[row, : len(prompt)] = torch.from_numpy(prompt), 1
    return ids, mask


def in_one_call(ours: Any, ids: Any, mask: Any, limits: dict[str, int]) -> np.ndarray:
    written: np.ndarray = ours.generate(ids, mask, **limits).numpy()
    return written


def sorted_batches(peer: Any, prompts: list[np.ndarray], batch: int, limits: dict[str, int]) -> np.ndarray:
    """What a careful user of transformers does."""
    order = sorted(range(len(prompts)), key=lambda row: len(prompts[row]))
    out = np.zeros((len(prompts), limits["max_new_tokens"] + 1), np.int64)
    for start in range(0, len(order), batch):
        some = order[start : start + batch]
        ids, mask = padded([prompts[row] for row in some], peer.config.pad_token_id)
        out[some] = peer.generate(input_ids=ids, attention_mask=mask, do_sample=False, num_beams=1, **limits).numpy()
    return out


def fastest_batch(peer: Any, prompts: list[np.ndarray], limits: dict[str, int]) -> int:
    times = {}
    for batch in (16, 32, 64):
        started = time.perf_counter()
        sorted_batches(peer, prompts, batch, limits)
        times[batch] = time.perf_counter() - started
    return min(times, key=times.__getitem__)


def compare(runs: dict[str, Callable[[], np.ndarray]], rounds: int) -> dict[str, Any]:
    """Seconds of each system in rounds that alternate, and their ratio."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    different = 0.0
    for number in range(rounds + 1):  # the first one warms up
        written = {}
        for name, run in runs.items():
            started = time.perf_counter()
            written[name] = run()
            taken = time.perf_counter() - started
            print(f"  round {number or 'warm-up'}  {name:<14} {taken:7.2f} s", file=sys.stderr, flush=True)
            if number:
                seconds[name].append(taken)
        different = float((written["bertkit"] != written["transformers"]).any(axis=1).mean())
        if different > MOST_DIFFERENT:
            sys.exit(f"{different:.1%} of the texts differ; no result is printed")
    ratios = [b / a for a, b in zip(seconds["bertkit"], seconds["transformers"], strict=True)]
    return {
        "seconds": {name: round(statistics.median(each), 2) for name, each in seconds.items()},
        "ratio": round(statistics.median(ratios), 2),
        "lowest": round(min(ratios), 2),
        "highest": round(max(ratios), 2),
        "different": different,
    }


def render(report: dict[str, Any], args: argparse.Namespace) -> list[str]:
    lines = ["# Writing, token by token", "", *block(report["about"]), ""]
    lines.append(f"{args.prompts} prompts, {args.new} new tokens for each, greedy.")
    lines += ["", "| model | tokens read | bertkit, s | transformers, s (rows of a batch) | times as fast |"]
    lines += ["|---|--:|--:|--:|--:|"]
    for row in report["models"]:
        took = row["seconds"]
        lines.append(
            f"| {row['model']} | {row['tokens']:,} | {took['bertkit']} | {took['transformers']} ({row['batch']}) | "
            f"{row['ratio']} ({row['lowest']} to {row['highest']}) |"
        )
    return lines


if __name__ == "__main__":
    main()
