"""``bertkit classify``: label texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli.common_options import (
    Computing,
    Model,
    Pair,
    Reading,
    Texts,
    open_pipeline,
    read_pairs,
    read_texts,
    with_texts,
    write_json,
    write_line,
)
from bertkit.errors import ConfigError, InputError


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
    reading: Reading = Reading(),
    common: Computing = Computing(),
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
    if all_labels and top_k is not None:
        raise ConfigError("--all shows every label, --top-k only some; give one of them")
    pipe = open_pipeline("text-classification", model, common)
    several = pipe.config.problem_type == "multi_label_classification"
    usual = "chosen" if several else "best"
    ranked = None if all_labels else usual if top_k is None else top_k
    limits = {**reading.limits, "truncation": reading.truncate or None}

    def run(items: Iterator[str | Pair]) -> Iterator[list[dict[str, Any]]]:
        found = pipe(items, top_k=ranked, function_to_apply=function, **limits)
        return ([best] for best in found) if ranked == "best" else found

    read = read_pairs if pairs else read_texts
    for asked, found in with_texts(_with_words(read(text, reading)), run):
        named = {"text": asked} if isinstance(asked, str) else {"text": asked[0], "text_pair": asked[1]}
        if common.json:
            best = {} if ranked == "chosen" else found[0]
            listed = {"labels": found} if ranked == "chosen" or len(found) > 1 else {}
            write_json({**named, **best, **listed})
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
