"""Converged, paired seeds: bertkit and a plain loop over transformers' model, from the same weights in the same order.

    python benchmarks/paired_seeds.py --data ../shared/data/ner/wnut17 --out benchmarks/results/paired_seeds.md

One run per system and seed tags the same words (``--data``: CoNLL files) and is scored by seqeval after the last epoch.
The systems differ in one thing each:

- ``bertkit``: bertkit's trainer, from the head that bertkit draws for the seed;
- ``bertkit, peer's head``: the same trainer, from the head that transformers draws for the seed;
- ``transformers``: transformers' model with torch's AdamW and padded batches, from that same head.

- ``bertkit, bf16``, if ``--systems`` asks for it: bertkit's trainer with ``--precision bf16``, from its own head.

All see the same rows in the same order and the same learning rates, so differences between seeds cancel in the
paired differences. Scores of short runs measure when learning takes off; the default trains long enough to converge.
Each finished run is appended to ``--runs``; the same command continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from machine import about, block, minilm_folder, publish
from paired import mean_interval

LENGTH, BATCH = 128, 32
HALF = "bertkit, bf16"
SYSTEMS = ("bertkit", "bertkit, peer's head", "transformers", HALF)


def main() -> None:
    args = parse_args()
    import torch

    torch.set_num_threads(args.threads)
    setting = {"data": args.data.name, "rows": args.rows, "epochs": args.epochs, "rate": args.rate}
    known = read_runs(args.runs, setting)
    problem = Problem(args)
    for seed in range(args.seeds):
        for system in args.systems if seed % 2 == 0 else args.systems[::-1]:
            if (system, seed) not in known:
                began = time.perf_counter()
                scores = problem.run(system, seed)
                run = {**setting, "system": system, "seed": seed, **scores}
                run["seconds"] = round(time.perf_counter() - began, 1)
                with args.runs.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(run) + "\n")
                known[system, seed] = run
                print(run, flush=True)
    report = {"about": about(args.threads), **setting, "seeds": args.seeds, "runs": list(known.values())}
    report["paired"] = {f"{a} - {b}": paired(known, a, b, args.seeds) for a, b in combinations(args.systems, 2)}
    publish(render(report, known, args.systems), report, args.out)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with CoNLL files")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS[:3]), help="which to compare")
    parser.add_argument("--rows", type=int, default=800, help="training sentences")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("paired_seeds.jsonl"), help="finished runs; appended to")
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def read_runs(path: Path, setting: Mapping[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    """Finished runs with these settings, by system and seed."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    runs = [json.loads(line) for line in lines]
    return {(run["system"], run["seed"]): run for run in runs if setting.items() <= run.items()}


