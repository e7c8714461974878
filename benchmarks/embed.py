"""How fast are sentence embeddings? bertkit against transformers and CTranslate2, on ragged real text.

    python benchmarks/embed.py --data ../shared/data --out benchmarks/results/embed.md

Mean-pooled embeddings of the same texts, fp32, same number of threads, for two models: MiniLM-L6 with its real weights
and a BERT-base with random weights. The measured time covers everything from texts to vectors, each system with its
own tokenizer. The systems alternate within each round, so that a slow minute of the machine affects all of them;
ratios are computed within each round and their median is reported. In every round all systems must agree to 1e-4;
otherwise no result is printed.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from machine import about, block, minilm_folder, publish

#: Share of each dataset in the mix.
MIX = {"sst2": 0.30, "tweets": 0.25, "mrpc": 0.20, "qnli": 0.20, "imdb": 0.05}
FOLDERS = {
    "sst2": "glue/SST-2",
    "tweets": "tweet_sentiment",
    "mrpc": "glue/MRPC",
    "qnli": "glue/QNLI",
    "imdb": "imdb",
}
MAX_LENGTH = 512
TOLERANCE = 1e-4

Ids = list[list[int]]


@dataclass
class System:
    """One system: texts to vectors; seconds of each round, and the largest difference from transformers."""

    name: str
    run: Callable[[], np.ndarray]
    seconds: list[float] = field(default_factory=list)
    difference: float = 0.0


def main() -> None:
    args = parse_args()
    import torch

    torch.set_num_threads(args.threads)
    texts = draw_texts(args.data, max(args.texts, args.base_texts), args.seed)
    report: dict[str, object] = {"about": about(args.threads), "models": {}}
    with tempfile.TemporaryDirectory() as scratch:
        for name, count in (("MiniLM-L6", args.texts), ("BERT-base", args.base_texts)):
            if count == 0:
                continue
            folder = minilm_folder() if name == "MiniLM-L6" else make_base(Path(scratch) / "base")
            report["models"][name] = run_model(name, folder, texts[:count], args, Path(scratch))
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with glue/, imdb/ and tweet_sentiment/")
    parser.add_argument("--texts", type=int, default=2000, help="texts for MiniLM-L6 (0: skip it)")
    parser.add_argument("--base-texts", type=int, default=2000, help="texts for BERT-base (0: skip it)")
    parser.add_argument("--arrival", nargs="*", default=["MiniLM-L6"], metavar="MODEL",
                        help="models for which batches in arrival order are timed too; slow")  # fmt: skip
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    return parser.parse_args()


def draw_texts(data: Path, count: int, seed: int) -> list[str]:
    """A seeded mix of the examples' first texts, shuffled: arrival order is random."""
    from bertkit.tasks import TASKS, load_split, splits_of

    chance = random.Random(seed)
    texts: list[str] = []
    for name, share in MIX.items():
        largest = next(iter(splits_of(TASKS[name], data / FOLDERS[name])))  # train if there is one, else dev
        examples = load_split(TASKS[name], data / FOLDERS[name], largest)
        texts += [example.text for example in chance.sample(examples, round(count * share))]
    chance.shuffle(texts)
    return texts


def make_base(folder: Path) -> Path:
    """BERT-base with random weights, and the same vocabulary."""
    import shutil

    import torch
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    # CTranslate2's converter requires a key that newer configs omit.
    BertModel(BertConfig(position_embedding_type="absolute")).save_pretrained(folder)
    for name in ("vocab.txt", "tokenizer_config.json"):
        shutil.copy(minilm_folder() / name, folder / name)
    return folder


def run_model(name: str, folder: Path, texts: list[str], args: argparse.Namespace, scratch: Path) -> dict[str, object]:
    from bertkit import BertTokenizer

    lengths = BertTokenizer.from_pretrained(folder).encode_ragged(texts, max_length=MAX_LENGTH).lengths
    say(f"{name}: {len(texts)} texts, {lengths.sum():,} tokens")
    sorted_, arrival = make_transformers(folder, texts)
    systems = [sorted_, make_bertkit(folder, texts), make_ctranslate2(folder, texts, args.threads, scratch / name)]
    if name in args.arrival:
        systems.append(arrival)
    for number in range(args.rounds):
        reference = np.empty(0)
        for system in systems:
            started = time.perf_counter()
            vectors = system.run()
            system.seconds.append(time.perf_counter() - started)
            say(f"  round {number + 1}  {system.name:<36} {system.seconds[-1]:7.2f} s")
            reference = vectors if system is sorted_ else reference
            system.difference = max(system.difference, float(np.abs(vectors - reference).max()))
            if system.difference > TOLERANCE:
                sys.exit(f"{system.name} differs from transformers by {system.difference:.2e}; no result is printed")
    ours = next(system for system in systems if system.name == "bertkit")
    return {
        "texts": len(texts),
        "tokens": int(lengths.sum()),
        "lengths": {"mean": round(float(lengths.mean()), 1), **quantiles(lengths)},
        "systems": {system.name: summary(system, ours) for system in systems},
    }


