"""``GenerationConfig`` of ``transformers``: our settings of generation, and ids that must be the model's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

from bertkit.config.config_file import config_path, read_config
from bertkit.config.generation_settings import NO_EFFECT, GenerationSettings
from bertkit.system.model_sources import resolve
from bertkit.system.untrusted_files import Json


class GenerationConfig(GenerationSettings):
    """Settings of generation for ``model.generate(..., generation_config=)``.

    Ids of special tokens may be given; ``generate`` refuses those that are not the model's. What changes nothing here,
    such as ``use_cache``, is left out.
    """

    ids: ClassVar[tuple[str, ...]] = ("decoder_start_token_id", "bos_token_id", "eos_token_id", "pad_token_id")
    decoder_start_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    pad_token_id: int | None = None

    def __init__(self, /, **values: Any) -> None:
        ignored = NO_EFFECT - set(self.ids)
        super().__init__(**{name: value for name, value in values.items() if name not in ignored and value is not None})

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, **changes: Any) -> Self:
        """The settings of generation of a model, of which some are changed."""
        file = config_path(resolve(name_or_path))
        config: dict[str, Json] = read_config(file)
        own = GenerationSettings.of_folder(file.parent, config).model_dump(exclude_unset=True)
        return cls(**{**own, **changes})
