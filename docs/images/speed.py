"""Draw speed.png from the tables in benchmarks/results: python docs/images/speed.py"""

from __future__ import annotations

import re
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "benchmarks" / "results"
#: Machine and day of the results that are drawn.
MEASURED = "epyc-2-cores_2026-11-21"
BLUE, GREY = "#0072b2", "#9a9a9a"


def number(result: str, pattern: str) -> float:
    """The number that a pattern finds in the results file of the job ``result``."""
    path = RESULTS / f"{result}_{MEASURED}.md"
    found = re.search(pattern, path.read_text(encoding="utf-8"))
    assert found is not None, f"{pattern} is not in {path}"
    return float(found[1])


def ratios() -> list[tuple[str, str, float]]:
    """Task, peer, and the peer's time divided by bertkit's."""
    return [
        ("Tokenizing, cold", "tokenizers", number("tokenize", r"encode_batch \|.*?\| ([\d.]+)x")),
        ("Frozen encoder", "encoding every epoch", number("frozen-tweets", r"\*\*([\d.]+)x\*\*")),
        ("Fine-tuning, SST-2", "transformers Trainer", 1 / number("finetune", r"\| sst2 .*\*\*([\d.]+)\*\*")),
        ("Fine-tuning, MRPC", "transformers Trainer", 1 / number("finetune", r"\| mrpc .*\*\*([\d.]+)\*\*")),
        ("Pre-training step", "transformers Trainer", number("pretrain-step", r"Trainer .*\*\*([\d.]+)x\*\*")),
        ("Sentence vectors", "transformers, sorted", number("embed", r"SDPA, sorted, 32 \| [\d.]+ \| ([\d.]+)")),
        ("Sentence vectors", "CTranslate2", number("embed", r"CTranslate2 .*? \| [\d.]+ \| ([\d.]+)")),
    ]


def main() -> None:
    """Write speed.png."""
    rows = ratios()[::-1]
    figure, axes = plt.subplots(figsize=(7.2, 3.0), dpi=110)
    axes.barh(range(len(rows)), [ratio for *_, ratio in rows], color=GREY, height=0.62)
    axes.axvline(1, color=BLUE, linewidth=2.5)
    axes.text(1.05, len(rows) - 0.35, "bertkit = 1", color=BLUE, fontsize=9)
    axes.set_yticks(range(len(rows)), [task for task, *_ in rows], fontsize=9)
    for place, (_, peer, ratio) in enumerate(rows):
        axes.text(ratio + 0.08, place, f"{peer}: {ratio:.1f}", va="center", fontsize=9)
    axes.set_xlim(0, 11.4)
    axes.set_ylim(-0.6, len(rows) + 0.3)
    axes.set_xlabel("time of the other ÷ time of bertkit, on two CPU cores, same run", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(HERE / "speed.png", metadata={"Software": None})


if __name__ == "__main__":
    main()
