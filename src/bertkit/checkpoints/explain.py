"""Error messages for checkpoints that do not fit: every difference, grouped by layers, and what to do next."""

from __future__ import annotations

import re
from collections.abc import Iterable

from bertkit.checkpoints.match import PROBLEMS, Match, Row, Status
from bertkit.checkpoints.rules import ClassSpec, layer_number

#: Lines shown for one kind of difference. Layers are grouped, so real checkpoints stay far below it.
MAX_LINES = 60
_STACKS = (".layer", "coder.layers", "coder.block", ".albert_layer_groups")
_LAYER = re.compile("(?:" + "|".join(rf"(?<={re.escape(stack)}\.)" for stack in _STACKS) + r")\d+(?=\.)")


#: Ending of a class's name -> what such a model is, and the command and the pipeline that use it.
_USES = {
    "ElectraForPreTraining": ("a detector of replaced tokens", "embed", "feature-extraction"),
    "Model": ("an encoder without a head", "embed", "feature-extraction"),
    "ForMaskedLM": ("a masked language model", "fill-mask", "fill-mask"),
    "ForPreTraining": ("a model with the heads of pre-training", "fill-mask", "fill-mask"),
    "ForNextSentencePrediction": ("a next-sentence model", "next-sentence", "next-sentence"),
    "ForSequenceClassification": ("a text classifier", "classify", "text-classification"),
    "ForTokenClassification": ("a tagger", "tag", "token-classification"),
    "ForQuestionAnswering": ("a question-answering model", "answer", "question-answering"),
    "ForMultipleChoice": ("a multiple-choice model", "predict", "multiple-choice"),
    "ForConditionalGeneration": ("a model that writes", "generate", "text2text-generation"),
}


def explain(match: Match, where: str, *, file_labels: int | None = None, own: ClassSpec | None = None) -> str:
    """The error's message for a file that does not fit; ``own``: the class it was saved from, where known."""
    parts = {*match.spec.heads, "pooler"}
    if own is not None and all(row.status is Status.MISSING and row.part in parts for row in match.problems):
        is_one, advice = _use(own)
        absent = dict.fromkeys(row.part for row in match.problems)
        said = (  # a whole model, but of another kind than was asked for
            f"{where} is {is_one} ({own.name}), not {_use(match.spec)[0]}: it has no {' and no '.join(absent)} for "
            f"{match.spec.name}. {advice}"
        )
        if "decoder" in absent:  # that is no head
            return said
        return f"{said}; or train a new head, after {match.spec.name}.from_pretrained(..., {_request(match.spec)})"
    import difflib

    groups = {status: _group(match.of(status)) for status in (*PROBLEMS, Status.UNUSED)}
    unplaced = [line[0] for status in (Status.UNEXPECTED, Status.UNUSED) for line in groups[status]]
    wanted = [line[0] for line in groups[Status.MISSING]]
    lines = [f"{where} does not fit {match.spec.name}; nothing was loaded."]
    for status in PROBLEMS:
        others = unplaced if status is Status.MISSING else wanted if status is Status.UNEXPECTED else []
        if group := groups[status]:
            lines.append(f"  {status.value} ({sum(len(row.theirs) for row in match.of(status))}):")
        for name, description in group[:MAX_LINES]:
            near = difflib.get_close_matches(name, others[:MAX_LINES], n=1, cutoff=0.85)
            lines.append(f"    {name}  {description}".rstrip() + (f"   <- looks like {near[0]}" if near else ""))
        if len(group) > MAX_LINES:
            lines.append(f"    ... and {len(group) - MAX_LINES} more")
    lines.extend(_hints(match, file_labels))
    return "\n".join(lines)


def task_of_class(name: str) -> str:
    """The pipeline that a class of models is for."""
    return _use_of(name)[2]


def _use_of(name: str) -> tuple[str, str, str]:
    return next(use for ending, use in _USES.items() if name.endswith(ending))


def _use(spec: ClassSpec) -> tuple[str, str]:
    is_one, command, task = _use_of(spec.name)
    if spec.heads == ("decoder",):
        is_one = "an encoder-decoder without a head"
    return is_one, f"Use 'bertkit {command}' or pipeline({task!r})"


def _request(spec: ClassSpec) -> str:
    return "num_labels=N (or id2label=...)" if spec.label_head else "new_head=True"


def _group(rows: Iterable[Row]) -> list[tuple[str, str]]:
    """(name, description) of rows, those that differ only in the layer on one line."""
    layers: dict[tuple[str, str], set[int]] = {}
    for row in rows:
        description = row.note or ("" if row.status is Status.MISSING and len(row.theirs) > 1 else str(list(row.shape)))
        for name in row.theirs:
            number = _LAYER.search(name)
            key = (_LAYER.sub("{}", name, count=1), description)
            layers.setdefault(key, set()).update({int(number[0])} if number else ())
    return [(printable(name.replace("{}", ranges(numbers))), text) for (name, text), numbers in layers.items()]


def ranges(numbers: Iterable[int]) -> str:
    """``{0-3,7}`` for 0 1 2 3 7; a single number without braces."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in parts]
    return texts[0] if len(texts) == 1 and "-" not in texts[0] else "{" + ",".join(texts) + "}"


def printable(name: str) -> str:
    """A name from a file, made safe for a terminal."""
    shown = name if name.isprintable() else repr(name)
    return shown if len(shown) <= 160 else shown[:157] + "..."


def _hints(match: Match, file_labels: int | None) -> list[str]:
    spec, config, problems = match.spec, match.config, match.problems
    hints = []
    if all(row.status is Status.MISSING for row in problems if row.part == "encoder") and not match.exact:
        return [f"  No tensor has a name of the {match.table.family} family: this is another kind of model."]
    numbers = {
        layer_number(match.table.canonical(name))
        for row in match.rows
        if row.part == "encoder" or row.status is Status.UNEXPECTED
        for name in row.theirs
        if row.status is not Status.MISSING
    }
    layers = len(numbers - {None})
    plural = "s" * (layers != 1)
    field, what = "num_hidden_layers", f"layer{plural}"
    if getattr(config, "num_hidden_groups", None) is not None:
        field, what = "num_hidden_groups", f"group{plural} of layers"
    if layers != getattr(config, field, layers):  # encoder-decoders have two numbers
        hints.append(f"The config says {field}={getattr(config, field)}, but the file has {layers} {what}.")
    head_rows = [row for row in problems if row.part in spec.heads]
    absent = [row for row in head_rows if row.status is Status.MISSING]
    misfit = [row for row in head_rows if row.status is Status.MISSHAPED and "classifier" in row.part]
    if absent:
        hints.append(
            f"The file has no {' and no '.join(dict.fromkeys(row.part for row in absent))} for {spec.name}. To train a "
            f"new one, use {spec.name}.from_pretrained(..., {_request(spec)})."
        )
    elif any(row.part == "pooler" and row.status is Status.MISSING for row in problems) and spec.heads:
        hints.append(f"The file has no pooler, which {spec.name} needs; new_head=True makes a new pooler and head.")
    if misfit:
        given = f"; the file's own config names {file_labels}" if file_labels not in (None, config.num_labels) else ""
        hints.append(
            f"The classifier in the file does not have the requested {match.config.num_labels} labels{given}. Omit "
            "num_labels and id2label to use it, or pass new_head=True to replace it by a new one."
        )
    return ["  " + hint for hint in hints]
