"""``bertkit rerank``: documents by how relevant they are to a query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli import STANDARD_STREAM
from bertkit.cli.common_options import (
    Computing,
    DocumentReading,
    TrainedModel,
    open_pipeline,
    placed_rows,
    places_in,
    with_texts,
    write_json,
)
from bertkit.cli.placed import Placed, located
from bertkit.cli.results import ResultFile, beside, named, row_with, shown
from bertkit.errors import ConfigError

if TYPE_CHECKING:
    from bertkit.config.file_columns import Columns, TextTable
    from bertkit.inference.row_cells import Row
    from bertkit.tasks.reading.file_rows import FileRow, Samples
    from bertkit.tasks.rerank.task import RerankExample

Asked = dict[str, Any]


def rerank(
    *text: Annotated[str, Parameter(help="The query, then its documents; - reads those from standard input.")],
    model: TrainedModel,
    data: Annotated[
        Path | None,
        Parameter(
            help="Rank the documents of every query in this table, with columns query and document or documents."
        ),
    ] = None,
    top_k: Annotated[int | None, Parameter(help="Show only this many documents, most relevant first.")] = None,
    function: Annotated[
        Literal["sigmoid", "none"] | None,
        Parameter(name="--function", help="How logits become scores; default: the model's own, or a sigmoid."),
    ] = None,
    results: ResultFile = ResultFile(),
    reading: DocumentReading = DocumentReading(),
    common: Computing = Computing(),
) -> None:
    r"""Rank documents by relevance to a query.

    Prints one line per document: score, number from 0, text; the most relevant
    first. With --data, one JSON object per query. MODEL is a run of 'bertkit
    finetune rerank', or a CrossEncoder of sentence-transformers.

    For example:

        bertkit rerank --model RUN "How do I reset my password?" \
            "Click on 'Forgot password'." "We open at nine."
        bertkit rerank --model RUN "A question" --file passages.txt --top-k 5
        bertkit rerank --model RUN --data candidates.jsonl --truncate
    """
    to_rows = results.check()
    options = {"top_k": top_k, "function_to_apply": function, **reading.limits}
    if data is not None:
        from bertkit.tasks.reading.text_rows import all_columns

        if text or reading.file is not None:
            raise ConfigError("--data holds queries and documents; give those as arguments or with --data, not both")
        pipe = open_pipeline("text-ranking", model, common)
        queries, columns = _queries(data, reading.columns, model)
        lines: list[tuple[int, ...]] = []

        def asked_of(example: RerankExample) -> Asked:
            lines.append(example.lines)
            return {"query": example.query, "documents": example.documents}

        answered = with_texts(queries.map(asked_of), lambda several: pipe(several, **options))
        if to_rows:
            _write(results, answered, lines, all_columns(data, columns), common)
            return
        for asked, ranked in answered:
            write_json({"query": asked["query"], "ranking": ranked})
        return
    if not text or text[0] == STANDARD_STREAM:
        raise ConfigError("the first text is the query; then come its documents, --file FILE, or - for standard input")
    given = _documents(text[1:], reading, model)
    documents = list(given)
    if not documents:
        raise ConfigError("there are no documents to rank")
    pipe = open_pipeline("text-ranking", model, common)
    with located(given, "query 0 with its document"):
        ranked = pipe(text[0], [row.text for row in documents], **options)
    found = [(documents[each["index"]], each) for each in ranked]
    if to_rows:
        scores = ((row, {"query": text[0], "score": each["score"], "index": each["index"]}) for row, each in found)
        results.write((beside(row, cells, given.taken) for row, cells in scores), given.taken, common)
        return
    for row, each in found:
        line = f"{each['score']:.4f}  {each['index']}  {shown(row)}"
        common.show({**named(row), "query": text[0], **each}, line)


def _write(
    results: ResultFile,
    answered: Iterable[tuple[Asked, list[dict[str, Any]]]],
    lines: Sequence[tuple[int, ...]],
    table: tuple[Samples, Mapping[int, Mapping[str, Any]]],
    common: Computing,
) -> None:
    """A row for each document with the columns of its row in the file, lists left out; in JSON lines one a query."""
    taken, rows = table
    nested = results.out is not None and results.out.suffix == ".jsonl"

    def ranked_rows(asked: Asked, ranked: Sequence[Mapping[str, Any]], own: Sequence[int]) -> Iterator[Row]:
        for each in ranked:
            columns = {name: cell for name, cell in rows[own[each["index"]]].items() if not isinstance(cell, list)}
            texts = {"query": asked["query"], "document": each["text"]}
            new = {name: text for name, text in texts.items() if columns.get(name) != text}
            new |= {"score": each["score"], "index": each["index"]}
            yield beside(row_with(**columns), new, taken)

    def written() -> Iterator[Row]:
        for (asked, ranked), own in zip(answered, lines, strict=False):
            found = ranked_rows(asked, ranked, own)
            if nested:
                yield {"query": asked["query"], "ranking": list(found)}
            else:
                yield from found

    results.write(written(), {} if nested else taken, common)


def _documents(texts: tuple[str, ...], reading: DocumentReading, model: str) -> Placed[FileRow]:
    """Of a table the column with the second text of the run's data, or one of a usual name."""
    from bertkit.tasks.rerank.task import DOCUMENT_NAMES

    if reading.columns.text_pair:
        raise ConfigError("a query has one column of documents; name it with --text, and leave --text-pair out")
    places, trained = places_in(reading, model)
    known = places.text_pair if trained else (*DOCUMENT_NAMES, "sentence")
    places = replace(places, text=reading.columns.places.text or known, text_pair=())
    return placed_rows(texts, reading, places, inferred=trained)


def _queries(data: Path, given: TextTable, model: str) -> tuple[Placed[RerankExample], Columns]:
    """The queries of a table with their documents, in the columns that the run read, or in those of usual names.

    Labels, if it has some, are not looked at.
    """
    from bertkit.config.config_file import checkpoint_folder
    from bertkit.inference.run_files import read_task
    from bertkit.system.model_sources import resolve
    from bertkit.tasks.examples import place_of
    from bertkit.tasks.rerank.reading import read_rerank
    from bertkit.tasks.rerank.task import RERANK, USUAL_COLUMNS, RerankTask

    trained = read_task(checkpoint_folder(resolve(model)))
    own = trained.columns if isinstance(trained, RerankTask) else USUAL_COLUMNS
    usual = replace(
        own,
        text=(*own.text, *USUAL_COLUMNS.text),
        text_pair=(*own.text_pair, *USUAL_COLUMNS.text_pair),
        label=(),
        encoding=None,
        sheet=None,
    )
    columns = given.places_or(usual)
    unlabelled = replace(RERANK, columns=columns)
    examples = read_rerank(unlabelled, data, "test")
    return Placed(((each.row, each) for each in examples), lambda row: place_of(data, row)), columns
