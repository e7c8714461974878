"""Labels of a file of one's own, cleaned as asked once: near-equal ones merged, others left out with their rows.

What was asked becomes part of the task, so that every other file is read the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertkit.errors import ConfigError, DataError, counted, did_you_mean, shorten
from bertkit.tasks.hold_out import plain_text

#: In what labels may differ that are merged.
DIFFERENCES = ("case", "space")
#: A label with one row in so many, or fewer, and with fewer rows than the other number is an error unless asked about.
RARE_SHARE, RARE_ROWS = 1000, 10


@dataclass(frozen=True, slots=True)
class Cleaning:
    """How labels are read. merge: in what near-equal ones may differ; dropped: labels whose rows are left out."""

    merge: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        wrong = next((name for name in self.merge if name not in DIFFERENCES), None)
        if wrong is not None:
            known = f"use {', '.join(DIFFERENCES)}, or both with a comma between"
            raise ConfigError(f"merge_labels cannot be {wrong!r}{did_you_mean(wrong, DIFFERENCES)}; {known}")

    def plain(self, label: str) -> str:
        """What labels that are merged have in common."""
        label = label.casefold() if "case" in self.merge else label
        return " ".join(label.split()) if "space" in self.merge else label

    def drops(self, label: str) -> bool:
        """Whether the rows of a label are left out."""
        return bool(self.dropped) and self.plain(label) in map(self.plain, self.dropped)

    def find(self, label: str, names: Sequence[str]) -> str:
        """The one of ``names`` that a label is merged into; others as they are."""
        if not self.merge or label in names:
            return label
        plain = self.plain(label)
        return next((name for name in names if self.plain(name) == plain), label)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a user asked of the labels. min_rows: labels with fewer rows are left out; None: rare ones are an error."""

    merge: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    min_rows: int | None = None

    @classmethod
    def of(cls, merge: str | Sequence[str] | None, dropped: str | Sequence[str], min_rows: int | None) -> Asked:
        """As options and keywords say it. ConfigError for what they cannot be."""
        parts = merge.split(",") if isinstance(merge, str) else list(merge or ())
        if min_rows is not None and min_rows < 1:
            raise ConfigError(f"min_rows is {min_rows}, expected 1 (keep every label) or more")
        labels = (dropped,) if isinstance(dropped, str) else tuple(dropped)
        return cls(tuple(part.strip() for part in parts), labels, min_rows)

    def __bool__(self) -> bool:
        return self != Asked()

    def clean(self, file: Path, counts: Counter[str], notes: list[str]) -> Cleaning | None:
        """Merge and remove labels in ``counts``, with a note on each; None where nothing changes how a label is read.

        Raises:
            DataError: no row has a label that is to be dropped; no two labels are left.
        """
        cleaning = Cleaning(self.merge, self.dropped)
        _merge(counts, cleaning, notes)
        for name in self.dropped:
            hits = [label for label in counts if cleaning.plain(label) == cleaning.plain(name)]
            if not hits:
                near = did_you_mean(name, counts)
                raise DataError(f"{file}: no row has label {name!r}{near}; the labels are {shorten(counts, limit=12)}")
            notes += [f"left out: {counted(counts.pop(label), 'row')} of label {label!r}" for label in hits]
        few = [label for label, rows in counts.items() if rows < (self.min_rows or 1)]
        if few:
            lost = sum(counts.pop(label) for label in few)
            fewer = f"fewer than {counted(self.min_rows or 1, 'row')}"
            notes.append(f"left out: {counted(lost, 'row')} of labels with {fewer}: {shorten(few, limit=12)}")
        if not counts:
            raise DataError(f"{file}: no label is left; lower --min-rows, or drop fewer labels")
        cleaning = Cleaning(self.merge, (*self.dropped, *few))
        return None if cleaning == Cleaning() else cleaning

    def check_rare(self, file: Path, counts: Mapping[str, int]) -> None:
        """DataError for labels of one row in a thousand, or of fewer, where nothing was said of them."""
        rows = sum(counts.values())
        rare = [label for label, count in counts.items() if count < RARE_ROWS and count * RARE_SHARE <= rows]
        if self.min_rows is not None or not rare:
            return
        plain = Counter(map(plain_text, counts))
        near = any(plain[plain_text(label)] > 1 for label in rare)
        shown = ", ".join(f"{label!r} ({counted(counts[label], 'row')})" for label in rare[:5])
        more = f" and {len(rare) - 5:,} more" if len(rare) > 5 else ""
        spare = shorten([label for label in rare], limit=1).partition(" and ")[0]
        raise DataError(
            f"{file}: {counted(len(rare), 'label')} of {len(counts):,} {'has' if len(rare) == 1 else 'have'} one row "
            f"in {RARE_SHARE:,} or fewer, too few to learn or to score: {shown}{more}. "
            + ("Merge labels that differ in case and blanks only with --merge-labels case,space; l" if near else "L")
            + f"eave such rows out with --min-rows {RARE_ROWS}, or those of one label with --drop-label {spare}; keep "
            "every label with --min-rows 1"
        )


def _merge(counts: Counter[str], cleaning: Cleaning, notes: list[str]) -> None:
    """Count near-equal labels as the most frequent of them."""
    groups: dict[str, list[str]] = {}
    for label in counts if cleaning.merge else ():
        groups.setdefault(cleaning.plain(label), []).append(label)
    for group in groups.values():
        kept, *others = sorted(group, key=lambda label: (-counts[label], label))
        if others:
            listed = ", ".join(f"{label!r} ({counted(counts[label], 'row')})" for label in others)
            notes.append(f"merged into label {kept!r} ({counted(counts[kept], 'row')}): {listed}")
            counts[kept] += sum(counts.pop(label) for label in others)
