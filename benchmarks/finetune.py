"""Fine-tuning: bertkit against transformers' Trainer, same weights, rows and hyper-parameters, seed by seed.

    python benchmarks/finetune.py --data ../shared/data --out benchmarks/results/finetune.md

Both start from MiniLM-L6 and fine-tune all weights on shuffled batches of 32: AdamW with bias correction, 10 % warm-up
and linear decay, gradients clipped to 1, dropout on. Both evaluate on dev after each epoch. Wall time covers
everything from raw rows to dev scores (tokenization, training, evaluation), without imports. The two systems alternate
(A B, B A, A B); the score is that of the last epoch. Both compute in fp32, in bf16 with ``--precision bf16``, and with
``--precision defaults`` each as it does unless it is told otherwise: Trainer in fp32, bertkit in bf16 where it pays.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beside_trainer import spread, take_turns, time_ratio, training_arguments
from machine import about, block, minilm_folder, publish

LENGTH, BATCH = 128, 32
#: By the value of --precision, that of bertkit (None: its default) and of Trainer.
PRECISIONS = {"fp32": ("fp32", "fp32"), "bf16": ("bf16", "bf16"), "defaults": (None, "fp32")}
#: Task, folder, epochs, training rows (None: all).
JOBS: tuple[tuple[str, str, int, int | None], ...] = (
    ("sst2", "glue/SST-2", 1, 6_400),
    ("mrpc", "glue/MRPC", 2, None),
    ("tweets", "tweet_sentiment", 1, 2_400),
)


def main() -> None:
    args = parse_args()
    import torch

    torch.set_num_threads(args.threads)
    results = {}
    for task, folder, epochs, rows in JOBS:
        if args.tasks and task not in args.tasks:
            continue
        rows = rows if args.rows is None else args.rows
        results[task] = run_task(task, args.data / folder, epochs, rows, args)
        print(f"{task}: {json.dumps(results[task])}", file=sys.stderr, flush=True)
    report = {"about": about(args.threads), "seeds": args.seeds, "precision": args.precision, "results": results}
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with glue/ and tweet_sentiment/")
    parser.add_argument("--tasks", nargs="*", help="some of: " + " ".join(job[0] for job in JOBS))
    parser.add_argument("--rows", type=int, help="training rows of every task, for a quick run")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def run_task(task: str, folder: Path, epochs: int, rows: int | None, args: argparse.Namespace) -> dict[str, Any]:
    """Run both systems on every seed, alternating."""
    from bertkit.tasks import get_task
    from bertkit.tasks.run_rows import read_rows
    from bertkit.tasks.workflow import workflow_of
    from bertkit.training.finetuning.finetune_settings import FinetuneConfig
    from bertkit.training.trainer.precision import fastest_precision

    settings = {"learning_rate": 1e-4, "epochs": epochs, "max_length": LENGTH, "batch_size": BATCH}
    # MiniLM asks for mean pooling; Trainer's class reads [CLS], so both do here.
    own, theirs = PRECISIONS[args.precision]
    precision = own or fastest_precision("cpu")
    config = FinetuneConfig(**settings, precision=precision, max_train_rows=rows, baseline=False, pooling="cls")
    data = read_rows(workflow_of(get_task(task)), folder, config)
    systems: dict[str, Callable[[int], dict[str, float]]] = {
        "bertkit": lambda seed: run_bertkit(task, config.model_copy(update={"seed": seed}), data),
        "transformers": lambda seed: run_transformers(task, data, {**settings, "bf16": theirs == "bf16"}, seed),
    }
    runs = take_turns(systems, args.seeds, label=f"{task} ")
    return {
        "metric": get_task(task).main_metric,
        "epochs": epochs,
        "train_rows": len(data.train),
        "train_rows_left_out": data.num_before_cut - len(data.train),
        "dev_rows": len(data.dev),
        **{f"{name}_scores": [round(run["score"], 4) for run in found] for name, found in runs.items()},
        **{f"{name}_s": [round(run["seconds"], 1) for run in found] for name, found in runs.items()},
        "time_ratio": time_ratio(runs),
    }


def run_bertkit(task: str, config: Any, data: Any) -> dict[str, float]:
    """Dev score after the last epoch, and seconds."""
    from bertkit.tasks import get_task
    from bertkit.tasks.workflow import workflow_of
    from bertkit.tokenization import BertTokenizer
    from bertkit.training.finetuning.fit import fit_classifier
    from bertkit.training.finetuning.seed_run import encode
    from bertkit.training.trainer.generators import seeded

    begin = time.perf_counter()
    described = get_task(task)
    tokenizer = BertTokenizer.from_pretrained(minilm_folder())
    with seeded(config.seed):
        workflow: Any = workflow_of(described)
        model = workflow.new_model(minilm_folder(), seed=config.seed, device=None, settings=config)
        encoded = encode(data, workflow, tokenizer, config, "benchmark")
        fit = fit_classifier(model, described, encoded.train, encoded.dev, config, seed=config.seed)
    found = fit.progression.epochs[-1][f"dev_{described.main_metric}"]
    return {"score": found, "seconds": time.perf_counter() - begin}


def run_transformers(task: str, data: Any, settings: dict[str, Any], seed: int) -> dict[str, float]:
    """The same with ``Trainer`` and dynamic padding, as in its documentation."""
    import numpy as np
    import transformers

    from bertkit.tasks import get_task, score

    transformers.logging.set_verbosity_error()
    described = get_task(task)
    begin = time.perf_counter()
    transformers.set_seed(seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm_folder())
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        minilm_folder(), num_labels=described.num_labels
    )
    with tempfile.TemporaryDirectory() as scratch:
        arguments = training_arguments(
            scratch, epochs=settings["epochs"], rate=settings["learning_rate"], batch=BATCH, seed=seed,
            eval_strategy="epoch", bf16=settings["bf16"],
        )  # fmt: skip
        trainer = transformers.Trainer(
            model=model,
            args=arguments,
            train_dataset=tokenized(data.train, tokenizer),
            eval_dataset=tokenized(data.dev, tokenizer),
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
            compute_metrics=lambda out: score(described, np.argmax(out.predictions, -1), out.label_ids),
        )
        trainer.train()
    scores = [row for row in trainer.state.log_history if f"eval_{described.main_metric}" in row]
    found = float(scores[-1][f"eval_{described.main_metric}"])
    return {"score": found, "seconds": time.perf_counter() - begin}


def tokenized(examples: Any, tokenizer: Any) -> list[dict[str, Any]]:
    texts = [example.text for example in examples]
    pairs = None if examples[0].text_pair is None else [example.text_pair for example in examples]
    encoded = tokenizer(texts, pairs, truncation=True, max_length=LENGTH)
    return [
        {**{key: values[row] for key, values in encoded.items()}, "labels": example.label}
        for row, example in enumerate(examples)
    ]


def render(report: dict[str, Any]) -> list[str]:
    lines = ["# Fine-tuning MiniLM-L6: bertkit and transformers' Trainer", "", *block(report["about"]), ""]
    lines += [
        "Last-epoch dev score, mean ± sd over the seeds; wall time is the median; ratio is the median over seeds.",
        "",
    ]
    lines += [
        "| task | metric | train rows (left out) | epochs | bertkit | transformers | bertkit s | Trainer s | ratio |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for task, r in report["results"].items():
        cells = [task, r["metric"], f"{r['train_rows']:,} ({r['train_rows_left_out']:,})", str(r["epochs"])]
        cells += [spread(r[f"{name}_scores"]) for name in ("bertkit", "transformers")]
        cells += [f"{statistics.median(r[f'{name}_s']):.1f}" for name in ("bertkit", "transformers")]
        lines.append("| " + " | ".join([*cells, f"**{r['time_ratio']:.2f}**"]) + " |")
    command = f"python benchmarks/finetune.py --data DATA --precision {report['precision']}"
    return [*lines, "", f"{report['seeds']} seeds. Command: `{command}`"]


if __name__ == "__main__":
    main()
