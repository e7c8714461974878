"""Pictures: ``bertkit.visualize.attention("a text", model=...).save("attention.html")``.

Each function below computes something of a model, of texts or of a run, and returns a
:class:`~bertkit.visualize.drawn.Drawn`: numbers that can be printed, saved as a picture, as a page or as JSON, and that
a notebook shows. Images need the extra ``plots``. The functions stand in ``bertkit.insight`` and load when first used;
the modules here draw from numbers, and need no model.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: Module to the public names in it.
_NAMES: dict[str, str] = {
    "bertkit.insight.explanation": "explain",
    "bertkit.insight.layer_study": "layers",
    "bertkit.insight.run_curves": "training",
    "bertkit.insight.run_errors": "errors",
    "bertkit.insight.run_evaluation": "confusion",
    "bertkit.insight.embedding_map": "embeddings",
    "bertkit.insight.token_map": "tokens",
    "bertkit.insight.vector_space": "anisotropy",
    "bertkit.insight.attention_maps": "attention",
    "bertkit.insight.head_statistics": "heads",
    "bertkit.insight.word_senses": "senses",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'bertkit.visualize' has no attribute {name!r}")
    from bertkit.errors import needs_bertkit

    with needs_bertkit(f"bertkit.visualize.{name}"):
        value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
