"""The settings of tasks of texts."""

from __future__ import annotations

from typing import Annotated, Literal

from bertkit.config.reading_settings import Use
from bertkit.system.validated_settings import Field, Settings


class TextTaskSettings(Settings):
    """Beside those that all kinds have."""

    long_texts: Annotated[Literal["cut", "head_tail", "windows"], Use("single texts, not pairs", as_before=None)] = (
        Field(
            "cut",
            description="long texts: cut; keep beginning and end; or read all in windows, whose logits are averaged",
        )
    )
    overlap: Annotated[int | None, Use("single texts with long_texts='windows'", as_before=None)] = Field(
        None, ge=0, description="tokens that two neighbouring windows share; default 128 or a quarter"
    )
    calibrate: Annotated[bool, Use("texts with one label, or any number of them", as_before=None)] = Field(
        False, description="fit a temperature on dev, so that probabilities are calibrated; saved with the model"
    )
    tune_thresholds: Annotated[
        bool,
        Use(
            "texts with any number of labels, or one of two and the main metric accuracy, f1 or matthews",
            as_before=None,
        ),
    ] = Field(False, description="choose on dev the probability from which a label is assigned; saved with the model")
