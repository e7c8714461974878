"""Texts to the outputs of an exported model, as arrays; for results of a task use :func:`bertkit.pipeline`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertkit.engine.export_folder import FILES, MANIFEST, Variant, read_manifest
from bertkit.engine.onnx_backend import OnnxBackend, open_session
from bertkit.errors import InputError
from bertkit.inference.pipeline_base import check_lengths
from bertkit.system.paths import user_path
from bertkit.tokenization.auto_tokenizer import AutoTokenizer

__all__ = ["FILES", "MANIFEST", "OnnxModel", "Variant", "open_session", "read_manifest"]


class OnnxModel:
    """An exported folder, ready to run on texts; ``variant`` None takes the packed graph, if there is one."""

    def __init__(self, folder: str | Path, variant: Variant | None = None, threads: int | None = None) -> None:
        self.folder = user_path(folder)
        self.backend = OnnxBackend(self.folder, variant, threads=threads)
        self.tokenizer = AutoTokenizer.from_pretrained(self.folder)
        self.manifest, self.variant = self.backend.manifest, self.backend.variant
        self.config, self.session = self.backend.config, self.backend.session
        self.inputs, self.outputs = self.backend.inputs, self.backend.outputs

    def __call__(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None, *, truncation: bool = False
    ) -> dict[str, list[NDArray[np.float32]]]:
        """Every result of each text: of tokens ``(S, ...)`` with each text's own S, of texts ``(C,)`` or ``(D,)``."""
        limit = min(self.config.max_input_length, self.tokenizer.model_max_length)
        ragged = self.tokenizer.encode_ragged(texts, text_pairs, max_length=limit)
        if not len(ragged):
            raise InputError("there is no text to run the model on")
        if not truncation:
            check_lengths(ragged, limit, 0)
        bounds = ragged.boundaries.astype(np.int64)
        return self.run(ragged.ids.astype(np.int64), ragged.token_type_ids.astype(np.int64), bounds)

    def run(
        self, ids: NDArray[np.int64], segments: NDArray[np.int64], bounds: NDArray[np.int64]
    ) -> dict[str, list[NDArray[np.float32]]]:
        """Results of B sequences: ids and segments ``(T,)`` end to end, bounds ``(B + 1,)``: 0 and the end of each.

        Refuses (InputError) what a graph would return meaningless numbers for.
        """
        self._check(ids, segments, bounds)
        found = self.backend.run(ids, segments, bounds)
        spans = list(pairwise(bounds.tolist()))
        of_tokens = self.manifest["token_outputs"]
        return {name: [x[i:j] for i, j in spans] if name in of_tokens else list(x) for name, x in found.items()}

    def _check(self, ids: NDArray[np.int64], segments: NDArray[np.int64], bounds: NDArray[np.int64]) -> None:
        lengths = np.diff(bounds)
        if not len(lengths) or bounds[0] != 0 or bounds[-1] != len(ids) or len(segments) != len(ids):
            raise InputError(
                f"{len(ids)} ids and {len(segments)} segments do not fit the boundaries {bounds[:3]} ... {bounds[-1:]}"
            )
        if lengths.min() < 1 or lengths.max() > self.config.max_input_length:
            row = int(np.argmax((lengths < 1) | (lengths > self.config.max_input_length)))
            raise InputError(f"sequence {row} has {lengths[row]} tokens, not 1 to {self.config.max_input_length}")
        # A model without segments has no such input, and ignores them.
        for name, values, size in (
            ("input_ids", ids, self.config.vocab_size),
            ("token_type_ids", segments, self.config.type_vocab_size),
        ):
            wrong = values[(values < 0) | (values >= size)]
            if name in self.inputs and len(wrong):
                raise InputError(f"{name} has {wrong[0]}, outside 0 ... {size - 1}")
