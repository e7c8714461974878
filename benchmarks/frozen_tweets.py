"""A classifier on a frozen encoder: features computed once, against encoding every batch again in every epoch.

    python benchmarks/frozen_tweets.py --data ../shared/data --out benchmarks/results/frozen-tweets.md

The task is the sentence-encoder tutorial's: three-class tweet sentiment, a linear layer on the pooled output of a BERT
whose weights stay as they are. The tutorial's way, with transformers: padded batches of 32 in shuffled order, each
encoded without gradients, then one step of the linear layer, every epoch anew. bertkit's way: `freeze_encoder=True`
without a cache from earlier runs. Same rows, epochs, learning rate, schedule and dropout on the head.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from machine import about, block, minilm_folder, publish

LENGTH, BATCH, RATE = 128, 32, 1e-2


def main() -> None:
    args = parse_args()
    import torch

    from bertkit.tasks import get_task
    from bertkit.training.data import read_rows
    from bertkit.training.settings import FinetuneConfig

    torch.set_num_threads(args.threads)
    config = FinetuneConfig(
        freeze_encoder=True, learning_rate=RATE, epochs=args.epochs, max_length=LENGTH, batch_size=BATCH,
        max_train_rows=args.rows, baseline=False,
    )  # fmt: skip
    data = read_rows(get_task("tweets"), args.data / "tweet_sentiment", config)
    runs: dict[str, list[tuple[float, float]]] = {"bertkit": [], "tutorial": []}
    for seed in range(args.seeds):
        for name in ("bertkit", "tutorial") if seed % 2 == 0 else ("tutorial", "bertkit"):
            run = run_bertkit if name == "bertkit" else run_tutorial
            runs[name].append(run(data, config.model_copy(update={"seed": seed})))
            print(f"seed {seed} {name}: {runs[name][-1]}", file=sys.stderr, flush=True)
    lines, report = render(runs, data, args)
    publish(lines, report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with tweet_sentiment/")
    parser.add_argument("--rows", type=int, help="training rows (default: all)")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def run_bertkit(data: Any, config: Any) -> tuple[float, float]:
    """(dev accuracy after the last epoch, seconds from rows to score)."""
    from bertkit.tasks import get_task
    from bertkit.tokenization import BertTokenizer
    from bertkit.training.data import encode
    from bertkit.training.fit import fit_classifier, new_classifier
    from bertkit.training.generators import seeded

    begin = time.perf_counter()
    task = get_task("tweets")
    tokenizer = BertTokenizer.from_pretrained(minilm_folder())
    with seeded(config.seed):
        model = new_classifier(minilm_folder(), task, seed=config.seed)
        encoded = encode(data, task, tokenizer, config)
        fit = fit_classifier(model, task, encoded.train, encoded.dev, config, seed=config.seed)
    return fit.progression.epochs[-1]["dev_accuracy"], time.perf_counter() - begin


def run_tutorial(data: Any, config: Any) -> tuple[float, float]:
    """The same score with the encoder run on every batch of every epoch."""
    import torch
    import transformers

    from bertkit.tasks import get_task

    transformers.logging.set_verbosity_error()
    begin = time.perf_counter()
    torch.manual_seed(config.seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm_folder())
    encoder = transformers.AutoModel.from_pretrained(minilm_folder()).eval()
    head = torch.nn.Linear(encoder.config.hidden_size, get_task("tweets").num_labels)
    torch.nn.init.normal_(head.weight, std=0.02)
    torch.nn.init.zeros_(head.bias)
    optimizer = torch.optim.AdamW(head.parameters(), lr=RATE, eps=1e-6, weight_decay=config.weight_decay)
    steps = config.epochs * -(-len(data.train) // BATCH)
    schedule = transformers.get_linear_schedule_with_warmup(optimizer, int(steps * config.warmup), steps)

    def vectors(examples: list[Any]) -> torch.Tensor:
        inputs = tokenizer(
            [e.text for e in examples], padding=True, truncation=True, max_length=LENGTH, return_tensors="pt"
        )
        with torch.no_grad():
            return encoder(**inputs).pooler_output

    for _ in range(config.epochs):
        order = torch.randperm(len(data.train)).tolist()
        for start in range(0, len(order), BATCH):
            batch = [data.train[row] for row in order[start : start + BATCH]]
            dropped = torch.nn.functional.dropout(vectors(batch), encoder.config.hidden_dropout_prob)
            loss = torch.nn.functional.cross_entropy(head(dropped), torch.tensor([e.label for e in batch]))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        right = 0
        for start in range(0, len(data.dev), BATCH):
            batch = [data.dev[row] for row in range(start, min(start + BATCH, len(data.dev)))]
            with torch.no_grad():
                right += int((head(vectors(batch)).argmax(-1) == torch.tensor([e.label for e in batch])).sum())
    return right / len(data.dev), time.perf_counter() - begin


def render(runs: dict[str, list[tuple[float, float]]], data: Any, args: Any) -> tuple[list[str], dict[str, Any]]:
    ratios = [theirs[1] / ours[1] for ours, theirs in zip(runs["bertkit"], runs["tutorial"], strict=True)]
    report: dict[str, Any] = {
        "about": about(args.threads),
        "train_rows": len(data.train),
        "dev_rows": len(data.dev),
        "epochs": args.epochs,
        "speedup": round(statistics.median(ratios), 2),
        **{f"{name}_accuracy": [round(score, 4) for score, _ in runs[name]] for name in runs},
        **{f"{name}_s": [round(seconds, 1) for _, seconds in runs[name]] for name in runs},
    }
    lines = ["# Frozen encoder on tweets: features once, against encoding every epoch", "", *block(report["about"]), ""]
    lines += [f"{len(data.train):,} training rows, {len(data.dev):,} dev rows, {args.epochs} epochs, MiniLM-L6.", ""]
    lines += ["| | dev accuracy, mean ± sd | seconds, median |", "|---|---|---|"]
    for name in runs:
        scores, seconds = zip(*runs[name], strict=True)
        spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
        lines.append(f"| {name} | {statistics.mean(scores):.4f} ± {spread:.4f} | {statistics.median(seconds):.1f} |")
    lines += ["", f"Speed-up, median over {args.seeds} seeds: **{report['speedup']:.1f}x**."]
    return lines, report


if __name__ == "__main__":
    main()
