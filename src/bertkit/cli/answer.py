"""``bertkit answer``: answer questions from a text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from bertkit.cli import STANDARD_STREAM
from bertkit.cli.common_options import (
    Computing,
    TrainedModel,
    open_pipeline,
    with_texts,
    write_json,
    write_line,
)
from bertkit.cli.placed import Placed
from bertkit.cli.results import PAGE, AnswerFile, check_excel, named, row_with, with_id
from bertkit.errors import ConfigError, counted
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import one_line, say, standard_input

if TYPE_CHECKING:
    from bertkit.tasks.reading.file_rows import FileRow, Samples
    from bertkit.tasks.spans.task import SpanExample


@Parameter(name="*")
@dataclass(frozen=True)
class Context:
    """What the questions are about."""

    context: Annotated[str | None, Parameter(alias="-c", help="The text to find the answers in.")] = None
    context_file: Annotated[Path | None, Parameter(help="Read the context from this file; - reads standard input.")] = (
        None
    )
    encoding: Annotated[str | None, Parameter(help="Encoding of --context-file; default: as found.")] = None
    file: Annotated[
        Path | None,
        Parameter(
            help="Answer the questions in this file: SQuAD JSON, or a .csv, .tsv, .xlsx, .jsonl or .parquet table "
            "with columns question and context."
        ),
    ] = None


@Parameter(name="*")
@dataclass(frozen=True)
class Search:
    """How answers are searched and chosen."""

    impossible: Annotated[
        bool | None,
        Parameter(
            name="--impossible",
            negative="--no-impossible",
            help="Allow 'no answer' (an empty one); default: as the model was trained.",
        ),
    ] = None
    threshold: Annotated[
        float | None, Parameter(help="Margin by which 'no answer' must win; default: as tuned on dev, else 0.")
    ] = None
    max_answer_len: Annotated[int | None, Parameter(help="Maximum tokens per answer; default: 30.")] = None
    max_seq_len: Annotated[int | None, Parameter(help="Maximum tokens per window; default: as in training.")] = None
    doc_stride: Annotated[int | None, Parameter(help="Tokens from one window to the next; default: 128.")] = None
    truncate: Annotated[
        bool, Parameter(negative=(), help="Truncate questions that are too long, instead of refusing them.")
    ] = False

    @property
    def options(self) -> dict[str, float | bool | None]:
        """For the call of a pipeline."""
        return {
            "handle_impossible_answer": self.impossible,
            "null_threshold": self.threshold,
            "max_answer_len": self.max_answer_len,
            "max_seq_len": self.max_seq_len,
            "doc_stride": self.doc_stride,
            "truncation": self.truncate,
        }


def answer(
    *question: Annotated[str, Parameter(help="Questions about the context.")],
    model: TrainedModel,
    where: Context = Context(),
    results: AnswerFile = AnswerFile(),
    top_k: Annotated[int | None, Parameter(help="Show this many answers per question, best first.")] = None,
    search: Search = Search(),
    common: Computing = Computing(),
) -> None:
    r"""Answer questions from a text of any length.

    Every answer is a span of the text, shown with its probability and its position
    in characters. A model trained on squad2 may report that there is no answer.

    For example:

        bertkit answer --model run "Who wrote it?" \
            --context "It was written by Ann Lee in 1912."
        bertkit answer --model run "Who?" "When?" --context-file report.txt
        bertkit answer --model run "Who?" --context-file report.txt -o who.html
        bertkit answer --model run --file dev-v2.0.json --out predictions.json
        bertkit answer --model run --file questions.jsonl --out answers.xlsx
    """
    questions, from_file = _questions(question, where), where.file is not None
    to_rows, out, marked = _writes_rows(results, from_file=from_file), results.out, None
    if out is not None and out.suffix == PAGE:
        from bertkit.visualize.html_text import MarkedTexts

        marked = MarkedTexts("Answers")
    several = {} if top_k is None else {"top_k": top_k}
    pipe, options = open_pipeline("question-answering", model, common), {"top_k": 1, **several, **search.options}
    answered = with_texts(questions, lambda given: pipe(given, **options))
    if to_rows:
        taken, columns = _columns_of(where.file)
        rows = (
            (row_with(**columns[q.row]) if columns else _row(q, from_file=from_file), found) for q, found in answered
        )
        results.write_lists(((row, list(map(_cells, found))) for row, found in rows), "answers", taken, common)
        return
    predictions = {}
    for asked, found in answered:
        if marked is not None:
            marked.add(asked.context, found[0].marks(), asked.question)
        if out is not None and marked is None:
            predictions[asked.id] = found[0]["answer"]
            continue
        row = _row(asked, from_file=from_file)
        if common.json:
            more = {"answers": found} if several else {}
            write_json({**named(row), "question": asked.question, **found[0], **more})
            continue
        for one in found:
            place = f"{one['start']}:{one['end']}" if one["answer"] else "no answer"
            shown = f"{one['score']:.4f}  {place:<11}  {one_line(one['answer'])}"
            write_line(f"{shown}\t{with_id(row, one_line(asked.question))}")
    if out is not None and marked is not None:
        write_atomically(out, marked.page())
        say(f"wrote {out}")
    elif out is not None:
        write_atomically(out, json.dumps(predictions, ensure_ascii=False) + "\n")
        say(f"wrote {counted(len(predictions), 'answer')} to {out}")
        if common.json:
            write_json({"out": str(out), "questions": len(predictions)})


def _writes_rows(results: AnswerFile, *, from_file: bool) -> bool:
    """Whether a table is written; ConfigError before any work for what could not be written."""
    out = results.out
    if out is None:
        return results.check()
    from bertkit.inference.row_files import FORMATS

    if out.suffix in FORMATS:
        return results.check()
    check_excel(out, excel=results.excel)
    if not from_file and out.suffix != PAGE:
        raise ConfigError(
            f"--out needs --file, which has ids, to write {out}; without, give a name that ends in {PAGE} or "
            f"{', '.join(FORMATS)}"
        )
    if out.exists():
        raise ConfigError(f"{out} exists already; remove it or choose another name")
    return False


def _columns_of(file: Path | None) -> tuple[Samples, Mapping[int, Mapping[str, Any]]]:
    """The columns of a table of questions, and its rows by their lines; none of SQuAD's own JSON."""
    from bertkit.config.file_columns import Columns
    from bertkit.tasks.reading.splits import kind_of
    from bertkit.tasks.reading.text_rows import all_columns

    return ({}, {}) if file is None or kind_of(file) == ".json" else all_columns(file, Columns(text=("question",)))


