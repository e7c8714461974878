"""The command that finds names and other entities in texts: tag."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli.common_options import (
    COMMON,
    Common,
    File,
    MaxLength,
    Model,
    Texts,
    read_texts,
    with_texts,
    write_json,
    write_line,
)


def tag(
    *text: Texts,
    model: Model,
    strategy: Annotated[
        Literal["none", "simple", "first", "average", "max"],
        Parameter(
            help="What an entity is made of. none: every word piece by itself; simple: neighbouring pieces of one "
            "type; first, average, max: whole words, labelled by their first piece, the mean of their pieces, or the "
            "surest."
        ),
    ] = "first",
    stride: Annotated[
        int | None, Parameter(help="Word pieces that two windows of a long text share; default: a quarter of a window.")
    ] = None,
    file: File = None,
    max_length: MaxLength = None,
    common: Common = COMMON,
) -> None:
    """Find the entities in texts of any length.

    Each text is shown with its entities below: type, probability, characters, and
    the words as they stand there. For CoNLL files see: bertkit predict --help

    For example:

        bertkit tag --model run "Ann Lee flew from Oslo to Rome."
        bertkit tag --model run --file report.txt --json
        bertkit tag --model run --strategy none "Where do the pieces fall?"
    """
    common.begin()
    from bertkit.inference.pipelines import pipeline

    pipe = pipeline("token-classification", model=model, device=common.device)

    def run(items: Iterator[str]) -> Any:
        return pipe(items, aggregation_strategy=strategy, stride=stride, max_length=max_length)

    for asked, found in with_texts(read_texts(text, file), run):
        if common.json:
            write_json({"text": asked, "entities": found})
            continue
        write_line(asked)
        for entity in found:
            kind = entity["entity" if strategy == "none" else "entity_group"]
            place = f"{entity['start']}:{entity['end']}"
            write_line(f"  {kind:<8}  {entity['score']:.4f}  {place:<9}  {entity['word']}")
