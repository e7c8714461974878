"""How fast are ids of plain text? bertkit's encode_ragged against the ``tokenizers`` package, on Wikipedia.

    python benchmarks/tokenize.py --data ../shared/data --out benchmarks/results/tokenize.md

The texts are the lines of 20 MB of English Wikipedia. First, both sides must produce exactly the same ids. Then they
alternate within each round: bertkit cold (a new tokenizer that still has to build its dictionary), ``encode_batch``,
bertkit warm (a second pass over the same text), ``encode_batch_fast``. The peer's time is that of the call alone,
which returns objects; extracting the ids from them would add to it. Ratios are computed within each round; their
median is reported. The peer is configured by transformers' class of the same name and uses ``--threads`` threads;
bertkit always uses one. ``--vocabularies roberta albert`` measures byte-level BPE (GPT-2's tokens) and unigram pieces
instead of BERT's.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SYSTEMS = ("bertkit cold", "encode_batch", "bertkit warm", "encode_batch_fast")
TARGETS = {"warm_mb_s": 15.0, "cold_ratio": 5.0}
TITLES = {
    "uncased": "BERT-base, uncased",
    "cased": "BERT-base, cased",
    "roberta": "RoBERTa's byte-level BPE",
    "albert": "ALBERT's unigram pieces",
}


def main() -> None:
    args = parse_args()
    # Both variables are read when the peer is first used.
    os.environ["RAYON_NUM_THREADS"] = str(args.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if args.threads > 1 else "false"
    from machine import about, publish

    texts = read_texts(args.data, args.megabytes)
    size = sum(len(text.encode()) for text in texts)
    report: dict[str, Any] = {
        "about": about(args.threads),
        "texts": len(texts),
        "megabytes": round(size / 1e6, 2),
        "targets": TARGETS,
        "vocabularies": {},
    }
    for case in args.vocabularies:
        make_ours, peer = contestants(case, args.data / "vocab")
        say(f"{case}: {len(texts):,} texts, {size / 1e6:.1f} MB")
        report["vocabularies"][case] = run(make_ours, peer, texts, size / 1e6, args.rounds)
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with pretrain_text/ and vocab/")
    parser.add_argument("--megabytes", type=float, default=20.0, help="amount of text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="threads of the peer")
    parser.add_argument("--vocabularies", nargs="+", choices=list(TITLES), default=["uncased", "cased"])
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    return parser.parse_args()


def read_texts(data: Path, megabytes: float) -> list[str]:
    """The first lines of the training text, ``megabytes`` of it."""
    texts: list[str] = []
    left = int(megabytes * 1e6)
    with lzma.open(data / "pretrain_text" / "wikipedia_en.train.txt.xz", "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            left -= len(line.encode())
            if left < 0:
                break
            texts.append(line.removesuffix("\n"))
    return texts


def contestants(case: str, folder: Path) -> tuple[Callable[[], Any], Any]:
    """A function that builds a new bertkit tokenizer, and the peer's engine."""
    import transformers

    import bertkit
    from bertkit.tokenization import load_vocab

    if case == "roberta":
        numbers = json.loads((folder / "gpt2-vocab.json").read_text(encoding="utf-8"))
        tokens = ["<s>", "<pad>", "</s>", "<unk>", *sorted(numbers, key=numbers.__getitem__), "<mask>"]
        vocab = {token: number for number, token in enumerate(tokens)}
        merges = folder / "gpt2-merges.txt"
        pairs = bertkit.RobertaTokenizer(vocab, merges)._vocabulary.merges
        peer = transformers.RobertaTokenizer(vocab=vocab, merges=list(pairs)).backend_tokenizer
        return lambda: bertkit.RobertaTokenizer(vocab, pairs), peer
    if case == "albert":
        file = folder / "albert-spiece.model"
        made = bertkit.AlbertTokenizer(file)._vocabulary
        pieces = {"vocab": list(made.pieces), "_spm_precompiled_charsmap": made.charsmap}
        return lambda: bertkit.AlbertTokenizer(file), transformers.AlbertTokenizer(**pieces).backend_tokenizer
    lower = case == "uncased"
    words = load_vocab(folder / f"bert-base-{case}-vocab.txt")
    peer = transformers.BertTokenizer(vocab=words, do_lower_case=lower).backend_tokenizer
    return lambda: bertkit.BertTokenizer(words, lower), peer


