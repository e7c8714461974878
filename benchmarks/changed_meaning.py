"""How often is a text that says something else nearer than one that says the same?

    python benchmarks/changed_meaning.py --out benchmarks/results/changed-meaning.md

The triples of ``docs/explanation/what-bert-gets-wrong.md``, by kind: mean cosines, and how often the changed text is
nearer. Beside MiniLM-L6 the included model, and words alone (the share of words that two texts have in common).
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

from machine import about, block, minilm_folder, publish

TRIPLES = Path(__file__).parents[1] / "docs" / "data" / "what-bert-gets-wrong" / "triples.csv"
Similar = Callable[[str, list[str]], list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None, help="file to write")
    args = parser.parse_args()
    from bertkit import pipeline

    with TRIPLES.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    models: dict[str, Similar] = {
        "MiniLM-L6": pipeline("sentence-similarity", model=str(minilm_folder())),
        "bertkit-tiny-en": pipeline("sentence-similarity", model="bertkit-tiny-en"),
        "words in common": words_in_common,
    }
    found = {name: {kind: judged(similar, rows, kind) for kind in kinds(rows)} for name, similar in models.items()}
    lines = [
        f"| {name} | {kind} | {same:.2f} | {changed:.2f} | {wrong} of {count} |"
        for name, by_kind in found.items()
        for kind, (same, changed, wrong, count) in by_kind.items()
    ]
    report: dict[str, Any] = {"about": about(1), "found": found}
    head = "| model | what changes | same meaning | changed | nearer, and wrong |"
    title = "# Texts that share words and say something else"
    publish([title, "", *block(report["about"]), "", head, "|---|---|--:|--:|--:|", *lines], report, args.out)


def kinds(rows: list[dict[str, str]]) -> list[str]:
    return list(dict.fromkeys(row["kind"] for row in rows))


def judged(similar: Similar, rows: list[dict[str, str]], kind: str) -> tuple[float, float, int, int]:
    """Mean cosines of both sides, how often the changed text is nearer, and of how many."""
    pairs = [similar(row["sentence"], [row["same"], row["changed"]]) for row in rows if row["kind"] == kind]
    same, changed = (sum(side) / len(pairs) for side in zip(*pairs, strict=True))
    return same, changed, sum(second > first for first, second in pairs), len(pairs)


def words_in_common(text: str, others: list[str]) -> list[float]:
    words = set(text.lower().split())
    return [len(words & (them := set(other.lower().split()))) / len(words | them) for other in others]


if __name__ == "__main__":
    main()
