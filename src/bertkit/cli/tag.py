"""``bertkit tag``: find names and other entities in texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bertkit.cli.common_options import (
    Computing,
    MaxLength,
    Source,
    Texts,
    TrainedModel,
    answers,
    check_format,
    read_texts,
    write_json,
    write_line,
)
from bertkit.system.atomic_files import write_atomically
from bertkit.system.console import one_line, say


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
    out: Annotated[
        Path | None, Parameter(alias="-o", help="Also write the texts with their entities marked, as a page (.html).")
    ] = None,
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
        bertkit tag --model run --strategy none "Where do the pieces fall?"
    """
    page = None
    if out is not None:
        from bertkit.visualize.html_text import MarkedTexts

        check_format(out, (".html",))
        page = MarkedTexts("Entities")
    options = {"aggregation_strategy": strategy, "stride": stride, "max_length": max_length}
    for asked, found in answers("token-classification", model, common, read_texts(text, source), **options):
        if page is not None:
            page.add(asked, found.marks())
        if common.json:
            write_json({"text": asked, "entities": found})
            continue
        write_line(one_line(asked))
        for entity in found:
            kind = entity["entity" if strategy == "none" else "entity_group"]
            place = f"{entity['start']}:{entity['end']}"
            write_line(f"  {kind:<8}  {entity['score']:.4f}  {place:<9}  {one_line(entity['word'])}")
    if out is not None and page is not None:
        write_atomically(out, page.page())
        say(f"wrote {out}")