class Problem:
    """The task, its encoded rows, and one run of each system."""

    def __init__(self, args: argparse.Namespace) -> None:
        from bertkit.tasks import ner_task
        from bertkit.tasks.workflow import workflow_of
        from bertkit.tokenization import AutoTokenizer
        from bertkit.training.finetuning.finetune_settings import FinetuneConfig

        self.config = FinetuneConfig(
            learning_rate=args.rate, epochs=args.epochs, max_length=LENGTH, batch_size=BATCH, precision="fp32"
        )
        self.task = ner_task(args.data)
        self.workflow: Any = workflow_of(self.task)
        tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
        train = self.workflow.read(args.data, "train")[: args.rows]
        self.dev = self.workflow.read(args.data, "dev")
        self.train = self.workflow.encode(train, tokenizer, self.config, labelled=True)
        self.encoded = self.workflow.encode(self.dev, tokenizer, self.config, labelled=True)

    def run(self, system: str, seed: int) -> dict[str, float]:
        from bertkit.training.trainer.generators import seeded

        with seeded(seed):
            model = self.model(system, seed)
            if system == "transformers":
                self.train_peer(model, seed)
            else:
                from bertkit.training.finetuning.fit import fit

                settings = self.config.model_copy(update={"precision": "bf16"}) if system == HALF else self.config
                model = fit(model, self.workflow, self.train, None, settings, seed=seed).model
            return self.score(model)

    def model(self, system: str, seed: int) -> Any:
        """The start: bertkit's model or transformers', with the head of the system."""
        own = self.workflow.new_model(minilm_folder(), seed=seed, device=None, settings=self.config)
        if system in ("bertkit", HALF):
            return own
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        transformers.set_seed(seed)
        names = dict(enumerate(self.task.labels))
        peer = transformers.BertForTokenClassification.from_pretrained(minilm_folder(), id2label=names)
        if system == "transformers":
            return peer.train()
        with torch.no_grad():
            own.classifier.weight.copy_(peer.classifier.weight)
            own.classifier.bias.copy_(peer.classifier.bias)
        return own

    def train_peer(self, model: Any, seed: int) -> None:
        """Padded batches, torch's AdamW with its two groups, clipping; rows and rates are those of bertkit."""
        import torch

        from bertkit.optim import linear_schedule
        from bertkit.training.trainer.batch_plan import EpochPlan

        plan: Any = EpochPlan(self.train.lengths.tolist(), list, step_size=BATCH, max_tokens=4096, seed=seed)
        num_steps = self.config.epochs * plan.steps_per_epoch
        schedule = linear_schedule(num_steps, warmup=self.config.warmup)
        spared = [p for p in model.parameters() if p.ndim < 2]
        kept = [p for p in model.parameters() if p.ndim >= 2]
        groups = [{"params": kept, "weight_decay": 0.01}, {"params": spared, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=self.config.learning_rate, eps=1e-6)
        torch.manual_seed(seed)
        for step in range(num_steps):
            model(**self.padded(self.train, plan.rows(step))).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), self.config.max_grad_norm)
            for group in optimizer.param_groups:
                group["lr"] = self.config.learning_rate * schedule(step)
            optimizer.step()
            optimizer.zero_grad()

    def padded(self, encoded: Any, rows: Sequence[int]) -> dict[str, Any]:
        """Rows as transformers' models take them."""
        import torch

        batch = self.workflow.collate(encoded, list(rows))
        lengths = list(batch.layout.lengths)
        pad = torch.nn.utils.rnn.pad_sequence
        return {
            "input_ids": pad(batch.input_ids.long().split(lengths), batch_first=True),
            "attention_mask": pad([torch.ones(length, dtype=torch.long) for length in lengths], batch_first=True),
            "labels": pad(batch.targets["labels"].long().split(lengths), batch_first=True, padding_value=-100),
        }

    def score(self, model: Any) -> dict[str, float]:
        """F1 over all dev words and mean loss over them; both systems' weights are scored by bertkit's workflow."""
        from seqeval.metrics import f1_score

        from bertkit.engine.inference_engine import InferenceEngine
        from bertkit.tasks.workflow import Predicted

        if not hasattr(model, "forward_packed"):
            with tempfile.TemporaryDirectory() as folder:
                model.save_pretrained(folder)
                model = self.workflow.network().from_pretrained(folder)
        outputs = self.workflow.outputs(InferenceEngine.for_scoring(model), self.encoded, label="scoring")
        predicted: Any = Predicted(self.dev, self.encoded, outputs, {})
        rows = self.workflow.prediction_rows(predicted)
        f1 = f1_score([e.tags for e in self.dev], [row["predicted"] for row in rows], zero_division=0)
        return {"f1": round(float(f1), 4), "loss": round(float(self.workflow.score(predicted)["loss"]), 5)}


def paired(runs: Mapping[tuple[str, int], Mapping[str, Any]], a: str, b: str, seeds: int) -> dict[str, Any]:
    """Mean of the paired differences with its 95 % interval (Student's t)."""
    told: dict[str, Any] = {}
    for key in ("f1", "loss"):
        differences = [runs[a, seed][key] - runs[b, seed][key] for seed in range(seeds)]
        mean, low, high = mean_interval(differences)
        told[key] = {"mean": round(mean, 5), "interval": [round(low, 5), round(high, 5)]}
        told[key]["above"] = sum(difference > 0 for difference in differences)
    return told


def render(
    report: Mapping[str, Any], runs: Mapping[tuple[str, int], Mapping[str, Any]], systems: Sequence[str]
) -> list[str]:
    lines = ["# Paired seeds: the same start, order and rates", "", *block(report["about"]), ""]
    lines += ["| system | F1 | dev loss | seconds |", "|---|---|---|---|"]
    for system in systems:
        own = [runs[system, seed] for seed in range(report["seeds"])]
        cells = [f"{statistics.fmean(run[key] for run in own):.4f}" for key in ("f1", "loss")]
        lines.append("| " + " | ".join([system, *cells, f"{statistics.median(r['seconds'] for r in own):.0f}"]) + " |")
    lines += ["", "| difference | F1 (95 %) | positive | dev loss (95 %) |", "|---|---|---|---|"]
    for name, found in report["paired"].items():
        f1, loss = ("{mean:+.4f} ({interval[0]:+.4f} to {interval[1]:+.4f})".format(**found[k]) for k in ("f1", "loss"))
        lines.append(f"| {name} | {f1} | {found['f1']['above']} of {report['seeds']} | {loss} |")
    return [*lines, "", f"{report['rows']} training sentences of {report['data']}, {report['epochs']} epochs at "
            f"{report['rate']:g}, batches of {BATCH}."]  # fmt: skip


if __name__ == "__main__":
    main()
