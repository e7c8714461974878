"""Scores of arms, and how far two arms are apart: paired, over seeds and over the examples they are scored on."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bertkit.metrics.intervals import bootstrap_means, middle_of


@dataclass(frozen=True, slots=True)
class UnitResult:
    """One arm with one seed.

    scores: by measure. drawn: of each measure, the score of every set of examples drawn with replacement, the same sets
        for all arms and seeds; empty where a measure has none.
    facts: further numbers. curve: evaluations during pre-training, ``step`` and scores.
    """

    arm: str
    seed: int
    scores: dict[str, float]
    drawn: dict[str, list[float]]
    facts: dict[str, float]
    curve: list[dict[str, float]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """An arm in one measure.

    mean, sd: over ``seeds`` seeds; sd None for one seed. difference: from ``base``, over ``shared`` seeds that both
        have; None for the base itself. interval: 95 % of that difference, seeds and examples resampled in pairs; None
        where there are no sets of examples.
    """

    arm: str
    seeds: int
    mean: float
    sd: float | None
    shared: int = 0
    difference: float | None = None
    interval: tuple[float, float] | None = None
    base: str | None = None

    @property
    def verdict(self) -> str:
        """What may be said of the difference."""
        if self.difference is None:
            return ""
        if self.interval is None:
            return "no interval"
        if self.interval[0] > 0:
            return "higher"
        return "lower" if self.interval[1] < 0 else "no difference seen"


def compare(results: Sequence[UnitResult], measure: str, base_of: Callable[[str], str]) -> list[Comparison]:
    """Every arm that has the measure, in the order of ``results``, against its base arm."""
    scores: dict[str, dict[int, UnitResult]] = {}
    for result in results:
        if measure in result.scores:
            scores.setdefault(result.arm, {})[result.seed] = result
    found = []
    for arm, of_seeds in scores.items():
        values = [result.scores[measure] for result in of_seeds.values()]
        sd, base = statistics.stdev(values) if len(values) > 1 else None, base_of(arm)
        both = sorted(of_seeds.keys() & scores.get(base, {}).keys())
        if arm == base or not both:
            found.append(Comparison(arm, len(values), statistics.fmean(values), sd))
            continue
        ours, theirs = ([side[seed] for seed in both] for side in (of_seeds, scores[base]))
        difference = statistics.fmean(a.scores[measure] - b.scores[measure] for a, b in zip(ours, theirs, strict=True))
        sides = [[result.drawn.get(measure, []) for result in side] for side in (ours, theirs)]
        interval = None
        if all(drawn and len(drawn) == len(sides[0][0]) for side in sides for drawn in side):
            # The same seeds and the same examples are drawn for both.
            means = zip(bootstrap_means(sides[0]), bootstrap_means(sides[1]), strict=True)
            interval = middle_of([a - b for a, b in means])
        found.append(Comparison(arm, len(values), statistics.fmean(values), sd, len(both), difference, interval, base))
    return found