def make_bertkit(folder: Path, texts: list[str]) -> System:
    from bertkit import pipeline

    pipe = pipeline("feature-extraction", model=folder, device="cpu")

    def run() -> np.ndarray:
        return np.stack(pipe(texts, pooling="mean", truncation=True, max_length=MAX_LENGTH, progress=False))

    return System("bertkit", run)


def make_transformers(folder: Path, texts: list[str]) -> list[System]:
    import torch
    from transformers import AutoTokenizer, BertModel

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = BertModel.from_pretrained(folder, attn_implementation="sdpa").eval()

    @torch.inference_mode()
    def encode(ids: Ids, *, is_sorted: bool) -> np.ndarray:
        order = np.argsort([-len(row) for row in ids], kind="stable") if is_sorted else np.arange(len(ids))
        out = np.empty((len(ids), model.config.hidden_size), np.float32)
        for first in range(0, len(order), 32):
            rows = order[first : first + 32]
            batch = tokenizer.pad({"input_ids": [ids[row] for row in rows]}, return_tensors="pt")
            hidden = model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1)
            out[rows] = ((hidden * mask).sum(1) / mask.sum(1)).numpy()
        return out

    def tokenize() -> Ids:
        return tokenizer(texts, truncation=True, max_length=MAX_LENGTH)["input_ids"]

    return [
        System("transformers SDPA, sorted, 32", lambda: encode(tokenize(), is_sorted=True)),
        System("transformers SDPA, arrival, 32", lambda: encode(tokenize(), is_sorted=False)),
    ]


def make_ctranslate2(folder: Path, texts: list[str], threads: int, converted: Path) -> System:
    """CTranslate2's encoder with the best of a few batch sizes, selected on some of the texts before the rounds."""
    import ctranslate2
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer

    ctranslate2.converters.TransformersConverter(str(folder)).convert(str(converted))
    encoder = ctranslate2.Encoder(str(converted), device="cpu", compute_type="float32", intra_threads=threads)
    fast: Tokenizer = AutoTokenizer.from_pretrained(folder).backend_tokenizer
    fast.no_padding()
    fast.enable_truncation(MAX_LENGTH)

    def encode(ids: Ids, budget: int) -> np.ndarray:
        order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
        out: list[np.ndarray | None] = [None] * len(ids)
        for rows in cut(order, ids, budget):
            batch = [ids[row] for row in rows]
            hidden = np.array(encoder.forward_batch(batch).last_hidden_state, copy=False)
            for row, values in zip(rows, hidden, strict=True):
                out[row] = values[: len(ids[row])].mean(axis=0)
        return np.stack(out)

    def tokenize(texts: list[str]) -> Ids:
        return [row.ids for row in fast.encode_batch(texts)]

    def trial_seconds(budget: int) -> float:
        started = time.perf_counter()
        encode(trial, budget)
        return time.perf_counter() - started

    trial = tokenize(texts[:200])
    trial_seconds(1024)
    best = min((512, 1024, 2048), key=lambda budget: min(trial_seconds(budget) for _ in range(2)))
    return System(f"CTranslate2 fp32, sorted, {best} tokens", lambda: encode(tokenize(texts), best))


def cut(order: list[int], ids: Ids, budget: int) -> Iterator[list[int]]:
    """Consecutive rows with at most ``budget`` padded tokens (longest first, so width x rows)."""
    batch: list[int] = []
    for row in order:
        if batch and len(ids[batch[0]]) * (len(batch) + 1) > budget:
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def summary(system: System, ours: System) -> dict[str, float]:
    """Medians, and how many times longer this system takes than bertkit, round by round."""
    return {
        "seconds": round(statistics.median(system.seconds), 3),
        "ratio": round(statistics.median(a / b for a, b in zip(system.seconds, ours.seconds, strict=True)), 3),
        "largest_difference": system.difference,
    }


def quantiles(lengths: np.ndarray) -> dict[str, int]:
    names = {"min": 0, "p25": 25, "median": 50, "p75": 75, "p95": 95, "max": 100}
    return {name: int(np.percentile(lengths, share)) for name, share in names.items()}


def render(report: dict) -> list[str]:
    lines = ["# Sentence embeddings of ragged text", "", *block(report["about"])]
    for name, result in report["models"].items():
        lengths = ", ".join(f"{key} {value}" for key, value in result["lengths"].items())
        lines += [
            "",
            f"## {name}: {result['texts']:,} texts, {result['tokens']:,} tokens ({lengths})",
            "",
            "| system | seconds, median | times bertkit's | largest difference |",
            "|---|---|---|---|",
        ]
        for system, row in result["systems"].items():
            lines.append(f"| {system} | {row['seconds']:.2f} | {row['ratio']:.2f} | {row['largest_difference']:.1e} |")
    return lines


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
