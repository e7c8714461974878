"""``bertkit tag``: find names and other entities in texts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli.common_options import (
    Computing,
    MaxLength,
    Output,
    Source,
    Texts,
    TrainedModel,
    answers,
    check_format,
    read_rows,
    write_json,
    write_line,
)
from bertkit.cli.results import PAGE, TagFile, facts_of, id_of, shown
from bertkit.errors import ConfigError, counted
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import one_line, say
from bertkit.tasks.tokens.marked_texts import Mark
from bertkit.tasks.tokens.span_files import LARGE, LINES, Form, Tagged, check_out, row_of, write_marked


def tag(
    *text: Texts,
    model: TrainedModel,
    strategy: Annotated[
        Literal["none", "simple", "first", "average", "max"],
        Parameter(
            help="What makes an entity. none: every word piece on its own; simple: adjacent pieces of one type; first, "
            "average, max: whole words, labelled by their first piece, their mean, or their most certain piece."
        ),
    ] = "first",
    stride: Annotated[
        int | None, Parameter(help="Tokens shared by windows of a long text; default: a quarter of a window.")
    ] = None,
    source: Source = Source(),
    max_length: MaxLength = None,
    form: Annotated[
        Form | None,
        Parameter(
            name="--format",
            help="Write the texts as an annotation tool reads them, for correction: a file, or for brat a folder; "
            "without --out to standard output. 'bertkit finetune ner' reads all forms back.",
        ),
    ] = None,
    results: TagFile = TagFile(),
    common: Computing = Computing(),
) -> None:
    """Find the entities in texts of any length.

    Prints each text with its entities below: type, probability, position in
    characters, and the words as they stand in the text. To tag CoNLL files, see:
    bertkit predict --help

    For example:

        bertkit tag --model run "Ann Lee flew from Oslo to Rome."
        bertkit tag --model run --file report.txt --json
        bertkit tag --model run --file report.txt --out entities.html
        bertkit tag --model run --file letters.csv --out names.xlsx
        bertkit tag --model run --file new.txt --format doccano --out new.jsonl
        bertkit tag --model run --strategy none "Where do the pieces fall?"
    """
    rows = read_rows(text, source)
    options = {"aggregation_strategy": strategy, "stride": stride, "max_length": max_length}
    if form is not None:
        _check_form(form, strategy, results.out)
        found = answers("token-classification", model, common, rows, **options)
        texts = (Tagged(row.text, list(map(_mark, entities)), id_of(row)) for row, entities in found)
        _write_form(form, results.out, texts, common)
        return
    to_rows, page = results.check((PAGE,)), None
    if results.out is not None and not to_rows:
        from bertkit.visualize.html_text import MarkedTexts

        check_format(results.out, (PAGE,))
        page = MarkedTexts("Entities")
    tagged = answers("token-classification", model, common, rows, **options)
    if to_rows:
        listed = ((row, list(map(_cells, found))) for row, found in tagged)
        results.write_lists(listed, "entities", rows.taken, common)
        return
    for row, found in tagged:
        if page is not None:
            page.add(row.text, found.marks())
        if common.json:
            write_json({**facts_of(row), "entities": found})
            continue
        write_line(shown(row))
        for entity in map(_cells, found):
            place = f"{entity['start']}:{entity['end']}"
            write_line(f"  {entity['entity']:<8}  {entity['score']:.4f}  {place:<9}  {one_line(entity['word'])}")
    if results.out is not None and page is not None:
        write_atomically(results.out, page.page())
        say(f"wrote {results.out}")


def _check_form(form: Form, strategy: str, out: Path | None) -> None:
    if strategy == "none":
        raise ConfigError("--strategy none gives word pieces, which are no entities; leave it out with --format")
    if out is None:
        if form not in LINES:
            raise ConfigError(f"--format {form} needs --out, the name of {LARGE[form]} to write")
        return
    check_out(out, form)
    if out.is_file():
        raise ConfigError(f"--out {out} exists already; remove it or choose another name")


def _write_form(form: Form, out: Path | None, texts: Iterable[Tagged], common: Output) -> None:
    if out is None:
        for each in texts:
            write_json(row_of(form, each))
        return
    count = write_marked(out, form, texts)
    say(f"wrote {counted(count, 'text')} to {out}")
    if common.json:
        write_json({"out": str(out), "rows": count})


def _mark(entity: dict[str, Any]) -> Mark:
    return Mark(entity["start"], entity["end"], entity["entity_group"])


def _cells(entity: dict[str, Any]) -> dict[str, Any]:
    """An entity as the cells of a row."""
    kind = entity["entity_group" if "entity_group" in entity else "entity"]
    return {"entity": kind, **{name: entity[name] for name in ("score", "start", "end", "word")}}
