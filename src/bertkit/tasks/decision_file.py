"""The decision file of a model: how it was trained to read its input (``max_length`` and the like), and what was chosen
on dev (a null threshold, label thresholds, a temperature). It is saved with the weights, so that all decide alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from bertkit.errors import CheckpointError
from bertkit.system.atomic_files import write_atomically
from bertkit.system.untrusted_files import Json
from bertkit.tasks.examples import Fact

#: The file in a model's folder. A model without one decides by its logits alone.
DECISION = "decision.json"


def write_decision(folder: str | Path, decision: Mapping[str, Fact]) -> None:
    """Save a decision in a model's folder; an empty one writes no file."""
    if decision:
        text = json.dumps(decision, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_atomically(Path(folder) / DECISION, text)


def read_decision(folder: str | Path) -> dict[str, Json]:
    """The decision in a model's folder, or an empty one.

    Raises:
        CheckpointError: the file is damaged.
    """
    path = Path(folder) / DECISION
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} holds {values!r:.40}, expected a JSON object")
    return values
