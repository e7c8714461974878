"""``bertkit search evaluate``: scores an index on a table of questions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Group, Parameter

from bertkit.cli.common_options import Computing
from bertkit.errors import ConfigError, DataError, shorten
from bertkit.system.console import say

if TYPE_CHECKING:
    from bertkit.cli.task_options import IndexColumns
    from bertkit.inference.retrieval.search_evaluation import Question

#: Columns that are looked for where none is named.
_QUESTIONS = ("question", "query", "text", "sentence")
_RELEVANT = ("relevant", "id", "document", "passage", "file", "source", "positive", "context")


@Parameter(name="*", group=Group("Evaluating (evaluate)", sort_key=3))
@dataclass(frozen=True)
class Evaluating:
    """What questions are judged by."""

    relevant: Annotated[
        str | None,
        Parameter(help="Column with the id, document or passage that belongs to a question; default: inferred."),
    ] = None
    set: Annotated[
        bool, Parameter(negative=(), help="Let queries of this index go by the search that was best, from now on.")
    ] = False


def evaluate_index(
    index: Path,
    table: str,
    model: str | None,
    k: int,
    columns: IndexColumns,
    evaluating: Evaluating,
    common: Computing,
    *,
    truncate: bool,
) -> None:
    """Show the scores, and with ``--set`` let the index search as was best."""
    from bertkit.inference.retrieval.search_evaluation import evaluate_search, set_share
    from bertkit.inference.retrieval.search_index import SearchIndex

    questions = list(_questions(Path(table), columns, evaluating.relevant))  # before a model is loaded
    opened = SearchIndex(index, model, device=common.device, **common.engine)
    report = evaluate_search(opened, questions, k, truncate=truncate)
    common.report(report)
    if evaluating.set:
        set_share(opened, report.best.share)
        say(f"queries of {index} now go by: {report.best.name}")
    elif report.gains:
        say(f"queries of {index} go by another search; --set lets them go by: {report.best.name}")


def _questions(table: Path, columns: IndexColumns, relevant: str | None) -> Iterator[Question]:
    from bertkit.inference.retrieval.search_evaluation import Question
    from bertkit.tasks.examples import place_of
    from bertkit.tasks.reading.splits import kind_of
    from bertkit.tasks.reading.text_rows import read_texts

    if kind_of(table) is None:
        raise ConfigError(f"{table} is no table; questions stand in one (.csv, .jsonl ...) beside what belongs to them")
    places = replace(columns.places, text=columns.places.text or _QUESTIONS)
    for row in read_texts(table, places)[1]:
        where = place_of(table, row.line)
        name = relevant or next((each for each in _RELEVANT if each in row.columns), None)
        if name is None or name not in row.columns:
            what = f"column {relevant!r}" if relevant else f"column of {shorten(_RELEVANT, limit=9)}"
            raise DataError(
                f"{where}: there is no {what} that says what belongs to a question; name it with --relevant. The "
                f"columns are {shorten(row.columns, limit=20)}"
            )
        own = tuple(_values(row.columns[name]))
        if not own or not row.text.strip():
            raise DataError(
                f"{where}: a question and what belongs to it are needed, got {row.text!r:.40} and {own!r:.40}"
            )
        yield Question(row.text, own, where)


def _values(value: Any) -> list[str]:
    """One name, or those of a list, which a cell may hold as JSON."""
    if isinstance(value, str) and value.startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return [value]
    listed = value if isinstance(value, list) else [] if value is None else [value]
    return [str(each) for each in listed if str(each).strip()]