def run(make_ours: Callable[[], Any], peer: Any, texts: list[str], megabytes: float, rounds: int) -> dict[str, Any]:
    peer.no_truncation()
    tokens = check_equal(make_ours(), peer, texts)
    seconds: dict[str, list[float]] = {name: [] for name in SYSTEMS}
    for number in range(rounds):
        ours = make_ours()
        jobs: dict[str, Callable[[], Any]] = {
            "bertkit cold": lambda ours=ours: ours.encode_ragged(texts),
            "encode_batch": lambda: peer.encode_batch(texts),
            "bertkit warm": lambda ours=ours: ours.encode_ragged(texts),
            "encode_batch_fast": lambda: peer.encode_batch_fast(texts),
        }
        for name, job in jobs.items():
            seconds[name].append(timed(job))
            taken = seconds[name][-1]
            say(f"  round {number + 1}  {name:<18} {taken:6.2f} s  {megabytes / taken:5.1f} MB/s")
    return summary(seconds, megabytes) | {"tokens": tokens}


def check_equal(ours: Any, peer: Any, texts: list[str]) -> int:
    """Exit unless both give the same ids for every text; return the number of ids."""
    import numpy as np

    ragged = ours.encode_ragged(texts)
    for start in range(0, len(texts), 10_000):
        for row, encoding in enumerate(peer.encode_batch(texts[start : start + 10_000]), start):
            if not np.array_equal(ragged[row], encoding.ids):
                sys.exit(f"text {row} has different ids: {texts[row]!r}")
    return len(ragged.ids)


def timed(job: Callable[[], Any]) -> float:
    start = time.perf_counter()
    result = job()
    taken = time.perf_counter() - start
    del result
    return taken


def summary(seconds: dict[str, list[float]], megabytes: float) -> dict[str, Any]:
    def ratio(slower: str, faster: str) -> float:
        return round(statistics.median(a / b for a, b in zip(seconds[slower], seconds[faster], strict=True)), 2)

    return {
        "seconds": {name: [round(value, 3) for value in values] for name, values in seconds.items()},
        "mb_s": {name: round(megabytes / statistics.median(values), 2) for name, values in seconds.items()},
        "cold_ratio": ratio("encode_batch", "bertkit cold"),
        "cold_ratio_fast": ratio("encode_batch_fast", "bertkit cold"),
        "warm_ratio": ratio("encode_batch", "bertkit warm"),
        "warm_ratio_fast": ratio("encode_batch_fast", "bertkit warm"),
    }


def render(report: dict[str, Any]) -> list[str]:
    from machine import block

    lines = ["# Ids of plain text", "", *block(report["about"])]
    for case, result in report["vocabularies"].items():
        lines += [
            "",
            f"## {TITLES[case]}",
            "",
            f"{report['texts']:,} texts, {report['megabytes']} MB, {result['tokens']:,} ids, all equal.",
            "",
            "| system | median s | MB/s | its time / bertkit cold | its time / bertkit warm |",
            "|---|---|---|---|---|",
        ]
        for name in SYSTEMS:
            median = statistics.median(result["seconds"][name])
            row = [f"{median:.2f}", f"{result['mb_s'][name]:.1f}", "", ""]
            if name.startswith("encode"):
                suffix = name.removeprefix("encode_batch")
                row[2:] = [f"{result[f'cold_ratio{suffix}']:.2f}x", f"{result[f'warm_ratio{suffix}']:.2f}x"]
            lines.append(f"| {name} | {' | '.join(row)} |")
        warm, cold = result["mb_s"]["bertkit warm"], result["cold_ratio"]
        lines += [
            "",
            f"Warm {warm:.1f} MB/s (target {TARGETS['warm_mb_s']:.0f}), cold {cold:.2f}x `encode_batch` (target "
            f"{TARGETS['cold_ratio']:.0f}x).",
        ]
    return lines


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
