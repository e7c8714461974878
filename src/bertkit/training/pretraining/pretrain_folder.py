"""The folder of a pre-training run::

RUN/
model/           the model and its tokenizer: load RUN/model like any checkpoint
pretrain.json    settings, data and start of the run
metrics.json     settings and scores; written last
log.jsonl        one line per step and per evaluation
checkpoints/     training state while the run is unfinished
"""

from __future__ import annotations

import shutil
from pathlib import Path

from bertkit.training.trainer.run_folder import CHECKPOINTS, RunFolder


class PretrainFolder(RunFolder):
    """The folder of a pre-training run, which is resumed unless ``--no-resume`` is given."""

    settings_file, states, how_to_resume = "pretrain.json", CHECKPOINTS, "leave out --no-resume to resume"

    @property
    def model(self) -> Path:
        """Where the model and its tokenizer are saved."""
        return self.path / "model"

    @property
    def checkpoints(self) -> Path:
        """Folder of the training states."""
        return self.path / CHECKPOINTS

    def drop_checkpoints(self) -> None:
        """Delete the training states of the finished run; its model stays."""
        shutil.rmtree(self.checkpoints, ignore_errors=True)
