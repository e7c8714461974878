"""The tasks for which BART and T5 generate text: their names, and what a checkpoint says of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from bertkit.config.config_file import config_path, read_config
from bertkit.config.families import ENCODER_DECODERS
from bertkit.errors import InputError
from bertkit.system.untrusted_files import Json

#: Task -> the key of the generated text, as in ``transformers``.
RESULTS: Mapping[str, str] = {
    "text2text-generation": "generated_text",
    "summarization": "summary_text",
    "translation": "translation_text",
}
#: As ``transformers`` names a translation: ``translation_en_to_de``.
TRANSLATION = re.compile(r"translation_\w+_to_\w+", re.ASCII)


def kind_of(task: str) -> str | None:
    """The key of :data:`RESULTS` that a task belongs to, if it does."""
    kind = "translation" if TRANSLATION.fullmatch(task) else task
    return kind if kind in RESULTS else None


def generates_text(path: Path) -> bool:
    """Whether a checkpoint is a BART or T5 with a language-modelling head."""
    config = read_config(config_path(path))
    known = config.get("model_type") in ENCODER_DECODERS
    return known and "ForConditionalGeneration" in str(config.get("architectures"))


def translations(task: str, config: Mapping[str, Json]) -> list[str]:
    """The tasks in a checkpoint's config.json that a translation may mean; InputError for one that it does not name."""
    tasks = config.get("task_specific_params")
    known = [name for name in tasks if TRANSLATION.fullmatch(name)] if isinstance(tasks, dict) else []
    if task == "translation":
        return known
    if TRANSLATION.fullmatch(task) and task not in known:
        them = f"it names {', '.join(known)}" if known else "it names no translations"
        raise InputError(
            f"the model's config.json says nothing of {task!r}: {them}. Use task 'translation', with the prefix that "
            "the model was trained on"
        )
    return []
