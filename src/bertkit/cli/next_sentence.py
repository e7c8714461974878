"""``bertkit next-sentence``: judge whether one text follows another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import (
    COMMON,
    Common,
    Encoding,
    MaxLength,
    Model,
    Truncate,
    open_pipeline,
    read_pairs,
    with_texts,
    write_json,
    write_line,
)


def next_sentence(
    *text: Annotated[str, Parameter(help="Two texts; or - for standard input, one pair per line, separated by a tab.")],
    model: Model,
    file: Annotated[Path | None, Parameter(help="Read this file, one pair per line, separated by a tab.")] = None,
    encoding: Encoding = None,
    truncate: Truncate = False,
    max_length: MaxLength = None,
    common: Common = COMMON,
) -> None:
    """Judge whether the second text follows the first.

    Prints one line per pair: the label (is_next or not_next), its probability, and
    the two texts.

    For example:

        bertkit next-sentence --model DIR "He opened the door." "It was dark."
    """
    pipe = open_pipeline("next-sentence", model, common)
    pairs = read_pairs(text, file, encoding)
    for (first, second), found in with_texts(
        pairs, lambda items: pipe(items, truncation=truncate, max_length=max_length)
    ):
        if common.json:
            write_json({"text": first, "text_pair": second, **found})
        else:
            write_line(f"{found['label']:<8}  {found['score']:.4f}  {first}\t{second}")
