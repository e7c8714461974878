"""What names score without a neural network: word features with and without pairs of tags, and the most frequent tag.

    python benchmarks/names_baseline.py --data ../shared/data/ner/wikigold --out benchmarks/results/names-baseline.md

Sentences are drawn at random, another part for each seed; the rest is tagged. With ``--model`` it is fine-tuned on the
same sentences with bertkit's defaults, too. Scores are those of the task: F1 over entities, as conlleval counts them.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from machine import about, block, minilm_folder, publish

if TYPE_CHECKING:
    from bertkit.tasks.tokens.task import TaggedExample

SYSTEMS = {
    "frequent": "most frequent tag of each word",
    "words": "word features, the best tag of each word",
    "path": "word features, the best path (the baseline)",
    "model": "fine-tuned with the defaults",
}


def main() -> None:
    args = parse_args()
    from bertkit.tasks import ner_task
    from bertkit.tasks.workflow import workflow_of

    task = ner_task(args.data)
    rows = workflow_of(task).read(args.data, "train")
    found: dict[str, list[float]] = {}
    for seed in range(args.seeds):
        order = np.random.default_rng(seed).permutation(len(rows)).tolist()
        train, dev = ([rows[number] for number in part] for part in (order[: args.train], order[args.train :]))
        model = str(minilm_folder()) if args.model == "minilm" else args.model
        for name, score in run(task, train, dev, model).items():
            found.setdefault(name, []).append(score)
    report = {
        "about": about(args.threads),
        "data": args.data.name,
        "train": args.train,
        "model": args.model,
        "runs": found,
    }
    publish(render(report, len(rows) - args.train), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with CoNLL files, or one file")
    parser.add_argument("--train", type=int, default=900, help="training sentences")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--model", help="a model to fine-tune on the same sentences; minilm: the one of the others here"
    )
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def run(task: Any, train: Sequence[TaggedExample], dev: Sequence[TaggedExample], model: str | None) -> dict[str, float]:
    """F1 of each system."""
    from bertkit.tasks.tokens.baseline import WordFeatureTagger, feature_baseline
    from bertkit.tasks.tokens.task import score_tags

    right = [example.tags for example in dev]
    tagger = WordFeatureTagger(train)
    scores, start, alone = tagger._scores(dev) + tagger._prior, 0, []
    for example in dev:
        best = scores[start : start + len(example.words)].argmax(axis=1)
        alone.append([tagger.tags[number] for number in best.tolist()])
        start += len(best)
    told: Any = feature_baseline(train, dev, task)
    return {
        "frequent": score_tags(task, most_frequent(train, dev), right)["f1"],
        "words": score_tags(task, alone, right)["f1"],
        "path": told["metrics"]["f1"],
        **({} if model is None else {"model": fine_tuned(train, dev, model)}),
    }


def most_frequent(train: Sequence[TaggedExample], dev: Sequence[TaggedExample]) -> list[list[str]]:
    """Of each word its most frequent tag in train, of a word that train lacks that of its small letters, else O."""
    counts: dict[str, Counter[str]] = {}
    for example in train:
        for word, tag in zip(example.words, example.tags, strict=True):
            for key in (word, f"small {word.casefold()}"):
                counts.setdefault(key, Counter())[tag] += 1
    best = {word: min(found, key=lambda tag: (-found[tag], tag != "O", tag)) for word, found in counts.items()}
    return [[best.get(word) or best.get(f"small {word.casefold()}", "O") for word in example.words] for example in dev]


def fine_tuned(train: Sequence[TaggedExample], dev: Sequence[TaggedExample], model: str) -> float:
    """The same sentences, as rows in memory."""
    from bertkit import finetune

    data = {
        split: [{"tokens": list(example.words), "ner_tags": example.tags} for example in rows]
        for split, rows in (("train", train), ("dev", dev))
    }
    with tempfile.TemporaryDirectory() as folder:
        return finetune("ner", data, model, Path(folder) / "run", baseline=False).scores["f1"]


def render(report: dict[str, Any], num_dev: int) -> list[str]:
    seeds = len(report["runs"]["path"])
    lines = [
        "# Names without a neural network",
        "",
        *block(report["about"]),
        "",
        f"{report['data']}: {report['train']} sentences drawn at random, {num_dev} tagged; {seeds} seeds of the draw.",
        "",
        f"| system | {' | '.join(f'seed {seed}' for seed in range(seeds))} | mean F1 |",
        f"|---|{'--:|' * (seeds + 1)}",
    ]
    for name, scores in report["runs"].items():
        cells = [*(f"{score:.4f}" for score in scores), f"**{statistics.fmean(scores):.4f}**"]
        lines.append(f"| {SYSTEMS[name]} | {' | '.join(cells)} |")
    model = "" if report["model"] is None else f" --model {report['model']}"
    return [*lines, "", f"Command: `python benchmarks/names_baseline.py --data DATA{model}`"]


if __name__ == "__main__":
    main()
