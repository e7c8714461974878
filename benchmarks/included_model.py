"""What can the model in the package do, beside the MiniLM-L6 that it was distilled from?

    python benchmarks/included_model.py --data ../shared/data --out benchmarks/results/included-model.md

Scores: Spearman's correlation on STS-B (dev), a linear classifier on the vectors of SST-2 and tweets (all training
rows, scored on dev), and of held-out sentences of Wikipedia the share of words behind [MASK] that it finds. Speed: from
texts to vectors, both models in alternating turns, median of the ratios. Size: of the folder, and of its part of a
wheel. First result: whole processes of ``bertkit search build`` and ``bertkit search query`` over some sentences.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from embed import draw_texts
from machine import about, block, minilm_folder, publish

MODEL = "bertkit-tiny-en"
#: Longest sentence of held-out text, in tokens.
LENGTH = 128
LINEAR = "linear_accuracy"


def main() -> None:
    args = parse_args()
    import torch

    torch.set_num_threads(args.threads)
    models = {"MiniLM-L6": str(minilm_folder()), args.model.rpartition("/")[2]: args.model}
    held_out = args.data / "pretrain_text/wikipedia_en.valid.txt.xz"
    report: dict[str, Any] = {
        "about": about(args.threads),
        "scores": {name: scores_of(model, args.data) for name, model in models.items()},
        "masked_words": masked_words_of(args.model, held_out),
        "size": size_of(args.model),
        "tokens_per_s": speeds(models, draw_texts(args.data, args.texts, seed=0), args.rounds),
        "first_result_s": [first_result(args.model, held_out) for _ in range(args.rounds)],
    }
    publish(render(report, *models), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with glue/, tweet_sentiment/, pretrain_text/ .."
    )
    parser.add_argument("--model", default=MODEL, help="another model in its place")
    parser.add_argument("--texts", type=int, default=2000, help="texts whose time is taken")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    return parser.parse_args()


def scores_of(model: str, data: Path) -> dict[str, float]:
    """The three scores of one model, and the intervals of two of them."""
    from bertkit import SentenceEncoder
    from bertkit.inference.vector_evaluation import evaluate_vectors
    from bertkit.metrics import spearman
    from bertkit.metrics.vector_similarity import paired_similarities
    from bertkit.tasks import TASKS, load_split

    encoder = SentenceEncoder(model)
    pairs = load_split(TASKS["stsb"], data / "glue/STS-B", "dev")
    sides = ([pair.text for pair in pairs], [pair.text_pair for pair in pairs])
    vectors = [encoder.encode(texts, truncation=True) for texts in sides]
    found = {"stsb": spearman(paired_similarities(*vectors), [pair.label for pair in pairs])}
    for task, folder in (("sst2", "glue/SST-2"), ("tweets", "tweet_sentiment")):
        evaluation = evaluate_vectors(TASKS[task], data / folder, encoder)
        found[task] = evaluation.scores[LINEAR]
        found[f"{task}_tfidf"] = evaluation.protocol["baseline"]["metrics"][LINEAR]
    return {name: round(float(score), 4) for name, score in found.items()}


def masked_words_of(model: str, path: Path) -> dict[str, float]:
    """On the sentences of held-out text."""
    from bertkit import AutoTokenizer, BertForMaskedLM
    from bertkit.data.examples.masking import MaskVocabulary
    from bertkit.training.distillation.taught_vectors import masked_words

    tokenizer = AutoTokenizer.from_pretrained(model)
    rows = tokenizer.encode_ragged(sentences(path), max_length=LENGTH)
    words = BertForMaskedLM.from_pretrained(model)
    found = masked_words(words, rows, MaskVocabulary.of_tokenizer(tokenizer), max_tokens=4096)
    return {**found, "sentences": len(rows)}


def sentences(path: Path) -> list[str]:
    """The different sentences of a file, of at least four words."""
    from bertkit.data.corpus.documents import read_documents

    found = (sentence for document in read_documents(path) for sentence in document.sentences)
    return list(dict.fromkeys(sentence for sentence in found if len(sentence.split()) >= 4))


def size_of(model: str) -> dict[str, int]:
    """Bytes on disk, and as a wheel holds them; parameters."""
    from bertkit import BertForMaskedLM
    from bertkit.system.model_sources import resolve

    files = [file for file in resolve(model).rglob("*") if file.is_file()]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.write(file, str(file))
    parameters = sum(p.numel() for p in BertForMaskedLM.from_pretrained(model).parameters())
    return {
        "folder": sum(file.stat().st_size for file in files),
        "in_wheel": len(packed.getvalue()),
        "parameters": parameters,
    }


def speeds(models: dict[str, str], texts: Sequence[str], rounds: int) -> dict[str, list[float]]:
    """Tokens of MiniLM's tokenizer a second, of each model in each round."""
    from bertkit import SentenceEncoder

    encoders = {name: SentenceEncoder(model) for name, model in models.items()}
    first = next(iter(encoders.values()))
    limit = min(encoder.config.max_length or LENGTH for encoder in encoders.values())
    cut = [first.tokenizer.decode(ids[1:-1]) for ids in first.tokenizer.encode_ragged(texts, max_length=limit - 20)]
    tokens = sum(map(len, first.tokenizer.encode_ragged(cut)))
    found: dict[str, list[float]] = {name: [] for name in models}
    for number in range(rounds + 1):
        for name, encoder in encoders.items():
            began = time.perf_counter()
            encoder.encode(cut, truncation=True)
            if number:
                found[name].append(tokens / (time.perf_counter() - began))
    return found


