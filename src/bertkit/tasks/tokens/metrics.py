"""Scores of entities, equal to those of ``seqeval`` (and ``conlleval``): precision, recall, F1, a table by type.

One deviation: the letters L and U of BILOU, and M and W of BMEWO, are read as the E, S, I and S of BIOES, which they
stand for; in its default mode ``seqeval`` takes an entity with such tags apart.

An entity counts as found when its type, its first and its last word are all right. ``default`` mode reads any tags by
the lenient rule of :mod:`bertkit.metrics.tags`; ``strict`` mode takes only entities that are spelled as their scheme
demands.
A ratio whose denominator is 0 is 0.0, as in ``seqeval``: nothing predicted has precision 0, nothing to find recall 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from bertkit.errors import InputError, counted, did_you_mean
from bertkit.metrics.tags import notation_of, read_entities, read_strictly
from bertkit.tasks.examples import Row

Mode = Literal["default", "strict"]
MODES: tuple[Mode, ...] = ("default", "strict")
Sentences = Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Found:
    """How many entities were right, predicted, and there to be found; and the three scores that follow."""

    right: int
    predicted: int
    support: int

    @property
    def precision(self) -> float:
        """Share of the predicted entities that are right."""
        return self.right / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Share of the entities that were found."""
        return self.right / self.support if self.support else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of both."""
        precision, recall = self.precision, self.recall
        return 2 * precision * recall / (precision + recall) if precision + recall else 0.0

    def to_dict(self) -> dict[str, float]:
        """The three scores, and ``support``."""
        return {"precision": self.precision, "recall": self.recall, "f1": self.f1, "support": self.support}


@dataclass(frozen=True, slots=True)
class EntityScores:
    """Scores of a data set by type, sorted by name: of every type that occurs on either side; and over all types."""

    by_type: dict[str, Found]

    @property
    def micro(self) -> Found:
        """All entities in one count: the score that is reported for CoNLL-2003 and its like."""
        found = self.by_type.values()
        return Found(sum(f.right for f in found), sum(f.predicted for f in found), sum(f.support for f in found))

    @property
    def macro_f1(self) -> float:
        """Mean F1 of the types, each with the same weight; 0.0 without any type."""
        return sum(found.f1 for found in self.by_type.values()) / len(self.by_type) if self.by_type else 0.0

    @property
    def weighted_f1(self) -> float:
        """Mean F1 of the types, each with the weight of its entities; 0.0 where there is none to be found."""
        support = sum(found.support for found in self.by_type.values())
        return sum(found.f1 * found.support for found in self.by_type.values()) / support if support else 0.0

    def to_dict(self) -> Row:
        """Plain data for JSON: ``by_type`` and ``micro`` (see :meth:`Found.to_dict`), ``macro_f1``, ``weighted_f1``."""
        return {
            "by_type": {kind: found.to_dict() for kind, found in self.by_type.items()},
            "micro": self.micro.to_dict(),
            "macro_f1": self.macro_f1,
            "weighted_f1": self.weighted_f1,
        }

    def render(self) -> str:
        """A table, one line a type, the sum in the last."""
        rows = [*self.by_type.items(), ("all", self.micro)]
        width = max(len("type"), *(len(kind) for kind, _ in rows))
        lines = [f"{'type':<{width}}  precision  recall      f1  entities"]
        lines += [
            f"{kind:<{width}}  {found.precision:9.4f}  {found.recall:6.4f}  {found.f1:6.4f}  {found.support:8,}"
            for kind, found in rows
        ]
        return "\n".join(lines)


def entity_scores(
    predictions: Sentences, references: Sentences, *, mode: Mode = "default", scheme: Literal["BIO", "BIOES"] = "BIO"
) -> EntityScores:
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
    return EntityScores({kind: Found(right[kind], predicted[kind], support[kind]) for kind in kinds})


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
