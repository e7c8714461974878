"""How good generated texts are: ROUGE and exact match, of each text and on average; and a baseline that copies."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from bertkit.metrics.rouge import ROUGE, rouge
from bertkit.tasks.examples import Row
from bertkit.tasks.seq2seq.task import EXACT_MATCH, SCORES, Seq2SeqExample, Seq2SeqTask

#: A sentence ends here: behind a full stop and the like, also of Chinese and Japanese, or with its line.
_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])\s*|\n+")


def text_scores(predictions: Sequence[str], targets: Sequence[str]) -> dict[str, npt.NDArray[np.float64]]:
    """Every score of :data:`SCORES` of each prediction, from 0 to 1, ``(n,)``; of ROUGE the F1."""
    found = [_scores(ours, theirs) for ours, theirs in zip(predictions, targets, strict=True)]
    return {name: np.array([each[name] for each in found]) for name in SCORES}


def _scores(prediction: str, target: str) -> dict[str, float]:
    overlaps = rouge(prediction, target)
    return {**{name: overlaps[name].f1 for name in ROUGE}, EXACT_MATCH: float(prediction.split() == target.split())}


def sentences(text: str) -> list[str]:
    """A text cut behind full stops, exclamation marks and question marks, and at the ends of lines."""
    return [part for part in (part.strip() for part in _END.split(text)) if part]


def copied(text: str, task: Seq2SeqTask) -> str:
    """What the baseline answers: the first sentences of a source, a line each, or the whole source."""
    return text if task.lead is None else "\n".join(sentences(text)[: task.lead])


def copy_baseline(dev: Sequence[Seq2SeqExample], task: Seq2SeqTask) -> Row:
    """Scores on labelled rows of an answer that only copies."""
    scores = text_scores([copied(each.text, task) for each in dev], [each.target or "" for each in dev])
    what = "the source itself" if task.lead is None else f"the first {task.lead} sentences of the source"
    return {
        "name": "copy" if task.lead is None else f"lead-{task.lead}",
        "model": what,
        "metrics": {name: float(scores[name].mean()) for name in task.metrics},
    }
