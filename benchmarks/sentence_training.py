"""Training MiniLM-L6 as a sentence encoder: bertkit against sentence-transformers, seed by seed.

    python benchmarks/sentence_training.py --data ../shared/data --peers-python peers/bin/python \
        --out benchmarks/results/sentence-training.md

The same rows, loss, batch size, number of steps, rate and schedule (AdamW with bias correction, 10 % warm-up, linear
decay, gradients clipped to 1, dropout on), whole vectors, fp32. Each training is a process of its own, and the two
systems take turns. Wall time covers everything from loaded rows to the vectors of the dev texts (loading the model,
tokenization, training, encoding), without imports. Both models' vectors are scored by the same code.

- ``scores``: the scored pairs of STS-B train, CoSENT; Spearman on STS-B dev.
- ``pairs``: the entailment pairs of MultiNLI dev (its training file is not used), in-batch negatives; of four premises
  the last (by the order of their first rows) is held out, and its premises search all held-out hypotheses: nDCG@10.
  Also Spearman on STS-B dev, whose rows are not trained on here.
- ``large``: the same pairs in batches of 1,024 with cached gradients; here the peak of memory counts as well.

The peer needs ``sentence-transformers`` and ``datasets``.
"""

from __future__ import annotations

import argparse
import csv
import json
import lzma
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from beside_trainer import add_run_options, seconds_of, spread, take_turns, time_ratio
from machine import about, block, minilm_folder, publish
from sentence_job import Job

PEER = "sentence-transformers"
LENGTH = 256
#: Of so many premises one is held out.
HELD_OUT = 4


Row = tuple[Any, ...]


@dataclass(frozen=True)
class Part:
    """Rows to train on, and how."""

    loss: str
    rows: Sequence[Row]
    batch: int
    rate: float


def main() -> None:
    args = parse_args()
    train, held_out = split(read_pairs(args.data))
    dev = Dev.of(read_scores(args.data / "glue/STS-B/dev.tsv")[: args.rows], train, held_out[: args.rows])
    parts = {
        "scores": Part("cosent", read_scores(args.data / "glue/STS-B/train.tsv.xz"), 32, 2e-5),
        "pairs": Part("in-batch", dev.other_pairs, 32, 2e-5),
        "large": Part("in-batch", dev.other_pairs, 1024, 1e-4),
    }
    report: dict[str, Any] = {"about": about(args.threads), "epochs": args.epochs, "parts": {}}
    for name in args.parts:
        part = replace(parts[name], rows=parts[name].rows[: args.rows])
        run = partial(run_one, part, dev, args.epochs, args.threads)
        systems = {"bertkit": partial(run, "bertkit", sys.executable), PEER: partial(run, PEER, args.peers_python)}
        runs = take_turns(systems, args.seeds, label=f"{name}, ")
        facts = {"loss": part.loss, "rows": len(part.rows), "batch": part.batch, "rate": part.rate}
        report["parts"][name] = {**facts, "runs": runs, "time_ratio": time_ratio(runs, PEER)}
    report["before"] = dev.score(untrained(dev.texts))
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with glue/STS-B and mnli_dev")
    parser.add_argument("--peers-python", default=sys.executable, help="Python interpreter that has the peer")
    parser.add_argument("--parts", nargs="+", default=["scores", "pairs", "large"])
    parser.add_argument("--rows", type=int, help="rows to train on and to score, for a try; default: all")
    add_run_options(parser, epochs=2)
    return parser.parse_args()


@dataclass(frozen=True)
class Dev:
    """What models are scored on.

    texts: each once. scored: numbers of the two texts of STS-B's dev rows, and their scores.
    pairs: numbers of held-out premises and their hypotheses. other_pairs: the texts of those that are not held out.
    """

    texts: list[str]
    scored: Any
    scores: Any
    pairs: Any
    other_pairs: list[Row]

    @classmethod
    def of(cls, scored: Sequence[Row], other_pairs: list[Row], held_out: Sequence[Row]) -> Dev:
        numbers: dict[str, int] = {}
        for row in (*scored, *held_out):
            for text in row[:2]:
                numbers.setdefault(text, len(numbers))
        places = [np.array([[numbers[text] for text in row[:2]] for row in rows]) for rows in (scored, held_out)]
        return cls(list(numbers), places[0], [row[2] for row in scored], places[1], other_pairs)

    def score(self, vectors: Any) -> dict[str, float]:
        """Spearman on STS-B, nDCG@10 of held-out premises among all held-out hypotheses."""
        from bertkit.metrics.scores import spearman
        from bertkit.tasks.embeddings.scoring import column_cosines, find_positives

        (found,) = find_positives(vectors, self.pairs, np.unique(self.pairs[:, 1]), ["ndcg@10"]).values()
        alike = spearman(column_cosines(vectors, self.scored)[:, 0], self.scores)
        return {"spearman": round(alike, 4), "ndcg@10": round(float(found.mean()), 4)}


