"""The encoder of an index: the one that it was built with, and no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertkit.errors import CheckpointError, DataError, InputError
from bertkit.inference.pipeline_inputs import is_whole
from bertkit.inference.retrieval.index_files import AGAIN, MANIFEST, Manifest
from bertkit.inference.retrieval.text_vectors import TextEncoder


def open_encoder(path: Path, manifest: Manifest, model: str | Path | None, **computing: Any) -> TextEncoder:
    """The encoder that an index was built with; ``model`` None: where it was then."""
    facts = manifest.facts
    settings = {name: facts.get(name) for name in ("pooling", "prompt", "query_prompt", "max_length")}
    try:
        encoder = TextEncoder(
            manifest.model if model is None else model,
            by_products=True,
            **settings,  # type: ignore[arg-type]
            **computing,
        )
        longest = settings["max_length"]
        if longest is not None and not is_whole(longest, 3, encoder.pipe.max_length):
            raise InputError(f"max_length is {longest}, expected 3 to {encoder.pipe.max_length}")
    except InputError as error:
        raise DataError(f"{path / MANIFEST} is damaged: {error}; {AGAIN}") from None
    except CheckpointError as error:
        if model is not None:
            raise
        raise CheckpointError(f"{error}. {path} was built with it; if it has moved, say where (--model)") from None
    if encoder.width != manifest.width:
        raise CheckpointError(
            f"{encoder.path} makes vectors of {encoder.width} numbers, those in {path} have {manifest.width}: it was "
            f"built with another model ({manifest.model})"
        )
    for name, value in encoder.facts.items():
        if facts.get(name) != value:
            what = {"sentence": "way of making vectors of texts (its modules)"}.get(name, name.removesuffix("_sha256"))
            raise CheckpointError(
                f"{encoder.path} is not the model that {path} was built with ({manifest.model}): another {what}. Give "
                "that one (--model), or build the index again"
            )
    return encoder
