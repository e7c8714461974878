"""What is in the data, before anything is trained on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from bertkit.tasks.duplicate_rows import Key, text_key
from bertkit.tasks.examples import Example
from bertkit.tasks.text.task import TextTask


class _Ragged(Protocol):
    @property
    def num_tokens_before(self) -> npt.NDArray[np.int64]: ...


class LengthCounter(Protocol):
    """What this module needs of a tokenizer."""

    def encode_ragged(self, texts: Sequence[str], text_pairs: Sequence[str] | None = None) -> _Ragged:
        """Token ids of texts or pairs, not cut."""


@dataclass(frozen=True, slots=True)
class LengthReport:
    """Word pieces of a row, special tokens included, before truncation; ``truncated`` = share of rows cut."""

    minimum: int
    median: float
    p95: float
    maximum: int
    max_length: int | None
    truncated: float


@dataclass(frozen=True, slots=True)
class SplitReport:
    """One split.

    rows: usable rows. source: file name. labels: rows of each label, in the task's order (empty for scores).
    scores: lowest, mean and highest score of a regression task, else None. unlabelled: rows without a label.
    lengths: None when no lengths were given. duplicates: rows whose text stood in an earlier row of the split.
    contradictions: rows in groups of one text under different labels. skipped: bad rows left out, by kind.
    """

    rows: int
    source: str
    labels: dict[str, int]
    scores: tuple[float, float, float] | None
    unlabelled: int
    lengths: LengthReport | None
    duplicates: int
    contradictions: int
    skipped: dict[str, int]


@dataclass(frozen=True, slots=True)
class DataReport:
    """A task's data: a report for each split, and what train shares with the others.

    overlap: for each split other than train, the rows whose text also stands in train.
    overlap_agrees: of those, the rows whose label in train is the same (all of them, where train has several).
    """

    task: str
    splits: dict[str, SplitReport]
    overlap: dict[str, int] = field(default_factory=dict)
    overlap_agrees: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        values = asdict(self)
        values["notes"] = list(self.notes)
        for split in values["splits"].values():
            split["scores"] = None if split["scores"] is None else list(split["scores"])
        return values

    def render(self) -> str:
        """The report as text, a few lines a split, with a line for everything that should make a reader stop."""
        lines = [f"data of task {self.task}"]
        lines += [f"  {note}" for note in self.notes]
        for name, split in self.splits.items():
            lines += _render_split(name, split)
        for name, rows in self.overlap.items():
            if rows:
                share = 100 * rows / self.splits[name].rows
                lines.append(
                    f"  LEAK: {rows:,} of {self.splits[name].rows:,} {name} rows ({share:.1f} %) have a text that also "
                    f"stands in train, {self.overlap_agrees[name]:,} with the same label"
                )
            else:
                lines.append(f"  no {name} text stands in train")
        return "\n".join(lines)


def data_report(
    task: TextTask,
    splits: Mapping[str, Sequence[Example]],
    tokenizer: LengthCounter | None = None,
    *,
    lengths: Mapping[str, npt.NDArray[np.int64]] | None = None,
    max_length: int | None = None,
) -> DataReport:
    """Count rows, labels, lengths, duplicates and overlap.

    Args:
        task: says what the labels are.
        splits: rows by split name; "train" is what the others are compared with.
        tokenizer: counts word pieces; not needed where ``lengths`` has the split.
        lengths: tokens of each row before truncation, ``Ragged.num_tokens_before``, so that nothing is encoded twice.
        max_length: rows with more tokens count as truncated; None means none is.
    """
    keys = {name: [text_key(row) for row in rows] for name, rows in splits.items()}
    reports = {}
    for name, rows in splits.items():
        counted = (lengths or {}).get(name)
        if counted is None and tokenizer is not None and rows:
            pairs = [row.text_pair or "" for row in rows] if task.is_pair else None
            counted = tokenizer.encode_ragged([row.text for row in rows], pairs).num_tokens_before
        reports[name] = _split_report(task, rows, keys[name], counted, max_length)
    overlap, agrees = {}, {}
    if "train" in splits:
        labels_of = _labels_by_key(splits["train"], keys["train"])
        for name in splits:
            if name != "train":
                shared = [
                    (row, labels_of[key]) for row, key in zip(splits[name], keys[name], strict=True) if key in labels_of
                ]
                overlap[name] = len(shared)
                agrees[name] = sum(found == {row.label} for row, found in shared)
    return DataReport(task.name, reports, overlap, agrees, task.notes)


def _split_report(
    task: TextTask,
    rows: Sequence[Example],
    keys: Sequence[Key],
    lengths: npt.NDArray[np.int64] | None,
    max_length: int | None,
) -> SplitReport:
    given = [row.label for row in rows if row.label is not None]
    scores = None
    counts: dict[str, int] = {}
    if task.labels is None:
        numbers = np.asarray(given, dtype=np.float64)
        scores = (float(numbers.min()), float(numbers.mean()), float(numbers.max())) if given else None
    else:
        found = Counter(number for label in given for number in (label if isinstance(label, tuple) else (label,)))
        counts = {label: found[number] for number, label in enumerate(task.labels)}
    groups = _labels_by_key(rows, keys)
    torn = {key for key, labels in groups.items() if len(labels) > 1}
    path = getattr(rows, "path", None)
    return SplitReport(
        rows=len(rows),
        source=path.name if path is not None else "",
        labels=counts,
        scores=scores,
        unlabelled=len(rows) - len(given),
        lengths=None if lengths is None or not len(lengths) else _length_report(lengths, max_length),
        duplicates=len(keys) - len(groups),
        contradictions=sum(key in torn for key in keys),
        skipped=dict(Counter(row.kind for row in getattr(rows, "skipped", ()))),
    )


def _length_report(lengths: npt.NDArray[np.int64], max_length: int | None) -> LengthReport:
    return LengthReport(
        minimum=int(lengths.min()),
        median=float(np.median(lengths)),
        p95=float(np.percentile(lengths, 95)),
        maximum=int(lengths.max()),
        max_length=max_length,
        truncated=0.0 if max_length is None else float(np.mean(lengths > max_length)),
    )


def _labels_by_key(rows: Sequence[Example], keys: Sequence[Key]) -> dict[Key, set[Any]]:
    labels: dict[Key, set[Any]] = {}
    for row, key in zip(rows, keys, strict=True):
        labels.setdefault(key, set()).add(row.label)
    return labels


def _render_split(name: str, split: SplitReport) -> list[str]:
    lines = [f"  {name}: {split.rows:,} rows" + (f" from {split.source}" if split.source else "")]
    labelled = sum(split.labels.values())
    if labelled:
        shares = ", ".join(
            f"{label} {count:,} ({100 * count / labelled:.1f} %)" for label, count in _most(split.labels)
        )
        lines.append(f"    labels: {shares}")
        absent = [label for label, count in split.labels.items() if count == 0]
        if absent:
            lines.append(f"    NO ROW has label {', '.join(map(repr, absent[:5]))}")
    if split.scores:
        lines.append(f"    scores: {split.scores[0]:g} to {split.scores[2]:g}, mean {split.scores[1]:.3g}")
    if split.unlabelled:
        lines.append(f"    {split.unlabelled:,} rows without a label")
    if split.lengths:
        told = split.lengths
        text = f"    word pieces: {told.minimum} to {told.maximum:,}, median {told.median:g}, 95 % up to {told.p95:.0f}"
        if told.max_length is not None:
            text += f"; {100 * told.truncated:.1f} % of rows cut at {told.max_length}"
        lines.append(text)
    lines.append(f"    duplicates: {split.duplicates:,} rows repeat an earlier text")
    if split.contradictions:
        what = "scores" if split.scores else "labels"
        lines.append(f"    CONTRADICTIONS: {split.contradictions:,} rows have a text that occurs under several {what}")
    lines += [f"    LEFT OUT: {count:,} rows, {kind}" for kind, count in split.skipped.items()]
    return lines


def _most(labels: Mapping[str, int], limit: int = 12) -> list[tuple[str, int]]:
    """All labels in their order, or the most frequent ones where there are many."""
    if len(labels) <= limit:
        return list(labels.items())
    most = Counter(labels).most_common(limit)
    return [*most, (f"and {len(labels) - limit} more", sum(labels.values()) - sum(count for _, count in most))]
