"""``bertkit similarity``: how similar texts are to another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli import STANDARD_STREAM
from bertkit.cli.common_options import Computing, JsonLike, Model, OtherReading, open_pipeline, read_rows, with_texts
from bertkit.cli.embed import VectorOptions
from bertkit.cli.results import ResultFile, beside, named, shown
from bertkit.errors import ConfigError


def similarity(
    *text: Annotated[
        str, Parameter(help="A text, then the texts to compare with it; - reads those from standard input.")
    ],
    model: Model,
    making: VectorOptions = VectorOptions(),
    top_k: Annotated[int | None, Parameter(help="Show only this many, most similar first.")] = None,
    results: ResultFile = ResultFile(),
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
    others, to_rows = read_rows(text[1:], reading, model), results.check()
    pipe = open_pipeline("feature-extraction", model, common)
    measure = pipe.measure(making.pooling)
    options = {**asdict(making), **reading.limits}
    from bertkit.inference.feature_extraction import compare
    from bertkit.tasks.reading.file_rows import FileRow

    texts = others.after(FileRow(text[0], None, {}, 0))
    rows = with_texts(texts, lambda items: pipe((row.text for row in items), **options))
    _, first = next(rows)
    scored: Iterable[tuple[float, FileRow]] = ((compare(first, found, measure), row) for row, found in rows)
    if top_k is not None:
        scored = sorted(scored, key=lambda pair: -pair[0])[:top_k]
    if to_rows:
        compared = (beside(row, {"compared_with": text[0], "score": score}, others.taken) for score, row in scored)
        results.write(compared, others.taken, common)
        return
    for score, row in scored:
        facts: dict[str, JsonLike] = {**named(row), "text": text[0], "text_pair": row.text, "score": score}
        common.show(facts, f"{score:.4f}  {shown(row)}")
