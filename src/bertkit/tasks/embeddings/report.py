"""What is in the data of an embedding task: lengths, scores, repeated texts, overlap of the splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bertkit.config.reading_settings import ReadingSettings
from bertkit.errors import DataError, counted
from bertkit.tasks.embeddings.features import NONE, TextColumns
from bertkit.tasks.embeddings.objectives import loss_of
from bertkit.tasks.embeddings.reading import columns_note
from bertkit.tasks.embeddings.task import EmbeddingExample, EmbeddingTask
from bertkit.tasks.examples import Examples
from bertkit.tasks.hold_out import plain_text, text_key
from bertkit.tasks.report import DataReport, SplitFacts, find_leaks
from bertkit.tasks.text.report import add_lengths


def embedding_report(
    task: EmbeddingTask,
    splits: Mapping[str, Examples[EmbeddingExample]],
    encoded: Mapping[str, TextColumns],
    settings: ReadingSettings,
) -> DataReport:
    """Count rows, texts, lengths, scores, repeats and overlap."""
    reports = {}
    for name, rows in splits.items():
        reports[name] = facts = SplitFacts(rows, "row")
        if rows.path is not None:
            facts.add(columns_note(task, rows.path))
        columns = encoded[name]
        add_lengths(facts, columns.texts.num_tokens_before, settings.max_length, name="texts")
        _add_texts(facts, columns)
        if task.compares == "scores":
            _add_scores(facts, rows, scaled=name == "train" and loss_of(task, settings) == "cosine")
        facts.count_repeats(
            [text_key(row) for row in rows],
            [row.score if task.compares == "scores" else tuple(map(plain_text, row.texts[2:])) for row in rows],
            ("texts", "scores" if task.compares == "scores" else "negatives"),
        )
    if task.compares == "scores":
        overlap, leaks = find_leaks(splits, text_key, "row")
    else:
        overlap, leaks = find_leaks(splits, lambda row: plain_text(row.text), "row")
    return DataReport(task.name, reports, overlap, leaks, task.notes)


def _add_texts(facts: SplitFacts, columns: TextColumns) -> None:
    anchors, others = len(np.unique(columns.columns[:, 0])), len(columns.documents)
    negatives = int((columns.columns[:, 2:] != NONE).sum())
    line = f"different texts: {anchors:,} first, {others:,} others"
    if negatives:
        line += f"; {negatives / len(columns):.3g} negatives a row"
    facts.add(line, anchors=anchors, others=others, negatives=negatives)
    same = columns.same[columns.columns[:, 0]] == columns.same[columns.columns[:, 1]]
    facts.count("identical", int(same.sum()), "row", "whose two texts are the same")


def _add_scores(facts: SplitFacts, rows: Sequence[EmbeddingExample], *, scaled: bool) -> None:
    given = [row.score for row in rows if row.score is not None]
    if given:
        low, mean, high = min(given), sum(given) / len(given), max(given)
        line = f"scores: {low:g} to {high:g}, mean {mean:.3g}"
        facts.add(line + ("; scaled to cosines of 0 to 1 for the loss" if scaled else ""), scores=(low, mean, high))
    facts.count("unlabelled", len(rows) - len(given), "row", "without a score")


def check_negatives(rows: Sequence[EmbeddingExample], columns: TextColumns) -> None:
    """Refuse (DataError) rows without a negative, of which triplets cannot be made."""
    if not columns.has_negatives.all():
        without = int(np.flatnonzero(~columns.has_negatives)[0])
        raise DataError(
            f"{rows[without].where}: no negative ({rows[without].text!r:.60}), which the loss triplet needs in every "
            "row. Name their column (--negative), let the model find some (--mine-negatives), or use the loss in-batch"
        )


def repeats_note(left_out: int, rows: int, steps: int, size: int) -> str:
    """What to say of rows that find no place in the batches of an epoch; empty for none."""
    if not left_out:
        return ""
    return (
        f"REPEATED TEXTS: {counted(left_out, 'row')} of {rows:,} sit an epoch out, because no text stands twice in one "
        f"of its {steps:,} batches of up to {size:,} rows; another epoch leaves out others"
    )
