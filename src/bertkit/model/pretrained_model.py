"""``from_pretrained`` and ``save_pretrained`` of the model classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from bertkit.model.configured_model import ConfiguredModel
from bertkit.model.loading import load_model, save_model


class PretrainedModel(ConfiguredModel):
    """A model that can be loaded and saved."""

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, **options: Any) -> Self:
        """Load a checkpoint: a folder, a ``.safetensors`` file, a sharded index, or a name on the Hugging Face Hub.

        Every tensor of the encoder and of this class's head must be there with its shape, or a new head must be asked
        for by name; anything else is an error that lists all differences. The model comes back in eval mode.

        Args:
            name_or_path: what to load.
            **options: ``num_labels``, ``id2label`` or ``label2id`` (a new task head of that size where the file has
                none), ``problem_type``, ``new_head=True`` (a new head whatever the file has), ``seed`` (for the new
                head, default 0), ``revision`` (Hub), ``device``, ``dtype`` or ``torch_dtype`` (default:
                float32).

        Raises:
            CheckpointError: the file is missing, damaged, unsafe, or does not fit.
            ConfigError: an option contradicts the checkpoint's config.
        """
        return load_model(cls, name_or_path, **options)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``model.safetensors`` under the names that other software of the family reads.

        Raises:
            ResourceError: the disk is full or cannot be written.
        """
        save_model(self, folder)
