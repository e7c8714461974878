"""Commands that ask a model about texts: fill-mask, next-sentence, classify."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli.common_options import (
    COMMON,
    Common,
    File,
    MaxLength,
    Model,
    Texts,
    Truncate,
    read_texts,
    with_texts,
    write_json,
    write_line,
)
from bertkit.errors import DataError

Pair = tuple[str, str]


def fill_mask(
    *text: Texts,
    model: Model,
    top_k: Annotated[int, Parameter(help="Guesses for each mask.")] = 5,
    targets: Annotated[
        tuple[str, ...] | None, Parameter(negative=(), help="Consider only this word; may be given several times.")
    ] = None,
    file: File = None,
    truncate: Truncate = False,
    max_length: MaxLength = None,
    common: Common = COMMON,
) -> None:
    """Guess what stands in place of [MASK].

    A text may hold several masks; each is judged on its own, with the others hidden. One line a guess: probability,
    token, and the text with the token in place. With --json one object a text.

    For example:

        bertkit fill-mask --model bert-base-uncased "Paris is the [MASK] of France."
        bertkit fill-mask --model DIR --targets good --targets bad "The film was [MASK]."
    """
    pipe = _pipeline("fill-mask", model, common)
    texts = read_texts(text, file)

    def run(items: Iterator[str]) -> Any:
        return pipe(items, targets=targets or None, top_k=top_k, truncation=truncate, max_length=max_length)

    for asked, found in with_texts(texts, run):
        masks = found if isinstance(found[0], list) else [found]
        if common.json:
            write_json({"text": asked, "masks": masks})
            continue
        for guesses in masks:
            for guess in guesses:
                write_line(f"{guess['score']:.4f}  {guess['token_str']:<16} {guess['sequence']}")


def next_sentence(
    *text: Annotated[str, Parameter(help="Two texts; or - for pairs on standard input, the halves split by a tab.")],
    model: Model,
    file: Annotated[Path | None, Parameter(help="Read one pair a line, the halves split by a tab.")] = None,
    truncate: Truncate = False,
    max_length: MaxLength = None,
    common: Common = COMMON,
) -> None:
    """Judge whether the second text follows the first.

    One line a pair: the label (is_next or not_next), its probability, and the two texts.

    For example:

        bertkit next-sentence --model bert-base-uncased "He opened the door." "It was dark inside."
    """
    pipe = _pipeline("next-sentence", model, common)
    pairs = _read_pairs(text, file)
    for (first, second), found in with_texts(
        pairs, lambda items: pipe(items, truncation=truncate, max_length=max_length)
    ):
        if common.json:
            write_json({"text": first, "text_pair": second, **found})
        else:
            write_line(f"{found['label']:<8}  {found['score']:.4f}  {first}\t{second}")


def classify(
    *text: Texts,
    model: Model,
    top_k: Annotated[int | None, Parameter(help="Labels shown for each text, most probable first.")] = None,
    all_labels: Annotated[bool, Parameter(name="--all", negative=(), help="Show every label.")] = False,
    function: Annotated[
        Literal["softmax", "sigmoid", "none"] | None,
        Parameter(name="--function", help="What turns logits into scores; default: what the model was trained for."),
    ] = None,
    pairs: Annotated[
        bool, Parameter(negative=(), help="The texts are pairs: two arguments, or lines with a tab in between.")
    ] = False,
    file: File = None,
    truncate: Truncate = False,
    max_length: MaxLength = None,
    common: Common = COMMON,
) -> None:
    """Label texts, with probabilities.

    One line a text: label, probability, text. The label is the one that the model decides for; of labels that do not
    exclude each other all that it gives. For whole files with labels and columns see: bertkit predict --help

    For example:

        bertkit classify --model run "A film to remember." "Two hours I want back."
        head -100 reviews.txt | bertkit classify --model run --json -
        bertkit classify --model rte-run --pairs "A man is asleep." "A man is running."
    """
    pipe = _pipeline("text-classification", model, common)
    several = pipe.model.config.problem_type == "multi_label_classification"
    ranked = None if all_labels else top_k or ("chosen" if several else "best")
    options = {"function_to_apply": function, "truncation": truncate or None, "max_length": max_length}

    def run(items: Iterator[Any]) -> Any:
        found = pipe(items, top_k=ranked, **options)
        return ([best] for best in found) if ranked == "best" else found

    inputs: Iterable[str | Pair] = _read_pairs(text, file) if pairs else read_texts(text, file)
    for asked, found in with_texts(inputs, run):
        named = {"text": asked} if isinstance(asked, str) else {"text": asked[0], "text_pair": asked[1]}
        if common.json:
            write_json({**named, **({"labels": found} if ranked == "chosen" else _best(found))})
            continue
        shown = "  ".join(f"{label['label']} {label['score']:.4f}" for label in found) or "(none)"
        write_line(f"{shown}\t" + "\t".join(named.values()))


def _best(found: list[dict[str, Any]]) -> Mapping[str, Any]:
    """The best label's fields beside each other; further ones, when asked for, as ``labels``."""
    return found[0] if len(found) == 1 else {**found[0], "labels": found}


def _pipeline(task: str, model: str, common: Common) -> Any:
    common.begin()
    from bertkit.inference.pipelines import pipeline

    return pipeline(task, model=model, device=common.device)


def _read_pairs(texts: tuple[str, ...], file: Path | None) -> Iterator[Pair]:
    given = read_texts(texts, file)
    if isinstance(given, list):
        if len(given) % 2:
            raise DataError(f"{len(given)} texts are no pairs: give two texts, each in quotes")
        yield from zip(given[::2], given[1::2], strict=True)
        return
    for number, line in enumerate(given, start=1):
        halves = line.split("\t")
        if len(halves) != 2:
            raise DataError(f"line {number} has {len(halves) - 1} tabs; expected first text, one tab, second text")
        yield halves[0], halves[1]
