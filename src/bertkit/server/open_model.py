"""A model that answers the tasks of its head: the pipelines on its one encoder, for batches of items."""

from __future__ import annotations

import copy
import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bertkit.checkpoints.huggingface import heads_in
from bertkit.checkpoints.sparse_folder import is_sparse_folder
from bertkit.config.config_file import checkpoint_folder
from bertkit.engine.backend import Precision
from bertkit.engine.inference_engine import InferenceEngine
from bertkit.engine.native.library import native_library
from bertkit.engine.native.native_backend import why_not_native
from bertkit.errors import CheckpointError, InputError
from bertkit.inference.analysis import Analyzer
from bertkit.inference.feature_extraction import FeatureExtractionPipeline, compare
from bertkit.inference.late_chunks import Chunk, late_chunks, late_parts
from bertkit.inference.open_pipeline import METHODS, TASKS, Entry, infer_task, method_of, open_checkpoint
from bertkit.inference.pipeline_base import Pipeline
from bertkit.inference.pipelines import pipeline
from bertkit.inference.protocol import model_hash
from bertkit.inference.redaction import redact
from bertkit.server.calls import Overflow, Task
from bertkit.server.inside import Attention, Gradients, explained_tokens, explanation, pieces_of, text_map
from bertkit.server.items import is_truncated, num_characters, num_rows, pair_of, without_notes
from bertkit.server.model_tasks import OF_ENCODERS, OF_HEADS, OF_TOKENIZERS, PIPELINES, beyond_one_window, reading
from bertkit.server.shared_engine import SharedEngine
from bertkit.system.atomic_files import sha256_file
from bertkit.system.device import Device
from bertkit.system.fork_locks import ForkSafeLock
from bertkit.system.model_sources import resolve
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: What computes models; auto: whatever can.
EngineKind = Literal["auto", "native", "torch", "onnx"]


@dataclass(frozen=True, slots=True)
class Results:
    """Of each item its result, its tokens, and whether a part was not read; and the seconds of the encoder for all.

    shared: of each item of similarity how many of its tokens its source has; empty: not known.
    """

    values: list[Any]
    tokens: list[int]
    truncated: list[bool]
    encoding: float = 0.0
    shared: Sequence[int] = ()


