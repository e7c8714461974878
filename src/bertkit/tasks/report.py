"""What is in the data, before anything is trained on it: one report for all kinds of tasks.

Of each split a kind notes facts by name, for programs, and lines for people; a line with capitals deserves attention.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from bertkit.errors import counted, plural
from bertkit.tasks.examples import Fact, Located, Row
from bertkit.tasks.reading.bad_rows import looks_missing

RowT = TypeVar("RowT", bound=Located)
KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT", bound=Hashable)


class SplitFacts:
    """Facts about one split, as values fit for JSON and as lines of text; ``unit`` is what an example is called."""

    def __init__(self, rows: Sequence[Located], unit: str, about: str = "") -> None:
        path = getattr(rows, "path", None)
        self._unit, source = unit, "" if path is None else path.name
        self._skipped = dict(Counter(row.kind for row in getattr(rows, "skipped", ())))
        self.facts: Row = {plural(unit): len(rows), "source": source, "skipped": self._skipped}
        self._body = [counted(len(rows), unit) + about + (f" from {source}" if source else "")]

    @property
    def lines(self) -> list[str]:
        """The text without the name of the split, rows that were left out last."""
        return [*self._body, *(f"LEFT OUT: {counted(n, self._unit)}, {kind}" for kind, n in self._skipped.items())]

    def add(self, line: str, **facts: Fact) -> None:
        """Note facts, and a line about them unless it is empty."""
        self.facts.update(facts)
        self._body += [line] if line else []

    def count(self, name: str, number: int, noun: str, what: str, *, mark: str = "") -> None:
        """Note a count, with a line ``MARK: 3 rows what`` unless it is 0."""
        line = f"{counted(number, noun)} {what}"
        self.add((f"{mark}: {line}" if mark else line) if number else "", **{name: number})

    def count_repeats(self, keys: Sequence[Hashable], meanings: Sequence[Hashable], what: tuple[str, str]) -> None:
        """Count rows with the key of an earlier one, and rows whose duplicates have another meaning."""
        found = grouped(keys, meanings)
        several = sum(len(found[key]) > 1 for key in keys)
        duplicates = len(keys) - len(found)
        line = f"duplicates: {counted(duplicates, self._unit)} with the {what[0]} of an earlier one"
        self.add(line, duplicates=duplicates)
        conflicting = f"with the same {what[0]} but several {what[1]}"
        self.count("contradictions", several, self._unit, conflicting, mark="CONTRADICTIONS")


@dataclass(frozen=True, slots=True)
class DataReport:
    """A task's data.

    task: its name. splits: what is in each. notes: sentences about the task.
    overlap: for each split other than train, the examples that are also in train. leaks: a line on each.
    """

    task: str
    splits: dict[str, SplitFacts]
    overlap: dict[str, int] = field(default_factory=dict)
    leaks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_dict(self) -> Row:
        """Plain data for JSON."""
        splits = {name: split.facts for name, split in self.splits.items()}
        return {"task": self.task, "splits": splits, "overlap": self.overlap, "notes": list(self.notes)}

    def render(self) -> str:
        """The report as text, a few lines a split."""
        lines = [f"data of task {self.task}", *(f"  {note}" for note in self.notes)]
        for name, split in self.splits.items():
            first, *rest = split.lines
            lines += [f"  {name}: {first}", *(f"    {line}" for line in rest)]
        return "\n".join([*lines, *(f"  {leak}" for leak in self.leaks)])


def find_leaks(
    splits: Mapping[str, Sequence[RowT]],
    key: Callable[[RowT], Hashable],
    unit: str,
    more: Callable[[str], str] = lambda name: "",
) -> tuple[dict[str, int], tuple[str, ...]]:
    """How many examples of each other split have a key that is also in train; a line on it, with ``more`` appended."""
    overlap: dict[str, int] = {}
    lines = []
    known = {key(row) for row in splits.get("train", ())}
    for name, rows in splits.items():
        if name == "train" or "train" not in splits:
            continue
        overlap[name] = sum(key(row) in known for row in rows)
        total, agreeing = len(rows), more(name)
        share = f"{overlap[name]:,} of {total:,} {name} {plural(unit)} ({100 * overlap[name] / max(total, 1):.1f} %)"
        found = overlap[name] or agreeing
        lines.append(f"LEAK: {share} are also in train{agreeing}" if found else f"no overlap between train and {name}")
    return overlap, tuple(lines)


def grouped(keys: Sequence[KeyT], values: Sequence[ValueT]) -> dict[KeyT, set[ValueT]]:
    """The different values of each key."""
    found: dict[KeyT, set[ValueT]] = {}
    for key, value in zip(keys, values, strict=True):
        found.setdefault(key, set()).add(value)
    return found


def shares(counts: Mapping[str, int], limit: int = 12) -> str:
    """``a 3 (75.0 %), b 1 (25.0 %)``: all in order, or only the most frequent if there are many."""
    total = max(1, sum(counts.values()))
    shown = list(counts.items())
    if len(shown) > limit:
        shown = Counter(counts).most_common(limit)
        shown.append((f"and {len(counts) - limit} more", total - sum(count for _, count in shown)))
    return ", ".join(f"{name} {count:,} ({100 * count / total:.1f} %)" for name, count in shown)


def label_warnings(names: Iterable[str], merge: str = "", drop: str = "") -> tuple[str, ...]:
    """A line for labels that differ only in case and blanks, and for labels that look like a missing value.

    ``merge``, ``drop``: options that would merge the first, and leave the others out.
    """
    listed = list(names)
    same = grouped([" ".join(name.casefold().split()) for name in listed], listed)
    lines = [
        f"NEAR-EQUAL LABELS: {', '.join(map(repr, sorted(group)))} differ only in case or blanks; are they the same?"
        + (f" {merge} makes them one" if merge else "")
        for group in same.values()
        if len(group) > 1
    ]
    lines += [
        f"LABEL {name!r} looks like a missing value; is it a label?"
        + (f" {drop} {name!r} leaves it out" if drop else "")
        for name in listed
        if looks_missing(name)
    ]
    return tuple(lines)
