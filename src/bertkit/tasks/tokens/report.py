"""What is in tagged data, before anything is trained on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from bertkit.metrics.tags import Spelling
from bertkit.tasks.tokens.held_out import sentence_key
from bertkit.tasks.tokens.task import TaggedExample, TokenTask

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class PieceCounts:
    """What a tokenizer makes of the sentences of a split.

    tokens: int64 ``(E,)``, word pieces of each with special tokens.
    num_windows: rows that they become.
    num_words_without: words without any piece, which are ``O`` or belong to the entity around them.
    num_words_shared: words that begin in the same piece as the word before, and can only go on with what that is.
    """

    tokens: npt.NDArray[np.int64]
    num_windows: int
    num_words_without: int
    num_words_shared: int = 0


@dataclass(frozen=True, slots=True)
class TaggedSplitReport:
    """One split.

    sentences, words: how many. source: file name. scheme: how the file is tagged, "" where that is not known. repaired:
        tags that do not fit the scheme. untagged: sentences without tags. entities: how many of each of the task's
        types. documents: 0 where the file tells none. tokens: word pieces of the shortest, median and longest sentence.
        windows: rows that the sentences became. words_without: words without a piece. words_shared: see
        :class:`PieceCounts`. duplicates: sentences that stood earlier in the split. contradictions: sentences in groups
        of the same words with different entities. skipped: bad lines, by kind. unseen: share of the entities (by their
        words) that do not stand in train; None for train.
    """

    sentences: int
    words: int
    source: str
    scheme: str
    repaired: int
    untagged: int
    entities: dict[str, int]
    documents: int
    tokens: tuple[int, float, int]
    windows: int
    words_without: int
    words_shared: int
    duplicates: int
    contradictions: int
    skipped: dict[str, int]
    unseen: float | None


@dataclass(frozen=True, slots=True)
class TaggedReport:
    """A task's data: a report for each split.

    overlap: for each split other than train, the sentences that also stand in train.
    """

    task: str
    splits: dict[str, TaggedSplitReport]
    max_length: int
    overlap: dict[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        values = asdict(self)
        values["notes"] = list(self.notes)
        for split in values["splits"].values():
            split["tokens"] = list(split["tokens"])
        return values

    def render(self) -> str:
        """The report as text, with a line for everything that should make a reader stop."""
        lines = [f"data of task {self.task}", *(f"  {note}" for note in self.notes)]
        for name, split in self.splits.items():
            lines += _render_split(name, split, self.max_length)
        for name, rows in self.overlap.items():
            total = self.splits[name].sentences
            lines.append(
                f"  LEAK: {rows:,} of {total:,} {name} sentences ({100 * rows / total:.1f} %) also stand in train"
                if rows
                else f"  no {name} sentence stands in train"
            )
        return "\n".join(lines)


def tagged_report(
    task: TokenTask,
    splits: Mapping[str, Sequence[TaggedExample]],
    pieces: Mapping[str, PieceCounts],
    *,
    max_length: int,
) -> TaggedReport:
    """Count sentences, entities, windows, duplicates and overlap.

    Args:
        task: names the types.
        splits: sentences by split name; "train" is what the others are compared with.
        pieces: what the tokenizer made of each split.
        max_length: tokens of a window.
    """
    names = {name: _names(rows) for name, rows in splits.items()}
    keys = {name: [sentence_key(row) for row in rows] for name, rows in splits.items()}
    known = set(names["train"]) if "train" in names else set()
    seen = set(keys["train"]) if "train" in keys else set()
    reports = {
        name: _split_report(
            task, rows, pieces[name], keys[name], None if name == "train" else _share_unseen(names[name], known)
        )
        for name, rows in splits.items()
    }
    overlap = {name: sum(key in seen for key in keys[name]) for name in splits if name != "train" and "train" in splits}
    return TaggedReport(task.name, reports, max_length, overlap, task.notes)


def _split_report(
    task: TokenTask, rows: Sequence[TaggedExample], pieces: PieceCounts, keys: Sequence[str], unseen: float | None
) -> TaggedSplitReport:
    counts = Counter(entity.type for row in rows for entity in row.entities or ())
    spelling: Spelling | None = getattr(rows, "spelling", None)
    path = getattr(rows, "path", None)
    meanings: dict[str, set[object]] = {}
    for key, row in zip(keys, rows, strict=True):
        meanings.setdefault(key, set()).add(row.entities)
    return TaggedSplitReport(
        sentences=len(rows),
        words=sum(len(row.words) for row in rows),
        source="" if path is None else path.name,
        scheme="" if spelling is None else spelling.scheme,
        repaired=0 if spelling is None else spelling.repaired,
        untagged=sum(row.entities is None for row in rows),
        entities={kind: counts[kind] for kind in task.types},
        documents=len({row.document for row in rows} - {0}),
        tokens=(int(pieces.tokens.min()), float(np.median(pieces.tokens)), int(pieces.tokens.max())),
        windows=pieces.num_windows,
        words_without=pieces.num_words_without,
        words_shared=pieces.num_words_shared,
        duplicates=len(keys) - len(meanings),
        contradictions=sum(len(meanings[key]) > 1 for key in keys),
        skipped=dict(Counter(row.kind for row in getattr(rows, "skipped", ()))),
        unseen=unseen,
    )


def _render_split(name: str, split: TaggedSplitReport, max_length: int) -> list[str]:
    documents = f" in {split.documents:,} documents" if split.documents else ""
    lines = [
        f"  {name}: {split.sentences:,} sentences, {split.words:,} words{documents}"
        + (f" from {split.source}" if split.source else "")
    ]
    total = sum(split.entities.values())
    if total:
        shares = ", ".join(f"{kind} {count:,} ({100 * count / total:.1f} %)" for kind, count in split.entities.items())
        lines.append(f"    entities: {shares}")
    absent = [kind for kind, count in split.entities.items() if not count]
    if absent and not split.untagged:
        lines.append(f"    NO ENTITY of type {', '.join(map(repr, absent[:5]))}")
    if split.untagged:
        lines.append(f"    {split.untagged:,} sentences without tags")
    if split.repaired:
        lines.append(f"    REPAIRED: {split.repaired:,} tags do not fit the scheme {split.scheme}")
    shortest, median, longest = split.tokens
    lines.append(
        f"    word pieces of a sentence: {shortest} to {longest:,}, median {median:g}"
        + (f"; windows of {max_length} make {split.windows:,} rows" if split.windows != split.sentences else "")
    )
    if split.words_without:
        lines.append(f"    {split.words_without:,} words have no word piece; they are O, or what is around them")
    if split.words_shared:
        lines.append(
            f"    {split.words_shared:,} words begin in the piece of the word before and go on with its entity"
        )
    if split.unseen is not None:
        lines.append(f"    {100 * split.unseen:.1f} % of the entities do not stand in train")
    lines.append(f"    duplicates: {split.duplicates:,} sentences repeat an earlier one")
    if split.contradictions:
        lines.append(f"    CONTRADICTIONS: {split.contradictions:,} sentences occur with several sets of entities")
    lines += [f"    LEFT OUT: {count:,} lines, {kind}, with their sentences" for kind, count in split.skipped.items()]
    return lines


def _names(rows: Sequence[TaggedExample]) -> list[Key]:
    """Type and words of every entity."""
    return [
        (entity.type, " ".join(row.words[entity.start : entity.end]).casefold())
        for row in rows
        for entity in row.entities or ()
    ]


def _share_unseen(names: Sequence[Key], known: set[Key]) -> float | None:
    return sum(name not in known for name in names) / len(names) if names else None
