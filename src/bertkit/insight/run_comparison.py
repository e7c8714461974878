"""Two runs on the same rows: which is better, by how much, and where: ``bertkit compare``."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertkit.errors import CheckpointError, ConfigError, DataError, counted, shorten
from bertkit.inference.run_files import METRICS
from bertkit.insight.run_evaluation import scored_set
from bertkit.metrics.intervals import bootstrap_draws, interval_of, interval_text
from bertkit.ragged import Flags, Ints
from bertkit.system.console import aligned, one_line
from bertkit.system.json_files import read_json, read_lines
from bertkit.system.rendered import Rendered
from bertkit.tasks.hold_out import group_rows
from bertkit.tasks.row_scores import RowScores

#: Answers with rows enough to be listed by themselves; and how many rows and answers a terminal shows.
FEWEST_ROWS, MOST_SHOWN = 5, 10
_NAMES = ("first", "second")
#: Settings that differ between any two runs.
_NO_SETTINGS = ("data", "versions", "hardware", "seconds", "start", "run")


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """A row that one of the two runs has right. row: its line in the predictions of the first."""

    row: int
    text: str
    gold: str
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class ChangedAnswer:
    """A right answer that several rows share, with the share of them that each run has right."""

    gold: str
    num_rows: int
    first: float
    second: float


@dataclass(frozen=True, slots=True)
class RowsRight:
    """Rows by who is wholly right.

    probability: of rows changing as unevenly as these by chance (McNemar's exact test, two-sided).
    """

    both: int
    only_first: int
    only_second: int
    neither: int
    probability: float

    def render(self) -> str:
        """One line."""
        return (
            f"right: both {self.both:,}, only the first {self.only_first:,}, only the second {self.only_second:,}, "
            f"neither {self.neither:,} (McNemar p = {self.probability:.3g})"
        )


@dataclass(frozen=True, slots=True)
class RunComparison(Rendered):
    """Two runs, scored on the same rows.

    scores: main metric of each run on the rows that both have; difference: second minus first.
    interval: 95 % of the difference, of pairs of rows drawn with replacement, equal texts together; None where there
        are too few rows.
    right: rows by who is wholly right; None where answers are more or less right.
    unpaired: rows that only the first and only the second run has; they are in no number here.
    answers: right answers whose rows changed most. gained, lost: rows that only the second, only the first has right.
    settings: what the protocols of the runs say differently; a part of a setting by the names of both: "lora rank".
    """

    first: str
    second: str
    split: str
    metric: str
    num_rows: int
    unpaired: tuple[int, int]
    scores: tuple[float, float]
    interval: Sequence[float] | None
    right: RowsRight | None
    answers: Sequence[ChangedAnswer]
    gained: Sequence[ChangedRow]
    lost: Sequence[ChangedRow]
    settings: dict[str, tuple[Any, Any]]

    @property
    def difference(self) -> float:
        """Of the main metric: second minus first."""
        return self.scores[1] - self.scores[0]

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {**asdict(self), "difference": self.difference}

    def render(self) -> str:
        """The scores, the difference with its interval, and where the runs differ."""
        told = (
            "no difference can be told from these rows"
            if self.interval is None or self.interval[0] <= 0 <= self.interval[1]
            else f"the {'second' if self.difference > 0 else 'first'} is better"
        )
        lines = [
            f"{self.split}, {counted(self.num_rows, 'row')} that both runs have",
            *(f"  {line}" for line in aligned([(name, f"{score:.4f}") for name, score in self._scored()])),
            f"  difference in {self.metric}: {self.difference:+.4f}, 95 % interval {interval_text(self.interval, '+')} "
            f"(the same rows of both resampled): {told}",
        ]
        if any(self.unpaired):
            lines.append(
                f"  left out: {self.unpaired[0]:,} of the first alone, {self.unpaired[1]:,} of the second alone"
            )
        if self.right is not None:
            lines.append(f"  {self.right.render()}")
        if self.answers:
            rows = [("right answer", "rows", "first", "second")]
            rows += [
                (one_line(a.gold)[:40], f"{a.num_rows:,}", f"{a.first:.3f}", f"{a.second:.3f}") for a in self.answers
            ]
            lines += ["  share of rows right, where it changed most:", *(f"    {line}" for line in aligned(rows))]
        for what, changed in (("second", self.gained), ("first", self.lost)):
            if changed:
                lines.append(f"  only the {what} is right:")
                lines += [f"    {_told(each)}" for each in changed]
        if self.settings:
            lines.append("  settings that differ (first, second):")
            pairs = [(name, *_told_apart(a, b)) for name, (a, b) in self.settings.items()]
            lines += [f"    {line}" for line in aligned(pairs)]
        return "\n".join(lines)

    def _scored(self) -> list[tuple[str, float]]:
        return [(f"{self.first} ({self.metric})", self.scores[0]), (self.second, self.scores[1])]


def compare_runs(
    first: str | Path, second: str | Path, split: str = "dev", *, num_shown: int = MOST_SHOWN
) -> RunComparison:
    """Compare two run folders on a set that both were scored on, from the predictions that they keep.

    Args:
        first: folder of ``bertkit finetune``.
        second: another one, of a task with the same main metric.
        split: dev, or the name of a later evaluation of both: that in ``evaluation-NAME.json``.
        num_shown: rows and answers that are listed of each kind.

    Raises:
        ConfigError: no such set, tasks that cannot be compared, or a kind of task that is not scored row by row.
        DataError: the runs have no row in common.
    """
    (one, first_rows, metric), (other, second_rows, second_metric) = (_read(run, split) for run in (first, second))
    if metric != second_metric:
        raise ConfigError(
            f"{first} is scored by {metric}, {second} by {second_metric}; give two runs of one kind of task"
        )
    pairs = paired_rows(first_rows.keys, second_rows.keys)
    if not len(pairs):
        raise DataError(
            f"{first} and {second} have no row of {split!r} in common (the first rows: "
            f"{first_rows.shown[0]!r:.60}, {second_rows.shown[0]!r:.60}); score both on one file: bertkit evaluate"
        )
    settings = _differing((one, other))
    both = Pairing(first_rows, second_rows, pairs)
    return _compared(both, (str(first), str(second)), split, metric, num_shown, settings)


def _read(run: str | Path, split: str) -> tuple[Path, RowScores, str]:
    workflow, folder, prefix = scored_set(run, split)
    file = folder / f"{prefix}predictions-{split}.jsonl"
    try:
        found = workflow.row_scores(list(read_lines(file)))
    except KeyError as error:
        raise ConfigError(f"{file} has lines without {error}: there are no right answers to compare with") from None
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise CheckpointError(f"{file} is damaged: {error}; score the run again with 'bertkit evaluate'") from None
    if found is not None and not found.keys:
        raise CheckpointError(f"{file} is damaged: it has no row; score the run again with 'bertkit evaluate'")
    if found is None:
        raise ConfigError(f"task {workflow.task.name} is not scored row by row; compare the metrics.json of the runs")
    return folder, found, workflow.task.main_metric


def paired_rows(first: Sequence[Hashable], second: Sequence[Hashable]) -> Ints:
    """Numbers of the rows with equal keys on both sides, in the order of the first: int64 ``(n, 2)``.

    The k-th row of a key goes with the k-th of the other side.
    """
    places: dict[Hashable, list[int]] = {}
    for row, key in enumerate(second):
        places.setdefault(key, []).append(row)
    for rows in places.values():
        rows.reverse()
    found = [(row, places[key].pop()) for row, key in enumerate(first) if places.get(key)]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def mcnemar(only_first: int, only_second: int) -> float:
    """Two-sided probability of a split at least as uneven, if either were as likely (McNemar 1947, exact)."""
    total, fewer = only_first + only_second, min(only_first, only_second)
    log_half = total * math.log(2.0)
    below = (math.lgamma(total + 1) - math.lgamma(k + 1) - math.lgamma(total - k + 1) for k in range(fewer + 1))
    return min(1.0, 2.0 * math.fsum(math.exp(log - log_half) for log in below))


@dataclass(frozen=True, slots=True)
class Pairing:
    """The rows of two runs, and which belong together: int64 ``(n, 2)``."""

    first: RowScores
    second: RowScores
    pairs: Ints

    def differences(self) -> tuple[list[float], int]:
        """Second minus first in the main metric of pairs drawn with replacement; and the number of different texts."""
        one, other = self.pairs.T
        groups = group_rows(self.first.shown[row] for row in one.tolist())
        draws = bootstrap_draws(groups)
        return [self.second.metric(other[draw]) - self.first.metric(one[draw]) for draw in draws], len(groups)

    def right(self) -> tuple[Flags, Flags] | None:
        """Who is right ``(n,)`` each."""
        if self.first.right is None or self.second.right is None:
            return None
        return self.first.right[self.pairs[:, 0]], self.second.right[self.pairs[:, 1]]

    def rows(self, some: Flags, num_shown: int) -> list[ChangedRow]:
        """The first of some pairs."""
        first, second = self.first, self.second
        return [
            ChangedRow(one + 1, first.shown[one], first.gold[one], first.predicted[one], second.predicted[other])
            for one, other in self.pairs[some][:num_shown].tolist()
        ]


def _compared(
    both: Pairing,
    names: tuple[str, str],
    split: str,
    metric: str,
    num_shown: int,
    settings: dict[str, tuple[Any, Any]],
) -> RunComparison:
    first, second, (one, other) = both.first, both.second, both.pairs.T
    differences, num_texts = both.differences()
    found, counts, answers = both.right(), None, list[ChangedAnswer]()
    gained, lost = list[ChangedRow](), list[ChangedRow]()
    if found is not None:
        a, b = found
        only_first, only_second = int((a & ~b).sum()), int((~a & b).sum())
        chance = mcnemar(only_first, only_second)
        counts = RowsRight(int((a & b).sum()), only_first, only_second, int((~a & ~b).sum()), chance)
        answers = _answers([first.gold[row] for row in one.tolist()], found, num_shown)
        gained, lost = both.rows(~a & b, num_shown), both.rows(a & ~b, num_shown)
    return RunComparison(
        *names,
        split=split,
        metric=metric,
        num_rows=len(one),
        unpaired=(len(first.keys) - len(one), len(second.keys) - len(one)),
        scores=(first.metric(one), second.metric(other)),
        interval=interval_of(differences, num_texts, None),
        right=counts,
        answers=answers,
        gained=gained,
        lost=lost,
        settings=settings,
    )


def _answers(gold: Sequence[str], right: tuple[Flags, Flags], num_shown: int) -> list[ChangedAnswer]:
    found = [
        ChangedAnswer(gold[group[0]], len(group), float(right[0][group].mean()), float(right[1][group].mean()))
        for group in group_rows(gold)
        if len(group) >= FEWEST_ROWS
    ]
    moved = [answer for answer in found if answer.first != answer.second]
    moved.sort(key=lambda answer: -abs(answer.second - answer.first) * math.sqrt(answer.num_rows))
    return moved[:num_shown] if len(found) > 1 else []


def _differing(folders: Sequence[Path]) -> dict[str, tuple[Any, Any]]:
    protocols = [read_json(folder / METRICS, dict[str, Any]).get("protocol", {}) for folder in folders]
    first, second = (
        _spread({name: value for name, value in protocol.items() if name not in _NO_SETTINGS}) for protocol in protocols
    )
    both = {name: (first.get(name), second.get(name)) for name in (first | second)}
    return {name: values for name, values in both.items() if values[0] != values[1]}


def _spread(settings: dict[str, Any]) -> dict[str, Any]:
    """Each part of a setting by itself: ``{"lora": {"rank": 8}}`` becomes ``{"lora rank": 8}``."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            found |= {f"{name} {part}": each for part, each in _spread(value).items()}
        else:
            found[name] = value
    return found


def _told(row: ChangedRow) -> str:
    gold, first, second = map(one_line, (row.gold, row.first, row.second))
    return f"{row.row:,}: {one_line(row.text)[:80]} [{gold}; {first} -> {second}]"


def _told_apart(first: object, second: object) -> tuple[str, str]:
    """Two different values, shortened, or whole where they differ beyond that."""
    short = _short(first), _short(second)
    return (str(first), str(second)) if short[0] == short[1] else short


def _short(value: object) -> str:
    return shorten(value) if isinstance(value, list) else str(value)[:40]
