"""``bertkit fill-mask``: guess masked words."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Computing, Model, Reading, Texts, answers, read_texts, write_json, write_line
from bertkit.system.console import one_line


def fill_mask(
    *text: Texts,
    model: Model,
    top_k: Annotated[int, Parameter(help="Guesses per mask.")] = 5,
    targets: Annotated[
        tuple[str, ...] | None, Parameter(negative=(), help="Consider only this word; repeat for more words.")
    ] = None,
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
    options = {"targets": targets or None, "top_k": top_k, **reading.limits}
    for asked, found in answers("fill-mask", model, common, read_texts(text, reading), **options):
        masks = found if isinstance(found[0], list) else [found]
        if common.json:
            write_json({"text": asked, "masks": masks})
            continue
        for guesses in masks:
            for guess in guesses:
                write_line(f"{guess['score']:.4f}  {guess['token_str']:<16} {one_line(guess['sequence'])}")
