"""A classifier on a frozen encoder: features computed once, against re-encoding every batch in every epoch.

    python benchmarks/frozen_tweets.py --data ../shared/data --out benchmarks/results/frozen-tweets.md

The task is the sentence-encoder tutorial's: three-class tweet sentiment with a linear layer on the pooled output of a
frozen BERT. The tutorial's way, with transformers: shuffled, padded batches of 32, each encoded without gradients,
then one step of the linear layer, again in every epoch. bertkit's way: `freeze_encoder=True`, without a cache from
earlier runs. Same rows, epochs, learning rate, schedule and dropout on the head. Beside it the same with mean and max
pooling, as the checkpoint itself asks for (`pooling="mean"`).
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

from beside_trainer import add_run_options, seconds_of, spread, take_turns
from finetune import run_bertkit
from machine import about, block, minilm_folder, publish

LENGTH, BATCH, RATE = 128, 32, 1e-2


def main() -> None:
    args = parse_args()
    import torch

    from bertkit.tasks import get_task
    from bertkit.tasks.run_rows import read_rows
    from bertkit.tasks.workflow import workflow_of
    from bertkit.training.finetuning.finetune_settings import FinetuneConfig

    torch.set_num_threads(args.threads)
    config = FinetuneConfig(
        freeze_encoder=True, learning_rate=RATE, epochs=args.epochs, max_length=LENGTH, batch_size=BATCH,
        precision="fp32", max_train_rows=args.rows, baseline=False, pooling="cls",
    )  # fmt: skip
    data = read_rows(workflow_of(get_task("tweets")), args.data / "tweet_sentiment", config)
    systems = {"bertkit": partial(run_bertkit, "tweets"), "tutorial": run_tutorial} | {
        f"bertkit, {pooling} pooling": partial(run_pooled, pooling) for pooling in ("mean", "max")
    }

    def run(name: str, seed: int) -> dict[str, float]:
        return systems[name](config.model_copy(update={"seed": seed}), data)

    runs = take_turns({name: partial(run, name) for name in systems}, args.seeds)
    lines, report = render(runs, data, args)
    publish(lines, report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with tweet_sentiment/")
    parser.add_argument("--rows", type=int, help="training rows (default: all)")
    add_run_options(parser, epochs=3)
    return parser.parse_args()


def run_pooled(pooling: str, config: Any, data: Any) -> dict[str, float]:
    """The same on the mean or maximum of the token vectors."""
    return run_bertkit("tweets", config.model_copy(update={"pooling": pooling}), data)


def run_tutorial(config: Any, data: Any) -> dict[str, float]:
    """The same task with the encoder run on every batch of every epoch."""
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
    return {"score": right / len(data.dev), "seconds": time.perf_counter() - begin}


def render(runs: dict[str, list[dict[str, float]]], data: Any, args: Any) -> tuple[list[str], dict[str, Any]]:
    pairs = zip(runs["bertkit"], runs["tutorial"], strict=True)
    report: dict[str, Any] = {
        "about": about(args.threads),
        "train_rows": len(data.train),
        "dev_rows": len(data.dev),
        "epochs": args.epochs,
        "speedup": round(statistics.median(theirs["seconds"] / ours["seconds"] for ours, theirs in pairs), 2),
        **{f"{name}_accuracy": [round(run["score"], 4) for run in found] for name, found in runs.items()},
        **{f"{name}_s": [round(run["seconds"], 1) for run in found] for name, found in runs.items()},
    }
    lines = ["# Frozen encoder on tweets: features computed once or in every epoch", "", *block(report["about"]), ""]
    lines += [f"{len(data.train):,} training rows, {len(data.dev):,} dev rows, {args.epochs} epochs, MiniLM-L6.", ""]
    lines += ["| | dev accuracy, mean ± sd | seconds, median |", "|---|---|---|"]
    for name, found in runs.items():
        lines.append(f"| {name} | {spread([run['score'] for run in found])} | {seconds_of(found):.1f} |")
    lines += ["", f"Speed-up, median over {args.seeds} seeds: **{report['speedup']:.1f}x**."]
    return lines, report


if __name__ == "__main__":
    main()
