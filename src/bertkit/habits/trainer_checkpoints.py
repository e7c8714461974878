"""What a trainer of ``transformers``' form writes, and how its training is continued."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError
from bertkit.habits.trainer_callbacks import TrainerState
from bertkit.habits.trainer_evaluation import EvaluatingTrainer
from bertkit.system.console import say
from bertkit.system.json_files import read_json, write_json
from bertkit.training.trainer.callbacks import AnyTrainer
from bertkit.training.trainer.snapshot import load_snapshot, save_snapshot

#: Folder of a checkpoint with what a resumed training needs beside the weights.
TRAINING_STATE = "training-state"
_CHECKPOINT = re.compile(r"checkpoint-(\d+)$")


class SavingTrainer(EvaluatingTrainer):
    """A trainer that writes its model, and checkpoints ``checkpoint-N`` in ``output_dir``."""

    def save_model(self, output_dir: str | Path | None = None) -> None:
        """Write the model and the tokenizer to a folder that ``pipeline`` and ``from_pretrained`` open."""
        folder = Path(output_dir or str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        if hasattr(self.model, "save_pretrained"):
            self.model.save_pretrained(folder)
        else:
            from safetensors.torch import save_model

            save_model(self.model, str(folder / "model.safetensors"))
        if hasattr(self.processing_class, "save_pretrained"):
            self.processing_class.save_pretrained(folder)

    def save_state(self) -> None:
        """Write ``trainer_state.json`` to ``output_dir``."""
        folder = Path(str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        self.state.save_to_json(folder / "trainer_state.json")

    def log_metrics(self, split: str, metrics: Mapping[str, float]) -> None:
        """Say the scores, one a line."""
        width = max(map(len, metrics), default=0)
        say("\n".join([f"***** {split} metrics *****", *(f"  {k:<{width}} = {v}" for k, v in sorted(metrics.items()))]))

    def save_metrics(self, split: str, metrics: Mapping[str, float], combined: bool = True) -> None:
        """Write ``SPLIT_results.json`` to ``output_dir``; ``combined`` also adds them to ``all_results.json``."""
        folder = Path(str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / f"{split}_results.json", dict(metrics))
        if combined:
            everything = folder / "all_results.json"
            before = read_json(everything, dict[str, Any]) if everything.is_file() else {}
            write_json(everything, before | dict(metrics))

    def saves_at(self, step: int, *, ends: bool) -> bool:
        """Whether a checkpoint is due, not counting those of epochs."""
        every = self.state.save_steps
        return self.args.save_strategy == "steps" and (ends or (every > 0 and step % every == 0))

    @property
    def is_best_now(self) -> bool:
        """Whether a checkpoint is due because no earlier weights were better."""
        return self.args.save_strategy == "best" and self.state.best_global_step == self.state.global_step

    def is_world_process_zero(self) -> bool:
        """Whether this process writes: there is one."""
        return True

    def save_checkpoint(self, trainer: AnyTrainer) -> None:
        """Write ``checkpoint-N``, and delete those beyond ``save_total_limit``, never the best one."""
        out = Path(str(self.args.output_dir))
        folder = out / f"checkpoint-{self.state.global_step}"
        shutil.rmtree(folder, ignore_errors=True)  # of an earlier training into the same folder
        self.save_model(folder)
        if self.state.best_global_step == self.state.global_step:
            self.state.best_model_checkpoint = str(folder)
        if not self.args.save_only_model:
            save_snapshot(folder, TRAINING_STATE, trainer.state_dict())
        self.state.save_to_json(folder / "trainer_state.json")
        if self.args.save_total_limit is not None:
            old = [each for each in _checkpoints(out) if str(each) != self.state.best_model_checkpoint]
            keep = max(1, self.args.save_total_limit - (len(old) < len(_checkpoints(out))))
            for each in old[:-keep]:
                shutil.rmtree(each, ignore_errors=True)

    def resume(self, trainer: AnyTrainer, given: str | bool) -> None:
        out = Path(str(self.args.output_dir))
        found = list(filter(_is_whole, _checkpoints(out))) if given is True else [Path(str(given))]
        if not found or not (found[-1] / TRAINING_STATE).is_dir():
            raise CheckpointError(
                f"nothing to resume from in {found[-1] if found else out}: expected a folder checkpoint-N with "
                f"{TRAINING_STATE}, which this Trainer writes unless save_only_model=True; leave out "
                "resume_from_checkpoint to train from the start"
            )
        trainer.load_state_dict(load_snapshot(found[-1] / TRAINING_STATE), str(found[-1]))
        trainer.at.stopped_early = False  # by a callback, which may stop it again
        self.state = TrainerState.load_from_json(found[-1] / "trainer_state.json")
        say(f"resumed after step {trainer.at.step} of {trainer.options.num_steps} ({found[-1]})")


def _checkpoints(out: Path) -> list[Path]:
    """Folders ``checkpoint-N``, the newest last."""
    found = [each for each in out.glob("checkpoint-*") if _CHECKPOINT.match(each.name)]
    return sorted(found, key=lambda each: int(each.name.partition("-")[2]))


def _is_whole(folder: Path) -> bool:
    """Whether a checkpoint was written to its end, and can be resumed; its state is written last."""
    return (folder / TRAINING_STATE).is_dir() and (folder / "trainer_state.json").is_file()


def get_last_checkpoint(folder: str | Path) -> str | None:
    """The newest ``checkpoint-N`` in a folder; None: it has none."""
    found = _checkpoints(Path(folder))
    return str(found[-1]) if found else None
