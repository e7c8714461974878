"""Named entities from MiniLM-L6: bertkit against a loop like transformers' run_ner.py, seed by seed.

    python benchmarks/ner.py --data ../shared/data/ner/wnut17 --out benchmarks/results/ner.md

Both fine-tune all weights on the same sentences and tag the same dev words: AdamW with bias correction, 10 % warm-up,
linear decay, gradients clipped to 1, dropout on, 32 sentences per batch, the first piece of each word labelled. The
peer passes words to its tokenizer (``is_split_into_words``) and pads each batch to its longest sentence. Scores are
seqeval's, for the model after the last epoch, over all dev words. Wall time covers everything from loaded sentences to
tags (tokenization, training, prediction), without imports. The two systems alternate.
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

LENGTH, BATCH, LEARNING_RATE = 128, 32, 1e-4
#: Tags of each sentence, and seconds.
Tagged = tuple[list[list[str]], float]


def main() -> None:
    args = parse_args()
    import torch

    from bertkit.tasks import ner_task
    from bertkit.tasks.run_rows import read_rows
    from bertkit.tasks.tokens.baseline import feature_baseline
    from bertkit.tasks.workflow import workflow_of
    from bertkit.training.finetuning.finetune_settings import FinetuneConfig

    torch.set_num_threads(args.threads)
    task = ner_task(args.data)
    rows = read_rows(workflow_of(task), args.data, FinetuneConfig(max_train_rows=args.rows))

    def run(system: Callable[..., Any], seed: int) -> dict[str, float]:
        found, seconds = system(task, rows.train, rows.dev, args.epochs, seed)
        return {**score(rows.dev, found), "seconds": round(seconds, 1)}

    runs = take_turns(
        {"bertkit": partial(run, run_bertkit), "transformers": partial(run, run_transformers)}, args.seeds
    )
    report = {
        "about": about(args.threads),
        "data": args.data.name,
        "train_sentences": len(rows.train),
        "left_out": rows.num_before_cut - len(rows.train),
        "dev_sentences": len(rows.dev),
        "epochs": args.epochs,
        "runs": runs,
        "baseline": feature_baseline(rows.train, rows.dev, task)["metrics"],
        "time_ratio": time_ratio(runs),
    }
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with CoNLL files, or one file")
    parser.add_argument("--rows", type=int, help="training sentences; default: all")
    add_run_options(parser, epochs=3)
    return parser.parse_args()


def score(dev: Sequence[Any], tags: list[list[str]]) -> dict[str, float]:
    """Scores by seqeval, for both systems."""
    from seqeval.metrics import f1_score, precision_score, recall_score

    right = [example.tags for example in dev]
    measures = {"f1": f1_score, "precision": precision_score, "recall": recall_score}
    return {name: round(float(measure(right, tags, zero_division=0)), 4) for name, measure in measures.items()}


def run_bertkit(task: Any, train: Any, dev: Any, epochs: int, seed: int) -> Tagged:
    begin = time.perf_counter()
    workflow, predicted = train_workflow(
        task, train, dev, learning_rate=LEARNING_RATE, epochs=epochs, max_length=LENGTH, batch_size=BATCH, seed=seed
    )
    return [row["predicted"] for row in workflow.prediction_rows(predicted)], time.perf_counter() - begin


def run_transformers(task: Any, train: Any, dev: Any, epochs: int, seed: int) -> Tagged:
    """The same with ``Trainer`` and dynamic padding."""
    import transformers

    transformers.logging.set_verbosity_error()
    begin = time.perf_counter()
    transformers.set_seed(seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm_folder())
    model = transformers.AutoModelForTokenClassification.from_pretrained(minilm_folder(), num_labels=task.num_labels)
    rows, _ = tokenized(task, train, tokenizer)
    asked, places = tokenized(task, dev, tokenizer)
    with tempfile.TemporaryDirectory() as scratch:
        arguments = training_arguments(scratch, epochs=epochs, rate=LEARNING_RATE, batch=BATCH, seed=seed)
        trainer = transformers.Trainer(
            model=model,
            args=arguments,
            train_dataset=rows,
            data_collator=transformers.DataCollatorForTokenClassification(tokenizer),
        )
        trainer.train()
        best = trainer.predict(asked).predictions.argmax(-1)
    tags = [
        [task.labels[row[place]] if place is not None else "O" for place in words]
        for row, words in zip(best.tolist(), places, strict=True)
    ]
    return tags, time.perf_counter() - begin


def tokenized(task: Any, examples: Any, tokenizer: Any) -> tuple[list[dict[str, Any]], list[list[int | None]]]:
    """Rows labelled at the first piece of each word, and these pieces' positions (None: truncated, or no piece)."""
    encoded = tokenizer(
        [list(example.words) for example in examples], is_split_into_words=True, truncation=True, max_length=LENGTH
    )
    rows, places = [], []
    for number, example in enumerate(examples):
        first: dict[int, int] = {}
        for place, word in enumerate(encoded.word_ids(number)):
            if word is not None:
                first.setdefault(word, place)
        labels = [-100] * len(encoded["input_ids"][number])
        for word, label in enumerate(task.numbers_of(example.tags)):
            if word in first:
                labels[first[word]] = label
        rows.append({**{key: encoded[key][number] for key in encoded}, "labels": labels})
        places.append([first.get(word) for word in range(len(example.words))])
    return rows, places


def render(report: dict[str, Any]) -> list[str]:
    head = f"# Named entities ({report['data']}) from MiniLM-L6: bertkit and a loop like run_ner.py"
    lines = [
        head,
        "",
        *block(report["about"]),
        "",
        "| system | F1 | precision | recall | seconds |",
        "|---|---|---|---|---|",
    ]
    for name, runs in report["runs"].items():
        cells = [name, *(spread([run[key] for run in runs]) for key in ("f1", "precision", "recall"))]
        seconds = seconds_of(runs)
        lines.append("| " + " | ".join([*cells, f"{seconds:.1f}"]) + " |")
    base = report["baseline"]
    lines.append(f"| word features + linear | {base['f1']:.4f} | {base['precision']:.4f} | {base['recall']:.4f} | |")
    seeds = len(report["runs"]["bertkit"])
    return [
        *lines,
        "",
        f"Time ratio **{report['time_ratio']:.2f}** (median over seeds). {report['train_sentences']:,} training "
        f"sentences ({report['left_out']:,} left out), {report['epochs']} epochs, {report['dev_sentences']:,} dev "
        f"sentences; {seeds} seeds, mean ± sd. Command: `python benchmarks/ner.py --data DATA`",
    ]


if __name__ == "__main__":
    main()
