"""Write a checkpoint in the layout of the Hugging Face Hub; :mod:`bertkit.checkpoints.huggingface` reads it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from bertkit.checkpoints.rules import ModelConfig
from bertkit.checkpoints.safetensors_format import CHECKSUM, NO_CHECKSUM, seal
from bertkit.checkpoints.weight_files import INDEX, INT8_FACTS, INT8_WEIGHTS, POOLED_WEIGHTS, WEIGHTS
from bertkit.config.adapter_config import ADAPTER_WEIGHTS, POOLED_ADAPTER_WEIGHTS
from bertkit.config.config_file import CONFIG
from bertkit.errors import CheckpointError, ResourceError
from bertkit.system.atomic_files import (
    disk_guard,
    draft_of,
    remove_old_drafts,
    sync_file,
    sync_folder,
)
from bertkit.system.model_sources import ADAPTER, HEAD

#: Name of the weights -> the files that belong to them. Of the others here, each would be read in their place.
OWN = {
    WEIGHTS: (WEIGHTS, INDEX),
    POOLED_WEIGHTS: (POOLED_WEIGHTS,),
    INT8_WEIGHTS: (INT8_WEIGHTS, INT8_FACTS),
    ADAPTER_WEIGHTS: (ADAPTER_WEIGHTS, ADAPTER),
    POOLED_ADAPTER_WEIGHTS: (POOLED_ADAPTER_WEIGHTS, ADAPTER),
    HEAD: (HEAD,),
}


def write_folder(
    folder: Path,
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    name: str | None = None,
    *,
    metadata: Mapping[str, str] | None = None,
    beside: Mapping[str, str] | None = None,
) -> None:
    """Write ``config.json`` and the weights, by default ``model.safetensors``; a reader finds each old or new, whole.

    ``beside``: further files, content by name, written last. Earlier weights under another name, which would be read in
    the place of these, are removed once these are there. Only a crash between two renames can leave the old config
    beside the new weights.
    """
    weights, settings = draft_of(folder / WEIGHTS), draft_of(folder / CONFIG)
    others = {other: (draft_of(folder / other), text) for other, text in (beside or {}).items()}
    drafts = (weights, settings, *(draft for draft, _ in others.values()))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in (WEIGHTS, CONFIG, *others):
            remove_old_drafts(folder / file)
        with disk_guard(folder, sum(x.numel() * x.element_size() for x in tensors.values()), what="the model"):
            save_file(dict(tensors), weights, {"format": "pt", CHECKSUM: NO_CHECKSUM, **(metadata or {})})
        seal(weights)
        config.to_json_file(settings)
        for draft, text in others.values():
            draft.write_text(text, encoding="utf-8")
        weights.chmod(settings.stat().st_mode & 0o777)  # the library makes its file private
        for draft in drafts:
            sync_file(draft)
        name = name or (POOLED_WEIGHTS if config.differs_elsewhere else WEIGHTS)
        weights.replace(folder / name)
        for other in {each for own in OWN.values() for each in own}.difference(OWN[name]):
            (folder / other).unlink(missing_ok=True)
        settings.replace(folder / CONFIG)
        for other, (draft, _) in others.items():
            draft.replace(folder / other)
        sync_folder(folder)
    except (FileExistsError, NotADirectoryError):
        raise CheckpointError(f"{folder} is a file; a model is saved to a folder") from None
    except (OSError, SafetensorError) as error:
        raise ResourceError(f"cannot write the model to {folder}: {error}") from error
    finally:
        for draft in drafts:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
