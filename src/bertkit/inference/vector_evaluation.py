"""Score the vectors that a model makes of labelled texts, beside those of TF-IDF; the model is not trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from bertkit.config.reading_settings import ReadingSettings
from bertkit.errors import ConfigError, DataError
from bertkit.inference.evaluate import Evaluation
from bertkit.inference.protocol import model_hash, versions
from bertkit.inference.sentence_encoder import SentenceEncoder
from bertkit.metrics.clusters import v_measure
from bertkit.metrics.intervals import interval_text
from bertkit.metrics.scores import METRICS
from bertkit.ragged import Ints
from bertkit.system.console import aligned
from bertkit.system.device import hardware
from bertkit.tasks.examples import Example, Examples, Split
from bertkit.tasks.run_rows import examples_hash, read_rows, sets_of
from bertkit.tasks.text.baseline import tfidf_vectorizer
from bertkit.tasks.text.probes import NEIGHBOURS, Vectors, cluster_numbers, linear_labels, neighbour_labels
from bertkit.tasks.text.task import TextTask
from bertkit.tasks.workflow import workflow_of

#: What says a text's label, as the beginning of a score's name.
NEAREST, LINEAR = "neighbours", "linear"


class Answers(NamedTuple):
    """What is said of each of M texts ``(M,)``: its label, twice, and its cluster."""

    neighbours: Ints
    linear: Ints
    clusters: Ints


Measure = Callable[[Answers, Ints], float]


def evaluate_vectors(
    task: TextTask,
    data: str | Path,
    model: str | Path | SentenceEncoder,
    split: Split = "dev",
    *,
    device: str | None = None,
    settings: ReadingSettings | None = None,
) -> Evaluation:
    """How much the vectors of texts know of their labels.

    In three ways, each with the metrics of the task or the V-measure: the label of most of the 10 nearest training
    texts; a logistic regression on the training texts; k-means on the scored texts alone, as many clusters as labels.
    Without a dev file a part of train is held out.
    """
    task.labels_of_single_texts("vectors")
    if split == "train":
        raise ConfigError("vectors are scored on dev or test; the labels of train are what they are compared with")
    encoder = model if isinstance(model, SentenceEncoder) else SentenceEncoder(model, device=device)
    train, scored = _rows(task, data, split, settings or ReadingSettings())
    labels_N, right_M = (np.array([row.label for row in rows], np.int64) for rows in (train, scored))
    texts, others = ([row.text for row in rows] for rows in (train, scored))
    vectors, words = partial(encoder.encode, truncation=True), tfidf_vectorizer()
    found = _answers(vectors(texts), labels_N, vectors(others), task.num_labels)
    simple = _answers(words.fit_transform(texts), labels_N, words.transform(others), task.num_labels)
    measures = _measures(task)
    scores, baseline = ({name: of(answers, right_M) for name, of in measures.items()} for answers in (found, simple))
    sets = sets_of(workflow_of(task), scored)
    drawn = {
        name: [of(Answers(*(each[draw] for each in found)), right_M[draw]) for draw in sets.draws]
        for name, of in measures.items()
    }
    shares = {f"{which}_accuracy" for which in (NEAREST, LINEAR)}
    intervals = {name: sets.interval(each, (0.0, 1.0) if name in shares else None) for name, each in drawn.items()}
    main = f"{LINEAR}_{task.main_metric}"
    folder = encoder.pipeline.folder
    return Evaluation(
        task=task.name,
        split=split,
        scores=scores,
        num_rows=len(scored),
        protocol={
            "split": split,
            "what_is_scored": "vectors of texts",
            "metrics": list(scores),
            "main_metric": main,
            "baseline": {"name": "TF-IDF", "metrics": baseline},
            "intervals": intervals,
            "neighbours": NEIGHBOURS,
            "train_rows": len(train),
            "file": "" if scored.path is None else scored.path.name,
            "data_sha256": examples_hash(workflow_of(task), scored),
            "model_sha256": None if folder is None else model_hash(folder),
            "versions": versions(),
            "hardware": hardware(encoder.pipeline.engine.device),
        },
        predictions=_lines(task, scored, found),
        interval=intervals[main],
        table=_table(scores, baseline, intervals),
    )


def _rows(
    task: TextTask, data: str | Path, split: Split, settings: ReadingSettings
) -> tuple[Examples[Example], Examples[Example]]:
    workflow = workflow_of(task)
    rows = read_rows(workflow, data, settings)
    train, scored = cast("tuple[Examples[Example], Examples[Example]]", (rows.train, rows.dev))
    if split == "test":
        scored = workflow.read(data, "test", on_error=settings.on_error)
        if not workflow.has_labels(scored):
            raise DataError(f"{scored.path} has no labels, so there is nothing to score")
    return train, scored


def _answers(train: Vectors, labels_N: Ints, scored: Vectors, num_labels: int) -> Answers:
    return Answers(
        neighbour_labels(train, labels_N, scored),
        linear_labels(train, labels_N, scored),
        cluster_numbers(scored, num_labels),
    )


def _measures(task: TextTask) -> dict[str, Measure]:

    def of_labels(which: str, metric: str) -> Measure:
        return lambda answers, right: METRICS[metric](getattr(answers, which), right)

    found = {f"{which}_{metric}": of_labels(which, metric) for which in (NEAREST, LINEAR) for metric in task.metrics}
    return {**found, "v_measure": lambda answers, right: v_measure(answers.clusters, right)}


def _lines(task: TextTask, rows: Sequence[Example], found: Answers) -> list[dict[str, Any]]:
    names = task.id2label
    return [
        {
            "row": row.row,
            "text": row.text,
            "gold": names[cast(int, row.label)],
            NEAREST: names[near],
            LINEAR: names[linear],
            "cluster": cluster,
        }
        for row, near, linear, cluster in zip(rows, *(each.tolist() for each in found), strict=True)
    ]


def _table(
    scores: dict[str, float], baseline: dict[str, float], intervals: Mapping[str, Sequence[float] | None]
) -> str:
    rows = [("score", "vectors", "95 % interval", "TF-IDF")]
    for name, value in scores.items():
        rows.append((name, f"{value:.4f}", interval_text(intervals[name]), f"{baseline[name]:.4f}"))
    return "\n".join(aligned(rows))
