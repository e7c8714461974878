"""Texts to vectors: the one place where search, clusters, topics and duplicates get them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bertkit.config.sentence_config import QUERY
from bertkit.errors import ConfigError, TextError
from bertkit.inference.feature_extraction import FeatureExtractionPipeline, Pooling
from bertkit.inference.pipelines import pipeline
from bertkit.inference.protocol import model_hash
from bertkit.ragged import Flags, Floats
from bertkit.system.json_files import printable
from bertkit.system.model_sources import resolve
from bertkit.system.paths import user_path
from bertkit.tokenization.digest import tokenizer_digest

#: What vectors depend on, besides the text; equal for two encoders that give the same.
Facts = dict[str, str | int | None]


class Encoded(NamedTuple):
    """vectors: float32 ``(N, D)``. truncated: which texts were longer than what was read, ``(N,)``."""

    vectors: Floats
    truncated: Flags


class TextEncoder:
    """A model that makes vectors of texts, with all that they depend on.

    prompt, query_prompt: put before each text that is searched, and before what is searched for; None: what the model
        has.
    max_length: most tokens of a text, prompt included; None: what the model reads.
    by_products: the product of two vectors says how near they are to the model: its cosine, or for a model that is
        meant for it the dot product of vectors that keep their lengths. Otherwise all vectors have length 1.
    pipe: of the model, where it is loaded already.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        pooling: Pooling = "model",
        prompt: str | None = None,
        query_prompt: str | None = None,
        max_length: int | None = None,
        by_products: bool = False,
        pipe: FeatureExtractionPipeline | None = None,
        **computing: Any,
    ) -> None:
        self.path = resolve(model)
        self.pipe: FeatureExtractionPipeline = pipe or pipeline("feature-extraction", model=self.path, **computing)
        self.pooling, self.max_length = pooling, max_length
        self.measure = self.pipe.measure(pooling) if by_products else "cosine"
        if self.measure not in ("cosine", "dot"):
            raise ConfigError(
                f"{self.path} compares vectors by {self.measure} distances, and an index searches by cosines or dot "
                "products; choose another model, or pooling='mean', which is compared by cosines"
            )
        self._config = config = self.pipe.parts(pooling).config
        self.prompt = config.prompt(prompt, config.document_prompt if prompt is None else None)
        self.query_prompt = config.prompt(query_prompt, QUERY if query_prompt is None else None)

    @property
    def width(self) -> int:
        """D."""
        return int(self._config.dimensions or self._config.widths(self.pipe.config.hidden_size)[-1])

    @cached_property
    def facts(self) -> Facts:
        """What the vectors depend on, the model's weights among it."""
        return {
            "model_sha256": model_hash(self.path),
            "tokenizer_sha256": tokenizer_digest(self.pipe.tokenizer),
            "pooling": self.pooling,
            "measure": self.measure,
            "sentence": self._config.model_dump_json(),
            "prompt": self.prompt,
            "query_prompt": self.query_prompt,
            "max_length": self.max_length,
        }

    def encode(
        self, texts: Iterable[str], *, query: bool = False, advance: Callable[[int], None] = lambda count: None
    ) -> Encoded:
        """Vectors of texts that are searched, or of a ``query``; ``advance`` is called with the number that is done."""
        vectors, truncated = [], []
        found = self.pipe(iter(texts), truncation=True, progress=False, **self.reading(query=query))
        for vector in found:
            vectors.append(np.asarray(vector))
            truncated.append(vector.truncated)
            advance(1)
        stacked = np.stack(vectors) if vectors else np.zeros((0, self.width), np.float32)
        return Encoded(stacked, np.array(truncated, np.bool_))

    def reading(self, *, query: bool = False) -> dict[str, Any]:
        """Keywords with which the pipeline makes these vectors."""
        return {
            "pooling": self.pooling,
            "prompt": self.query_prompt if query else self.prompt,
            "normalize": self.measure == "cosine",
            "max_length": self.max_length,
        }

    @property
    def longest(self) -> int:
        """Most tokens that are read of a text."""
        own = self.pipe.max_length
        return self.max_length or min(self._config.max_length or own, own)


def model_name(model: str | Path) -> str:
    """What to write down of a model: the whole path of a folder, or the name on the Hub."""
    path = user_path(model)
    return printable(path.resolve()) if path.exists() else str(model)


def refuse_truncated(encoded: Encoded, places: Callable[[int], str], longest: int) -> None:
    """TextError if a text was truncated; ``places`` says where text n is."""
    long = np.flatnonzero(encoded.truncated)
    if len(long):
        more = "" if len(long) == 1 else f", and {len(long) - 1:,} more near it"
        raise TextError(
            f"{places(int(long[0]))}: a text of more than {longest:,} tokens{more}. Shorten it, or read only the "
            "beginning of long texts (on the command line: --truncate)"
        )
