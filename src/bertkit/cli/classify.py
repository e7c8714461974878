"""``bertkit classify``: label texts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli.common_options import (
    Computing,
    Model,
    Pair,
    Pairs,
    Reading,
    Texts,
    open_pipeline,
    read_pair_rows,
    read_rows,
)
from bertkit.cli.placed import located
from bertkit.cli.results import ResultFile, beside, facts_of, shown
from bertkit.cli.zero_shot_options import ZeroShot, words_of
from bertkit.errors import ConfigError, TextError, plural

if TYPE_CHECKING:
    from bertkit.cli.placed import Placed
    from bertkit.tasks.reading.file_rows import FileRow

#: From texts to the labels of each, the best first.
Labeller = Callable[[Iterator[str | Pair]], Iterator[list[dict[str, Any]]]]


def classify(
    *text: Texts,
    model: Model,
    top_k: Annotated[int | None, Parameter(help="Show this many labels per text, most probable first.")] = None,
    all_labels: Annotated[bool, Parameter(name="--all", negative=(), help="Show every label.")] = False,
    function: Annotated[
        Literal["softmax", "sigmoid", "none"] | None,
        Parameter(name="--function", help="How logits become scores; default: as the model was trained."),
    ] = None,
    pairs: Pairs = False,
    zero_shot: ZeroShot = ZeroShot(),
    results: ResultFile = ResultFile(),
    reading: Reading = Reading(),
    common: Computing = Computing(),
) -> None:
    """Label texts, with probabilities.

    Prints one line per text: label, probability, text. The label is the model's
    decision; for multi-label models, all labels that it assigns. Rows of a file
    without text get none. To label whole files and tables, see:
    bertkit predict --help

    With --labels, the model need not have been trained on these labels. It is a
    natural language inference model, any encoder, or a masked language model.

    For example:

        bertkit classify --model run "A film to remember." "Two hours wasted."
        head -100 reviews.txt | bertkit classify --model run --json -
        bertkit classify --model rte-run --pairs "A man sleeps." "A man runs."
        bertkit classify --model nli --labels "sports, politics" "They won 3:1."
    """
    if all_labels and top_k is not None:
        raise ConfigError("--all shows every label, --top-k only some; give one of them")
    to_rows = results.check()
    rows = (read_pair_rows if pairs else read_rows)(text, reading, None if zero_shot.labels else model)
    if zero_shot.labels is None:
        given = [f"--{field.name.replace('_', '-')}" for field in fields(ZeroShot) if getattr(zero_shot, field.name)]
        if given:
            raise ConfigError(f"{given[0]} goes with --labels, which names the labels; give both, or leave it out")
        run, several = _trained(model, common, reading, function, None if all_labels else top_k, every=all_labels)
    else:
        if pairs or function is not None:
            raise ConfigError(
                "--labels is for single texts, whose scores are as the method says: leave out "
                f"{'--pairs' if pairs else '--function'}"
            )
        run, several = _untrained(model, common, reading, zero_shot, None if all_labels else top_k, every=all_labels)

    answered = _answered(rows, run)
    if to_rows:
        share, listed = "score" if function == "none" else "probability", all_labels or top_k is not None
        cells = ((row, _cells(row, found, share, several=several, listed=listed)) for row, found in answered)
        results.write((beside(row, each, rows.taken) for row, each in cells), rows.taken, common)
        return
    for row, found in answered:
        if _is_empty(row):
            common.show({**facts_of(row), "label": None, "empty": True}, f"(empty)\t{shown(row)}")
            continue
        best = {} if several else found[0]
        more = {"labels": found} if several or len(found) > 1 else {}
        ranked = "  ".join(f"{label['label']} {label['score']:.4f}" for label in found) or "(none)"
        common.show({**facts_of(row), **best, **more}, f"{ranked}\t{shown(row)}")


def _cells(row: FileRow, found: list[dict[str, Any]], share: str, *, several: bool, listed: bool) -> dict[str, Any]:
    """The label of a text, or all that hold, as 'bertkit predict' writes them, and with ``listed`` all that are shown.

    share: what a score is called.
    """
    if _is_empty(row):
        return {"predicted": None, **({plural(share): {}} if listed else {share: None}), "empty": True}
    labels, scores = [each["label"] for each in found], [each["score"] for each in found]
    cut = {"truncated": found[0]["truncated"]} if found and "truncated" in found[0] else {}
    predicted = {"predicted": labels if several else labels[0]}
    if not listed:
        return {**predicted, share: tuple(scores) if several else scores[0], **cut}
    return {**predicted, plural(share): dict(zip(labels, scores, strict=True)), **cut}


def _trained(
    model: str, common: Computing, reading: Reading, function: str | None, top_k: int | None, *, every: bool
) -> tuple[Labeller, bool]:
    """Labels by a classifier, and whether any number of them, perhaps none, is shown."""
    pipe = open_pipeline("text-classification", model, common)
    several = pipe.config.problem_type == "multi_label_classification"
    usual = "chosen" if several else "best"
    ranked = None if every else usual if top_k is None else top_k
    limits = {**reading.limits, "truncation": reading.truncate or None}

    def run(items: Iterator[str | Pair]) -> Iterator[list[dict[str, Any]]]:
        found = pipe(items, top_k=ranked, function_to_apply=function, **limits)
        return ([best] for best in found) if ranked == "best" else found

    return run, ranked == "chosen"


def _untrained(
    model: str, common: Computing, reading: Reading, given: ZeroShot, top_k: int | None, *, every: bool
) -> tuple[Labeller, bool]:
    """The same by a model that was not trained on the labels."""
    assert given.labels is not None
    words = words_of(given.labels)
    options: dict[str, Any] = {} if given.template is None else {"hypothesis_template": given.template}
    if given.multi_label:
        options["multi_label"] = True
    pipe = open_pipeline("zero-shot-classification", model, common, method=given.method, **options)
    threshold = pipe.threshold if given.multi_label and top_k is None and not every else None
    count = len(words) if every or (given.multi_label and top_k is None) else top_k or 1

    def run(items: Iterator[str | Pair]) -> Iterator[list[dict[str, Any]]]:
        for answer in pipe(items, words, **reading.limits):
            note = {"truncated": answer["truncated"]} if reading.truncate else {}
            ranking = zip(answer["labels"], answer["scores"], strict=True)
            found = [{"label": label, "score": score, **note} for label, score in ranking]
            yield [label for label in found[:count] if threshold is None or label["score"] >= threshold]

    return run, threshold is not None


def _is_empty(row: FileRow) -> bool:
    return not all(text.strip() for text in ((row.asked,) if isinstance(row.asked, str) else row.asked))


def _answered(rows: Placed[FileRow], run: Labeller) -> Iterator[tuple[FileRow, list[dict[str, Any]]]]:
    """Rows with their labels, in their order; at the end it is said how many of a file have no text.

    A text without a word would get a label like any other, so no model reads it: of a file it has no label, and an
    argument without is refused.
    """
    from bertkit.inference.predict_files import tell_empty

    waiting: deque[FileRow] = deque()
    total = empty = 0

    def noted(row: FileRow) -> bool:
        if _is_empty(row) and not row.line:
            raise TextError(
                f"text {len(waiting) + total} (counted from 0) is empty, so there is nothing to classify; leave it out"
            )
        waiting.append(row)
        return not _is_empty(row)

    kept = rows.only(noted)
    with located(kept):
        for found in run(row.asked for row in kept):
            while _is_empty(waiting[0]):
                total, empty = total + 1, empty + 1
                yield waiting.popleft(), []
            total += 1
            yield waiting.popleft(), found
    total, empty = total + len(waiting), empty + len(waiting)  # what is left has no text
    yield from ((row, []) for row in waiting)
    tell_empty(empty, total)
