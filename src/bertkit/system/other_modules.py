"""Modules of other libraries, such as ``transformers.trainer_utils``: found here, their names load when first used.

``bertkit`` puts :func:`find` at the end of ``sys.meta_path``, so that it is asked for modules that do not exist.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from bertkit.habit_table import instead_of
from bertkit.system.lazy_names import unknown_name

_ST = "bertkit.sentence_transformers"
_MODELS = ("bertkit", "bertkit.habits.model_outputs", f"{_ST}.models")
#: Path of a module after ``bertkit.``, to the modules that have its names.
SOURCES: dict[str, Sequence[str]] = {
    "configuration_utils": ("bertkit",),
    "data.data_collator": ("bertkit",),
    "evaluation": (f"{_ST}.evaluation",),
    "integrations": ("bertkit",),
    "losses": (f"{_ST}.losses",),
    "modeling_outputs": ("bertkit.habits.model_outputs",),
    "modeling_utils": ("bertkit",),
    "models": _MODELS,
    "optimization": ("bertkit", "bertkit.habits.trainer_schedules"),
    "pipelines": ("bertkit", "bertkit.inference.open_pipeline"),
    "pipelines.base": ("bertkit", "bertkit.inference.open_pipeline"),
    "pipelines.pt_utils": ("bertkit",),
    "readers": (f"{_ST}.readers",),
    "sentence_transformers.base": (_ST, f"{_ST}.models"),
    "sentence_transformers.base.modules": (f"{_ST}.models",),
    "sentence_transformers.model_card": (_ST,),
    "sentence_transformers.sparse_encoder.models": (f"{_ST}.sparse_encoder.losses",),
    "tokenization_utils": ("bertkit",),
    "tokenization_utils_base": ("bertkit",),
    "trainer": ("bertkit",),
    "trainer_callback": ("bertkit",),
    "trainer_utils": ("bertkit", "bertkit.habits.trainer_schedules", "bertkit.habits.trainer_checkpoints"),
    "training_args": ("bertkit", "bertkit.habits.trainer_schedules"),
    "util": (f"{_ST}.util",),
    "utils": ("bertkit", "bertkit.habits.model_outputs"),
    "utils.logging": ("bertkit.habits.message_levels",),
}
#: Below ``models``: a family, and the modules of it.
_FAMILIES = re.compile(
    r"models\.(albert|auto|bart|bert|camembert|deberta_v2|distilbert|electra|modernbert|mpnet|roberta|t5|xlm_roberta)"
    r"(\.(configuration|modeling|tokenization)_\w+)?"
)
#: Rooms that other libraries have too, with modules that are not there.
_SHARED = ("data", "sentence_transformers", "setfit")


class _Names:
    """Makes a module whose names are those of others."""

    def __init__(self, sources: Sequence[str]) -> None:
        self.sources = sources

    def create_module(self, spec: ModuleSpec) -> None:
        """A usual one."""

    def exec_module(self, module: ModuleType) -> None:
        """Give it a ``__getattr__``."""

        def load(name: str) -> Any:
            told = None  # what a source says to write
            for source in () if name.startswith("__") else self.sources:
                try:
                    return getattr(import_module(source), name)
                except (AttributeError, ImportError) as error:  # replaced by the error below
                    told = told or getattr(error, "instead", None)
            raise unknown_name(module.__name__, name, instead_of("import", name) or told)

        vars(module)["__getattr__"] = load


def find(name: str) -> ModuleSpec | None:
    """The spec of a module of another library; None for any other module.

    Raises:
        ModuleNotFoundError: bertkit has nothing like it; says what to write.
    """
    path = name.removeprefix("bertkit.")
    parts = path.split(".")
    sources = _MODELS if _FAMILIES.fullmatch(path) else SOURCES.get(path)
    if sources is not None:
        return ModuleSpec(name, _Names(sources), is_package=True)  # type: ignore[arg-type]
    if len(parts) > 1 and parts[0] not in _SHARED:
        return None
    instead = instead_of("module", path) or "from bertkit import NAME: the names of other libraries stand there"
    raise ModuleNotFoundError(f"No module named {name!r}; write {instead}", name=name)
