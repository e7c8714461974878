r"""Every task from MiniLM-L6 in one table: score, simple baseline, wall time; for three tasks a transformers loop.

    python benchmarks/tasks.py --data ../shared/data --work /tmp/tasks --out benchmarks/results/tasks.md

Most rows are the command that a user would type, ``bertkit finetune TASK``. SQuAD, WNUT-17 and CODAH are trained by
bertkit and by a loop like transformers' run_qa.py, run_ner.py and run_swag.py with the same hyper-parameters,
alternating (the functions of squad.py, ner.py and choice.py). Every score is that of the model after the last epoch,
so nothing is selected on the scored rows (except the no-answer threshold of SQuAD 2.0, which is tuned on dev by
definition). Samples of the training rows are drawn once and are the same for all seeds.

The command can be interrupted at any time and resumed by running it again; finished seeds are not repeated, and --out
is rewritten after each task. For a quick run: --tasks wnli codah --rows 64 --seeds 1.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from beside_trainer import seconds_of, spread, time_ratio
from machine import about, block, minilm_folder, publish
from stages import Stages, stop_on_sigterm
from task_jobs import JOBS, PEER_FACTOR, TRAIN_RATE, Job, minutes_of

GLUE = ("cola", "sst2", "mrpc", "stsb", "qqp", "qnli", "rte", "wnli")
TEXTS = (*GLUE, "tweets", "imdb")
ABSENT = (
    "MNLI: no files. SWAG: only a sample of ten questions, used by a test; CODAH and ARC replace it. CoNLL-2003 is not "
    "openly licensed: WNUT-17, WikiGold, Broad Twitter and SEC filings replace it. Multi-label data: none."
)


def main() -> None:
    args = parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)  # also for the commands; before torch is loaded
    stop_on_sigterm()
    args.work.mkdir(parents=True, exist_ok=True)
    stages = Stages(args.work / "stages")
    jobs = [cut(job, args) for job in JOBS if not args.tasks or job.name in args.tasks]
    left = [job.name for job in jobs if args.finished and not all(map(stages.is_done, stages_of(job)))]
    jobs = [job for job in jobs if job.name not in left]
    print(f"about {sum(map(minutes_of, jobs)):.0f} minutes in total", file=sys.stderr, flush=True)
    rows: list[dict[str, Any]] = []
    for job in jobs:
        found = run_peers(job, args, stages) if job.peer else run_command(job, args, stages)
        print("\n".join(line for row in found for line in lines_of(row)), file=sys.stderr, flush=True)
        rows += found
        waiting = [*(other.name for other in jobs[jobs.index(job) + 1 :]), *left]
        report = {"about": about(args.threads), "precision": args.precision, "rows": rows, "not_run": waiting}
        if args.out is not None and waiting:
            args.out.parent.mkdir(parents=True, exist_ok=True)
            args.out.write_text("\n".join(render(report)) + "\n", encoding="utf-8")
    publish(render(report), report, args.out)


def parse_args() -> argparse.Namespace:
    names = [job.name for job in JOBS]
    estimates = [f"{job.name} {minutes_of(job):.0f}" for job in JOBS]
    total = sum(map(minutes_of, JOBS)) / 60
    parser = argparse.ArgumentParser(
        description=__doc__,
        epilog=f"About {total:.1f} hours with the defaults on two idle cores. Minutes per task, estimated from "
        f"{TRAIN_RATE:,} tokens per second in training and a peer that takes {PEER_FACTOR:g} times as long:\n"
        + "\n".join("  " + ", ".join(estimates[at : at + 6]) for at in range(0, len(estimates), 6)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with glue/, squad/, ner/ and other datasets")
    parser.add_argument("--work", type=Path, required=True, help="working folder; pass it again to resume")
    parser.add_argument("--tasks", nargs="*", choices=names, metavar="TASK", help="some of: " + " ".join(names))
    parser.add_argument("--rows", type=int, help="maximum training rows per task; default: as in the table")
    parser.add_argument("--seeds", type=int, help="maximum seeds per task; default: 3 or 5")
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="bf16", help="for training without a peer")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--finished", action="store_true", help="run nothing; only print the table of finished tasks")
    parser.add_argument("--out", type=Path, help="write the table to this Markdown file")
    return parser.parse_args()


def cut(job: Job, args: argparse.Namespace) -> Job:
    """The job, limited to the requested rows and seeds."""
    values = {"rows": min(job.rows, args.rows or job.rows), "seeds": min(job.seeds, args.seeds or job.seeds)}
    return replace(job, **values, few=job.few or values["seeds"] < job.seeds)


def stages_of(job: Job) -> list[str]:
    """Names of the stages of a job."""
    if job.peer is None:
        return [stage_of_command(job, job.seeds)]
    runs = [stage_of_run(job, system, seed) for seed in range(job.seeds) for system in ("bertkit", "transformers")]
    return [*runs, f"{job.name}-{job.rows}-data"]


def stage_of_command(job: Job, seeds: int) -> str:
    """Name of the stage that runs the command with this many seeds."""
    return f"{job.name}-{seeds}x{job.rows}"


def stage_of_run(job: Job, system: str, seed: int) -> str:
    """Name of the stage for one run of a comparison."""
    return f"{job.name}-{job.rows}-{system}-{seed}"


def run_command(job: Job, args: argparse.Namespace, stages: Stages) -> list[dict[str, Any]]:
    """One row of the table from the command's run folder; two rows for ``adapt``."""
    (name,) = stages_of(job)
    out = args.work / f"{job.name}-{job.rows}"  # without the seeds, so that a start with more seeds resumes it
    words: list[Any] = [job.command, job.task, "--data", data_of(job, args), "--model", minilm_folder(), "--out", out]
    words += ["--epochs", job.epochs, "--seeds", job.seeds, "--max-train-rows", job.rows, "--batch-size", job.batch]
    # Every seed and epoch counts: a mean over the successful seeds, or over epochs chosen on dev, would be too high.
    words += ["--restarts", 0, "--patience", 0]
    if job.task in TEXTS and "--pooling" not in job.flags:
        words += ["--pooling", "cls"]
    if "--freeze-encoder" not in job.flags:  # a frozen encoder has its own default rate
        words += ["--learning-rate", job.rate, "--precision", args.precision]
    words += [*job.flags, "--json", *(["--resume"] if job.command == "finetune" else [])]
    stages.run(name, words)
    if job.command == "finetune":
        # an earlier start may have had fewer seeds, which this one resumed
        parts = [stages.record(stage_of_command(job, seeds)) for seeds in range(1, job.seeds + 1)]
        seconds = sum(part["seconds"] for part in parts if part)
        return [row_of(job, out, seconds / job.seeds, continued=any(part and part["interrupted"] for part in parts))]
    told = json.loads((out / "adapt.json").read_text(encoding="utf-8"))["result"]["text"]
    adapting = told["seconds"] / job.seeds  # once for all seeds
    rows = []
    for part, label, before in (("without", job.name, 0.0), ("with", f"{job.name} adapted", adapting)):
        seeds = json.loads((out / part / "metrics.json").read_text(encoding="utf-8"))["seeds"]
        spent = before + statistics.fmean(seed["seconds"] for seed in seeds)
        rows.append({**row_of(job, out / part, spent, continued=name in stages.interrupted), "name": label})
    return rows


