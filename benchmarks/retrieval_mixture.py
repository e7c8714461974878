"""Search by vectors, by words and by both on sets where one or the other is better: which mixture is safe everywhere?

    python benchmarks/retrieval_mixture.py --data ../shared/data --out benchmarks/results/retrieval-mixture.md

- ``squad``: questions of SQuAD v1.1 dev to their paragraphs. Words are better.
- ``articles N``: test questions of banking77 to one article for each of the 77 intents, made of N training questions,
  drawn without the test questions. Vectors are better where articles are short.
- ``names``: a name or number that stands in one of SQuAD's paragraphs only, capitalized within a sentence or of four
  digits and more, one of each paragraph drawn; alone it is the query. Words cannot fail, vectors mostly do.

The vectors are MiniLM-L6's as it is. ``ranks`` is the sum of ``1 / (60 + rank)`` over the first 100 of both searches
(Cormack, Clarke and Büttcher 2009). The others are weighted sums of z-scores with this share of vectors. The share is
chosen on every other question and scored on the rest. Intervals are paired by question.
"""

from __future__ import annotations

import argparse
import csv
import lzma
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from machine import about, block, minilm_folder, publish
from retrieval_data import FILE, Squad, ranks_fused, some

K, DEPTH = 10, 100
SHARES = (0.5, 0.6, 0.7, 0.75, 0.8, 0.9)
ARTICLES = (1, 2, 4, 8, 20)
Values = np.ndarray[Any, np.dtype[np.float64]]


class Asked(NamedTuple):
    """Texts, questions, and the number of the text that belongs to each."""

    texts: list[str]
    questions: list[str]
    places: list[int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with squad/ and few_labels/")
    parser.add_argument("--questions", type=int, default=600, help="of each set at most")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="Markdown file for the tables")
    args = parser.parse_args()
    squad = Squad.read(args.data / FILE, args.questions)
    sets = {"squad": Asked(squad.paragraphs, squad.questions, squad.places.tolist())}
    sets |= {f"articles {size}": banking(args.data / "few_labels", size, args.questions) for size in ARTICLES}
    sets["names"] = names_of(squad.paragraphs, args.questions)
    from bertkit.inference.retrieval.text_vectors import TextEncoder

    encoder = TextEncoder(minilm_folder(), by_products=True, device="cpu", threads=args.threads)
    found = {name: measure(asked, encoder) for name, asked in sets.items()}
    report = {
        "about": about(args.threads),
        "sets": {name: {"texts": len(own.texts), "questions": len(own.questions)} for name, own in sets.items()},
        "ndcg": {name: {each: float(values.mean()) for each, values in own.items()} for name, own in found.items()},
        "minus_better_half": {
            name: {each: difference(own, each) for each in own if each not in ("vectors", "words")}
            for name, own in found.items()
        },
        "chosen": chosen(found),
    }
    publish(render(report), report, args.out)


