"""How good is the automatic threshold of ``bertkit duplicates``?

    python benchmarks/duplicates_threshold.py --data ../shared/data --out benchmarks/results/duplicates-threshold.md

Labelled pairs of QQP and MRPC are drawn (several draws, several shares of duplicates among them), both texts of each
pair become rows of one list, and the threshold is taken from that list without the labels. Precision, recall and F1
are of the labelled pairs with a cosine of at least the threshold; what the list holds beyond them has no label. Beside
it the default of 0.9, and the best threshold for those labels, which nobody knows beforehand. The last column is the
share of rows that have a duplicate by the automatic threshold; of lists without any pair of the set (first texts only)
it is the only number.
"""

from __future__ import annotations

import argparse
import csv
import lzma
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from machine import about, block, minilm_folder, publish

DEFAULT = 0.9
Pairs = list[tuple[str, str, bool]]


def main() -> None:
    args = parse_args()
    from bertkit.inference.retrieval.text_vectors import TextEncoder

    encoder = TextEncoder(str(minilm_folder()), threads=args.threads)
    rows, report = [], {"about": about(args.threads), "pairs": args.pairs, "draws": args.draws}
    for name, pairs in (("QQP", read_qqp(args.data)), ("MRPC", read_mrpc(args.data))):
        chance = np.random.default_rng(0)
        for share in (None, 0.15, 0.05, 0.0):
            drawn = [draw(pairs, args.pairs, share, chance) for _ in range(args.draws)]
            found = [scored(encoder, each) for each in drawn]
            rows.append({"set": name, "share": np.mean([[pair[2] for pair in each] for each in drawn]), **mean(found)})
        firsts = [encoder.encode([first for first, _, _ in each]).vectors for each in drawn]
        alone = [{"auto": of_list(vectors)} for vectors in firsts]
        rows.append({"set": f"{name}, first texts", "share": None, **mean(alone)})
    report["rows"] = rows
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with glue/")
    parser.add_argument("--pairs", type=int, default=500, help="pairs of a draw")
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="also write the results to this file")
    return parser.parse_args()


def read_qqp(data: Path) -> Pairs:
    with lzma.open(data / "glue/QQP/train_slice.tsv.xz", "rt", encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(row["question1"], row["question2"], row["is_duplicate"] == "1") for row in rows]


def read_mrpc(data: Path) -> Pairs:
    with lzma.open(data / "glue/MRPC/train.tsv.xz", "rt", encoding="utf-8-sig", newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [(row[3], row[4], row[0] == "1") for row in rows[1:]]


def draw(pairs: Pairs, count: int, share: float | None, chance: np.random.Generator) -> Pairs:
    """Pairs in random order, with the given share of duplicates, or as in the set."""
    order = [pairs[row] for row in chance.permutation(len(pairs))]
    if share is None:
        return order[:count]
    duplicates = [pair for pair in order if pair[2]][: round(share * count)]
    return duplicates + [pair for pair in order if not pair[2]][: count - len(duplicates)]


def scored(encoder: Any, pairs: Pairs) -> dict[str, dict[str, float]]:
    """Scores of one draw by threshold."""
    firsts, seconds = (encoder.encode([pair[place] for pair in pairs]).vectors for place in (0, 1))
    cosines = np.einsum("nd,nd->n", firsts, seconds)
    labels = np.array([pair[2] for pair in pairs])
    auto = of_list(np.concatenate([firsts, seconds]))
    best = max(np.linspace(0.3, 1.0, 141), key=lambda lowest: at(cosines, labels, lowest)["F1"])
    return {
        "auto": {**auto, **at(cosines, labels, auto["threshold"])},
        "default": {"threshold": DEFAULT, **at(cosines, labels, DEFAULT)},
        "best": {"threshold": best, **at(cosines, labels, best)},
    }


def of_list(vectors: Any) -> dict[str, float]:
    """The threshold of a list of texts, and the share of them that have another one above it."""
    from bertkit.inference.retrieval.near_texts import auto_threshold, nearest_two

    nearest, second = nearest_two(vectors)
    lowest = auto_threshold(nearest, second)
    return {"threshold": lowest, "found": float((nearest >= lowest).mean())}


def at(cosines: Any, labels: Any, lowest: float) -> dict[str, float]:
    """Precision, recall and F1 of pairs at a threshold; 0 where there is none."""
    chosen = cosines >= lowest
    right = int((chosen & labels).sum())
    precision, recall = right / max(int(chosen.sum()), 1), right / max(int(labels.sum()), 1)
    return {"P": precision, "R": recall, "F1": 2 * precision * recall / max(precision + recall, 1e-9)}


def mean(found: Sequence[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """The means of several draws."""
    return {
        which: {name: float(np.mean([each[which][name] for each in found])) for name in scores}
        for which, scores in found[0].items()
    }


def render(report: dict[str, Any]) -> list[str]:
    lines = ["# Duplicates at the automatic threshold", "", *block(report["about"]), ""]
    lines += [
        f"MiniLM-L6; {report['pairs']:,} pairs a draw, means of {report['draws']} draws. A pair is found if its cosine "
        "is at least the threshold; *auto* is taken from the texts without the labels, *best* from the labels.",
        "",
        "| pairs | duplicates | auto | P | R | F1 | 0.9: P | R | F1 | best | F1 | rows found by auto |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in report["rows"]:
        auto = row["auto"]
        cells = [row["set"], "" if row["share"] is None else f"{100 * row['share']:.0f} %", f"{auto['threshold']:.3f}"]
        if "F1" in auto and row["share"]:
            cells += [f"{auto[name]:.3f}" for name in ("P", "R", "F1")]
            cells += [f"{row['default'][name]:.3f}" for name in ("P", "R", "F1")]
            cells += [f"{row['best']['threshold']:.3f}", f"{row['best']['F1']:.3f}"]
        else:
            cells += [""] * 8
        lines.append("| " + " | ".join([*cells, f"{100 * auto['found']:.0f} %"]) + " |")
    return lines


if __name__ == "__main__":
    main()
