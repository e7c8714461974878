"""Shared by the comparisons with transformers' ``Trainer``: hyper-parameters, alternating runs, mean ± sd."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from machine import minilm_folder

Result = TypeVar("Result")


def add_run_options(parser: argparse.ArgumentParser, *, epochs: int) -> None:
    """Add the options common to all comparisons."""
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)


def take_turns(
    systems: Mapping[str, Callable[[int], Result]], num_seeds: int, *, label: str = ""
) -> dict[str, list[Result]]:
    """Run every system with every seed, in the order A B, B A, A B, so that none always runs on the warmer machine."""
    runs: dict[str, list[Result]] = {name: [] for name in systems}
    for seed in range(num_seeds):
        for name in list(systems) if seed % 2 == 0 else list(systems)[::-1]:
            runs[name].append(systems[name](seed))
            print(f"{label}seed {seed} {name}: {runs[name][-1]}", file=sys.stderr, flush=True)
    return runs


def time_ratio(runs: Mapping[str, Sequence[Mapping[str, float]]], peer: str = "transformers") -> float:
    """Seconds of bertkit divided by the peer's, median over the seeds."""
    pairs = zip(runs["bertkit"], runs[peer], strict=True)
    return round(statistics.median(ours["seconds"] / theirs["seconds"] for ours, theirs in pairs), 3)


def seconds_of(runs: Sequence[Mapping[str, float]]) -> float:
    """Median over the seeds."""
    return statistics.median(run["seconds"] for run in runs)


def spread(values: Sequence[float], digits: int = 4) -> str:
    """Mean ± sd."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.{digits}f} ± {deviation:.{digits}f}"


def train_workflow(task: Any, train: Any, dev: Any, **settings: Any) -> tuple[Any, Any]:
    """Fine-tune MiniLM-L6 in fp32 with bertkit; returns the workflow and what the final model says of the dev rows."""
    from bertkit.engine.inference_engine import InferenceEngine
    from bertkit.tasks.workflow import Predicted, workflow_of
    from bertkit.tokenization import AutoTokenizer
    from bertkit.training.finetuning.finetune_settings import FinetuneConfig
    from bertkit.training.finetuning.fit import fit
    from bertkit.training.trainer.generators import seeded

    config = FinetuneConfig(**settings, precision="fp32")
    workflow = workflow_of(task)
    with seeded(config.seed):
        tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
        model = workflow.new_model(minilm_folder(), seed=config.seed, device=None, settings=config)
        trained = fit(model, workflow, workflow.encode(train, tokenizer, config, labelled=True), None, config,
                      seed=config.seed)  # fmt: skip
        encoded = workflow.encode(dev, tokenizer, config, labelled=False)
        engine = InferenceEngine.for_scoring(trained.model)
        outputs = workflow.outputs(engine, encoded, check=lambda: None, label="predicting")
    return workflow, Predicted(dev, encoded, outputs, {})


def training_arguments(
    folder: str, *, epochs: int, rate: float, batch: int, seed: int, kind: Any = None, **more: Any
) -> Any:
    """``TrainingArguments`` matching bertkit's defaults: AdamW with bias correction, 10 % warm-up, decay to 0.

    ``kind`` is a class derived from them.
    """
    import transformers

    settings = {"eval_strategy": "no", "save_strategy": "no", "logging_strategy": "no", "report_to": [], **more}
    return (kind or transformers.TrainingArguments)(
        output_dir=folder, num_train_epochs=epochs, learning_rate=rate, seed=seed,
        per_device_train_batch_size=batch, per_device_eval_batch_size=batch,
        weight_decay=0.01, adam_epsilon=1e-6, warmup_steps=0.1, lr_scheduler_type="linear", max_grad_norm=1.0,
        use_cpu=True, dataloader_pin_memory=False, disable_tqdm=True, **settings,
    )  # fmt: skip
