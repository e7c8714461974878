"""The settings of sparse vectors."""

from __future__ import annotations

from typing import Annotated

from bertkit.config.reading_settings import Use
from bertkit.system.validated_settings import Field, Settings

_USE = Use("sparse vectors (sparse-pairs)")


class SparseTaskSettings(Settings):
    """Beside those that all kinds have."""

    query_flops: Annotated[float | None, _USE] = Field(
        None, ge=0, description="sparse-pairs: FLOPS penalty on queries; default 5e-5"
    )
    document_flops: Annotated[float | None, _USE] = Field(
        None, ge=0, description="sparse-pairs: FLOPS penalty on documents; default 3e-5"
    )
