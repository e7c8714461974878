"""Running an exported model with ONNX Runtime: texts in, arrays out. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bertkit.config.bert_config import BertConfig
from bertkit.errors import CheckpointError, InputError, require
from bertkit.system.json_files import printable, read_json
from bertkit.system.paths import user_path
from bertkit.tokenization import AutoTokenizer

Variant = Literal["packed", "padded"]
#: The file of each variant. ``model.onnx`` is the one that other software looks for.
FILES: Mapping[str, str] = {"padded": "model.onnx", "packed": "model_packed.onnx"}
#: What was exported, how, and what the check found.
MANIFEST = "export.json"


class OnnxModel:
    """An exported folder, ready to run on texts.

    Args:
        folder: what ``bertkit export`` wrote.
        variant: None takes the packed graph if there is one, in which padding costs nothing.
        threads: of ONNX Runtime; None: one a core.

    Raises:
        CheckpointError: no such export, or a damaged one.
        MissingExtraError: ONNX Runtime is not installed.
    """

    def __init__(self, folder: str | Path, variant: Variant | None = None, threads: int | None = None) -> None:
        self.folder = user_path(folder)
        self.manifest = read_manifest(self.folder)
        there = list(self.manifest["variants"])
        if variant is not None and variant not in there:
            raise CheckpointError(f"{self.folder} has no {variant} variant, only {', '.join(there)}: export it again")
        self.variant = variant or ("packed" if "packed" in there else there[0])
        self.config = BertConfig.from_json_file(self.folder / "config.json")
        self.tokenizer = AutoTokenizer.from_pretrained(self.folder)
        self.session = open_session(self.folder / FILES[self.variant], threads)
        self.inputs = tuple(found.name for found in self.session.get_inputs())
        self.outputs = tuple(found.name for found in self.session.get_outputs())

    def __call__(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None, *, truncation: bool = False
    ) -> dict[str, list[NDArray[np.float32]]]:
        """Every result of each text.

        Args:
            texts: B texts.
            text_pairs: B second texts, or None.
            truncation: cut texts that are too long instead of refusing them.

        Returns:
            Output name to B float32 arrays: of tokens ``(S, ...)`` with each text's own S, of texts ``(C,)`` or
            ``(D,)``.

        Raises:
            InputError: a text of more tokens than the model reads, or no text.
        """
        limit = min(self.config.max_input_length, self.tokenizer.model_max_length)
        ragged = self.tokenizer.encode_ragged(texts, text_pairs, max_length=limit)
        if not len(ragged):
            raise InputError("there is no text to run the model on")
        if not truncation and ragged.truncated.any():
            row = int(np.argmax(ragged.truncated))
            raise InputError(
                f"text {row} has {ragged.num_tokens_before[row]:,} tokens, special tokens included; the limit is "
                f"{limit:,}. Shorten it, or pass truncation=True to read only its beginning"
            )
        bounds = ragged.boundaries.astype(np.int64)
        return self.run(ragged.ids.astype(np.int64), ragged.token_type_ids.astype(np.int64), bounds)

    def run(
        self, ids: NDArray[np.int64], segments: NDArray[np.int64], bounds: NDArray[np.int64]
    ) -> dict[str, list[NDArray[np.float32]]]:
        """Results of B sequences: ids and segments ``(T,)`` end to end, bounds ``(B + 1,)``: 0 and the end of each.

        Refuses (InputError) no or an empty sequence, one that is too long, and an id or segment outside its table: for
        all of these a graph would return numbers that mean nothing.
        """
        self._check(ids, segments, bounds)
        feeds = {"input_ids": ids, "token_type_ids": segments, "cu_seqlens": bounds}
        if self.variant == "padded":
            feeds = _padded(ids, segments, bounds, self.config.pad_token_id)
        found = self.session.run(None, {name: feeds[name] for name in self.inputs})
        return {name: self._rows(name, x, bounds) for name, x in zip(self.outputs, found, strict=True)}

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

    def _rows(self, name: str, x: NDArray[np.float32], bounds: NDArray[np.int64]) -> list[NDArray[np.float32]]:
        if name not in self.manifest["token_outputs"]:
            return list(np.atleast_2d(x.T).T)
        if self.variant == "packed":
            return [x[start:end] for start, end in pairwise(bounds.tolist())]
        return [row[:length] for row, length in zip(x, np.diff(bounds).tolist(), strict=True)]


def read_manifest(folder: Path) -> dict[str, Any]:
    """What an export wrote about itself; CheckpointError where that is missing or damaged."""
    path = folder / MANIFEST
    if not path.exists():
        raise CheckpointError(
            f"{folder} is not an exported model: it has no {MANIFEST}. Make one with: bertkit export MODEL"
        )
    values = read_json(path, dict[str, Any])
    variants, outputs = values.get("variants"), values.get("token_outputs")
    if not isinstance(variants, dict) or not variants.keys() <= FILES.keys() or not isinstance(outputs, list):
        raise CheckpointError(f"{path} is damaged: variants {variants!r:.60}, token_outputs {outputs!r:.60}")
    return values


def open_session(path: Path, threads: int | None = None) -> Any:
    """A session on the CPU; CheckpointError for a file that is missing, damaged, or beyond this runtime."""
    runtime = require("onnxruntime", extra="onnx", needed_for="running an exported model")
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads or 0
    # The runtime takes paths in UTF-8 only; under any other name the file is handed over as bytes.
    source = str(path) if printable(path) == str(path) else path.read_bytes()
    try:
        return runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime has an error class for each of its states, of no common base
        raise CheckpointError(f"{path} cannot be run: {str(error).splitlines()[0]}") from None


def _padded(
    ids: NDArray[np.int64], segments: NDArray[np.int64], bounds: NDArray[np.int64], pad_id: int
) -> dict[str, NDArray[np.int64]]:
    lengths = np.diff(bounds)
    mask = np.arange(lengths.max())[None, :] < lengths[:, None]
    padded, types = np.full(mask.shape, pad_id, np.int64), np.zeros(mask.shape, np.int64)
    padded[mask], types[mask] = ids, segments
    return {"input_ids": padded, "attention_mask": mask.astype(np.int64), "token_type_ids": types}
