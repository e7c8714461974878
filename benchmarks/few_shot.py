"""A handful of labels, from MiniLM-L6: bertkit's methods and its selection beside SetFit, draw by draw.

    python benchmarks/few_shot.py --data ../shared/data --peers-python peers/bin/python \
        --out benchmarks/results/few-shot.md

Of each data set some texts a class are drawn (each draw with its own seed, the same texts for all systems), and the
whole test file is scored; of tweets and SST-2, whose test labels are not there, the dev file. All start from the same
folder of MiniLM-L6 and train without any other labelled text: ``setfit`` with its defaults, 10 iterations (20 pairs a
text); ``contrastive`` with 20 pairs a text; ``linear`` and ``finetune``, the other methods of ``finetune --few-shot``;
``tfidf``. ``selection`` is what cross-validation on the drawn texts chooses of these: its score is that of the chosen
method, its time that of the comparison with the training of the chosen one. With one text a class contrastive training
has no pairs and there is nothing to compare: the method is ``linear``. The loss, rate and batches of ``contrastive``
were chosen on other draws, but scored on these test files. Each training is a process of its own, and the order of the
systems turns.

``benchmarks/results/few-shot.jsonl`` has a line for each finished training: run the same command again to continue, or
with other points or more draws; the report is about all that is there. The peer is ``setfit==1.2.0``.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from beside_trainer import spread
from cells import RESULTS, Cell, Cells, machines
from few_shot_job import Job
from machine import about, block, minilm_folder, publish
from paired import mean_interval

PEER = "setfit"
OURS = ("contrastive", "linear", "finetune", "tfidf", "selection")
SYSTEMS = (PEER, *OURS)
POINTS = {"banking77": (1, 5, 10), "trec": (8, 16, 64), "tweets": (8, 16, 64), "sst2": (8, 16, 64)}
#: Points at which no label has two texts.
WITHOUT_PAIRS = ("banking77-1",)
LENGTH = 128
#: Defaults of the method were chosen with the draws 0 to 2 and 100 in view.
FIRST_DRAW = 200

Row = tuple[str, str]


def main() -> None:
    args = parse_args()
    cells = Cells(args.cells, ("point", "draw", "system"))
    for draw in range(FIRST_DRAW, FIRST_DRAW + args.draws):
        for point in args.points:
            for system in order_of(args.systems, draw):
                if (point, draw, system) in cells or (point in WITHOUT_PAIRS and system == "contrastive"):
                    continue
                cell = {"point": point, "draw": draw, "system": system, **train(args, point, draw, system)}
                cells.add(cell, args.threads)
    points = summaries(list(cells.lines.values()))
    lines = render(points, args.threads, machines(cells.lines.values()))
    publish(lines, {"about": about(args.threads), "points": points}, args.out)


def parse_args() -> argparse.Namespace:
    known = [f"{name}-{count}" for name, counts in POINTS.items() for count in counts]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with few_labels, tweet_sentiment and glue")
    parser.add_argument("--cells", type=Path, default=RESULTS / "few-shot.jsonl", help="file of finished trainings")
    parser.add_argument("--peers-python", default=sys.executable, help="Python interpreter that has setfit 1.2.0")
    parser.add_argument("--points", nargs="+", default=known, choices=known, metavar="POINT", help=", ".join(known))
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=SYSTEMS, help="default: all")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--test-rows", type=int, help="for a try, with other --cells: score the first rows")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def order_of(systems: Sequence[str], draw: int) -> list[str]:
    """The systems, beginning with another in each draw, so that none always runs on the warmer machine."""
    return [*systems[draw % len(systems) :], *systems[: draw % len(systems)]]


def train(args: argparse.Namespace, point: str, draw: int, system: str) -> Cell:
    """One training in a process of its own."""
    name, _, count = point.rpartition("-")
    rows, test = read_data(args.data, name)
    labels = {label: number for number, label in enumerate(sorted({label for _, label in rows}))}
    drawn, test = drawn_rows(rows, int(count), draw), test[: args.test_rows]
    job = Job(
        model=str(minilm_folder()), texts=[text for text, _ in drawn], labels=[labels[label] for _, label in drawn],
        test_texts=[text for text, _ in test], test_labels=[labels[label] for _, label in test],
        num_labels=len(labels), length=LENGTH, seed=draw, threads=args.threads,
    )  # fmt: skip
    python = args.peers_python if system == PEER else sys.executable
    script = Path(__file__).with_name("few_shot_job.py")
    with tempfile.TemporaryDirectory() as folder:
        file = job.write(Path(folder) / "job.json")
        done = subprocess.run([python, str(script), system, str(file)], stdout=subprocess.PIPE, check=True, text=True)
    found: Cell = json.loads(done.stdout.splitlines()[-1])
    return found


def drawn_rows(rows: Sequence[Row], count: int, draw: int) -> list[Row]:
    """So many texts of each label, or all that there are, by the seed ``draw``."""
    generator = np.random.default_rng(draw)
    of_label: dict[str, list[int]] = {}
    for number, (_, label) in enumerate(rows):
        of_label.setdefault(label, []).append(number)
    chosen: list[int] = []
    for label in sorted(of_label):
        numbers = of_label[label]
        chosen += generator.choice(numbers, min(count, len(numbers)), replace=False).tolist()
    return [rows[number] for number in chosen]


def read_data(data: Path, name: str) -> tuple[list[Row], list[Row]]:
    """Texts and labels of train and test."""
    read, folder, files = {
        "banking77": (banking_rows, "few_labels", ("banking77_train.csv.xz", "banking77_test.csv.xz")),
        "trec": (trec_rows, "few_labels", ("trec_train.txt.xz", "trec_test.txt.xz")),
        "tweets": (tweet_rows, "tweet_sentiment", ("train.csv.xz", "dev.csv.xz")),
        "sst2": (sst_rows, "glue/SST-2", ("train.tsv.xz", "dev.tsv")),
    }[name]
    train, test = (list(read(lines_of(data / folder / file))) for file in files)
    return train, test


def lines_of(path: Path) -> Iterable[str]:
    """The lines of a file, perhaps compressed; a few questions of TREC are in Latin-1."""
    opened: Callable[..., Any] = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="latin-1" if "trec" in path.name else "utf-8", newline="") as file:
        yield from file


def banking_rows(lines: Iterable[str]) -> Iterable[Row]:
    return ((row["text"], row["category"]) for row in csv.DictReader(lines))


def trec_rows(lines: Iterable[str]) -> Iterable[Row]:
    return ((line[2:].strip(), line[0]) for line in lines)


def tweet_rows(lines: Iterable[str]) -> Iterable[Row]:
    return ((row["text"], row["sentiment"]) for row in csv.DictReader(lines))


def sst_rows(lines: Iterable[str]) -> Iterable[Row]:
    rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    return ((row["sentence"], row["label"]) for row in rows)


def summaries(cells: Sequence[Cell]) -> dict[str, Any]:
    """For each point the scores of each system, paired differences to the peer and others, and times."""
    found: dict[str, Any] = {}
    for point in dict.fromkeys(cell["point"] for cell in cells):
        by = {(cell["system"], cell["draw"]): cell for cell in cells if cell["point"] == point}
        for (system, draw), cell in list(by.items()):
            if system == "selection" and (own := by.get((cell["chosen"], draw))):
                by[system, draw] = {**cell, "right": own["right"]}
        systems = {
            system: [cell for (name, _), cell in sorted(by.items()) if name == system and "right" in cell]
            for system in SYSTEMS
        }
        systems = {system: runs for system, runs in systems.items() if runs}
        differences = {
            f"{ours} - {other}": compare(by, ours, other)
            for ours in (("linear",) if point in WITHOUT_PAIRS else ("contrastive", "selection"))
            for other in (PEER, "finetune", "tfidf", "linear")
            if ours != other
        }
        found[point] = {
            "scores": {system: [run["right"] for run in runs] for system, runs in systems.items()},
            "seconds": {system: statistics.median(run["seconds"] for run in runs) for system, runs in systems.items()},
            "chosen": [cell["chosen"] for (name, _), cell in sorted(by.items()) if name == "selection"],
            "times": ratios(by),
            "differences": {name: value for name, value in differences.items() if value is not None},
        }
    return found


def ratios(by: dict[tuple[str, int], Cell]) -> list[float]:
    """Time of the contrastive training beside the peer's, draw by draw, both on one machine."""
    pairs = [(by.get(("contrastive", draw)), cell) for (system, draw), cell in by.items() if system == PEER]
    return [own["seconds"] / cell["seconds"] for own, cell in pairs if own and own["cpu"] == cell["cpu"]]


