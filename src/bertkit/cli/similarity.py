"""``bertkit similarity``: how similar texts are to another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli import STANDARD_STREAM
from bertkit.cli.common_options import Computing, Model, OtherReading, open_pipeline, read_texts, with_texts
from bertkit.cli.embed import VectorOptions
from bertkit.cli.placed import Placed
from bertkit.errors import ConfigError
from bertkit.system.console import one_line


def similarity(
    *text: Annotated[
        str, Parameter(help="A text, then the texts to compare with it; - reads those from standard input.")
    ],
    model: Model,
    making: VectorOptions = VectorOptions(),
    top_k: Annotated[int | None, Parameter(help="Show only this many, most similar first.")] = None,
    reading: OtherReading = OtherReading(),
    common: Computing = Computing(),
) -> None:
    r"""Compare texts with the first one: cosine similarity, from -1 to 1.

    Prints one line per text: cosine, text. They are in the given order, or with
    --top-k the most similar first. A sentence-transformers folder may define another
    measure, such as the dot product; then that is printed.

    For example:

        bertkit similarity --model bertkit-tiny-en "How do I reset my password?" \
            "I forgot my password." "When do you open?"
        bertkit similarity --model DIR "A question" --file answers.txt --top-k 5
    """
    if not text:
        raise ConfigError("no text: give one text first, then those to compare with it")
    if text[0] == STANDARD_STREAM:
        raise ConfigError("the first text cannot be '-': give it as an argument; those to compare with it may be '-'")
    source, others = text[0], read_texts(text[1:], reading)
    pipe = open_pipeline("feature-extraction", model, common)
    measure = pipe.measure(making.pooling)
    options = {**asdict(making), **reading.limits}
    texts = others.after(source) if isinstance(others, Placed) else [source, *others]
    rows = with_texts(texts, lambda items: pipe(items, **options))
    _, first = next(rows)
    from bertkit.inference.feature_extraction import compare

    scored: Iterable[tuple[float, str]] = ((compare(first, found, measure), asked) for asked, found in rows)
    if top_k is not None:
        scored = sorted(scored, key=lambda pair: -pair[0])[:top_k]
    for score, asked in scored:
        common.show({"text": source, "text_pair": asked, "score": score}, f"{score:.4f}  {one_line(asked)}")