def read_scores(path: Path) -> list[Row]:
    """Two texts and their score, of a file of STS-B."""
    return [(row["sentence1"], row["sentence2"], float(row["score"])) for row in read_table(path)]


def read_pairs(data: Path) -> list[Row]:
    """Premise and hypothesis of the entailment pairs of MultiNLI dev."""
    rows = read_table(data / "mnli_dev/dev_matched.tsv.xz")
    return [(row["premise"], row["hypothesis"]) for row in rows if row["gold_label"] == "entailment"]


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a TSV file, perhaps compressed."""
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def split(pairs: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """Those to train on, and those of every fourth premise."""
    order = {premise: number for number, premise in enumerate(dict.fromkeys(premise for premise, _ in pairs))}
    held = [order[premise] % HELD_OUT == HELD_OUT - 1 for premise, _ in pairs]
    train, out = (
        [row for row, is_out in zip(pairs, held, strict=True) if is_out == wanted] for wanted in (False, True)
    )
    return train, out


def run_one(part: Part, dev: Dev, epochs: int, threads: int, system: str, python: str, seed: int) -> dict[str, float]:
    """Train in another process; scores, seconds, steps and the peak of memory."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "vectors.npy"
        job = Job(
            model=str(minilm_folder()), loss=part.loss, texts=dev.texts, out=str(out), epochs=epochs, rate=part.rate,
            columns=[list(column) for column in zip(*part.rows, strict=True)], batch=part.batch, length=LENGTH,
            seed=seed, threads=threads,
        )  # fmt: skip
        command = [
            python,
            str(Path(__file__).with_name("sentence_job.py")),
            system,
            str(job.write(Path(folder) / "job.json")),
        ]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        return {**dev.score(np.load(out)), **json.loads(done.stdout.splitlines()[-1])}


def untrained(texts: list[str]) -> Any:
    """The vectors of MiniLM-L6 as it is."""
    from bertkit.model.sentence_model import SentenceModel
    from bertkit.tasks.embeddings.vectors import VectorEngine
    from bertkit.tokenization import AutoTokenizer
    from bertkit.tokenization.features import featurize_texts

    rows = featurize_texts(texts, None, AutoTokenizer.from_pretrained(minilm_folder()), max_length=LENGTH)
    return VectorEngine(SentenceModel.from_pretrained(minilm_folder())).vectors(rows, lambda count: None)


def render(report: dict[str, Any]) -> list[str]:
    before = report["before"]
    lines = [
        "# Sentence encoders trained from MiniLM-L6: bertkit and sentence-transformers",
        "",
        *block(report["about"]),
    ]
    for name, part in report["parts"].items():
        lines += ["", f"## {name}: {part['loss']}, {part['rows']:,} rows, batches of {part['batch']:,}", ""]
        lines += [
            "| system | Spearman, STS-B dev | nDCG@10, held-out pairs | seconds | steps | peak MB |",
            "|---|---|---|---|---|---|",
        ]
        for system, runs in part["runs"].items():
            scores = [spread([run[metric] for run in runs]) for metric in ("spearman", "ndcg@10")]
            peak = max(run["peak_mb"] for run in runs)
            lines.append(
                f"| {system} | {' | '.join(scores)} | {seconds_of(runs):.1f} | {runs[0]['steps']} | {peak:,} |"
            )
        lines.append(f"| untrained | {before['spearman']:.4f} | {before['ndcg@10']:.4f} | | | |")
        lines += ["", f"Time ratio **{part['time_ratio']:.2f}** (median over seeds); rate {part['rate']:g}."]
    return [
        *lines,
        "",
        f"{report['epochs']} epochs, mean ± sd over the seeds, scores of the model after the last one. Pairs are "
        "entailment pairs of MultiNLI dev (matched); every fourth premise is held out. Command: "
        "`python benchmarks/sentence_training.py --data DATA --peers-python PEERS`",
    ]


if __name__ == "__main__":
    main()
