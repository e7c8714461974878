"""The folder of a fine-tuning run::

    RUN/
        model.safetensors  config.json  vocab.txt ...
                                     the best seed's best model: load RUN like any checkpoint
        README.md                    model card
        finetune.json                settings, task, data and start checkpoint of the run
        metrics.json                 scores with the protocol they were made under; written last
        log.jsonl                    one line per step and per epoch, of the best seed
        trained-on.npy               64-bit hashes of the training texts, by which evaluate finds them in other data
        predictions-dev.jsonl        text, gold, predicted, probabilities (of the 100 likeliest labels)
        errors-dev.jsonl             the worst of them, worst first
        evaluation-*                 later evaluations: scores with their protocol, predictions, the worst of them
        decision.json                what was chosen on dev, such as a threshold, for kinds of task that have that
        search.json                  what a search tried, and its outcome
        loss.png  confusion.png
        seed-0/  seed-1/ ...         each seed's metrics.json, log.jsonl, predictions, and the chosen one's model in
                                     best/ (with --keep all every seed's best/ and last/)
            checkpoints/             training state while the seed is unfinished
        trial-000/ ...               the same for a search, until it is finished

``bertkit finetune --resume`` continues an unfinished run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bertkit.inference.run_files import BOOTSTRAP, METRICS, SEARCH, SETTINGS, RunSettings
from bertkit.system.atomic_files import draft_of, remove_old_drafts
from bertkit.system.json_files import parsed, read_json
from bertkit.tasks.run_rows import ALL
from bertkit.training.finetuning.finetune_results import FinetuneResult, SeedResult
from bertkit.training.finetuning.finetune_settings import FinetuneConfig
from bertkit.training.trainer.loop_options import WITH_RESUME
from bertkit.training.trainer.run_folder import CHECKPOINTS, RunFolder

#: Folder of what a comparison of methods for few labels has found so far.
PARTS = "cross-validation"
#: Name of the setting that identifies the examples a run was trained and scored on: a hash of each part.
EXAMPLES = "examples"


class FinetuneFolder(RunFolder):
    """The folder of a fine-tuning run, with one folder per seed."""

    settings_file, states, how_to_resume = SETTINGS, f"*-*/{CHECKPOINTS}", WITH_RESUME

    def result(self) -> FinetuneResult:
        """What the finished run reported."""
        return FinetuneResult.from_dict(self.path, read_json(self.path / METRICS, dict))

    def finished_with(self, num_seeds: int) -> FinetuneResult | None:
        """What the run reported, if it is finished with that many seeds."""
        found = self.result() if self.is_finished else None
        return found if found is not None and len(found.seeds) == num_seeds else None

    def seed_result(self, seed: int) -> SeedResult | None:
        """What a finished seed reported; None for one that is not finished."""
        path = self.seed(seed) / METRICS
        return read_json(path, SeedResult) if path.exists() else None

    def _completed(self, theirs: dict[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
        defaults = FinetuneConfig(precision="fp32").model_dump()  # of a run that does not say
        config = {name: defaults[name] for name in ours["config"] if name in defaults}
        task = {name: value for name, value in ours.get("task", {}).items() if not value}
        completed = dict(theirs)
        for key, new in (("config", config), ("task", task)):
            if new:
                completed[key] = {**new, **parsed(theirs.get(key, {}), dict, f"{self.path / SETTINGS}: {key}")}
        if EXAMPLES in ours and EXAMPLES not in theirs:  # the protocol of a finished run has a hash of all
            known = self.result().protocol["data"] if self.is_finished else {}
            completed[EXAMPLES] = {**ours[EXAMPLES], ALL: known.get("data_sha256", ours[EXAMPLES][ALL])}
        if "given" in ours and "given" not in theirs:  # what differs from its default was given
            own = completed["config"]
            completed["given"] = [name for name in ("batch_size", "warmup") if own[name] != defaults[name]]
        return completed

    def _has_steps(self) -> bool:
        return super()._has_steps() or (self.path / SEARCH).exists() or (self.path / PARTS).exists()

    @property
    def fewest_seeds(self) -> int:
        """How many seeds a resumed run must ask for so that no finished one is lost; 0 if there is no run."""
        path = self.path / self.settings_file
        if not path.exists():
            return 0
        asked = parsed(read_json(path, dict).get("config", {}).get("seeds", 0), int, f"{path}: seeds")
        if self.is_finished:
            return min(asked, len(self.result().seeds))
        return min(asked, sum(1 for _ in self.path.glob(f"seed-*/{METRICS}")))

    def seed(self, seed: int) -> Path:
        """Folder of one seed."""
        return self.path / f"seed-{seed}"

    def keep_best(self, seeds: Iterable[SeedResult], chosen: int) -> None:
        """Delete the models of these seeds, except ``best/`` of the chosen one, whose files are those of the run."""
        for seed in seeds:
            for kind in ("last",) if seed.seed == chosen else ("best", "last"):
                shutil.rmtree(self.seed(seed.seed) / kind, ignore_errors=True)

    @property
    def is_of_first_release(self) -> bool:
        """Whether the run in the folder was started by bertkit 0.1.0, which had no patience by default."""
        path = self.path / SETTINGS
        return path.exists() and self._has_steps() and "keep" not in read_json(path, RunSettings).config

    def publish(self, seed: int) -> None:
        """Make one seed's model, log and predictions those of the run; remove an earlier result with fewer seeds."""
        if self.is_finished and self.result().chosen_seed != seed:
            for path in self.path.glob("evaluation-*"):  # of a model that is no longer here
                path.unlink()
        (self.path / METRICS).unlink(missing_ok=True)
        own = [path for path in self.seed(seed).iterdir() if path.is_file() and path.name not in (METRICS, BOOTSTRAP)]
        best = self.seed(seed) / "best"
        for source in [path for path in best.rglob("*") if path.is_file()]:
            _link(source, self.path / source.relative_to(best))
        for source in own:
            _link(source, self.path / source.name)


def _link(source: Path, target: Path) -> None:
    """Give a file a second name without a second copy; copy it where the file system has no hard links."""
    if target.exists() and source.samefile(target):
        return  # renaming onto itself would leave the temporary name behind
    target.parent.mkdir(parents=True, exist_ok=True)
    remove_old_drafts(target)
    temporary = draft_of(target)
    try:
        os.link(source, temporary)
    except OSError:
        shutil.copy2(source, temporary)
    temporary.replace(target)
