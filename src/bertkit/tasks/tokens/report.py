"""What is in tagged data: sentences, entities, word pieces, and what train shares with other splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.errors import counted
from bertkit.ragged import Ints
from bertkit.tasks.data_report import DataReport, SplitFacts, find_leaks, label_warnings, shares
from bertkit.tasks.hold_out import plain_text
from bertkit.tasks.tokens.task import TaggedExample, TaggedExamples, TokenTask


@dataclass(frozen=True, slots=True)
class PieceCounts:
    """What a tokenizer makes of the sentences of a split.

    tokens: int64 ``(E,)``, word pieces of each with special tokens.
    num_windows: rows that they become.
    num_words_without: words without any piece, which are ``O`` or belong to the entity around them.
    num_words_shared: words that begin in the same piece as the word before, and can only go on with what that is.
    """

    tokens: Ints
    num_windows: int
    num_words_without: int
    num_words_shared: int = 0


def tagged_report(
    task: TokenTask,
    splits: Mapping[str, Sequence[TaggedExample]],
    pieces: Mapping[str, PieceCounts],
    *,
    max_length: int,
) -> DataReport:
    """Count sentences, entities, windows of ``max_length`` tokens, duplicates and what train shares with the others."""
    known = set(_names(splits.get("train", ())))
    reports = {}
    for name, rows in splits.items():
        words = sum(len(row.words) for row in rows)
        documents = len({row.document for row in rows} - {0})
        about = f", {counted(words, 'word')}" + (f" in {counted(documents, 'document')}" if documents else "")
        reports[name] = facts = SplitFacts(rows, "sentence", about)
        facts.tell("", words=words, documents=documents)
        _tell_entities(facts, task, rows)
        _tell_pieces(facts, len(rows), pieces[name], max_length)
        found = _names(rows)
        unseen = sum(entity not in known for entity in found) / len(found) if found and name != "train" else None
        facts.tell("" if unseen is None else f"{100 * unseen:.1f} % of the entities are not in train", unseen=unseen)
        facts.count_repeats([_key(row) for row in rows], [row.entities for row in rows], ("words", "sets of entities"))
    overlap, leaks = find_leaks(splits, _key, "sentence")
    return DataReport(task.name, reports, overlap, leaks, (*task.notes, *label_warnings(task.types)))


def _tell_entities(facts: SplitFacts, task: TokenTask, rows: Sequence[TaggedExample]) -> None:
    found = Counter(entity.type for row in rows for entity in row.entities or ())
    entities = {kind: found[kind] for kind in task.types}
    facts.tell(f"entities: {shares(entities)}" if found else "", entities=entities)
    untagged = sum(row.entities is None for row in rows)
    absent = [kind for kind, count in entities.items() if not count]
    facts.tell(f"NO ENTITY of type {', '.join(map(repr, absent[:5]))}" if absent and not untagged else "")
    facts.count("untagged", untagged, "sentence", "without tags")
    spelling = rows.spelling if isinstance(rows, TaggedExamples) else None
    scheme, repaired = ("", 0) if spelling is None else (spelling.scheme, spelling.repaired)
    facts.tell("", scheme=scheme)
    facts.count("repaired", repaired, "tag", f"outside the scheme {scheme}", mark="REPAIRED")


def _tell_pieces(facts: SplitFacts, num_sentences: int, pieces: PieceCounts, max_length: int) -> None:
    shortest, median, longest = int(pieces.tokens.min()), float(np.median(pieces.tokens)), int(pieces.tokens.max())
    line = f"word pieces of a sentence: {shortest} to {longest:,}, median {median:g}"
    if pieces.num_windows != num_sentences:
        line += f"; windows of {max_length} make {pieces.num_windows:,} rows"
    facts.tell(line, tokens=(shortest, median, longest), windows=pieces.num_windows)
    facts.count("words_without", pieces.num_words_without, "word", "without a word piece: O, or what is around")
    facts.count("words_shared", pieces.num_words_shared, "word", "in the piece of the word before, with its entity")


def _names(rows: Sequence[TaggedExample]) -> list[tuple[str, str]]:
    """Type and words of every entity."""
    return [
        (entity.type, " ".join(row.words[entity.start : entity.end]).casefold())
        for row in rows
        for entity in row.entities or ()
    ]


def _key(example: TaggedExample) -> str:
    return plain_text(" ".join(example.words))
