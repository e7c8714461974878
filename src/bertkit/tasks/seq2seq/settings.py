"""The settings of text to text."""

from __future__ import annotations

from typing import Annotated

from bertkit.config.reading_settings import Use
from bertkit.system.validated_settings import Field, Settings

_USE = Use("text to text (summarize, text2text)")


class Seq2SeqTaskSettings(Settings):
    """Beside those that all kinds have."""

    max_target_length: Annotated[int | None, _USE] = Field(
        None, ge=2, le=1_000_000, description="summarize, text2text: tokens of the longest target; default 128"
    )
    num_beams: Annotated[int | None, _USE] = Field(
        None,
        ge=1,
        le=1000,
        description="summarize, text2text: beams when dev is answered and ever after; default as the model says",
    )
