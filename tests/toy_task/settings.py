"""The settings of the toy kind of task."""

from __future__ import annotations

from typing import Annotated

from bertkit.config.reading_settings import Use
from bertkit.system.validated_settings import Field, Settings


class ToneTaskSettings(Settings):
    """Beside those that all kinds have."""

    tone_steps: Annotated[int, Use("tones (tone)", everyday=True)] = Field(
        100, ge=1, description="tone: training rounds tones to so many steps"
    )
