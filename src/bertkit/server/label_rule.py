"""Which labels a classifier gives, of the probabilities of all: by thresholds, and none where it abstains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from bertkit.metrics.probabilities import USUAL, given_labels


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelRule:
    """How a classifier decides.

    labels: names by number.
    several: whether labels do not exclude each other.
    tuned: thresholds that were chosen on dev, as ``decision.json`` has them: of labels that do not exclude each other
        one each; of two that do, the one from which the second is given, else the first.
    least: thresholds set by whoever runs the server or asks. Labels that exclude each other are decided between
        first: where the probability of the one decided for is below its threshold, the classifier abstains.
    """

    labels: tuple[str, ...]
    several: bool = False
    tuned: Mapping[str, float] = field(default_factory=dict)
    least: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = [label for label in self.least if label not in self.labels]
        if unknown:
            raise ValueError(f"there is no label {unknown[0]!r:.80}; there are: {', '.join(self.labels)}")

    def with_least(self, least: Mapping[str, float]) -> LabelRule:
        """The same with further thresholds, which go before those that it has; ValueError: no such label."""
        return replace(self, least={**self.least, **least}) if least else self

    def chosen(self, scores: Mapping[str, float]) -> list[str] | str | None:
        """The labels that are given, perhaps none; of labels that exclude each other the one, or None: it abstains."""
        shares_1C = np.array([[scores[label] for label in self.labels]])
        if self.several:
            (given,) = given_labels(shares_1C, [self._threshold(label) for label in self.labels], several=True)
            return [label for label, is_given in zip(self.labels, given, strict=True) if is_given]
        tuned = list(self.tuned.values()) or None
        best = self.labels[int(given_labels(shares_1C, tuned, several=False)[0])]
        return best if scores[best] >= self.least.get(best, 0.0) else None

    def gives(self, label: str, score: float) -> bool:
        """Whether a label, asked about alone, reaches its threshold."""
        own = label in self.least or label in self.tuned
        if self.tuned and not self.several and not own:  # the first of two, given where the second is not
            return 1.0 - score < self.tuned[self.labels[1]]
        return score >= self._threshold(label)

    def _threshold(self, label: str) -> float:
        return self.least.get(label, self.tuned.get(label, USUAL))
