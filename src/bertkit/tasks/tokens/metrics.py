"""Scores of entities, equal to those of ``seqeval`` (and ``conlleval``): precision, recall, F1, a table by type.

One deviation: the letters L and U of BILOU, and M and W of BMEWO, are read as the E, S, I and S of BIOES, which they
stand for; in its default mode ``seqeval`` takes an entity with such tags apart.

An entity counts as found when its type, its first and its last word are all right. ``default`` mode reads any tags by
the lenient rule of :mod:`bertkit.metrics.tags`; ``strict`` mode takes only entities that are spelled as their scheme
demands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from bertkit.errors import InputError, counted, did_you_mean
from bertkit.metrics.class_scores import ClassScores, Found
from bertkit.metrics.tags import notation_of, read_entities, read_strictly
from bertkit.tasks.examples import Row

Mode = Literal["default", "strict"]
MODES: tuple[Mode, ...] = ("default", "strict")
Sentences = Sequence[Sequence[str]]


def entity_table(scores: ClassScores) -> Row:
    """Plain data for ``entities-*.json``: ``by_type`` and ``micro``, ``macro_f1``, ``weighted_f1``."""
    return {
        "by_type": {kind: found.to_dict() for kind, found in scores.by_class.items()},
        "micro": scores.micro.to_dict(),
        "macro_f1": scores.macro["f1"],
        "weighted_f1": scores.weighted["f1"],
    }


def entity_scores(
    predictions: Sentences, references: Sentences, *, mode: Mode = "default", scheme: Literal["BIO", "BIOES"] = "BIO"
) -> ClassScores:
    """Compare the tags of n sentences in ``seqeval``'s ``mode=None`` or ``mode="strict"``, of this scheme."""
    if mode not in MODES:
        raise InputError(f"unknown mode {mode!r}{did_you_mean(str(mode), MODES)}; use default or strict")
    check_tags(predictions, references)
    notation = notation_of({tag for side in (predictions, references) for tags in side for tag in tags})
    right, predicted, support = Counter[str](), Counter[str](), Counter[str]()
    for guessed, correct in zip(predictions, references, strict=True):
        if mode == "strict":
            ours, theirs = (set(read_strictly(tags, scheme, notation)) for tags in (guessed, correct))
        else:
            ours, theirs = (set(read_entities(tags, notation)) for tags in (guessed, correct))
        predicted.update(entity.type for entity in ours)
        support.update(entity.type for entity in theirs)
        right.update(entity.type for entity in ours & theirs)
    kinds = sorted(predicted.keys() | support.keys())
    found = {kind: Found(right[kind], predicted[kind], support[kind]) for kind in kinds}
    return ClassScores(found, "type", "entities")


def tag_accuracy(predictions: Sentences, references: Sentences) -> float:
    """Share of the words whose tag is right. Most words are ``O``, so it is high for a model that finds nothing."""
    check_tags(predictions, references)
    pairs = [
        pair for ours, theirs in zip(predictions, references, strict=True) for pair in zip(ours, theirs, strict=True)
    ]
    return sum(ours == theirs for ours, theirs in pairs) / len(pairs)


def check_tags(predictions: Sentences, references: Sentences) -> None:
    """Refuse tags that cannot be compared, with an InputError."""
    for name, side in (("predictions", predictions), ("references", references)):
        if any(isinstance(tags, str) for tags in side):
            raise InputError(f"{name} must be a list of sentences, each a list of tags; got a flat list of tags")
        wrong = [tag for tags in side for tag in tags if not isinstance(tag, str)]
        if wrong:
            raise InputError(f"{name} must be tags such as 'B-PER', got {wrong[0]!r:.40}")
    if len(predictions) != len(references):
        raise InputError(
            f"{counted(len(predictions), 'predicted sentence')} but {counted(len(references), 'right one')}"
        )
    for number, (ours, theirs) in enumerate(zip(predictions, references, strict=True)):
        if len(ours) != len(theirs):
            raise InputError(
                f"sentence {number} has {counted(len(theirs), 'word')}, but {counted(len(ours), 'predicted tag')}"
            )
    if not any(len(tags) for tags in references):
        raise InputError("nothing to score: no words")
