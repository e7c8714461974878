"""The folder that a pipeline is saved to."""

from __future__ import annotations

import shutil
from pathlib import Path

from bertkit.checkpoints.sentence_folder import is_sentence_folder, step_files
from bertkit.errors import CheckpointError, ResourceError
from bertkit.system.atomic_files import make_folder


def copy_model_folder(source: Path, target: Path) -> None:
    """Copy the folder that a model was loaded from: its files, and the modules of a sentence model.

    Other subfolders, which hold checkpoints of a training or other formats, stay behind.

    Raises:
        CheckpointError: ``target`` is a file.
        ResourceError: it cannot be written.
    """
    if target.exists() and not target.is_dir():
        raise CheckpointError(f"{target} is a file; give the name of a folder")
    if target.resolve() == source.resolve():
        return
    modules = (
        [source / "1_Pooling", *(file.parent for file in step_files(source))] if is_sentence_folder(source) else []
    )
    make_folder(target)
    try:
        for file in source.iterdir():
            if file.is_file():
                shutil.copyfile(file, target / file.name)
        for module in modules:
            if module.is_dir():
                shutil.copytree(module, target / module.name, dirs_exist_ok=True)
    except OSError as error:
        raise ResourceError(f"cannot write the model to {target}: {error}") from error
