"""Texts with their entities replaced by placeholders, and back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any


def redact(
    text: str, entities: Sequence[Mapping[str, Any]], labels: Collection[str] | None = None, threshold: float = 0.0
) -> dict[str, Any]:
    """A text with ``[TYPE_1]`` in the place of each entity; the same entity gets the same placeholder.

    Args:
        text: the text that the entities are of.
        entities: what ``pipeline("token-classification")`` found in it with an aggregation strategy.
        labels: types of entities to replace; None: all.
        threshold: entities of a lower score stay.

    Returns:
        ``{"text": redacted, "spans": [...]}``; a span has ``start`` and ``end`` in the text, ``redacted_start`` and
        ``redacted_end`` in the redacted one, ``label``, ``score``, ``word`` and ``placeholder``. Of entities that
        overlap the first is replaced. A placeholder that the text has already is not given out.
    """
    numbers: dict[str, int] = {}
    names: dict[tuple[str, str], str] = {}
    parts: list[str] = []
    spans: list[dict[str, Any]] = []
    done = length = 0
    for entity in sorted(entities, key=lambda one: (one["start"], -one["end"])):
        label, start, end = str(entity["entity_group"]), entity["start"], entity["end"]
        if start < done or start == end or entity["score"] < threshold or (labels is not None and label not in labels):
            continue
        same = label, " ".join(text[start:end].split()).casefold()
        while same not in names:
            numbers[label] = numbers.get(label, 0) + 1
            name = f"[{label}_{numbers[label]}]"
            if name not in text:
                names[same] = name
        placeholder = names[same]
        parts += [text[done:start], placeholder]
        length += start - done
        spans.append(
            {
                "start": start,
                "end": end,
                "redacted_start": length,
                "redacted_end": length + len(placeholder),
                "label": label,
                "score": float(entity["score"]),
                "word": text[start:end],
                "placeholder": placeholder,
            }
        )
        length += len(placeholder)
        done = end
    return {"text": "".join([*parts, text[done:]]), "spans": spans}


def restore(redacted: str, spans: Sequence[Mapping[str, Any]]) -> str:
    """The text before :func:`redact`, exactly."""
    parts: list[str] = []
    done = 0
    for span in spans:
        parts += [redacted[done : span["redacted_start"]], span["word"]]
        done = span["redacted_end"]
    return "".join([*parts, redacted[done:]])
