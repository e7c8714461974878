"""What is in the data of a reranker: queries, documents and labels, lengths, overlap of the splits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from bertkit.config.reading_settings import ReadingSettings
from bertkit.errors import DataError
from bertkit.ragged import Ints
from bertkit.tasks.hold_out import plain_text
from bertkit.tasks.report import DataReport, SplitFacts, find_leaks, shares
from bertkit.tasks.rerank.comparison import nothing_to_order
from bertkit.tasks.rerank.settings import RerankTaskSettings
from bertkit.tasks.rerank.task import RerankExample, RerankTask
from bertkit.tasks.text.report import add_lengths


def rerank_report(
    task: RerankTask,
    splits: Mapping[str, Sequence[RerankExample]],
    lengths: Mapping[str, Ints],
    settings: ReadingSettings,
) -> DataReport:
    """Count queries, documents, labels and overlap; DataError where no query has an order to be learned or scored."""
    reports = {}
    for name, examples in splits.items():
        reports[name] = facts = SplitFacts(examples, "query")
        sizes = np.array([len(example.documents) for example in examples])
        counts = {"fewest": int(sizes.min()), "mean": float(sizes.mean()), "most": int(sizes.max())}
        line = f"documents a query: {counts['fewest']} to {counts['most']}, mean {counts['mean']:.1f}"
        facts.add(line, documents=counts)
        gains = Counter(f"{gain:g}" for example in examples for gain in example.gains or ())
        facts.add(f"labels: {shares(dict(sorted(gains.items())))}" if gains else "", labels=dict(gains))
        orderless = sum(not example.has_order for example in examples)
        facts.count(
            "without_order", orderless, "query", "with documents that are all equally relevant", mark="NO ORDER"
        )
        if orderless == len(examples) and (name == "dev" or settings.of(RerankTaskSettings).rank_loss != "pointwise"):
            raise DataError(nothing_to_order(examples, f"the {name}"))
        add_lengths(facts, lengths[name], settings.max_length)
    overlap, leaks = find_leaks(splits, lambda example: plain_text(example.query), "query")
    return DataReport(task.name, reports, overlap, leaks, task.notes)