def first_result(model: str, path: Path) -> float:
    """Seconds of building an index of 200 sentences and asking it, each a process of its own."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as scratch:
        texts = Path(scratch) / "texts.txt"
        texts.write_text("\n".join(sentences(path)[:200]) + "\n", encoding="utf-8")
        began = time.perf_counter()
        for command in (
            ["build", "index", "texts.txt", "--model", model],
            ["query", "index", "Who won the football match?"],
        ):
            subprocess.run(
                [sys.executable, "-m", "bertkit", "search", *command, "--quiet"],
                cwd=scratch, env=environment, check=True, stdout=subprocess.DEVNULL,
            )  # fmt: skip
        return time.perf_counter() - began


def render(report: dict[str, Any], teacher: str, name: str) -> list[str]:
    scores, words, size = report["scores"], report["masked_words"], report["size"]
    rates = report["tokens_per_s"]
    ratios = [ours / theirs for ours, theirs in zip(rates[name], rates[teacher], strict=True)]
    lines = [
        f"# {name} beside {teacher}",
        "",
        *block(report["about"]),
        "",
        f"| | {teacher} | {name} | of {teacher}'s | TF-IDF |",
        "|---|--:|--:|--:|--:|",
    ]
    for key, label in (
        ("stsb", "STS-B dev, Spearman"),
        ("sst2", "SST-2 dev, linear classifier"),
        ("tweets", "tweets dev, linear classifier"),
    ):
        theirs, ours, simple = scores[teacher][key], scores[name][key], scores[name].get(f"{key}_tfidf", "")
        lines.append(f"| {label} | {theirs:.4f} | {ours:.4f} | {ours / theirs:.3f} | {simple} |")
    lines += [
        f"| tokens a second, from texts to vectors | {statistics.median(rates[teacher]):,.0f} | "
        f"{statistics.median(rates[name]):,.0f} | {statistics.median(ratios):.2f} | |",
        "",
        f"- Masked words of {words['sentences']:,} held-out sentences of Wikipedia (15 % of the tokens): "
        f"{words['accuracy']:.1%} found; always the most frequent one: {words['most_frequent']:.1%} "
        f"({words['accuracy'] / words['most_frequent']:.1f} times).",
        f"- {size['parameters']:,} parameters; {size['folder'] / 1e6:.2f} MB on disk, {size['in_wheel'] / 1e6:.2f} MB "
        "in a wheel.",
        f"- Seconds for an index of 200 sentences and the answer to a query, two processes: "
        f"{statistics.median(report['first_result_s']):.1f}.",
        f"- Ratios of speed in the rounds: {', '.join(f'{ratio:.2f}' for ratio in ratios)}.",
    ]
    return lines


if __name__ == "__main__":
    main()
