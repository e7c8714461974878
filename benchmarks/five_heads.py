"""One encoder with five heads beside one head, and beside five models.

    python benchmarks/five_heads.py --data ../shared/data --out benchmarks/results/five-heads.md

From MiniLM-L6, in parts that can be chosen:

- ``time``: seconds for all answers to the texts of SST-2 and tweets dev, each several times in turns: five heads on one
  encoder (`bertkit.analyze`), one of them alone (its pipeline), and five models, one pipeline after the other. All five
  heads read single texts: sst2, cola, tweets, banking77 and the names of WNUT-17. Answers are compared before.
- ``scores``: SST-2, tweets, MRPC (pairs), STS-B (a number) and WNUT-17 (tags), several seeds: five models trained
  separately, five heads trained together on a shared encoder, five heads on the frozen encoder. Same rows, epochs of
  each system's own by the defaults. ``benchmarks/results/five-heads.jsonl`` has a line for each that is finished; the
  same command goes on.
"""

from __future__ import annotations

import argparse
import lzma
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from beside_trainer import spread
from cells import RESULTS, Cell, Cells, machines
from machine import about, block, minilm_folder, publish

HEADS = {
    "time": {"sst2": "glue/SST-2", "cola": "glue/CoLA", "tweets": "tweet_sentiment",
             "banking77": "few_labels/banking77_train.csv.xz", "names": "ner/wnut17"},
    "scores": {"sst2": "glue/SST-2", "tweets": "tweet_sentiment", "mrpc": "glue/MRPC", "stsb": "glue/STS-B",
               "names": "ner/wnut17"},
}  # fmt: skip
LENGTH = 128


def main() -> None:
    args = parse_args()
    import torch

    torch.set_num_threads(args.threads)
    report: dict[str, Any] = {"about": about(args.threads), "rows": args.rows, "parts": {}}
    with tempfile.TemporaryDirectory() as folder:
        for part in args.parts:
            report["parts"][part] = PARTS[part](args, Path(folder) / part)
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with glue/, tweet_sentiment/, ner/, few_labels/"
    )
    parser.add_argument("--parts", nargs="+", default=["time", "scores"], choices=["time", "scores"])
    parser.add_argument("--systems", nargs="+", default=["alone", "shared", "frozen"], help="of the part scores")
    parser.add_argument("--rows", type=int, default=4000, help="training rows of each head at most")
    parser.add_argument("--texts", type=int, default=2000, help="texts of the part time")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of the part time")
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the part scores")
    parser.add_argument("--cells", type=Path, default=RESULTS / "five-heads.jsonl", help="file of finished scores")
    parser.add_argument("--epochs", type=int, help="default: that of each system")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the table to this file")
    return parser.parse_args()


def heads_of(part: str, data: Path) -> dict[str, tuple[Any, Path]]:
    """The task and the data of each head."""
    from bertkit.tasks import csv_task, get_task, task_of

    made = {"names": lambda path: task_of("ner", path), "banking77": lambda path: csv_task(path, label="category")}
    return {
        name: (made.get(name, lambda path, name=name: get_task(name))(data / path), data / path)  # type: ignore[misc]
        for name, path in HEADS[part].items()
    }


def settings(args: argparse.Namespace, **more: Any) -> Any:
    from bertkit.training.finetuning.finetune_settings import FinetuneConfig

    given = {} if args.epochs is None else {"epochs": args.epochs}
    return FinetuneConfig(max_train_rows=args.rows, max_length=LENGTH, baseline=False, **given, **more)


