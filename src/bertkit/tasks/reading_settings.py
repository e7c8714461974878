"""How a run reads its data and decides: settings that evaluation and prediction need as well. Imports no torch.

The decision file of a model says how it was trained to read its input (``max_length`` and the like), and what was
chosen on dev (a null threshold, label thresholds, a temperature). It is saved with the weights, so that all decide
alike.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from bertkit.errors import CheckpointError
from bertkit.system.atomic_files import write_atomically
from bertkit.system.untrusted_files import Json
from bertkit.system.validated_settings import Settings
from bertkit.tasks.examples import Fact

#: The file in a model's folder. A model without one decides by its logits alone.
DECISION = "decision.json"
#: Tokens of the longest input by task, where 128 (the paper's GLUE setting) would cut most texts.
LONG_TEXT_TASKS = {"imdb": 512, "csv": 256}


class ReadingSettings(Settings):
    """What a kind of task has to know to read its files, encode them, make its model and its decisions on dev."""

    max_length: Annotated[
        int | None,
        Field(ge=3, le=1_000_000, description="tokens of the longest input; default 128, imdb 512, squad 384, csv 256"),
    ] = None
    seed: Annotated[int, Field(ge=0, lt=2**31, description="first seed: data order, new head, dropout")] = 0
    class_weights: Annotated[
        Literal["none", "balanced"], Field(description="balanced: rare labels weigh more in the loss")
    ] = "none"
    pooling: Annotated[
        Literal["cls", "mean", "max"] | None,
        Field(
            description="what a text classifier reads of the encoder: pooled [CLS] vector, mean or maximum of all "
            "tokens; default as the checkpoint says (1_Pooling), otherwise cls"
        ),
    ] = None
    max_train_rows: Annotated[
        int | None, Field(ge=1, description="use a random sample of the training rows; metrics.json states it")
    ] = None
    on_error: Annotated[
        Literal["raise", "skip"],
        Field(description="raise: stop at the first bad row; skip: leave it out and report it"),
    ] = "raise"
    dev_share: Annotated[
        float, Field(gt=0, le=0.5, description="share of the training rows kept for dev when there is no dev split")
    ] = 0.1
    worst: Annotated[int, Field(ge=0, description="worst dev examples that errors-dev.jsonl lists")] = 50
    doc_stride: Annotated[
        int, Field(ge=1, description="squad: tokens from one window of a long context to the next")
    ] = 128
    max_query_length: Annotated[int, Field(ge=1, description="squad: tokens of a question; the rest is cut off")] = 64
    max_answer_length: Annotated[int, Field(ge=1, description="squad: most tokens of an answer")] = 30
    long_texts: Annotated[
        Literal["cut", "head_tail", "windows"],
        Field(
            description="texts over max_length: cut; keep beginning and end; or read all in windows, whose logits are "
            "averaged"
        ),
    ] = "cut"
    overlap: Annotated[
        int | None, Field(ge=0, description="tokens that two neighbouring windows share; default 128 or a quarter")
    ] = None
    calibrate: Annotated[
        bool,
        Field(description="fit a temperature on dev, so that probabilities mean what they say; kept with the model"),
    ] = False
    tune_thresholds: Annotated[
        bool, Field(description="choose on dev the probability from which a label is given; kept with the model")
    ] = False
    label_all_pieces: Annotated[
        bool, Field(description="ner: the loss looks at every piece of a word; otherwise at the first only")
    ] = False


def write_decision(folder: str | Path, decision: Mapping[str, Fact]) -> None:
    """Save a decision in a model's folder; an empty one writes no file."""
    if decision:
        text = json.dumps(decision, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_atomically(Path(folder) / DECISION, text)


def read_decision(folder: str | Path) -> dict[str, Json]:
    """The decision in a model's folder, or an empty one.

    Raises:
        CheckpointError: the file is damaged.
    """
    path = Path(folder) / DECISION
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} holds {values!r:.40}, expected a JSON object")
    return values