def banking(folder: Path, size: int, count: int) -> Asked:
    def rows(split: str) -> list[dict[str, str]]:
        with lzma.open(folder / f"banking77_{split}.csv.xz", "rt", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    train, test = rows("train"), rows("test")
    intents = sorted({row["category"] for row in train})
    chance = np.random.default_rng(1)
    texts = []
    for intent in intents:
        own = [row["text"].strip() for row in train if row["category"] == intent]
        texts.append("\n".join(own[number] for number in chance.permutation(len(own))[:size]))
    asked = [test[number] for number in some(len(test), count)]
    return Asked(texts, [row["text"] for row in asked], [intents.index(row["category"]) for row in asked])


def names_of(paragraphs: Sequence[str], count: int) -> Asked:
    from bertkit.metrics.bm25 import words_of

    within = Counter(word for text in paragraphs for word in set(words_of(text)))
    chance, found = np.random.default_rng(0), []
    for place, text in enumerate(paragraphs):
        rare = [
            name for name in re.findall(r"(?<=[a-z,] )[A-Z][a-z]{3,}|\b\d{4,}\b", text) if within[name.lower()] == 1
        ]
        if rare:
            found.append((rare[int(chance.integers(len(rare)))], place))
    drawn = [found[number] for number in some(len(found), count)]
    return Asked(list(paragraphs), [name for name, _ in drawn], [place for _, place in drawn])


def measure(asked: Asked, encoder: Any) -> dict[str, Values]:
    """The nDCG of each question by each search, of an index in a folder that is deleted."""
    from bertkit.inference.retrieval.index_writer import IndexWriter, index_rows
    from bertkit.inference.retrieval.search_index import SearchIndex
    from bertkit.inference.retrieval.source_texts import SourceText
    from bertkit.metrics.ranking import judge_documents, ndcg

    with tempfile.TemporaryDirectory() as work:
        with IndexWriter(Path(work) / "index", encoder, truncate=True) as writer:
            rows = (SourceText("set", line, str(line), text) for line, text in enumerate(asked.texts))
            writer.build(index_rows(rows), str(encoder.path))
        index = SearchIndex(Path(work) / "index")
        vars(index)["encoder"] = encoder
        orders = {
            name: [numbers.tolist() for numbers, _ in index.ranked(asked.questions, DEPTH, share, truncate=True)]
            for name, share in {"vectors": 1.0, "words": 0.0, **{str(share): share for share in SHARES}}.items()
        }
    orders["ranks"] = [ranks_fused(both, K) for both in zip(orders["vectors"], orders["words"], strict=True)]
    right = [{place: 1.0} for place in asked.places]
    return {name: ndcg(judge_documents(order, right, K), K) for name, order in orders.items()}


def difference(own: dict[str, Values], name: str) -> tuple[float, float, float]:
    """Of a mixture and the better half: mean and its 95 % interval over questions."""
    from bertkit.metrics.intervals import bootstrap_draws, drawn_means, middle_of

    better = max((own["vectors"], own["words"]), key=lambda values: float(values.mean()))
    values = own[name] - better
    low, high = middle_of(drawn_means(values, bootstrap_draws(len(values))).tolist())
    return float(values.mean()), low, high


def chosen(found: dict[str, dict[str, Values]]) -> dict[str, Any]:
    """The share whose worst difference to the better half is best on even questions, and its scores on odd ones."""

    def part(start: int) -> dict[str, dict[str, Values]]:
        return {name: {each: values[start::2] for each, values in own.items()} for name, own in found.items()}

    def worst(name: str) -> float:
        return min(difference(own, name)[0] for own in part(0).values())

    best = max(map(str, SHARES), key=worst)
    return {"share": best, "on_the_others": {name: difference(own, best) for name, own in part(1).items()}}


def render(report: dict[str, Any]) -> list[str]:
    names = list(next(iter(report["ndcg"].values())))
    lines = ["# Search by vectors, words and both", "", *block(report["about"]), "", "## nDCG@10", ""]
    lines += [f"| set | texts | questions | {' | '.join(names)} |", "|---|---|---|" + "---|" * len(names)]
    for name, own in report["ndcg"].items():
        cells = " | ".join(f"{own[each]:.3f}" for each in names)
        lines.append(
            f"| {name} | {report['sets'][name]['texts']:,} | {report['sets'][name]['questions']:,} | {cells} |"
        )
    mixtures = [name for name in names if name not in ("vectors", "words")]
    lines += ["", "## Minus the better one of vectors and words (95 % interval)", ""]
    lines += [f"| set | {' | '.join(mixtures)} |", "|---|" + "---|" * len(mixtures)]
    for name, own in report["minus_better_half"].items():
        cells = " | ".join(interval(own[each]) for each in mixtures)
        lines.append(f"| {name} | {cells} |")
    others = report["chosen"]["on_the_others"]
    return [
        *lines,
        "",
        "Bold: worse than the better half by more than the interval. Questions are drawn by seed 0 and "
        "articles by seed 1.",
        "",
        f"Chosen on every other question (the best worst difference): {report['chosen']['share']}. On the rest: "
        + ", ".join(f"{name} {interval(own)}" for name, own in others.items())
        + ".",
        "",
        "Command: `python benchmarks/retrieval_mixture.py --data DATA`",
    ]


def interval(own: Sequence[float]) -> str:
    text = f"{own[0]:+.3f} ({own[1]:+.3f} to {own[2]:+.3f})"
    return f"**{text}**" if own[2] < 0 else text


if __name__ == "__main__":
    main()