def _row(asked: SpanExample, *, from_file: bool) -> FileRow:
    """A question as a row of its file; a context that the command was given is not repeated."""
    if from_file:
        return row_with(id=asked.id, question=asked.question, context=asked.context)
    return row_with(question=asked.question)


def _cells(found: dict[str, Any]) -> dict[str, Any]:
    """An answer as the cells of a row."""
    return {name: found[name] for name in ("answer", "score", "start", "end")}


def _questions(questions: tuple[str, ...], where: Context) -> Iterable[SpanExample]:
    from bertkit.tasks.reading.lines import check_file, decode, read_text
    from bertkit.tasks.spans.reading import read_questions
    from bertkit.tasks.spans.task import SQUAD2, SpanExample

    if where.file is not None:
        if questions or where.context is not None or where.context_file is not None:
            raise ConfigError("--file brings its own questions and contexts; leave out the others")
        if str(where.file) == STANDARD_STREAM:
            raise ConfigError("--file cannot be '-': name a file of questions with their contexts")
        check_file(where.file)
        asked = list(read_questions(SQUAD2, where.file, "test", labelled=False))  # answers in it are not needed
        return Placed(enumerate(asked, start=1), lambda number: asked[number - 1].where)
    if (where.context is None) == (where.context_file is None):
        raise ConfigError("give the text to find the answers in: either --context TEXT or --context-file FILE")
    if not questions:
        raise ConfigError('no question: give one or more, each in quotes, as in: bertkit answer "Who?" --context ...')
    text, path = where.context, where.context_file
    if path is not None and str(path) == STANDARD_STREAM:
        text = decode(standard_input().read(), "standard input", where.encoding)
    elif path is not None:
        check_file(path)
        text = read_text(path, where.encoding)
    assert text is not None
    return [SpanExample(str(number), one, text) for number, one in enumerate(questions)]
