"""How fast are word vectors distilled from MiniLM? bertkit's against model2vec's, beside MiniLM itself.

    python benchmarks/static_vectors.py --data ../shared/data --out benchmarks/results/static-vectors.md

First what must be equal: bertkit and model2vec read the same folder to the same vectors, whichever of the two wrote it,
and vectors distilled by either score the same on STS-B (dev).

Then the speed on the same ragged texts and the same cores, everything from texts to vectors, each with its own
tokenizer: the systems alternate within each round; ratios are computed within each round and their median is reported.
Without model2vec (pip install 'model2vec[distill]') it is left out. --words and --theirs are folders that were
distilled before.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from embed import draw_texts
from machine import about, block, minilm_folder, publish, version_of

#: Largest difference of a number of a vector, which model2vec sums in 16 bits; of the scores of STS-B.
TOLERANCE, SCORES = 2e-3, 0.005
#: What the vectors are meant to reach: times the texts of MiniLM, megabytes.
TIMES, MEGABYTES = 100, 20

Encode = Callable[[list[str]], np.ndarray]


def main() -> None:
    args = parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = str(args.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if args.threads > 1 else "false"
    import torch

    torch.set_num_threads(args.threads)
    texts = draw_texts(args.data, args.texts, args.seed)
    pairs, gold = read_pairs(args.data / "glue" / "STS-B" / "dev.tsv")
    with tempfile.TemporaryDirectory() as scratch:
        words = args.words or distill_ours(Path(scratch) / "ours")
        systems: dict[str, Encode] = {"bertkit, MiniLM-L6": ours(minilm_folder()), "bertkit, word vectors": ours(words)}
        scores = {"MiniLM-L6": score(systems["bertkit, MiniLM-L6"], pairs, gold)}
        scores["distilled by bertkit"] = score(systems["bertkit, word vectors"], pairs, gold)
        if version_of("model2vec") != "absent":
            theirs = args.theirs or distill_theirs(Path(scratch) / "theirs")
            systems["model2vec, word vectors"] = check_same(words, texts)
            check_same(theirs, texts)
            scores["distilled by model2vec"] = score(ours(theirs), pairs, gold)
            difference = abs(scores["distilled by bertkit"] - scores["distilled by model2vec"])
            if difference > SCORES:
                sys.exit(f"the scores of STS-B differ by {difference:.4f}; no result is printed")
        megabytes = sum(file.stat().st_size for file in words.iterdir()) / 1e6
        seconds = measure(systems, texts, args.rounds)
    report = {
        "about": {**about(args.threads), "model2vec": version_of("model2vec")},
        "texts": len(texts),
        "scores": scores,
        "megabytes": megabytes,
        "seconds": seconds,
    }
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with glue/, imdb/ and tweet_sentiment/")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--words", type=Path, help="MiniLM distilled by bertkit; default: distill it")
    parser.add_argument("--theirs", type=Path, help="MiniLM distilled by model2vec; default: distill it")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    return parser.parse_args()


def ours(folder: Path) -> Encode:
    from bertkit import SentenceEncoder

    encoder = SentenceEncoder(folder)
    return lambda texts: encoder.encode(texts, truncation=True)


def distill_ours(folder: Path) -> Path:
    from bertkit.training.word_vectors.distilled_words import distill_words

    distill_words(minilm_folder(), folder)
    return folder


def distill_theirs(folder: Path) -> Path:
    """By model2vec 0.8, at its best: both defects named below cost it a score of .63 in place of .79.

    MiniLM's tokenizer pads to 128 tokens, which are taken for text: it distills a copy that neither pads nor cuts. The
    table is stored by columns, which safetensors 0.8 writes as if it were stored by rows.
    """
    from model2vec.distill import distill

    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(shutil.copytree(minilm_folder(), Path(scratch) / "minilm"))
        tokenizer = json.loads((copy / "tokenizer.json").read_text(encoding="utf-8"))
        (copy / "tokenizer.json").write_text(json.dumps(tokenizer | {"padding": None, "truncation": None}))
        model = distill(str(copy))
        model.embedding = np.ascontiguousarray(model.embedding)
        model.save_pretrained(folder)
    return folder


def check_same(folder: Path, texts: list[str]) -> Encode:
    """model2vec's reading of a folder that either of the two wrote, whose vectors must be bertkit's."""
    from model2vec import StaticModel

    model = StaticModel.from_pretrained(folder)
    model.tokenizer.no_truncation()  # whole texts, as here: both the tokenizer and the reading cut after 512 tokens

    def encode(given: list[str]) -> np.ndarray:
        return model.encode(given, max_length=None)

    difference = float(np.abs(encode(texts) - ours(folder)(texts)).max())
    if difference > TOLERANCE:
        sys.exit(f"the vectors differ from model2vec's by {difference:.2e}; no result is printed")
    return encode


def read_pairs(file: Path) -> tuple[list[tuple[str, str]], list[float]]:
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()[1:]]
    return [(row[7], row[8]) for row in rows], [float(row[9]) for row in rows]


def score(encode: Encode, pairs: list[tuple[str, str]], gold: list[float]) -> float:
    """Spearman's correlation of cosines and ratings."""
    from scipy.stats import spearmanr

    first, second = (encode([pair[side] for pair in pairs]) for side in (0, 1))
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return float(spearmanr((first * second).sum(axis=1) / np.maximum(lengths, 1e-9), gold).statistic)


def measure(systems: dict[str, Encode], texts: list[str], rounds: int) -> dict[str, list[float]]:
    """Seconds of each round after one that does not count; fast systems run several times in a round."""
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for number in range(rounds + 1):
        for name, encode in systems.items():
            repeats = 1 if "MiniLM" in name else 5
            started = time.perf_counter()
            for _ in range(repeats):
                encode(texts)
            if number:
                seconds[name].append((time.perf_counter() - started) / repeats)
    return seconds


def render(report: dict) -> list[str]:
    seconds, texts = report["seconds"], report["texts"]
    fast = seconds["bertkit, word vectors"]
    lines = [
        f"# Word vectors distilled from MiniLM-L6: {texts:,} ragged texts",
        "",
        *block(report["about"]),
        "",
        "| system | texts/s, median | slowest to fastest round | bertkit's word vectors are faster by |",
        "|---|--:|--:|--:|",
    ]
    for name, each in seconds.items():
        ratio = statistics.median(slow / quick for slow, quick in zip(each, fast, strict=True))
        shown = "" if name == "bertkit, word vectors" else f"{ratio:,.1f} x"
        speed = texts / statistics.median(each)
        lines.append(f"| {name} | {speed:,.0f} | {texts / max(each):,.0f} to {texts / min(each):,.0f} | {shown} |")
    times = statistics.median(slow / quick for slow, quick in zip(seconds["bertkit, MiniLM-L6"], fast, strict=True))
    reached = [("reached" if is_so else "missed") for is_so in (times >= TIMES, report["megabytes"] <= MEGABYTES)]
    scored = ", ".join(f"{name} {value:.4f}" for name, value in report["scores"].items())
    return [
        *lines,
        "",
        f"STS-B dev (Spearman): {scored}. The folder has {report['megabytes']:.1f} MB.",
        f"Meant to be: at least {TIMES} times MiniLM's texts/s ({reached[0]}), at most {MEGABYTES} MB ({reached[1]}).",
    ]


if __name__ == "__main__":
    main()
