r"""Does pre-training in bf16 learn as much as in fp32? The same runs in both formats, paired by seed.

    python benchmarks/pretrain_precision.py --data ../shared/data --work /tmp/precision \
        --out benchmarks/results/pretrain-precision.md

Two starts on the Wikipedia and Wikinews texts: ``mini``, new weights by the recipe of that name, and ``included``, the
trained model that comes with bertkit, on which pre-training is continued. Both formats of a seed have the same initial
weights, examples, masks, order and learning rates, which fall to 0; so differences between seeds cancel. Scores are
those of ``bertkit pretrain --dev`` after the last step, on the same held-out masked words. Times of the two formats
compare only if nothing else ran.

Interrupted, the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
from importlib.resources import files
from pathlib import Path
from typing import Any

from bertkit.system.model_sources import INCLUDED
from machine import about, block, publish
from paired import mean_interval
from pretrain_hour import find_texts
from stages import Stages, stop_on_sigterm

STARTS = ("mini", "included")
FORMATS = ("fp32", "bf16")
METRICS = {"masked_lm_loss": "masked-LM loss", "masked_lm_accuracy": "masked-LM accuracy"}
Run = dict[str, float]


def main() -> None:
    args = parse_args()
    stop_on_sigterm()
    stages = Stages(args.work / "stages")
    starts = {start: compare(start, args, stages) for start in args.starts}
    report = {"about": about(args.threads), "options": args.included, "steps": args.steps, "starts": starts}
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with pretrain_text/")
    parser.add_argument("--work", type=Path, required=True, help="working folder; pass it again to resume")
    parser.add_argument("--mb", type=float, help="use only this many MB of each training text")
    parser.add_argument("--starts", nargs="+", choices=STARTS, default=STARTS)
    parser.add_argument("--vocabulary", type=int, default=8192, help="of the start mini")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument(
        "--included",
        default="--objective mlm --batch-size 32 --learning-rate 3e-4 --warmup 0.05",
        help="options for 'bertkit pretrain' of the start included, in one string",
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="said in the results; set OMP_NUM_THREADS as well")
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    args = parser.parse_args()
    if args.seeds < 2:
        parser.error("--seeds must be at least 2: the spread is part of the result")
    args.work.mkdir(parents=True, exist_ok=True)
    return args


def compare(start: str, args: argparse.Namespace, stages: Stages) -> dict[str, list[Run]]:
    """The runs of a start, by number format, in the order of the seeds."""
    train, dev = (find_texts(args, part) for part in ("train", "valid"))
    if start == "mini":
        tokenizer: Any = args.work / "tokenizer"
        stages.run("vocab", ["vocab", *train, "--size", args.vocabulary, "--out", tokenizer, "--json"])
        options = ["--recipe", recipe_by_steps(args.work / "mini.toml")]
    else:
        tokenizer, options = INCLUDED, ["--model", INCLUDED, *shlex.split(args.included)]
    stores = {part: args.work / f"{start}-{part}" for part in ("train", "dev")}
    for part, texts in (("train", train), ("dev", dev)):
        stages.run(f"prepare-{start}-{part}",
                   ["prepare", *texts, "--tokenizer", tokenizer, "--out", stores[part], "--json"])  # fmt: skip
    runs: dict[str, list[Run]] = {name: [] for name in FORMATS}
    for seed in range(args.seeds):
        for name in FORMATS:
            out = args.work / f"{start}-{name}-{seed}"
            stages.run(out.name, [
                "pretrain", stores["train"], "--dev", stores["dev"], *options, "--out", out, "--seed", seed,
                "--precision", name, "--max-steps", args.steps, "--json",
            ])  # fmt: skip
            found = json.loads((out / "metrics.json").read_text(encoding="utf-8"))
            runs[name].append({**found["dev"], "seconds": found["progression"]["seconds"]})
    return runs


def recipe_by_steps(file: Path) -> Path:
    """The recipe mini without its time budget, with which the learning rate would follow the clock."""
    lines = files("bertkit").joinpath("recipes/mini.toml").read_text(encoding="utf-8").splitlines(keepends=True)
    file.write_text("".join(line for line in lines if not line.startswith("max_seconds")), encoding="utf-8")
    return file


def render(report: dict[str, Any]) -> list[str]:
    lines = ["# Pre-training in bf16 and in fp32", "", *block(report["about"]), ""]
    lines += [f"{report['steps']:,} steps; options of included: `{report['options']}`.", ""]
    lines += ["| start | | fp32, each seed | bf16, each seed | bf16 - fp32, 95 % interval |", "|---|---|---|---|---|"]
    for start, runs in report["starts"].items():
        for metric, name in METRICS.items():
            scores = {form: [run[metric] for run in runs[form]] for form in FORMATS}
            mean, low, high = mean_interval([b - a for a, b in zip(*scores.values(), strict=True)])
            cells = [" ".join(f"{score:.4f}" for score in scores[form]) for form in FORMATS]
            lines.append(
                f"| {start} | {name} | {cells[0]} | {cells[1]} | **{mean:+.4f}** ({low:+.4f} to {high:+.4f}) |"
            )
        times = {form: [run["seconds"] for run in runs[form]] for form in FORMATS}
        ratio = statistics.median(b / a for a, b in zip(*times.values(), strict=True))
        cells = [" ".join(f"{time:.0f}" for time in times[form]) for form in FORMATS]
        lines.append(f"| {start} | seconds of training | {cells[0]} | {cells[1]} | {ratio:.2f} of the time |")
    return lines


if __name__ == "__main__":
    main()
