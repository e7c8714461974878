"""What a run shows of its steps: a bar for people, a record for its log."""

from __future__ import annotations

import math
from typing import Any

from bertkit.system.console import Progress
from bertkit.training.trainer.batch_plan import Plan
from bertkit.training.trainer.loop_options import LoopOptions, Progression, Record, StepResult


def progress(options: LoopOptions, at: Progression) -> Progress:
    """A bar of steps; of seconds if a time budget ends the run, because the number of steps is unknown."""
    if options.max_seconds is not None:
        return Progress(math.ceil(options.max_seconds), label=options.label, unit="s", done=int(at.seconds))
    return Progress(options.num_steps, label=options.label, unit="steps", done=at.step)


def show(shown: Progress, options: LoopOptions, at: Progression, result: StepResult) -> None:
    """Advance the bar by a step, with the newest loss that is known."""
    if options.max_seconds is None:
        shown.advance(note=f"loss {result.loss:.3f}")
    else:
        done = min(int(at.seconds), math.ceil(options.max_seconds))
        shown.advance(done - shown.done, note=f"step {at.step:,}, loss {result.loss:.3f}")


def step_record(result: StepResult, at: Progression, options: LoopOptions, plan: Plan[Any], seconds: float) -> Record:
    """The record of a step that took so many seconds."""
    several = list(result.losses) != ["loss"]
    return {
        "step": result.step + 1,
        "epoch": round((result.step + 1) / plan.steps_per_epoch, 4),
        "loss": result.loss,
        **({f"{name}_loss": value for name, value in result.losses.items()} if several else {}),
        "lr": result.learning_rate,
        "grad_norm": None if result.skipped else result.grad_norm,
        **({"loss_scale": at.loss_scale} if options.precision == "fp16" else {}),
        **({"skipped": True} if result.skipped else {}),
        f"{plan.unit}_per_s": round(plan.size(result.step) / seconds),
    }
