"""The order of a model beside that of BM25 and beside no order, on the same documents of the same queries.

Only queries that have an order are counted: where all documents are equally relevant, any order is right.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from bertkit.errors import DataError, counted
from bertkit.metrics.bm25 import BM25
from bertkit.metrics.intervals import bootstrap_draws, drawn_means, interval_of, interval_text, middle_of
from bertkit.metrics.ranking import Values, judge_groups, ranking_values
from bertkit.ragged import Floats, boundaries_of
from bertkit.system.console import aligned
from bertkit.tasks.examples import Row
from bertkit.tasks.rerank.features import gains_of, numbers_of_documents
from bertkit.tasks.rerank.task import RerankExample, RerankTask

#: Orders that are drawn for the scores of no order.
RANDOM_ORDERS = 20
#: The most ranks that a metric of a task looks at.
RANKS = 10


def query_values(
    task: RerankTask, examples: Sequence[RerankExample], scores: npt.ArrayLike, seed: int = 0
) -> dict[str, Values]:
    """Each metric of the task for each query ``(Q,)``, nan for one without an order; ``seed`` orders equal scores."""
    groups = boundaries_of([len(example.documents) for example in examples])
    ordered = np.array([example.has_order for example in examples])
    if not ordered.any():
        raise DataError(nothing_to_order(examples, "these"))
    kept = ordered.repeat(np.diff(groups))
    parts = boundaries_of(np.diff(groups)[ordered])
    judged = judge_groups(np.asarray(scores)[kept], gains_of(examples)[kept], parts, RANKS, seed)
    found = {}
    for name, values in ranking_values(judged, task.metrics).items():
        found[name] = np.full(len(examples), np.nan)
        found[name][ordered] = values
    return found


def nothing_to_order(examples: Sequence[RerankExample], which: str) -> str:
    """The message for queries none of which has an order."""
    most = max(len(example.documents) for example in examples)
    return (
        f"none of {which} {len(examples):,} queries has two documents of which one is more relevant (at most {most} "
        "documents per query), so there is no order to learn or to score. Add documents that are not relevant, or let "
        "them be searched for in the file with negatives=N (--negatives N)"
    )


def bm25_scores(examples: Sequence[RerankExample]) -> Floats:
    """BM25 of all documents, query after query; the index has every document of the examples once."""
    numbers = numbers_of_documents(examples)
    index = BM25(numbers)
    found = [index.scores(e.query)[[numbers[text] for text in e.documents]] for e in examples]
    return np.concatenate(found).astype(np.float32)


def random_values(task: RerankTask, examples: Sequence[RerankExample]) -> dict[str, Values]:
    """Each metric of each query, the mean over :data:`RANDOM_ORDERS` orders of its documents."""
    nothing = np.zeros(sum(len(example.documents) for example in examples))
    drawn = [query_values(task, examples, nothing, seed) for seed in range(RANDOM_ORDERS)]
    return {name: np.mean([values[name] for values in drawn], axis=0) for name in task.metrics}


def means(values: Mapping[str, Values]) -> dict[str, float]:
    """The mean of each metric over the queries that have an order."""
    return {name: float(np.nanmean(each)) for name, each in values.items()}


def query_interval(values: Values) -> list[float] | None:
    """The interval of the mean over the queries that have an order."""
    return interval_of(_drawn(values), int((~np.isnan(values)).sum()), (0.0, 1.0))


def _drawn(values: Values) -> list[float]:
    there = values[~np.isnan(values)]
    found: list[float] = drawn_means(there, bootstrap_draws(len(there))).tolist()
    return found


def ranking_baseline(task: RerankTask, dev: Sequence[RerankExample]) -> Row:
    """Scores of BM25 and of no order on dev, each with 95 % intervals by query. Nothing is fitted."""
    started = time.perf_counter()
    words, chance = query_values(task, dev, bm25_scores(dev)), random_values(task, dev)

    def intervals(values: Mapping[str, Values]) -> Row:
        return {name: query_interval(each) for name, each in values.items()}

    return {
        "name": "BM25",
        "model": "BM25 over the documents of dev (Lucene's form, k1 = 1.2, b = 0.75)",
        "metrics": means(words),
        "intervals": intervals(words),
        "random_order": means(chance),
        "random_order_intervals": intervals(chance),
        "dev_rows": len(dev),
        "seconds": time.perf_counter() - started,
    }


def comparison_table(task: RerankTask, examples: Sequence[RerankExample], scores: Floats) -> str:
    """Model, BM25 and no order side by side, with 95 % intervals of the main metric by query; lines of text."""
    model, words = query_values(task, examples, scores), query_values(task, examples, bm25_scores(examples))
    rows = [("", *task.metrics, f"95 % interval of {task.main_metric}")]
    main = task.main_metric
    for name, values in (("model", model), ("BM25", words), ("random order", random_values(task, examples))):
        cells = [f"{value:.4f}" for value in means(values).values()]
        rows.append((name, *cells, interval_text(query_interval(values[main]))))
    better = {name: model[name] - words[name] for name in task.metrics}
    low, high = middle_of(_drawn(better[main]))
    between = interval_text((low, high) if low < high else None, "+")
    rows.append(("model - BM25", *(f"{value:+.4f}" for value in means(better).values()), between))
    ordered = sum(example.has_order for example in examples)
    left_out = len(examples) - ordered
    note = f"; left out: {counted(left_out, 'query')} whose documents are all equally relevant" if left_out else ""
    return "\n".join([*aligned(rows), f"means over {counted(ordered, 'query')}{note}"])
