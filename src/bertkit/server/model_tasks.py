"""What a model can be asked by its head, the pipeline of each task, and what that does with long texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bertkit.errors import InputError, LongTextError
from bertkit.inference.pipeline_base import Pipeline
from bertkit.server.calls import Overflow, Task
from bertkit.tasks.spans.features import SpanSettings

#: Task of a head, as ``bertkit.pipeline`` names it -> what a model with it can be asked; any encoder embeds.
OF_HEADS: Mapping[str, tuple[Task, ...]] = {
    "feature-extraction": (),
    "sparse-encoding": ("sparse", "fill-mask"),
    "fill-mask": ("fill-mask",),
    "next-sentence": ("next-sentence",),
    "text-classification": ("classify", "explain"),
    "text-ranking": ("rerank", "classify", "explain"),
    "token-classification": ("tag", "redact", "tag-tokens", "explain"),
    "question-answering": ("answer", "explain"),
    "multiple-choice": ("choose",),
    "text2text-generation": ("generate",),
}
OF_ENCODERS: tuple[Task, ...] = ("embed", "similarity", "map", "embed-tokens", "embed-chunks")
OF_TOKENIZERS: tuple[Task, ...] = ("tokenize", "decode")
#: The pipeline of a task, and its keywords.
PIPELINES: Mapping[Task, tuple[str, Mapping[str, Any]]] = {
    "embed": ("feature-extraction", {"pooling": "model"}),
    "embed-tokens": ("feature-extraction", {}),
    "embed-chunks": ("feature-extraction", {}),
    "similarity": ("feature-extraction", {"pooling": "model"}),
    "map": ("feature-extraction", {"pooling": "model"}),
    "sparse": ("sparse-encoding", {}),
    "rerank": ("text-ranking", {}),
    "classify": ("text-classification", {"top_k": None}),
    "explain": ("text-classification", {}),
    "next-sentence": ("next-sentence", {}),
    "zero-shot": ("zero-shot-classification", {}),
    "tag": ("token-classification", {"aggregation_strategy": "simple"}),
    "redact": ("token-classification", {"aggregation_strategy": "simple"}),
    "tag-tokens": ("token-classification", {}),
    "answer": ("question-answering", {}),
    "choose": ("multiple-choice", {}),
    "fill-mask": ("fill-mask", {}),
}
#: Tasks that read a text of any length in windows without being asked, and the keyword that asks classification for it.
_IN_WINDOWS: Mapping[Task, Mapping[str, Any]] = {
    "tag": {},
    "redact": {},
    "answer": {},
    "classify": {"truncation": "windows"},
}
#: Tasks that may read the end of a text that is too long, and not its beginning.
_FROM_THE_LEFT: tuple[Task, ...] = (
    "embed",
    "embed-tokens",
    "similarity",
    "map",
    "sparse",
    "rerank",
    "classify",
    "next-sentence",
    "tag-tokens",
)


def beyond_one_window(pipe: Pipeline, task: Task, items: Sequence[Any], overflow: Overflow | None) -> list[bool] | None:
    """Which items are not read to their end, of a task that reads in windows; None: they are, in windows.

    Raises:
        LongTextError: with "error", an item that does not fit into one window.
    """
    if overflow not in ("error", "truncate") or _IN_WINDOWS.get(task) != {}:
        return None
    usual = SpanSettings().max_length if task == "answer" else pipe.max_length
    limit = min(pipe.decision.get("max_length") or usual, pipe.max_length)
    beyond = []
    for number, item in enumerate(items):
        texts = (item["question"], item["context"]) if task == "answer" else (item,)
        size = len(pipe.tokenizer(*texts)["input_ids"])
        if size > limit and overflow == "error":
            raise LongTextError(f"text {number} (counted from 0) has {size:,} tokens", size, limit)
        beyond.append(size > limit)
    return beyond


def reading(task: Task, overflow: Overflow | None) -> Mapping[str, Any]:
    """Keywords of a pipeline that say what becomes of a text that is too long; InputError where it cannot be done."""
    if overflow is None:
        return {}
    if overflow == "window":
        if task not in _IN_WINDOWS:
            raise InputError(f"overflow 'window' is for {', '.join(_IN_WINDOWS)}, not for {task}: use 'truncate'")
        return _IN_WINDOWS[task]
    if overflow == "truncate-left":
        if task not in _FROM_THE_LEFT:
            raise InputError(f"texts are cut at their beginning for {', '.join(_FROM_THE_LEFT)}, not for {task}")
        return {"truncation": "longest_first"}  # also of a classifier that was trained to read both ends
    return {"truncation": overflow == "truncate"}


def may_read_windows(task: Task, overflow: Overflow | None) -> bool:
    """Whether a text may be read whole that has more tokens than the model reads at once."""
    if task in ("embed-chunks", "generate", "analyze"):
        return True
    return task in _IN_WINDOWS and overflow in (None, "window")