def data_of(job: Job, args: argparse.Namespace) -> Path:
    """The data, or a copy of a dev file under the name of a train file."""
    data: Path = args.data / job.data
    if job.stand_in is None:
        return data
    copy: Path = args.work / "data" / job.stand_in
    if not copy.exists():
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(data, copy)
    return copy


def row_of(job: Job, run: Path, seconds: float, *, continued: bool) -> dict[str, Any]:
    """The table row of a finished run folder."""
    found = json.loads((run / "metrics.json").read_text(encoding="utf-8"))
    data = found["protocol"]["data"]
    baseline = found["baseline"] or {"metrics": {}}
    dead = [str(seed["seed"]) for seed in found["seeds"] if seed["dead"]]
    told = [f"dead seeds: {', '.join(dead)} (training loss no better than the label frequencies)"] if dead else []
    return {
        "name": job.name,
        "scores": {metric: [seed["last_scores"][metric] for seed in found["seeds"]] for metric in job.metrics},
        "baseline": {metric: baseline["metrics"].get(metric) for metric in job.metrics},
        "baseline_name": baseline.get("name", "TF-IDF + linear"),
        "seconds": round(seconds, 1),
        "continued": continued,
        "train_rows": data["train_rows"],
        "left_out": data["train_rows_left_out"],
        "dev_rows": data["dev_rows"],
        "held_out": data["dev_held_out_of_train"],
        "epochs": found["protocol"]["epochs"],
        "recipe": recipe_of(job),
        "few": job.few,
        "note": "; ".join([*filter(None, [job.note]), *told]),
    }


def recipe_of(job: Job) -> str:
    """Batch size and peak rate."""
    return f"{job.batch}" if "--freeze-encoder" in job.flags else f"{job.batch}, {job.rate:g}"