def compare(by: dict[tuple[str, int], Cell], ours: str, other: str) -> tuple[float, float, float] | None:
    """Mean difference over the draws that both have, with its 95 % interval; None of fewer than two."""
    cells = {draw: cell for (name, draw), cell in by.items() if name == ours and "right" in cell}
    pairs = [(cell["right"], by[other, draw]["right"]) for draw, cell in cells.items() if (other, draw) in by]
    return mean_interval([one - two for one, two in pairs]) if len(pairs) > 1 else None


def render(points: dict[str, Any], threads: int, measured_on: list[str]) -> list[str]:
    lines = ["# A handful of labels, from MiniLM-L6", "", *block(about(threads)), "", *measured_on]
    for point, found in points.items():
        name, _, count = point.rpartition("-")
        lines += ["", f"## {name}, {count} a class", "", "| system | accuracy | seconds |", "|---|---|---|"]
        for system, scores in found["scores"].items():
            lines.append(f"| {system} | {spread(scores)} ({len(scores)} draws) | {found['seconds'][system]:.1f} |")
        if found["chosen"]:
            chosen = {method: found["chosen"].count(method) for method in dict.fromkeys(found["chosen"])}
            lines += ["", "Chosen: " + ", ".join(f"{method} {times}" for method, times in chosen.items()) + "."]
        if found["times"]:
            lines += ["", f"Time of contrastive training, of setfit's: {statistics.median(found['times']):.2f}."]
        lines += ["", "| difference, paired by draw | mean | 95 % interval |", "|---|---|---|"]
        lines += [
            f"| {pair} | {mean:+.4f} | {low:+.4f} to {high:+.4f} |"
            for pair, (mean, low, high) in found["differences"].items()
        ]
    return [
        *lines,
        "",
        "Mean ± sd over the draws, medians of seconds from loaded rows to the trained model; of the selection with the "
        "comparison. Command: `python benchmarks/few_shot.py --data DATA --peers-python PEERS`",
    ]


if __name__ == "__main__":
    main()