def measure_time(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Seconds of each way, in turns; answers must be the same."""
    import bertkit
    from bertkit.inference.analysis import Analyzer
    from bertkit.model.convert import convert
    from bertkit.training.finetuning.several_heads import finetune_heads

    config = settings(args, freeze_encoder=True).model_copy(update={"epochs": 1, "max_train_rows": 400})
    finetune_heads(heads_of("time", args.data), minilm_folder(), folder / "run", config, cache=None)
    texts = some_texts(args.data, args.texts)
    analyzer, pipes = Analyzer.open(folder / "run"), {}
    for name in analyzer.heads:
        convert(folder / "run" / "heads" / name, folder / name)
        pipes[name] = bertkit.pipeline(model=folder / name)
    calls = {name: (pipe, analyzer.heads[name].options) for name, pipe in pipes.items()}

    def ask(name: str) -> Any:
        pipe, options = calls[name]
        return pipe(texts, progress=False, **options)

    alone = {name: ask(name) for name in calls}
    together = analyzer(texts, progress=False)
    differing = {name: sum(not same(a[name], b) for a, b in zip(together, alone[name], strict=True)) for name in calls}
    if max(differing.values()) > len(texts) // 1000:
        raise SystemExit(f"the answers differ, of {len(texts)} texts: {differing}")
    ways: dict[str, Callable[[], Any]] = {
        "five heads, one encoder": lambda: analyzer(texts, progress=False),
        "one head": lambda: ask("sst2"),
        "five models": lambda: [ask(name) for name in calls],
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(args.rounds):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - started)
    return {"texts": len(texts), "seconds": seconds, "differing": differing}


def same(ours: Any, theirs: Any) -> bool:
    """Equal, numbers to a thousandth: precision "auto" rounds a little."""
    if isinstance(theirs, Mapping):
        return ours.keys() == theirs.keys() and all(same(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return abs(ours - theirs) < 2e-3 if isinstance(theirs, float) else bool(ours == theirs)


def some_texts(data: Path, count: int) -> list[str]:
    """Texts of SST-2 and of tweets, one after the other."""
    import csv

    with (data / "glue/SST-2/dev.tsv").open(encoding="utf-8") as file:
        first = [line.split("\t")[0] for line in file][1:]
    with lzma.open(data / "tweet_sentiment/dev.csv.xz", "rt", encoding="utf-8") as file:
        second = [row["text"] for row in csv.DictReader(file)]
    both = [text for text in [*first, *second] if text.strip()]
    return (both * (count // len(both) + 1))[:count]


def measure_scores(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Each system's main metrics, and its seconds, by seed."""
    cells = Cells(args.cells, ("rows", "epochs", "system", "seed"))
    for seed in range(args.seeds):
        for system in args.systems:
            key = {"rows": args.rows, "epochs": args.epochs, "system": system, "seed": seed}
            if tuple(key.values()) not in cells:
                started = time.perf_counter()
                scores = SYSTEMS[system](args, folder / f"{system}-{seed}", seed)
                cells.add({**key, "scores": scores, "seconds": time.perf_counter() - started}, args.threads)
    runs: dict[str, list[Cell]] = {}
    for cell in cells.lines.values():
        if (cell["rows"], cell["epochs"]) == (args.rows, args.epochs):
            runs.setdefault(cell["system"], []).append(cell)
    return {"runs": runs, "machines": machines(cells.lines.values())}


def train_alone(args: argparse.Namespace, folder: Path, seed: int) -> dict[str, float]:
    from bertkit.training.finetuning.finetune import finetune

    config = settings(args, seed=seed)
    found = {}
    for name, (task, data) in heads_of("scores", args.data).items():
        result = finetune(task, data, minilm_folder(), folder / name, config, cache=None)
        found[name] = result.scores[result.main_metric]
    return found


def train_heads(args: argparse.Namespace, folder: Path, seed: int, *, freeze: bool) -> dict[str, float]:
    from bertkit.training.finetuning.several_heads import finetune_heads

    config = settings(args, seed=seed, freeze_encoder=freeze)
    result = finetune_heads(heads_of("scores", args.data), minilm_folder(), folder, config, cache=None)
    return {name: head.scores[head.main_metric] for name, head in result.heads.items()}


SYSTEMS: dict[str, Callable[..., dict[str, float]]] = {
    "alone": train_alone,
    "shared": lambda *given: train_heads(*given, freeze=False),
    "frozen": lambda *given: train_heads(*given, freeze=True),
}
PARTS = {"time": measure_time, "scores": measure_scores}


def render(report: Mapping[str, Any]) -> list[str]:
    """Tables of what was measured."""
    lines = ["# Five heads on one encoder", "", *block(report["about"]), ""]
    if found := report["parts"].get("time"):
        middle = {name: statistics.median(values) for name, values in found["seconds"].items()}
        lines += [f"{found['texts']:,} texts, median of {len(found['seconds']['one head'])} rounds in turns:", ""]
        lines += ["| | seconds | beside one head |", "|---|---|---|"]
        lines += [f"| {name} | {value:.2f} | {value / middle['one head']:.2f} |" for name, value in middle.items()]
        lines += ["", f"Texts whose answers differ: {found['differing']}.", ""]
    if found := report["parts"].get("scores"):
        systems = found["runs"]
        names = list(next(iter(systems.values()))[0]["scores"])
        rows = report["rows"]
        lines += [*found["machines"], ""]
        lines += [f"Dev scores (main metrics), mean and sd of the seeds; at most {rows:,} training rows a head:", ""]
        counted = [f"{name}, {len(runs)} seed{'s' * (len(runs) > 1)}" for name, runs in systems.items()]
        lines += [f"| | {' | '.join(counted)} |", "|---|" + "---|" * len(systems)]
        for name in names:
            each = [[run["scores"][name] for run in runs] for runs in systems.values()]
            shown = [spread(scores) if len(scores) > 1 else f"{scores[0]:.4f}" for scores in each]
            lines.append(f"| {name} | {' | '.join(shown)} |")
        seconds = [f"{statistics.mean(run['seconds'] for run in runs):.0f}" for runs in systems.values()]
        lines.append(f"| seconds of training | {' | '.join(seconds)} |")
    return lines


if __name__ == "__main__":
    main()
