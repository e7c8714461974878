"""``bertkit classify``: label texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli.common_options import (
    COMMON,
    Common,
    Encoding,
    File,
    MaxLength,
    Model,
    Pair,
    Texts,
    Truncate,
    open_pipeline,
    read_pairs,
    read_texts,
    with_texts,
    write_json,
    write_line,
)
from bertkit.errors import InputError


def classify(
    *text: Texts,
    model: Model,
    top_k: Annotated[int | None, Parameter(help="Show this many labels per text, most probable first.")] = None,
    all_labels: Annotated[bool, Parameter(name="--all", negative=(), help="Show every label.")] = False,
    function: Annotated[
        Literal["softmax", "sigmoid", "none"] | None,
        Parameter(name="--function", help="How logits become scores; default: as the model was trained."),
    ] = None,
    pairs: Annotated[
        bool,
        Parameter(negative=(), help="Texts are pairs: two arguments each, or lines split by a tab."),
    ] = False,
    file: File = None,
    encoding: Encoding = None,
    truncate: Truncate = False,
    max_length: MaxLength = None,
    common: Common = COMMON,
) -> None:
    """Label texts, with probabilities.

    Prints one line per text: label, probability, text. The label is the model's
    decision; for multi-label models, all labels that it assigns. To label whole
    files and tables, see: bertkit predict --help

    For example:

        bertkit classify --model run "A film to remember." "Two hours wasted."
        head -100 reviews.txt | bertkit classify --model run --json -
        bertkit classify --model rte-run --pairs "A man sleeps." "A man runs."
    """
    pipe = open_pipeline("text-classification", model, common)
    several = pipe.model.config.problem_type == "multi_label_classification"
    ranked = None if all_labels else top_k or ("chosen" if several else "best")
    options = {"function_to_apply": function, "truncation": truncate or None, "max_length": max_length}

    def run(items: Iterator[Any]) -> Any:
        found = pipe(items, top_k=ranked, **options)
        return ([best] for best in found) if ranked == "best" else found

    inputs: Iterable[str | Pair] = read_pairs(text, file, encoding) if pairs else read_texts(text, file, encoding)
    for asked, found in with_texts(_with_words(inputs), run):
        named = {"text": asked} if isinstance(asked, str) else {"text": asked[0], "text_pair": asked[1]}
        if common.json:
            write_json({**named, **({"labels": found} if ranked == "chosen" else _best(found))})
            continue
        shown = "  ".join(f"{label['label']} {label['score']:.4f}" for label in found) or "(none)"
        write_line(f"{shown}\t" + "\t".join(named.values()))


def _with_words(inputs: Iterable[str | Pair]) -> Iterator[str | Pair]:
    """The texts unchanged. One without a word would get a label like any other, so it is refused."""
    for number, item in enumerate(inputs, start=1):
        for text in (item,) if isinstance(item, str) else item:
            if not text.strip():
                raise InputError(
                    f"text {number} is empty, so there is nothing to classify; leave it out, or label whole files with "
                    "'bertkit predict', which marks such rows"
                )
        yield item


def _best(found: list[dict[str, Any]]) -> Mapping[str, Any]:
    """The fields of the best label; all requested ones, if several, under ``labels``."""
    return found[0] if len(found) == 1 else {**found[0], "labels": found}
