"""``bertkit topics``: what texts are about."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.cluster import GROUP, Clusters, Encoding, TextFile, clustered, finish
from bertkit.cli.common_options import Computing, Model
from bertkit.cli.results import ResultFile
from bertkit.cli.task_options import TextColumns


def topics(
    file: TextFile,
    /,
    *,
    model: Model,
    words: Annotated[int, Parameter(help="Words to show per topic.", group=GROUP)] = 8,
    results: ResultFile = ResultFile(),
    clusters: Clusters = Clusters(),
    encoding: Encoding = Encoding(),
    columns: TextColumns = TextColumns(),
    common: Computing = Computing(),
) -> None:
    """Show what texts are about: clusters, and the words that set each apart.

    Candidates are the words with the highest TF-IDF in each cluster (class TF-IDF,
    as in BERTopic). They are ranked by how rare they are elsewhere and by how close
    their vectors are to the cluster, so that stop words of any language come last.
    Every text belongs to one topic. A low silhouette means that it would fit another
    topic almost as well.

    For example:

        bertkit topics tickets.csv --model DIR
        bertkit topics tickets.csv --model DIR --k 20 --words 5 --json
    """
    common.begin()
    rows, found = clustered(file, model, results, clusters, encoding, columns, common, words)
    finish(rows, found, results, common)
