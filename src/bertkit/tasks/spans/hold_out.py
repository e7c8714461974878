"""How to hold questions out of a training file without tearing articles or contexts apart."""

from __future__ import annotations

from collections.abc import Sequence

from bertkit.errors import DataError
from bertkit.tasks.examples import Examples, Halves
from bertkit.tasks.hold_out import check_share, group_rows, part, shuffled, take_groups
from bertkit.tasks.spans.task import SpanExample


def hold_out(examples: Examples[SpanExample], share: float, seed: int) -> Halves[SpanExample]:
    """Hold out whole articles, or whole contexts where there are fewer than three articles.

    So no context has questions on both sides: articles that share one stay together. A context without a title is an
    article by itself. A pure function of its arguments.

    The result is as near to the share as groups allow. Both parts keep the order of the questions.
    """
    check_share(share)
    if any(example.answers is None for example in examples):
        raise DataError("questions without 'answers' cannot be held out for evaluation")
    titles = {example.title or example.context for example in examples}
    groups = _groups(examples, by_title=len(titles) >= 3)
    if len(groups) < 2:  # shared contexts join all articles
        groups = _groups(examples, by_title=False)
    if len(groups) < 2:
        raise DataError(f"{len(examples):,} questions about one context: none can be held out for evaluation")
    return part(examples, take_groups(shuffled(groups, seed), share, first_always=True))


def _groups(examples: Sequence[SpanExample], *, by_title: bool) -> list[list[int]]:
    """Rows that share a context, or with ``by_title`` a title, also by way of others; groups in the file's order."""
    above: dict[tuple[str, str], tuple[str, str]] = {}

    def top(key: tuple[str, str]) -> tuple[str, str]:
        above.setdefault(key, key)
        while above[key] != key:
            above[key] = above[above[key]]
            key = above[key]
        return key

    for example in examples:
        context = top(("context", example.context))
        if by_title and example.title:
            above[context] = top(("title", example.title))
    return group_rows(top(("context", example.context)) for example in examples)
