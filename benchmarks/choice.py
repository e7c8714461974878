"""Multiple choice (CODAH) from MiniLM-L6: bertkit against a loop like transformers' run_swag.py, seed by seed.

    python benchmarks/choice.py --data ../shared/data/codah --out benchmarks/results/choice.md

Both fine-tune all weights on the same questions and answer the same dev questions. A sequence is the context and one
ending, with four sequences per question. AdamW with bias correction, 10 % warm-up, linear decay, gradients clipped to
1, dropout on, 16 questions per batch. The peer pads each batch to its longest sequence, as run_swag.py does. The score
is that of the model after the last epoch. Wall time covers everything from loaded questions to answers (tokenization,
training, prediction), without imports. The two systems alternate.
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

LENGTH, BATCH, LEARNING_RATE = 128, 16, 1e-4
#: Index of the chosen ending of each question, and seconds.
Chosen = tuple[list[int], float]


def main() -> None:
    args = parse_args()
    import torch

    from bertkit.tasks.choices.baseline import choice_baseline
    from bertkit.tasks.choices.task import CODAH
    from bertkit.tasks.run_rows import read_rows
    from bertkit.tasks.workflow import workflow_of
    from bertkit.training.finetuning.finetune_settings import FinetuneConfig

    torch.set_num_threads(args.threads)
    rows = read_rows(workflow_of(CODAH), args.data, FinetuneConfig(max_train_rows=args.rows))

    def run(system: Callable[..., Any], seed: int) -> dict[str, float]:
        found, seconds = system(rows.train, rows.dev, args.epochs, seed)
        return {**score(rows.dev, found), "seconds": round(seconds, 1)}

    runs = take_turns(
        {"bertkit": partial(run, run_bertkit), "transformers": partial(run, run_transformers)}, args.seeds
    )
    baseline = choice_baseline(rows.train, rows.dev, CODAH)
    report = {
        "about": about(args.threads),
        "data": args.data.name,
        "train_questions": len(rows.train),
        "left_out": rows.num_before_cut - len(rows.train),
        "dev_questions": len(rows.dev),
        "epochs": args.epochs,
        "runs": runs,
        "baseline": baseline["metrics"],
        "chance": baseline["chance"],
        "time_ratio": time_ratio(runs),
    }
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the questions")
    parser.add_argument("--rows", type=int, help="training questions; default: all")
    add_run_options(parser, epochs=2)
    return parser.parse_args()


def score(dev: Sequence[Any], chosen: Sequence[int]) -> dict[str, float]:
    """Accuracy."""
    right = sum(example.label == number for example, number in zip(dev, chosen, strict=True))
    return {"accuracy": right / len(dev)}


def run_bertkit(train: Any, dev: Any, epochs: int, seed: int) -> Chosen:
    """Choices of the model after the last epoch, and seconds."""
    from bertkit.tasks.choices.task import CODAH

    begin = time.perf_counter()
    _, predicted = train_workflow(
        CODAH, train, dev, learning_rate=LEARNING_RATE, epochs=epochs, max_length=LENGTH, batch_size=BATCH, seed=seed
    )
    return predicted.outputs.argmax(axis=1).tolist(), time.perf_counter() - begin


def run_transformers(train: Any, dev: Any, epochs: int, seed: int) -> Chosen:
    """The same with ``Trainer`` and dynamic padding."""
    import transformers

    transformers.logging.set_verbosity_error()
    begin = time.perf_counter()
    transformers.set_seed(seed)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm_folder())
    model = transformers.AutoModelForMultipleChoice.from_pretrained(minilm_folder())
    with tempfile.TemporaryDirectory() as scratch:
        arguments = training_arguments(scratch, epochs=epochs, rate=LEARNING_RATE, batch=BATCH, seed=seed)
        trainer = transformers.Trainer(
            model=model,
            args=arguments,
            train_dataset=tokenized(train, tokenizer),
            data_collator=transformers.DataCollatorForMultipleChoice(tokenizer),
        )
        trainer.train()
        best = trainer.predict(tokenized(dev, tokenizer)).predictions.argmax(-1)
    return best.tolist(), time.perf_counter() - begin


def tokenized(questions: Any, tokenizer: Any) -> list[dict[str, Any]]:
    """One row per question, with a list of its sequences."""
    first, second = zip(*(pair for question in questions for pair in question.pairs), strict=True)
    encoded = tokenizer(list(first), list(second), truncation=True, max_length=LENGTH)
    rows, begin = [], 0
    for question in questions:
        end = begin + len(question.choices)
        rows.append({**{key: values[begin:end] for key, values in encoded.items()}, "label": question.label})
        begin = end
    return rows


def render(report: dict[str, Any]) -> list[str]:
    head = f"# Multiple choice ({report['data']}) from MiniLM-L6: bertkit and a loop like run_swag.py"
    lines = [head, "", *block(report["about"]), "", "| system | accuracy | seconds |", "|---|---|---|"]
    for name, runs in report["runs"].items():
        seconds = seconds_of(runs)
        lines.append(f"| {name} | {spread([run['accuracy'] for run in runs])} | {seconds:.1f} |")
    lines.append(f"| TF-IDF + linear | {report['baseline']['accuracy']:.4f} | |")
    lines.append(f"| guessing | {report['chance']:.4f} | |")
    seeds = len(report["runs"]["bertkit"])
    return [
        *lines,
        "",
        f"Time ratio **{report['time_ratio']:.2f}** (median over seeds). {report['train_questions']:,} training "
        f"questions ({report['left_out']:,} left out), {report['epochs']} epochs, {report['dev_questions']:,} dev "
        f"questions; {seeds} seeds, mean ± sd. Command: `python benchmarks/choice.py --data DATA`",
    ]


if __name__ == "__main__":
    main()