def run_peers(job: Job, args: argparse.Namespace, stages: Stages) -> list[dict[str, Any]]:
    """One row with the scores of both systems and the ratio of their times; every run is a stage."""
    assert job.peer is not None
    rows, names = f"rows={job.rows}", stages_of(job)
    prepared: Any = None
    if not all(map(stages.is_done, names)):
        from task_peers import PEERS, import_peers

        import_peers(args.threads)
        loops = importlib.import_module(job.peer)
        assert (job.batch, job.rate) == (loops.BATCH, loops.LEARNING_RATE), "batch and rate in the table would be wrong"
        prepared = PEERS[job.peer](args.data / job.data, job)
    facts = stages.compute(names[-1], lambda: prepared.facts(), depends=[job.name, rows])
    runs: dict[str, list[dict[str, float]]] = {"bertkit": [], "transformers": []}
    for seed in range(job.seeds):
        for system in list(runs) if seed % 2 == 0 else list(runs)[::-1]:
            runs[system].append(
                stages.compute(
                    stage_of_run(job, system, seed),
                    lambda system=system, seed=seed: prepared.run(system, seed),  # type: ignore[misc]
                    depends=[job.name, rows, f"epochs={job.epochs}", f"seed={seed}", system],
                )
            )
    scores = {
        system: {metric: [one[metric] for one in found] for metric in job.metrics} for system, found in runs.items()
    }
    return [
        {
            "name": job.name,
            **facts,
            "scores": scores["bertkit"],
            "peer_scores": scores["transformers"],
            "ratio": time_ratio(runs),
            "seconds": seconds_of(runs["bertkit"]),
            "peer_seconds": seconds_of(runs["transformers"]),
            "continued": False,
            "epochs": job.epochs,
            "recipe": recipe_of(job),
            "few": job.few,
            "note": job.note,
        }
    ]


def render(report: dict[str, Any]) -> list[str]:
    head = ("task", "metric", "bertkit", "baseline", "transformers", "s per seed", "time ratio",
            "train rows (left out)", "dev rows", "epochs", "batch, rate", "seeds")  # fmt: skip
    lines = ["# Every task from MiniLM-L6", "", *block(report["about"]), ""]
    lines += ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in report["rows"]:
        lines += lines_of(row)
    lines += [
        "",
        "Dev scores after the last epoch, mean ± sd over all seeds, including dead runs. Texts are read at [CLS], "
        "unless their note says otherwise. Rate as in the table (bertkit's default for a frozen encoder), "
        "10 % warm-up, linear decay, dropout on. "
        f"Trained in {report['precision']}; rows with transformers and with a frozen encoder in fp32. Seconds are "
        "wall time. Rows with transformers: median per run, from loaded rows to scores, bertkit / transformers. Other "
        "rows: the whole command (loading, report, baseline, training, evaluation after each epoch, plots) divided by "
        "the number of seeds; for the adaptation comparison only training and evaluation; ≥ marks an interrupted run. "
        "Time ratio: bertkit / transformers, median over the seeds. ° dev was held out of the training file. * fewer "
        "than five seeds, to save time. Left out: training rows that are not in the sample.",
        "",
        *averages(report["rows"]),
        *(f"- {row['name']}: {row['note']}" for row in report["rows"] if row["note"]),
        f"- not available: {ABSENT}",
    ]
    if report["not_run"]:
        lines.append(f"- not run: {', '.join(report['not_run'])}")
    return lines


def lines_of(row: dict[str, Any]) -> list[str]:
    """One line per metric; values of the whole task are in the first line."""
    lines = []
    for number, (metric, scores) in enumerate(row["scores"].items()):
        known = row["baseline"].get(metric)
        peer = spread(row["peer_scores"][metric]) if "peer_scores" in row else ""
        base = f"{known:.4f}" + (f" ({row['baseline_name']})" if number == 0 else "") if known is not None else ""
        first = [""] * 7
        if number == 0:
            seconds = ("≥ " if row["continued"] else "") + f"{row['seconds']:.0f}"
            seconds += f" / {row['peer_seconds']:.0f}" if peer else ""
            ratio = f"**{row['ratio']:.2f}**" if peer else ""
            rows = f"{row['train_rows']:,} ({row['left_out']:,})"
            dev = f"{row['dev_rows']:,}" + ("°" if row["held_out"] else "")
            first = [
                seconds,
                ratio,
                rows,
                dev,
                str(row["epochs"]),
                row["recipe"],
                f"{len(scores)}" + ("*" if row["few"] else ""),
            ]
        name = row["name"] if number == 0 else ""
        lines.append("| " + " | ".join([name, metric, spread(scores), base, peer, *first]) + " |")
    return lines


def averages(rows: Sequence[dict[str, Any]]) -> list[str]:
    """GLUE macro averages; a task with several metrics counts with their mean, CoLA with Matthews alone."""
    means = {
        row["name"]: statistics.fmean(statistics.fmean(scores) for scores in row["scores"].values())
        for row in rows
        if row["name"] in GLUE
    }
    told = []
    for words, left_out in (("with", ""), ("without", "wnli")):
        chosen = [mean for name, mean in means.items() if name != left_out]
        if chosen:
            whole = 9 - bool(left_out)
            told.append(f"- GLUE {words} WNLI: macro average {statistics.fmean(chosen):.4f} ({len(chosen)} of {whole})")
    return told


if __name__ == "__main__":
    main()
