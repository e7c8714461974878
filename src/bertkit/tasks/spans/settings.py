"""The settings of question answering."""

from __future__ import annotations

from typing import Annotated

from bertkit.config.reading_settings import Use
from bertkit.system.validated_settings import Field, Settings

_USE = Use("question answering (squad, squad2)", as_before=None)


class SpanTaskSettings(Settings):
    """Beside those that all kinds have."""

    doc_stride: Annotated[int, _USE] = Field(
        128, ge=1, description="squad: tokens from one window of a long context to the next"
    )
    max_query_length: Annotated[int, _USE] = Field(
        64, ge=1, description="squad: tokens of a question; the rest is cut off"
    )
    max_answer_length: Annotated[int, _USE] = Field(30, ge=1, description="squad: most tokens of an answer")
