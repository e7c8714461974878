"""Folders of sentence-transformers' CrossEncoder: what lies beside a classifier with one output.

Before release 6 that was the activation alone, in ``config.json``; since then also settings and a list of modules.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from bertkit.errors import CheckpointError
from bertkit.system.json_files import read_json
from bertkit.system.untrusted_files import Json, read_object

SETTINGS = "config_sentence_transformers.json"
MODULES = "modules.json"
#: What a score is made by, as these folders name it -> the function of :mod:`bertkit.inference.text_classification`.
ACTIVATIONS = {"torch.nn.modules.activation.Sigmoid": "sigmoid", "torch.nn.modules.linear.Identity": "none"}
_MAX_BYTES = 1 << 20


def saved_activation(folder: Path) -> str | None:
    """The class of torch that the settings beside a classifier name as its activation; None: they do not say."""
    found = settings_in(folder / SETTINGS).get("activation_fn")
    if not isinstance(found, str | None):
        raise CheckpointError(f"{folder / SETTINGS}: activation_fn is {found!r:.80}, expected the name of a class")
    return found


def check_cross_encoder(folder: Path) -> None:
    """Refuse (CheckpointError) a folder whose scores are not those of the classifier alone."""
    settings = settings_in(folder / SETTINGS)
    if (prompt := settings.get("default_prompt_name")) is not None:
        raise CheckpointError(
            f"{folder / SETTINGS} has the default prompt {prompt!r:.60}, which is put before every query; bertkit's "
            "rerankers have no prompts, so scores would differ"
        )
    kinds = [module.kind for module in read_modules(folder)]
    if kinds not in ([], ["Transformer"]) and settings.get("model_type") == "CrossEncoder":
        raise CheckpointError(
            f"{folder / MODULES} lists the modules {', '.join(kinds)}; bertkit reads cross-encoders that are a "
            "classifier and nothing else"
        )


class Module(NamedTuple):
    """A part of a model: the name of its class, and where it is in the folder."""

    kind: str
    path: str


def read_modules(folder: Path) -> list[Module]:
    """The parts of a model of sentence-transformers; none where the folder does not list them."""
    file = folder / MODULES
    if not file.exists():
        return []
    listed = read_json(file, list[dict[str, str | int | list[str] | dict[str, str] | None]])
    return [Module(str(entry.get("type")).rpartition(".")[2], str(entry.get("path"))) for entry in listed]


def settings_in(file: Path) -> dict[str, Json]:
    """The settings in a file of such a folder; none where there is no file."""
    return read_object(file, max_bytes=_MAX_BYTES) if file.exists() else {}
