"""The settings of token classification."""

from __future__ import annotations

from typing import Annotated

from bertkit.config.reading_settings import Use
from bertkit.system.validated_settings import Field, Settings


class TokenTaskSettings(Settings):
    """Beside those that all kinds have."""

    label_all_pieces: Annotated[bool, Use("token classification (ner)", as_before=None)] = Field(
        False, description="ner: the loss covers every piece of a word, not only the first"
    )
