"""What is in tagged data: sentences, entities, word pieces, and what train shares with other splits."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np

from bertkit.errors import counted
from bertkit.metrics.tags import OUTSIDE
from bertkit.tasks.hold_out import plain_text
from bertkit.tasks.report import DataReport, SplitFacts, find_leaks, label_warnings, shares
from bertkit.tasks.tokens.decoding import shares_piece
from bertkit.tasks.tokens.features import TokenWindows
from bertkit.tasks.tokens.task import TaggedExample, TaggedExamples, TokenTask

#: Not ``e-mail``: of the letters those that every scheme has.
#: Digit and letters of other scripts that look like the tag O.
_NO_LETTER_O = ("0", "\u041e", "\u039f")
_NEAR_TAG = re.compile(r"([biBI])[-_](.+)", re.DOTALL)


def tagged_report(
    task: TokenTask,
    splits: Mapping[str, Sequence[TaggedExample]],
    encoded: Mapping[str, TokenWindows],
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
        facts.add("", words=words, documents=documents)
        _add_entities(facts, task, rows)
        _add_pieces(facts, len(rows), encoded[name], max_length)
        found = _names(rows)
        unseen = sum(entity not in known for entity in found) / len(found) if found and name != "train" else None
        facts.add("" if unseen is None else f"{100 * unseen:.1f} % of the entities are not in train", unseen=unseen)
        facts.count_repeats([_key(row) for row in rows], [row.entities for row in rows], ("words", "sets of entities"))
    overlap, leaks = find_leaks(splits, _key, "sentence")
    warnings = label_warnings(task.types), near_tags(task.types)
    return DataReport(task.name, reports, overlap, leaks, (*task.notes, *chain(*warnings)))


def near_tags(types: Sequence[str]) -> tuple[str, ...]:
    """A line on types of bare tags that look like a tag with its letter, such as ``o`` and ``B_PER``."""
    near = {kind: found for kind in types if (found := _meant(kind)) is not None}
    if not near:
        return ()
    listed = ", ".join(
        f"{kind!r} (is it {tag!r}{', the letter' if kind in _NO_LETTER_O else ''}?)"
        for kind, tag in list(near.items())[:10]
    )
    return (f"NEAR-TAGS: taken for types of entities, without a letter: {listed}",)


def _meant(kind: str) -> str | None:
    if kind in _NO_LETTER_O or kind.casefold() == OUTSIDE.casefold():
        return OUTSIDE if kind != OUTSIDE else None
    found = _NEAR_TAG.fullmatch(kind)
    return None if found is None else f"{found[1].upper()}-{found[2]}"


def _add_entities(facts: SplitFacts, task: TokenTask, rows: Sequence[TaggedExample]) -> None:
    found = Counter(entity.type for row in rows for entity in row.entities or ())
    entities = {kind: found[kind] for kind in task.types}
    facts.add(f"entities: {shares(entities)}" if found else "", entities=entities)
    untagged = sum(row.entities is None for row in rows)
    absent = [kind for kind, count in entities.items() if not count]
    facts.add(f"NO ENTITY of type {', '.join(map(repr, absent[:5]))}" if absent and not untagged else "")
    facts.count("untagged", untagged, "sentence", "without tags")
    spelling = rows.spelling if isinstance(rows, TaggedExamples) else None
    scheme, repaired = ("", 0) if spelling is None else (spelling.scheme, spelling.repaired)
    facts.add("", scheme=scheme)
    facts.count("repaired", repaired, "tag", f"outside the scheme {scheme}", mark="REPAIRED")
    if isinstance(rows, TaggedExamples) and rows.form:
        facts.add("", form=rows.form)
        facts.count("moved", rows.moved, "entity", "beginning or ending inside a word, taken with the whole word")


def _add_pieces(facts: SplitFacts, num_sentences: int, windows: TokenWindows, max_length: int) -> None:
    assert windows.first_pieces is not None, "windows were made with words"
    tokens = np.diff(windows.pieces.boundaries) + 2
    shortest, median, longest = int(tokens.min()), float(np.median(tokens)), int(tokens.max())
    line = f"word pieces of a sentence: {shortest} to {longest:,}, median {median:g}"
    if len(windows) != num_sentences:
        line += f"; windows of {max_length} make {counted(len(windows), 'row')}"
    facts.add(line, tokens=(shortest, median, longest), windows=len(windows))
    without, shared = int((windows.first_pieces < 0).sum()), int(shares_piece(windows.first_pieces).sum())
    facts.count("words_without", without, "word", "without a word piece; predicted O, or as the entity around it")
    together = "beginning in the same word piece as the word before, and sharing its label"
    facts.count("words_shared", shared, "word", together)


def _names(rows: Sequence[TaggedExample]) -> list[tuple[str, str]]:
    return [
        (entity.type, " ".join(row.words[entity.start : entity.end]).casefold())
        for row in rows
        for entity in row.entities or ()
    ]


def _key(example: TaggedExample) -> str:
    return plain_text(" ".join(example.words))
