"""An exported graph on ONNX Runtime as the back-end of the engine."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import CONFIG
from bertkit.engine.backend import Network, Pack, Precision, Values, Wanted, WordPooling, check_options
from bertkit.engine.export_folder import FILES, WEIGHTS, Variant, check_class, check_files, read_manifest
from bertkit.errors import CheckpointError, ConfigError, InputError, ResourceError, require
from bertkit.ragged import Floats, Ints
from bertkit.system.json_files import printable
from bertkit.system.processor import find_processor

# Read when ONNX Runtime is imported, which otherwise collects facts of the machine in files below ~/.cache and TMPDIR.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

#: Name of the input that says for which tokens words are predicted.
ROWS = "logit_rows"
#: Session option: products of 8-bit integers in a slower way whose sums do not saturate. x86 processors without VNNI
#: need it; others than x86 ignore it.
EXACT_BYTES = "session.x64quantprecision"
#: Tokens computed at once; in a larger batch the intermediate results leave the processor's cache.
MAX_TOKENS_PER_BATCH = 1024


class OnnxBackend:
    """What ``bertkit export`` wrote, on the CPU; ``variant`` None takes the packed graph, if there is one."""

    place = "cpu"
    max_tokens = MAX_TOKENS_PER_BATCH
    packs_ahead = 0

    def __init__(
        self, folder: Path, variant: Variant | None = None, precision: Precision = "auto", threads: int | None = None
    ) -> None:
        check_options(precision, threads)
        self.folder = folder
        self.manifest = read_manifest(folder)
        there = list(self.manifest["variants"])
        if variant is not None and variant not in there:
            raise CheckpointError(f"{folder} has no {variant} variant, only {', '.join(there)}: export it again")
        if precision not in ("auto", self.dtype):
            raise ConfigError(
                f"{folder} was exported in {self.dtype}, the only precision that it has: leave precision={precision!r} "
                "out. An export in int8 is made of a model that 'bertkit quantize' wrote; the others compute with torch"
            )
        self.variant = variant or ("packed" if "packed" in there else there[0])
        self.config = BertConfig.from_json_file(folder / CONFIG)
        check_files(folder, self.manifest)
        self.session = open_session(folder / FILES[self.variant], threads)
        self.inputs = tuple(found.name for found in self.session.get_inputs())
        self.outputs = tuple(found.name for found in self.session.get_outputs())
        self._widths = self._expected_widths()
        for found in self.session.get_outputs():
            self._check_width(found.name, found.shape)
        self._check_problem_type()

    @classmethod
    def load(
        cls, folder: Path, model_class: str, device: Any, dtype: Any, precision: Precision, threads: int | None
    ) -> Self:
        """The back-end of an export of a class; the bare encoder is there in an export of that class only."""
        if str(device) not in ("None", "auto", "cpu", "-1"):
            raise ConfigError(f"{folder} is an exported model, which runs on the CPU; got device {device!r}")
        if dtype is not None:
            raise ConfigError(f"{folder} is an exported model, whose type is fixed; leave out dtype")
        made = cls(folder, precision=precision, threads=threads)
        check_class(folder, made.manifest, model_class)
        return made

    @property
    def model(self) -> Network:
        """Exported models have no model object."""
        raise InputError(f"{self.folder} is an exported model: a graph, without a model object")

    @property
    def model_class(self) -> str:
        return str(self.manifest["model"])

    @property
    def dtype(self) -> str:
        return str(self.manifest.get("precision", "fp32"))

    def compute(self, pack: Pack, wanted: Wanted) -> Values:
        outputs = ("logits",) if wanted.words else wanted.outputs
        if absent := [name for name in outputs if name not in self.outputs]:
            raise CheckpointError(
                f"{self.folder} is an export of a {self.model_class}, which gives {', '.join(self.outputs)}, not "
                f"{', '.join(absent)}"
            )
        if wanted.words is not None:
            return {"word_weights": np.stack([self._word_weights(pack, span, wanted.words) for span in pack.spans()])}
        bounds = np.array(pack.boundaries)
        if wanted.only_at is not None:
            return self._at(np.flatnonzero(pack.ids == wanted.only_at), pack, bounds, wanted)
        found = self.run(pack.ids, pack.token_type_ids, bounds)
        values = {name: found[name] for name in wanted.outputs}
        if wanted.pooling is not None:
            values["last_hidden_state"] = pack.pool(values["last_hidden_state"], wanted.pooling, wanted.skipped)
        return values

    def _word_weights(self, pack: Pack, span: tuple[int, int], words: WordPooling) -> Floats:
        """The weights of the words ``(V,)`` for one row: all logits of a graph are in memory, so one row at a time."""
        own = slice(*span)
        found = self.run(pack.ids[own], pack.token_type_ids[own], np.array([0, span[1] - span[0]]))["logits"]
        weights = np.maximum(found.max(axis=0) if words.pooling == "max" else found, 0.0)
        for _ in range(words.logs):
            weights = np.log1p(weights)
        return weights if words.pooling == "max" else weights.sum(axis=0)

    def _at(self, rows: Ints, pack: Pack, bounds: Ints, wanted: Wanted) -> Values:
        """The wanted outputs at some tokens, ``(R, ...)``."""
        if ROWS in self.inputs and len(rows):
            found = self.run(pack.ids, pack.token_type_ids, bounds, rows)
            return {name: found[name] for name in wanted.outputs}
        found = self.run(pack.ids, pack.token_type_ids, bounds)
        return {name: found[name][rows] for name in wanted.outputs}

    def run(self, ids: Ints, segments: Ints, bounds: Ints, rows: Ints | None = None) -> dict[str, Floats]:
        """Every output of B sequences: of tokens ``(T, ...)``, of sequences ``(B, ...)``.

        ids and segments ``(T,)`` end to end; bounds ``(B + 1,)``: 0 and the end of each. They are not checked. Words
        are predicted at ``rows`` ``(R,)`` where the graph has a choice; None: at every token.
        """
        feeds = {"input_ids": ids, "token_type_ids": segments, "cu_seqlens": bounds}
        if ROWS in self.inputs:
            feeds[ROWS] = np.arange(len(ids)) if rows is None else rows
        mask = None
        if self.variant == "padded":
            mask, feeds = _padded(ids, segments, bounds, self.config.pad_token_id)
        try:
            found = self.session.run(None, {name: feeds[name] for name in self.inputs})
        except MemoryError:
            raise ResourceError(
                f"out of memory with a batch of {len(ids):,} tokens; use a smaller max_length"
            ) from None
        except Exception as error:  # as in open_session
            raise CheckpointError(
                f"{self.folder / FILES[self.variant]} fails for {len(ids):,} tokens: {reason_of(error)[:300]}"
                ". Export the model again; if it asks for more memory than there is, use a smaller max_length"
            ) from None
        values = {}
        for name, x in zip(self.outputs, found, strict=True):
            self._check_width(name, x.shape)
            if name not in self.manifest["token_outputs"]:
                values[name] = np.atleast_2d(x.T).T  # one score a sequence, of multiple choice, as (B, 1)
            else:
                values[name] = x if mask is None else x[mask]
        return values

    def _expected_widths(self) -> dict[str, tuple[str, int]]:
        """By output, what config.json says of its columns: in words, and how many."""
        hidden, words = ("hidden_size", self.config.hidden_size), ("vocab_size", self.config.vocab_size)
        known = {"last_hidden_state": hidden, "pooler_output": hidden, "prediction_logits": words}
        if self.model_class.endswith("MaskedLM"):
            known["logits"] = words
        elif self.model_class.endswith(("SequenceClassification", "TokenClassification")):
            known["logits"] = ("number of labels in id2label", self.config.num_labels)
        return known

    def _check_width(self, name: str, shape: Sequence[int | str | None]) -> None:
        """CheckpointError for another number of columns than config.json says; a text stands for any number."""
        told, width = self._widths.get(name, ("", None))
        if width is not None and shape[-1] != width and not isinstance(shape[-1], str):
            raise CheckpointError(
                f"{self.folder / CONFIG} does not fit the graph: the {told} is {width:,}, but {name} has "
                f"{shape[-1]} columns. Undo what was changed, or change the model itself and export it again"
            )

    def _check_problem_type(self) -> None:
        """CheckpointError if config.json no longer says what the numbers of a classifier are."""
        usual = "regression" if self.config.num_labels == 1 else "single_label_classification"
        now, exported = self.config.problem_type, self.manifest.get("problem_type")
        if "problem_type" in self.manifest and (now or usual) != (exported or usual):
            raise CheckpointError(
                f"{self.folder / CONFIG} has problem_type {now!r}, but the exported model had {exported!r}, so its "
                "numbers would be taken for others. Undo that, or change the model itself and export it again"
            )

    def num_threads(self, lengths: Ints) -> int:
        """ONNX Runtime has threads of its own."""
        return 1

    def in_thread(self, alone: bool) -> AbstractContextManager[None]:
        """Nothing to do: a session may be run by several threads."""
        return nullcontext()

    def encoder(self) -> OnnxBackend:
        """This one; CheckpointError where a head was exported instead."""
        if "last_hidden_state" in self.outputs:
            return self
        raise CheckpointError(
            f"{self.folder} is an export of a {self.model_class}, which gives {', '.join(self.outputs)}: export the "
            "model again with --task feature-extraction"
        )


def open_session(path: Path, threads: int | None = None) -> Any:
    """A session on the CPU; CheckpointError for a file that is missing, damaged, or beyond this runtime."""
    runtime = require("onnxruntime", extra=None, needed_for="running an exported model")
    if not path.is_file():
        raise CheckpointError(f"{path} does not exist; copy the exported folder whole, or export the model again")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads or 0
    if not find_processor().has_int8:
        options.add_session_config_entry(EXACT_BYTES, "1")
    try:
        source, _kept = _source(path, options)
        return runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime has an error class for each of its states, of no common base
        reason = reason_of(error)
        if re.search("opset|IR version|find an implementation", reason):
            raise CheckpointError(
                f"{path} is newer than ONNX Runtime {runtime.__version__}: {reason}. Run: pip install -U onnxruntime, "
                "or export the model again with a lower --opset"
            ) from None
        raise CheckpointError(f"{path} cannot be run: {reason}") from None


def reason_of(error: Exception) -> str:
    """The first line of an error of ONNX Runtime, without its state, source file and C++ signature."""
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    said = re.sub(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ", "", first)
    return re.sub(r"\S*\.(?:cc|h):\d+ .*?\)(?: const)? (?=[A-Z])", "", said)


def _source(path: Path, options: Any) -> tuple[str | bytes, bytes]:
    """A graph as the runtime takes it: by a path in UTF-8; under any other name as bytes, with the weights' file.

    The runtime reads the weights, returned too, from where they are in memory until the session is made: keep them.
    """
    if printable(path) == str(path):
        return str(path), b""
    weights = path.with_name(WEIGHTS)
    data = weights.read_bytes() if weights.is_file() else b""
    if data:
        options.add_external_initializers_from_files_in_memory([WEIGHTS], [data], [len(data)])
    return path.read_bytes(), data


def _padded(
    ids: Ints, segments: Ints, bounds: Ints, pad_id: int
) -> tuple[npt.NDArray[np.bool_], dict[str, npt.NDArray[np.int64]]]:
    """Where tokens are ``(B, S)``, and the inputs of a padded graph."""
    lengths = np.diff(bounds)
    mask = np.arange(lengths.max())[None, :] < lengths[:, None]
    padded, types = np.full(mask.shape, pad_id, np.int64), np.zeros(mask.shape, np.int64)
    padded[mask], types[mask] = ids, segments
    return mask, {"input_ids": padded, "attention_mask": mask.astype(np.int64), "token_type_ids": types}
