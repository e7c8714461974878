"""``bertkit topics``: what texts are about."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.cluster import GROUP, Clusters, Encoding, Out, TextFile, clustered, finish
from bertkit.cli.common_options import Computing, Model
from bertkit.cli.task_options import TextColumns


def topics(
    file: TextFile,
    /,
    *,
    model: Model,
    words: Annotated[int, Parameter(help="Words to show of each topic.", group=GROUP)] = 8,
    out: Out = None,
    clusters: Clusters = Clusters(),
    encoding: Encoding = Encoding(),
    columns: TextColumns = TextColumns(),
    common: Computing = Computing(),
) -> None:
    """Show what texts are about: clusters, and the words that set each apart.

    The weight of a word in a cluster is its share there, times the logarithm of how
    rare it is in all of them (class TF-IDF, as in BERTopic). Every text belongs to a
    topic; a low silhouette says that it could as well belong to another.

    For example:

        bertkit topics tickets.csv --model DIR
        bertkit topics tickets.csv --model DIR --k 20 --words 5 --json
    """
    common.begin()
    from bertkit.inference.retrieval.topic_words import words_of_classes

    rows, found = clustered(file, model, out, clusters, encoding, columns, common)
    named = zip(found.clusters, words_of_classes(rows.texts, found.assigned, words), strict=True)
    finish(rows, replace(found, clusters=[replace(each, words=listed) for each, listed in named]), out, common)
