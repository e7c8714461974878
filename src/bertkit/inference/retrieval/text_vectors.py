"""Texts to vectors of length 1: the one place where search, clusters, topics and duplicates get them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertkit.checkpoints.huggingface import checkpoint_folder, saved_pooling
from bertkit.data.store.store_manifest import tokenizer_digest
from bertkit.engine.backend import Pooling
from bertkit.errors import InputError
from bertkit.inference.pipelines import pipeline
from bertkit.inference.protocol import model_hash
from bertkit.ragged import Flags, Floats
from bertkit.system.json_files import printable
from bertkit.system.model_sources import resolve
from bertkit.system.paths import user_path

#: What vectors depend on, besides the text; equal for two encoders that give the same.
Facts = dict[str, str | int | None]


class Encoded(NamedTuple):
    """vectors: float32 ``(N, D)``, of length 1. truncated: which texts were longer than what was read, ``(N,)``."""

    vectors: Floats
    truncated: Flags


class TextEncoder:
    """A model that makes vectors of texts, with all that they depend on.

    Args:
        model: folder or Hub name of an encoder.
        pooling: ``"cls"``, ``"mean"`` or ``"max"``; None: as the model says, else the mean.
        prompt: put before each text that is searched; ``query_prompt`` before what is searched for.
        query_prompt: see ``prompt``.
        max_length: most tokens of a text, prompt included; None: what the model reads.
        device, precision, threads: see :func:`bertkit.pipeline`.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        pooling: Pooling | None = None,
        prompt: str = "",
        query_prompt: str = "",
        max_length: int | None = None,
        **computing: Any,
    ) -> None:
        self.path = resolve(model)
        self.pipe = pipeline("feature-extraction", model=self.path, **computing)
        self.pooling = pooling or saved_pooling(checkpoint_folder(self.path)) or "mean"
        self.prompt, self.query_prompt, self.max_length = prompt, query_prompt, max_length

    @property
    def width(self) -> int:
        """D."""
        return int(self.pipe.config.hidden_size)

    @cached_property
    def facts(self) -> Facts:
        """What the vectors depend on, the model's weights among it."""
        return {
            "model_sha256": model_hash(self.path),
            "tokenizer_sha256": tokenizer_digest(self.pipe.tokenizer),
            "pooling": self.pooling,
            "prompt": self.prompt,
            "query_prompt": self.query_prompt,
            "max_length": self.max_length,
        }

    def encode(
        self, texts: Iterable[str], *, query: bool = False, advance: Callable[[int], None] = lambda count: None
    ) -> Encoded:
        """Vectors of texts that are searched, or of a ``query``; ``advance`` is called with the number that is done."""
        prompt = self.query_prompt if query else self.prompt
        vectors, truncated = [], []
        options = {"pooling": self.pooling, "normalize": True, "truncation": True, "max_length": self.max_length}
        for vector in self.pipe(iter([prompt + text for text in texts]), progress=False, **options):
            vectors.append(np.asarray(vector))
            truncated.append(vector.truncated)
            advance(1)
        found = np.stack(vectors) if vectors else np.zeros((0, self.width), np.float32)
        return Encoded(found, np.array(truncated, np.bool_))

    @property
    def longest(self) -> int:
        """Most tokens that are read of a text."""
        return self.max_length or int(self.pipe.max_length)


def model_name(model: str | Path) -> str:
    """What to write down of a model: the whole path of a folder, or the name on the Hub."""
    path = user_path(model)
    return printable(path.resolve()) if path.exists() else str(model)


def refuse_truncated(encoded: Encoded, places: Callable[[int], str], longest: int) -> None:
    """InputError if a text was truncated; ``places`` says where text n is."""
    long = np.flatnonzero(encoded.truncated)
    if len(long):
        more = "" if len(long) == 1 else f", and {len(long) - 1:,} more near it"
        raise InputError(
            f"{places(int(long[0]))}: a text of more than {longest:,} tokens{more}. Shorten it, or read only the "
            "beginning of long texts (on the command line: --truncate)"
        )
