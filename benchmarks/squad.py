"""SQuAD v1.1 from MiniLM-L6: bertkit against a loop like transformers' run_qa.py, seed by seed.

    python benchmarks/squad.py --data ../shared/data/squad --out benchmarks/results/squad.md

Both train on the same questions about some of the articles and answer questions about the others, in windows of up to
384 tokens: AdamW with bias correction, 10 % warm-up, linear decay, gradients clipped to 1, dropout on, 8 windows per
batch. The peer pads each batch to its longest window (run_qa.py pads to 384) and decodes like run_qa.py: the best pair
among its 20 best starts and 20 best ends. Its windows overlap by 128 tokens, bertkit's start 128 tokens apart. Wall
time covers everything from loaded questions to scores (windows, training, evaluation), without imports. The two
systems alternate.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from beside_trainer import (
    add_run_options,
    seconds_of,
    spread,
    take_turns,
    time_ratio,
    train_workflow,
    training_arguments,
)
from machine import about, block, minilm_folder, publish

LENGTH, STRIDE, BATCH, LEARNING_RATE, LONGEST, N_BEST = 384, 128, 8, 2e-4, 30, 20


def main() -> None:
    args = parse_args()
    import torch

    from bertkit.tasks.spans.baseline import overlap_baseline
    from bertkit.tasks.spans.reading import hold_out
    from bertkit.tasks.spans.task import SQUAD
    from bertkit.tasks.workflow import workflow_of

    torch.set_num_threads(args.threads)
    train, dev = hold_out(workflow_of(SQUAD).read(args.data, "dev"), args.dev_share, seed=0)
    train, dev = sample(train, args.rows), sample(dev, args.dev_rows)

    def run(system: Callable[..., Any], seed: int) -> dict[str, float]:
        found, seconds = system(train, dev, args.epochs, seed)
        return {**score(dev, found), "seconds": round(seconds, 1)}

    runs = take_turns(
        {"bertkit": partial(run, run_bertkit), "transformers": partial(run, run_transformers)}, args.seeds
    )
    report = {
        "about": about(args.threads),
        "train_questions": len(train),
        "dev_questions": len(dev),
        "epochs": args.epochs,
        "runs": runs,
        "baseline": overlap_baseline(train, dev, SQUAD)["metrics"],
        "time_ratio": time_ratio(runs),
    }
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the v1.1 dev file, or a file")
    parser.add_argument("--rows", type=int, default=2_400, help="training questions")
    parser.add_argument("--dev-rows", type=int, default=600, help="number of scored questions")
    parser.add_argument("--dev-share", type=float, default=0.15, help="share of the questions in held-out articles")
    add_run_options(parser, epochs=2)
    return parser.parse_args()


def sample(examples: Any, rows: int) -> list[Any]:
    """Evenly spaced questions, so that every article keeps its share."""
    return list(examples) if rows >= len(examples) else [examples[i * len(examples) // rows] for i in range(rows)]


def score(dev: Sequence[Any], answers: Sequence[str]) -> dict[str, float]:
    """The official metrics."""
    from bertkit.tasks.spans.metrics import squad_metrics

    references = {example.id: [answer.text for answer in example.answers] for example in dev}
    return squad_metrics({example.id: text for example, text in zip(dev, answers, strict=True)}, references)


def run_bertkit(train: Any, dev: Any, epochs: int, seed: int) -> tuple[list[str], float]:
    """Answers after the last epoch, and seconds."""
    from bertkit.tasks.spans.task import SQUAD

    begin = time.perf_counter()
    workflow, predicted = train_workflow(
        SQUAD,
        train,
        dev,
        learning_rate=LEARNING_RATE,
        epochs=epochs,
        max_length=LENGTH,
        batch_size=BATCH,
        doc_stride=STRIDE,
        seed=seed,
    )
    return [row["predicted"] for row in workflow.prediction_rows(predicted)], time.perf_counter() - begin


def run_transformers(train: Any, dev: Any, epochs: int, seed: int) -> tuple[list[str], float]:
    """The same with ``Trainer``, dynamic padding, and the decoding of run_qa.py."""
    import transformers

    transformers.logging.set_verbosity_error()
    begin = time.perf_counter()
    transformers.set_seed(seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm_folder())
    model = transformers.AutoModelForQuestionAnswering.from_pretrained(minilm_folder())
    features = windows_of(train, tokenizer, labelled=True)
    asked = windows_of(dev, tokenizer, labelled=False)
    keep = ("input_ids", "token_type_ids", "attention_mask", "start_positions", "end_positions")
    with tempfile.TemporaryDirectory() as scratch:
        arguments = training_arguments(
            scratch, epochs=epochs, rate=LEARNING_RATE, batch=BATCH, seed=seed, remove_unused_columns=False
        )
        trainer = transformers.Trainer(
            model=model,
            args=arguments,
            train_dataset=[{key: row[key] for key in keep} for row in features],
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
        )
        trainer.train()
        answers = decode(trainer, [{key: row[key] for key in keep[:3]} for row in asked], asked, dev)
    return answers, time.perf_counter() - begin


def windows_of(examples: Any, tokenizer: Any, *, labelled: bool) -> list[dict[str, Any]]:
    """Overlapping windows with the index of their example, offsets in the context, and targets."""
    encoded = tokenizer(
        [example.question for example in examples],
        [example.context for example in examples],
        truncation="only_second",
        max_length=LENGTH,
        stride=STRIDE,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    rows = []
    for row, number in enumerate(encoded["overflow_to_sample_mapping"]):
        parts = encoded.sequence_ids(row)
        offsets = [
            place if part == 1 else None for place, part in zip(encoded["offset_mapping"][row], parts, strict=True)
        ]
        found = {key: encoded[key][row] for key in ("input_ids", "token_type_ids", "attention_mask")}
        if labelled:
            start, end = target_of(offsets, examples[number].answers[0])
            found |= {"start_positions": start, "end_positions": end}
        rows.append({**found, "offsets": offsets, "example": number})
    return rows


def target_of(offsets: Sequence[tuple[int, int] | None], answer: Any) -> tuple[int, int]:
    inside = [place for place, span in enumerate(offsets) if span and span[0] < answer.end and span[1] > answer.start]
    known = [span for span in offsets if span]
    if not inside or known[0][0] > answer.start or known[-1][1] < answer.end:
        return 0, 0
    return inside[0], inside[-1]


def decode(trainer: Any, rows: list[dict[str, Any]], asked: Sequence[dict[str, Any]], dev: Any) -> list[str]:
    """The best pair among the best starts and ends of each question's windows."""
    import numpy as np

    best: dict[int, tuple[float, str]] = {}
    starts, ends = trainer.predict(rows).predictions
    for row, start_logits, end_logits in zip(asked, starts, ends, strict=True):
        offsets, context = row["offsets"], dev[row["example"]].context
        for start in np.argsort(start_logits)[-1 : -N_BEST - 1 : -1].tolist():
            for end in np.argsort(end_logits)[-1 : -N_BEST - 1 : -1].tolist():
                if max(start, end) >= len(offsets) or not (offsets[start] and offsets[end]):
                    continue
                if end < start or end - start + 1 > LONGEST:
                    continue
                value = float(start_logits[start] + end_logits[end])
                if value > best.get(row["example"], (-np.inf, ""))[0]:
                    best[row["example"]] = value, context[offsets[start][0] : offsets[end][1]]
    return [best[number][1] if number in best else "" for number in range(len(dev))]


def render(report: dict[str, Any]) -> list[str]:
    head = "# SQuAD v1.1 (subset) from MiniLM-L6: bertkit and a loop like run_qa.py"
    lines = [head, "", *block(report["about"]), "", "| system | F1 | exact match | seconds |", "|---|---|---|---|"]
    for name, runs in report["runs"].items():
        cells = [name, *(spread([run[key] for run in runs], 2) for key in ("f1", "exact_match"))]
        seconds = seconds_of(runs)
        lines.append("| " + " | ".join([*cells, f"{seconds:.1f}"]) + " |")
    base = report["baseline"]
    lines.append(f"| word overlap, no network | {100 * base['f1']:.2f} | {100 * base['exact_match']:.2f} | |")
    seeds = len(report["runs"]["bertkit"])
    return [
        *lines,
        "",
        f"Time ratio **{report['time_ratio']:.2f}** (median over seeds). {report['train_questions']:,} training "
        f"questions, {report['epochs']} epochs, {report['dev_questions']:,} questions about other articles; "
        f"{seeds} seeds, mean ± sd. Command: `python benchmarks/squad.py --data DATA`",
    ]


if __name__ == "__main__":
    main()
