"""Prediction rows, one per example, as fine-tuning, ``evaluate`` and ``predict`` write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bertkit.config.bert_config import BertConfig
from bertkit.metrics.probabilities import predictions_of
from bertkit.tasks import Example
from bertkit.tasks.text.decoding import LabelDecision


def prediction_rows(
    logits: npt.NDArray[np.floating],
    config: BertConfig,
    truncated: npt.NDArray[np.bool_],
    decision: LabelDecision | None = None,
) -> list[dict[str, Any]]:
    """``predicted`` and, for labels, ``probabilities`` of every row.

    Args:
        logits: ``(n, C)``.
        config: names the labels and says whether this is regression.
        truncated: rows whose text did not fit, ``(n,)``.
        decision: made on dev, or None.

    Returns:
        n dictionaries: ``predicted`` (label name, list of names where a row may have several, or number),
        ``probabilities`` (label name to probability; absent for regression), ``truncated``.
    """
    regression = config.problem_type == "regression" or (config.problem_type is None and config.num_labels == 1)
    if regression:
        values = predictions_of(logits, config.problem_type).tolist()
        return [{"predicted": value, "truncated": cut} for value, cut in zip(values, truncated.tolist(), strict=True)]
    names = [config.id2label[number] for number in range(config.num_labels)]
    several, chosen = config.problem_type == "multi_label_classification", decision or LabelDecision()
    shares = chosen.probabilities(logits, several=several).tolist()
    labels = chosen.labels(logits, several=several).tolist()
    return [
        {
            "predicted": [name for name, yes in zip(names, label, strict=True) if yes] if several else names[label],
            "probabilities": dict(zip(names, share, strict=True)),
            "truncated": cut,
        }
        for label, share, cut in zip(labels, shares, truncated.tolist(), strict=True)
    ]


def with_texts(
    rows: Iterable[Mapping[str, Any]], texts: Sequence[str], pairs: Sequence[str] | None
) -> list[dict[str, Any]]:
    """The rows with ``text`` (and ``text_pair``) in front; those without any text are marked as ``empty``."""
    second: Sequence[str | None] = pairs if pairs is not None else [None] * len(texts)
    return [
        {
            "text": text,
            **({} if pair is None else {"text_pair": pair}),
            **row,
            **({} if text.strip() else {"empty": True}),
        }
        for row, text, pair in zip(rows, texts, second, strict=True)
    ]


def with_examples(
    rows: Iterable[Mapping[str, Any]], examples: Sequence[Example], names: Mapping[int, str]
) -> list[dict[str, Any]]:
    """The rows with line number, text and ``gold`` (label name or names, score, or None) in front."""
    told = []
    for row, example in zip(rows, examples, strict=True):
        gold: Any = example.label
        if isinstance(gold, tuple):
            gold = [names[number] for number in gold]
        elif isinstance(gold, int) and "probabilities" in row:
            gold = names[gold]
        pair = {} if example.text_pair is None else {"text_pair": example.text_pair}
        told.append({"row": example.row, "text": example.text, **pair, "gold": gold, **row})
    return told


def worst_rows(
    rows: Sequence[Mapping[str, Any]], badness: npt.NDArray[np.floating], count: int
) -> list[dict[str, Any]]:
    """The ``count`` rows with the largest badness, the worst first, each with it as ``badness``; 0 is not bad."""
    order = np.argsort(-badness, kind="stable")[:count].tolist()
    return [{"badness": round(float(badness[row]), 6), **rows[row]} for row in order if badness[row] > 0]


def to_jsonl(rows: Iterable[Mapping[str, Any]]) -> str:
    """One JSON object a line."""
    return "".join(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n" for row in rows)
