"""What is in the data of a text task: labels or scores, lengths, duplicates, overlap of the splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from bertkit.ragged import Ints
from bertkit.tasks.examples import Example
from bertkit.tasks.hold_out import text_key
from bertkit.tasks.report import DataReport, SplitFacts, find_leaks, grouped, label_warnings, shares
from bertkit.tasks.text.task import TextTask
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer


def data_report(
    task: TextTask,
    splits: Mapping[str, Sequence[Example]],
    tokenizer: PreTrainedTokenizer | None = None,
    *,
    lengths: Mapping[str, Ints] | None = None,
    max_length: int | None = None,
) -> DataReport:
    """Count rows, labels, lengths, duplicates and overlap.

    Args:
        task: says what the labels are.
        splits: rows by split name; "train" is what the others are compared with.
        tokenizer: counts word pieces; not needed where ``lengths`` has the split.
        lengths: tokens of each row before truncation, special tokens included, so that nothing is encoded twice.
        max_length: rows with more tokens count as truncated; None means none is.
    """
    reports = {}
    for name, rows in splits.items():
        tokens = (lengths or {}).get(name)
        if tokens is None and tokenizer is not None and rows:
            pairs = [row.text_pair or "" for row in rows] if task.is_pair else None
            tokens = tokenizer.encode_ragged([row.text for row in rows], pairs).num_tokens_before
        reports[name] = facts = SplitFacts(rows, "row")
        _add_labels(facts, task, rows)
        if tokens is not None and len(tokens):
            add_lengths(facts, tokens, max_length)
        meaning = "scores" if task.is_regression else "labels"
        facts.count_repeats([text_key(row) for row in rows], [row.label for row in rows], ("text", meaning))
    train = splits.get("train", ())
    labels_of = grouped([text_key(row) for row in train], [row.label for row in train])

    def agreeing(name: str) -> str:
        shared = [(row, labels_of[text_key(row)]) for row in splits[name] if text_key(row) in labels_of]
        agrees = sum(found == {row.label} for row, found in shared)
        reports[name].add("", overlap_agrees=agrees)
        return f", {agrees:,} with the same label" if shared else ""

    overlap, leaks = find_leaks(splits, text_key, "row", agreeing)
    options = ("--merge-labels case,space", "--drop-label") if task.name == "csv" and not task.cleaning else ()
    warnings = label_warnings(task.labels or (), *options)
    return DataReport(task.name, reports, overlap, leaks, (*task.notes, *warnings))


def _add_labels(facts: SplitFacts, task: TextTask, rows: Sequence[Example]) -> None:
    given = [row.label for row in rows if row.label is not None]
    if task.labels is None:
        numbers = np.asarray(given, dtype=np.float64)
        scores = (float(numbers.min()), float(numbers.mean()), float(numbers.max())) if given else None
        facts.add(f"scores: {scores[0]:g} to {scores[2]:g}, mean {scores[1]:.3g}" if scores else "", scores=scores)
    else:
        found = Counter(number for label in given for number in (label if isinstance(label, tuple) else (label,)))
        counts = {label: found[number] for number, label in enumerate(task.labels)}
        facts.add(f"labels: {shares(counts)}" if found else "", labels=counts)
        absent = [label for label, count in counts.items() if not count]
        facts.add(f"NO ROW has label {', '.join(map(repr, absent[:5]))}" if found and absent else "")
    facts.count("unlabelled", len(rows) - len(given), "row", "without a label")


def add_lengths(facts: SplitFacts, tokens: Ints, max_length: int | None, *, name: str = "") -> None:
    """Note the numbers of tokens of some rows; ``name`` says of what, where a row has several texts."""
    lowest, highest, cut = int(tokens.min()), int(tokens.max()), 0.0
    median, p95 = float(np.median(tokens)), float(np.percentile(tokens, 95))
    line = f"{name and name + ', '}word pieces: {lowest} to {highest:,}, median {median:g}, 95 % up to {p95:.0f}"
    if max_length is not None:
        cut = float(np.mean(tokens > max_length))
        line += f"; {100 * cut:.1f} % cut at {max_length}"
    lengths = {"minimum": lowest, "median": median, "p95": p95, "maximum": highest, "truncated": cut}
    facts.add(line, **{f"{name and name + '_'}lengths": lengths})
