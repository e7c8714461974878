"""``bertkit fill-mask``: guess masked words."""

from __future__ import annotations

from itertools import chain
from typing import Annotated, Any

from cyclopts import Parameter

from bertkit.cli.common_options import Computing, Model, Reading, Texts, answers, read_rows, write_json, write_line
from bertkit.cli.results import ResultFile, facts_of, with_id
from bertkit.system.console import one_line


def fill_mask(
    *text: Texts,
    model: Model,
    top_k: Annotated[int, Parameter(help="Guesses per mask.")] = 5,
    targets: Annotated[
        tuple[str, ...] | None, Parameter(negative=(), help="Consider only this word; repeat for more words.")
    ] = None,
    results: ResultFile = ResultFile(),
    reading: Reading = Reading(),
    common: Computing = Computing(),
) -> None:
    r"""Guess the words behind [MASK].

    A text may hold several masks; each is predicted with the others still masked.
    Prints one line per guess: probability, token, and the text with the token
    filled in. With --json one object per text.

    For example:

        bertkit fill-mask --model bertkit-tiny-en "He was at the [MASK] of Oxford."
        bertkit fill-mask --model DIR --targets good --targets bad \
            "The film was [MASK]."
    """
    rows, to_rows = read_rows(text, reading), results.check()
    options = {"targets": targets or None, "top_k": top_k, **reading.limits}
    filled = answers("fill-mask", model, common, rows, **options)
    masked = ((row, found if isinstance(found[0], list) else [found]) for row, found in filled)
    if to_rows:
        results.write_lists(((row, _cells(masks)) for row, masks in masked), "masks", rows.taken, common)
        return
    for row, masks in masked:
        if common.json:
            write_json({**facts_of(row), "masks": masks})
            continue
        for guess in chain.from_iterable(masks):
            line = f"{guess['score']:.4f}  {guess['token_str']:<16} {one_line(guess['sequence'])}"
            write_line(with_id(row, line))


def _cells(masks: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The guesses for the masks of a text, counted from 1, as the cells of rows."""
    return [
        {"mask": number, **{name: guess[name] for name in ("score", "token_str", "sequence")}}
        for number, guesses in enumerate(masks, start=1)
        for guess in guesses
    ]
