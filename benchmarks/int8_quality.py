"""What 8 bits cost fine-tuned models, in points of their tasks' metrics: several seeds of five tasks.

    python benchmarks/int8_quality.py --data ../shared/data --work /tmp/int8 --out benchmarks/results/int8-quality.md

Each seed fine-tunes MiniLM-L6 with ``bertkit finetune``, quantizes the run with ``bertkit quantize``, calibrated on
training rows, and scores both on the dev rows, so that differences between seeds cancel. ``--train-bf16`` also
fine-tunes each seed of these tasks with bf16 products and compares the scores after the last epoch, which nothing was
selected for.

The command can be interrupted at any time and resumed by running it again with the same ``--work``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from machine import about, block, minilm_folder, publish
from paired import mean_interval
from stages import Stages, stop_on_sigterm

#: Of each task: its data, the metric compared, training rows, epochs, batch, rate.
TASKS: dict[str, tuple[str, str, str, int, int, int, float]] = {
    "sst2": ("sst2", "glue/SST-2", "accuracy", 2_000, 2, 32, 2e-4),
    "mrpc": ("mrpc", "glue/MRPC", "accuracy", 2_000, 2, 32, 2e-4),
    "tweets": ("tweets", "tweet_sentiment", "accuracy", 2_000, 2, 32, 2e-4),
    "wnut17": ("ner", "ner/wnut17", "f1", 1_700, 3, 32, 3e-4),
    "stsb": ("stsb", "glue/STS-B", "spearman", 2_500, 2, 32, 2e-4),
}
#: Points of a metric that 8 bits may cost, as a mean of the seeds.
MOST_LOST = 0.3
CALIBRATION_TEXTS = 1000


def main() -> None:
    args = parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # also for the commands; before torch is loaded
    stop_on_sigterm()
    stages = Stages(args.work / "stages")
    rows = []
    for seed in range(args.seeds):
        for name in args.tasks:
            rows.append(one_seed(name, seed, args, stages))
            print(rows[-1], flush=True)
    report = {"about": about(args.threads), "seeds": args.seeds, "rows": rows}
    publish(render(report, args), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with glue/, ner/ and tweet_sentiment/")
    parser.add_argument("--work", type=Path, required=True, help="working folder; pass it again to resume")
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--train-bf16", nargs="*", choices=TASKS, default=[], help="tasks to train in bf16 as well")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def one_seed(name: str, seed: int, args: argparse.Namespace, stages: Stages) -> dict[str, Any]:
    """Scores of one seed: in fp32 and in 8 bits, and if asked for also of training in bf16."""
    task, data, metric, *_ = TASKS[name]
    run = trained(name, seed, "fp32", args, stages)
    small = args.work / f"{name}-{seed}-int8"
    command = ["quantize", run, "--out", small, "--calibrate", calibration(name, args), "--any-speed", "--json"]
    cost = json.loads(stages.run(f"{name}-{seed}-quantize", command))
    scores = {}
    for kind, model in (("fp32", run), ("int8", small)):
        command = ["evaluate", task, "--data", args.data / data, "--model", model, "--json"]
        scores[kind] = json.loads(stages.run(f"{name}-{seed}-score-{kind}", command))["scores"][metric]
    found = {"task": name, "seed": seed, "metric": metric, **scores, "closeness": cost["closeness"]}
    found |= {"kept": len(cost["kept"]), "of": cost["num_matrices"], "size": cost["num_bytes"] / cost["original_bytes"]}
    if name in args.train_bf16:
        for kind, path in (("last_fp32", run), ("last_bf16", trained(name, seed, "bf16", args, stages))):
            metrics = json.loads((path / "metrics.json").read_text(encoding="utf-8"))
            found[kind] = metrics["seeds"][0]["last_scores"][metric]
            found[f"{kind}_seconds"] = metrics["seeds"][0]["seconds"]
    return found


def trained(name: str, seed: int, precision: str, args: argparse.Namespace, stages: Stages) -> Path:
    """The run folder of one seed."""
    task, data, _, rows, epochs, batch, rate = TASKS[name]
    run: Path = args.work / f"{name}-{seed}-{precision}"
    words: list[Any] = ["finetune", task, "--data", args.data / data, "--model", minilm_folder(), "--out", run]
    words += ["--max-train-rows", rows, "--epochs", epochs, "--batch-size", batch, "--learning-rate", rate]
    words += ["--seed", seed, "--precision", precision, "--patience", 0, "--restarts", 0, "--resume", "--quiet"]
    stages.run(f"{name}-{seed}-train-{precision}", words)
    return run


def calibration(name: str, args: argparse.Namespace) -> Path:
    """Texts of the training rows, one a line."""
    task, data, *_ = TASKS[name]
    path: Path = args.work / f"{name}.txt"
    if not path.exists():
        from bertkit.tasks import task_of
        from bertkit.tasks.workflow import workflow_of

        examples: Any = workflow_of(task_of(task, args.data / data)).read(args.data / data, "train")
        step = max(len(examples) // CALIBRATION_TEXTS, 1)
        lines = [text_of(example) for example in examples[::step]]
        path.write_text("\n".join(line for line in lines if line) + "\n", encoding="utf-8")
    return path


def text_of(example: Any) -> str:
    """Of a sentence, of a pair (with a tab between its halves), of words with tags."""
    parts = [" ".join(example.words)] if hasattr(example, "words") else [example.text, example.text_pair or ""]
    return "\t".join(" ".join(part.split()) for part in parts if part)


def render(report: Mapping[str, Any], args: argparse.Namespace) -> list[str]:
    rows: Sequence[dict[str, Any]] = report["rows"]
    lines = ["# What 8 bits cost fine-tuned models", "", *block(report["about"]), ""]
    lines += ["| task | metric | fp32 | int8 | points (95 %) | cosine | p1 | neighbour | without ties | kept | size |"]
    lines += ["|---|---|--:|--:|---|--:|--:|--:|--:|--:|--:|"]
    for name in args.tasks:
        own = [row for row in rows if row["task"] == name]
        cells = [name, own[0]["metric"], *(f"{mean_of(own, key):.4f}" for key in ("fp32", "int8"))]
        cells.append(points([100 * (row["int8"] - row["fp32"]) for row in own]))
        for key, digits in (("cosine_mean", 5), ("cosine_p1", 5), ("near_neighbour", 3), ("same_neighbour", 3)):
            cells.append(f"{statistics.fmean(row['closeness'][key] for row in own):.{digits}f}")
        cells += [f"{mean_of(own, 'kept'):.1f}", f"{mean_of(own, 'size'):.0%}"]
        lines.append(f"| {' | '.join(cells)} |")
    every = [100 * (row["int8"] - row["fp32"]) for row in rows]
    lines += ["", f"All: {points(every)} points. Allowed as a mean: {MOST_LOST}. {report['seeds']} seeds each; kept: "
              f"matrices that stay in float32, of {rows[0]['of']}."]  # fmt: skip
    if args.train_bf16:
        lines += [
            "",
            "## Training in bf16 instead of fp32",
            "",
            "After the last epoch; seconds of training and scoring.",
            "",
        ]
        lines += ["| task | fp32 | bf16 | difference, points (95 %) | fp32 s | bf16 s |", "|---|--:|--:|---|--:|--:|"]
        for name in args.train_bf16:
            own = [row for row in rows if row["task"] == name]
            cells = [name, *(f"{mean_of(own, key):.4f}" for key in ("last_fp32", "last_bf16"))]
            cells.append(points([100 * (row["last_bf16"] - row["last_fp32"]) for row in own]))
            cells += [
                f"{statistics.median(row[f'{key}_seconds'] for row in own):.0f}" for key in ("last_fp32", "last_bf16")
            ]
            lines.append(f"| {' | '.join(cells)} |")
        every = [100 * (row["last_bf16"] - row["last_fp32"]) for row in rows if "last_bf16" in row]
        lines += ["", f"All: {points(every)} points."]
    return lines


def mean_of(rows: Sequence[Mapping[str, Any]], key: str) -> float:
    return statistics.fmean(row[key] for row in rows)


def points(differences: Sequence[float]) -> str:
    """Mean and interval."""
    mean, low, high = mean_interval(differences)
    return f"{mean:+.2f} ({low:+.2f} to {high:+.2f})"


if __name__ == "__main__":
    main()
