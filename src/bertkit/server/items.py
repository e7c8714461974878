"""Items of calls and their results: how large they are, and what they say of truncation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertkit.server.calls import Task


def num_characters(item: Any) -> int:
    """Characters of all texts in an item; of a list of ids about as many as their text has."""
    if isinstance(item, str):
        return len(item)
    if isinstance(item, Mapping):
        return sum(map(num_characters, item.values()))
    if isinstance(item, int):
        return 4
    if item is None:
        return 0
    return sum(map(num_characters, item))


def characters_read(item: Any, task: Task, options: Mapping[str, Any]) -> int:
    """Characters that are computed; those of a text that is read with several others count once for each of them."""
    if task == "rerank":
        shared, others = item["query"], item["documents"]
    elif task == "choose":
        shared, others = item["context"], item["choices"]
    elif task == "zero-shot":
        shared, others = item, options["candidate_labels"]
    else:
        return num_characters(item)
    return num_characters(shared) * len(others) + num_characters(others)


def pair_of(item: Any) -> tuple[str, str | None]:
    """A text, or a pair, as a pair."""
    return (item, None) if isinstance(item, str) else (item[0], item[1])


def num_rows(item: Any, task: Task, options: Mapping[str, Any]) -> int:
    """Rows of tokens of an item that fits: one, or one for each part that is read by itself."""
    if task == "map":
        return len(item["texts"])
    if task == "similarity":
        return 1 + len(item["sentences"])
    if task == "rerank":
        return len(item["documents"])
    if task == "choose":
        return len(item["choices"])
    return len(options["candidate_labels"]) if task == "zero-shot" else 1


def is_truncated(value: Any) -> bool:
    """Whether a result says that a part of its text was not read."""
    if isinstance(value, Mapping):
        return bool(value.get("truncated", False))
    if isinstance(value, list):
        return any(map(is_truncated, value))
    return bool(getattr(value, "truncated", False))


def without_notes(value: Any) -> Any:
    """Without what says whether a text was truncated, which stands beside the results."""
    if isinstance(value, dict):
        return {name: each for name, each in value.items() if name != "truncated"}
    return [without_notes(each) for each in value] if isinstance(value, list) else value