class OpenModel:
    """A loaded model. Any number of threads may ask it; its encoder computes one batch at a time."""

    def __init__(
        self,
        source: str | Path,
        *,
        device: Device = None,
        precision: Precision = "auto",
        threads: int | None = None,
        engine: EngineKind = "auto",
    ) -> None:
        """``engine``: what must compute it; CheckpointError if something else would."""
        self._open(source, device, precision, threads, engine)
        if engine not in ("auto", found := self._engine_kind):
            why = why_not_native(self.path, self.model_class, device) if (engine, found) == ("native", "torch") else ""
            reason = f" ({why})" if why else ""
            raise CheckpointError(f"{self.path} is computed by {found}{reason}, and --engine asks for {engine}")

    def _open(
        self, source: str | Path, device: Device, precision: Precision, threads: int | None, engine: EngineKind
    ) -> None:
        self.path = path = resolve(source)
        self._lock, self._notes = ForkSafeLock(), threading.local()
        self._pipes: dict[str, Any] = {}
        self._making = ForkSafeLock()
        self.analyzer: Analyzer | None = None
        #: Of a run of several heads the pipeline of each, on the one encoder.
        self.heads: Mapping[str, Pipeline] = {}
        self.tokenizer: PreTrainedTokenizer
        # Nothing stays mapped, because files may change meanwhile.
        self._computing: dict[str, Any] = {
            "device": device, "precision": precision, "threads": threads, "in_memory": True,
        }  # fmt: skip
        if heads_in(path):
            self.analyzer = Analyzer.open(path, **self._computing)
            self.head, shared = "analyze", self.analyzer.shared
            self.engine = shared.encoder = SharedEngine(shared.encoder, self._lock, self._notes)
            pipes = {name: head.pipe for name, head in self.analyzer.heads.items()} | self.analyzer.answering
            self.heads = dict(sorted(pipes.items()))
            self.tokenizer = next(iter(self.heads.values())).tokenizer
            return
        self.head = "sparse-encoding" if is_sparse_folder(path) else infer_task(path)
        if self.head == "text2text-generation":
            pipe = pipeline(self.head, model=path, device=device)
            self._pipes[self.head], self.tokenizer = pipe, pipe.tokenizer
            return
        entry = TASKS[self.head]
        self._computing["by_torch"] = engine == "torch"
        pipe = open_checkpoint(path, entry.load(), entry.model_class, None, self._computing)
        if self.head == "text-classification" and pipe.config.num_labels == 1 and not _is_regression(pipe.config):
            self.head = "text-ranking"
        self.tokenizer, self.engine = pipe.tokenizer, SharedEngine(pipe.engine, self._lock, self._notes)

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """What it can be asked, its own first."""
        tasks = self._tasks_of_heads if self.heads else OF_HEADS[self.head]
        if self.head == "text2text-generation":
            return (*tasks, *OF_TOKENIZERS)
        if self.head == "fill-mask" and "BertForPreTraining" in (self.config.architectures or ()):
            tasks += ("next-sentence",)
        if self.head == "feature-extraction":
            tasks += OF_ENCODERS
        if self.analyzer is None and self._zero_shot is not None:
            tasks += ("zero-shot",)
        tasks += OF_ENCODERS
        return (*dict.fromkeys(tasks), *(() if self.lacks else ("attention",)), *OF_TOKENIZERS)

    @property
    def _tasks_of_heads(self) -> tuple[Task, ...]:
        own = (task for pipe in self.heads.values() for task in OF_HEADS[pipe.task])
        return ("analyze", *dict.fromkeys(own))

    @cached_property
    def lacks(self) -> Mapping[Task, str]:
        """Tasks of encoders that it does not do, and why."""
        reason = None if self.head == "text2text-generation" else self._attention.why_not
        return {} if reason is None else {"attention": reason}

    @cached_property
    def _attention(self) -> Attention:
        return Attention(self.path, self.engine.model_class, self.config, self.tokenizer)

    @cached_property
    def _gradients(self) -> Gradients:
        return Gradients(self.path, self._computing["device"])

    @property
    def config(self) -> Any:
        """Shape and labels of the model."""
        return self._pipes[self.head].model.config if self.head == "text2text-generation" else self.engine.config

    @property
    def model_class(self) -> str:
        """Name of the model's class."""
        return type(self._pipes[self.head].model).__name__ if self.head in self._pipes else self.engine.model_class

    @property
    def engine_name(self) -> str:
        """What computes it: with the C library its instruction set."""
        if self.head == "text2text-generation":
            return "torch"
        return f"bertkit ({native_library()})" if self._engine_kind == "native" else self._engine_kind

    @property
    def _engine_kind(self) -> str:
        """``native``, ``torch``, ``onnx`` or ``static``."""
        if self.head == "text2text-generation":
            return "torch"
        return type(self.engine.backend).__name__.removesuffix("Backend").lower()

    @property
    def precision(self) -> str:
        """How weights are kept, or the type that it computes in."""
        backend = getattr(getattr(self, "engine", None), "backend", None)
        return str(getattr(backend, "weight_type", None) or getattr(backend, "dtype", "float32"))

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of its labels by number; None where its head has none."""
        if self.head in ("text-classification", "text-ranking", "token-classification"):
            return tuple(self.config.id2label.values())
        return None

    @property
    def max_length(self) -> int:
        """Most tokens that it reads of a text, special tokens included."""
        if self.heads:
            return max(pipe.max_length for pipe in self.heads.values())
        pipe = self._pipes.get(self.head) or self._pipe(self.head)
        if isinstance(pipe, FeatureExtractionPipeline) and (said := pipe.sentence.config.max_length):
            return min(said, pipe.max_length)
        return int(pipe.max_length)

    @cached_property
    def revision(self) -> str:
        """SHA-256 of all that its answers depend on: weights, config, decision and tokenizer."""
        folder = checkpoint_folder(self.path)
        names = sorted(
            name
            for pattern in ("*.json", "vocab*", "merges*", "*.model", "*/config.json")
            for name in folder.glob(pattern)
        )
        parts = [model_hash(self.path), *(sha256_file(file) for file in names if file.is_file())]
        return hashlib.sha256("".join(parts).encode()).hexdigest()

    @property
    def vectors(self) -> FeatureExtractionPipeline:
        """What makes its vectors; of a model that embeds."""
        pipe: FeatureExtractionPipeline = self._pipe("feature-extraction")
        return pipe

    @property
    def pooling(self) -> str | None:
        """How it makes a vector of a text's tokens."""
        if self.head == "text2text-generation":
            return None
        return "+".join(self.vectors.sentence.config.pooling)

    @cached_property
    def _zero_shot(self) -> Entry | None:
        try:
            entry = METHODS[method_of(self.path)][0]
            if entry.model_class == "BertForSequenceClassification":
                from bertkit.inference.zero_shot.entailment import nli_labels

                nli_labels(self.config.id2label)
        except (InputError, CheckpointError):  # no head for it, or labels that say nothing of entailment
            return None
        return entry

    def _pipe(self, task: str) -> Any:
        """The pipeline of a task, which shares the encoder with the others."""
        with self._making:
            if task not in self._pipes:
                entry = self._zero_shot if task == "zero-shot-classification" else TASKS[task]
                assert entry is not None
                pipe: Pipeline = entry.load()(self._engine_for(entry.model_class), self.tokenizer)
                pipe.read_folder(checkpoint_folder(self.path))
                self._pipes[task] = pipe
        return self._pipes[task]

    @cached_property
    def _left_tokenizer(self) -> PreTrainedTokenizer:
        tokenizer = copy.copy(self.tokenizer)
        tokenizer.truncation_side = "left"
        return tokenizer

    def _cutting_left(self, pipe: Any) -> Any:
        """A pipeline, but it cuts the beginning of texts that are too long."""
        pipe = copy.copy(pipe)
        pipe.tokenizer = self._left_tokenizer
        return pipe

    def _head_for(self, name: str) -> Pipeline:
        if name not in self.heads:
            raise InputError(f"there is no head {name!r:.80}; there are: {', '.join(self.heads) or 'none'}")
        return self.heads[name]

    def _engine_for(self, model_class: str) -> InferenceEngine:
        """The engine with a head, or without one; of a model with two heads, the second is loaded beside the first."""
        if model_class == "BertModel" or model_class == TASKS[self.head].model_class:
            return self.engine
        made = InferenceEngine.load(self.path, model_class, **self._computing)
        return SharedEngine(made, self._lock, self._notes)

    def tokenize(self, task: Task, items: Sequence[Any], options: Mapping[str, Any]) -> Results:
        """The pieces of texts, or the texts of ids; without the encoder."""
        values: list[Any] = []
        for item in items:
            if task == "decode":
                values.append(self.tokenizer.decode(item, **options))
                continue
            values.append(pieces_of(self.tokenizer, item, **options))
        return Results(values, list(map(len, values if task == "tokenize" else items)), [False] * len(items))

    def answer(
        self, task: Task, items: Sequence[Any], options: Mapping[str, Any], overflow: Overflow | None = None
    ) -> Results:
        """The results of items, which are computed together; errors as of the pipelines.

        A result does not depend on the other items but for the rounding of the last bits.
        """
        items = [self._text_of(item) if isinstance(item, list) and task != "decode" else item for item in items]
        if task in OF_TOKENIZERS:
            return self.tokenize(task, items, options)
        long = reading(task, overflow)
        self._notes.lengths, self._notes.encoding = [], 0.0
        if task == "analyze":
            assert self.analyzer is not None
            return self._with_lengths(self.analyzer.answer([pair_of(item) for item in items]), items, task, options)
        if task == "generate":
            with self._lock:
                return self._with_lengths(list(self._pipes[self.head](items, **options)), items, task, options)
        if task == "attention":
            cut = overflow == "truncate"
            values = [self._attention.of(item, self.max_length, cut=cut, **options) for item in items]
            self._notes.lengths += [len(value["pieces"]) for value in values]
            return self._with_lengths(values, items, task, options)
        name, usual = PIPELINES[task]
        if task == "explain" and self.head in ("token-classification", "question-answering"):
            name = self.head
        options = dict(options)
        head = options.pop("run_head", None)
        pipe: Any = self._pipe(name) if head is None else self._head_for(head)
        if overflow == "truncate-left":
            pipe = self._cutting_left(pipe)
        beyond = beyond_one_window(pipe, task, items, overflow)
        keywords = {**usual, **long, **options}
        if (most := keywords.get("max_length")) is not None:  # for clients an upper bound
            keywords["max_length"] = min(most, pipe.max_length)
        wished = [name for name in keywords.pop("prompts", ()) if name in pipe.sentence.config.prompts]
        if wished:
            keywords["prompt_name"] = wished[0]
        if task == "embed-chunks":
            if wished:
                raise InputError(f"late chunking reads parts in their text, without the prompt {wished[0]!r}")
            values = [list(map(asdict, _chunks(pipe, item, keywords))) for item in items]
            return self._with_lengths(values, items, task, options)
        if task == "explain":
            return self._with_lengths(self._explained(pipe, items, overflow, **options), items, task, options)
        if task == "map":
            method = keywords.pop("method")
            return self._with_lengths([text_map(pipe, item, keywords, method) for item in items], items, task, options)
        if task == "similarity":
            return self._with_lengths(_similarities(pipe, items, keywords), items, task, options)
        if task == "redact":
            choice = {name: keywords.pop(name) for name in ("labels", "threshold") if name in keywords}
            tagged = pipe(items, progress=False, **keywords)
            values = [redact(text, found, **choice) for text, found in zip(items, tagged, strict=True)]
            return self._with_lengths(values, items, task, options)
        ask = pipe.token_scores if task == "tag-tokens" else pipe
        found: list[Any] = list(ask(items, progress=False, **keywords))
        if task == "embed-tokens":
            found = [matrix[0] for matrix in found]
        results = self._with_lengths(found, items, task, options)
        return results if beyond is None else replace(results, truncated=beyond)

    def _explained(
        self, pipe: Any, items: Sequence[Any], overflow: Overflow | None, by: str = "occlusion", **options: Any
    ) -> list[Any]:
        cut = overflow == "truncate"
        if by == "occlusion":
            return [explanation(pipe, item, cut=cut, **options) for item in items]
        if self.heads:
            raise InputError("a model of several heads is explained by occlusion only")
        with self._lock:
            values = [self._gradients.of(pipe, item, cut=cut, **options) for item in items]
        self._notes.lengths += [explained_tokens(len(self.tokenizer(*item)["input_ids"]), by) for item in items]
        return values

    def _text_of(self, item: list[Any]) -> Any:
        """The text of a list of ids; a list of texts stays what it is."""
        if not item or not isinstance(item[0], int):
            return item
        if max(item) >= len(self.tokenizer):
            raise InputError(
                f"a list of ids has {max(item)}, and the model has {len(self.tokenizer):,} tokens: send texts (of "
                "langchain-openai: check_embedding_ctx_length=False)"
            )
        return self.tokenizer.decode(item, skip_special_tokens=True)

    def _with_lengths(self, values: list[Any], items: Sequence[Any], task: Task, options: Mapping[str, Any]) -> Results:
        lengths: list[int] = self._notes.lengths
        rows = [num_rows(item, task, options) for item in items]
        shared: list[int] = []
        if sum(rows) == len(lengths):
            ends = np.cumsum([0, *rows]).tolist()
            tokens = [sum(lengths[start:end]) for start, end in pairwise(ends)]
            shared = [lengths[start] for start in ends[:-1]] if task == "similarity" else []
        else:  # windows, several of which may be of one text: by the characters of the texts
            sizes = np.array([num_characters(item) for item in items], np.float64)
            tokens = np.rint(sizes / max(sizes.sum(), 1) * sum(lengths)).astype(int).tolist()
        truncated = [is_truncated(value) for value in values]
        return Results([without_notes(value) for value in values], tokens, truncated, self._notes.encoding, shared)


def _is_regression(config: Any) -> bool:
    return bool(config.problem_type == "regression")


def _chunks(pipe: FeatureExtractionPipeline, item: Any, keywords: Mapping[str, Any]) -> list[Chunk]:
    """The chunks of a text, or the parts that were sent of one."""
    return (
        late_parts(pipe, item["parts"], **keywords) if isinstance(item, dict) else late_chunks(pipe, item, **keywords)
    )


def _similarities(pipe: FeatureExtractionPipeline, items: Sequence[Any], keywords: Mapping[str, Any]) -> list[Any]:
    texts = [text for item in items for text in (item["source_sentence"], *item["sentences"])]
    vectors = iter(pipe(texts, progress=False, **keywords))
    measure, found = pipe.measure("model"), []
    for item in items:
        source = next(vectors)
        found.append([compare(source, next(vectors), measure) for _ in item["sentences"]])
    return found
