"""Pictures: ``bertkit.visualize.attention("a text", model=...).save("attention.html")``.

Each function below computes something of a model, of texts or of a run, and returns a
:class:`~bertkit.visualize.drawn.Drawn`: numbers that can be printed, saved as a picture, as a page or as JSON, and that
a notebook shows. Images need the extra ``plots``. The functions stand in ``bertkit.insight`` and load when first used;
the modules here draw from numbers, and need no model.
"""

from __future__ import annotations

from bertkit.system.lazy_names import lazy_names

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
__getattr__, __all__ = lazy_names(__name__, _NAMES)


def __dir__() -> list[str]:
    return __all__
