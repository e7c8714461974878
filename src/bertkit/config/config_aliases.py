"""The configs under their names in other software, where each family has its own.

One class serves all families, :class:`~bertkit.config.bert_config.BertConfig`; these create its objects, or
read files of one family only. Arguments and defaults are those of the family's ``config.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from bertkit.config.bert_config import BertConfig
from bertkit.errors import CheckpointError, ConfigError
from bertkit.system.untrusted_files import Json


class _FamilyConfig:
    """Base of the names below; has no instances."""

    model_type: ClassVar[str]

    def __new__(cls, **values: Any) -> BertConfig:  # type: ignore[misc]  # a name for a config, not another kind
        """A config of the family; arguments are keys of its ``config.json``, or fields of :class:`BertConfig`.

        Raises:
            ConfigError: as :meth:`BertConfig.from_dict`; another ``model_type``.
        """
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values: Mapping[str, Json]) -> BertConfig:
        """:meth:`BertConfig.from_dict`, where ``model_type`` may be missing.

        Raises:
            ConfigError: as there; another ``model_type``.
        """
        config = BertConfig.from_dict({"model_type": cls.model_type, **values})
        if config.model_type != cls.model_type:
            raise ConfigError(f"model_type is {config.model_type!r}; {cls._advice()}")
        return config

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, *, revision: str | None = None, **changes: Any) -> BertConfig:
        """:meth:`BertConfig.from_pretrained`.

        Raises:
            CheckpointError, ConfigError: as there; the checkpoint is of another family.
        """
        config = BertConfig.from_pretrained(name_or_path, revision=revision, **changes)
        if config.model_type != cls.model_type:
            raise CheckpointError(f"{name_or_path} is of the {config.model_type} family; {cls._advice()}")
        return config

    @classmethod
    def _advice(cls) -> str:
        return f"{cls.__name__} takes {cls.model_type!r} only, AutoConfig and BertConfig every family"


class RobertaConfig(_FamilyConfig):
    """``BertConfig(model_type="roberta")`` (Liu et al. 2019)."""

    model_type = "roberta"


class CamembertConfig(_FamilyConfig):
    """``BertConfig(model_type="camembert")`` (Martin et al. 2020)."""

    model_type = "camembert"


class XLMRobertaConfig(_FamilyConfig):
    """``BertConfig(model_type="xlm-roberta")`` (Conneau et al. 2020)."""

    model_type = "xlm-roberta"


class DistilBertConfig(_FamilyConfig):
    """``BertConfig(model_type="distilbert")`` (Sanh et al. 2019); arguments ``dim``, ``n_layers`` and so on."""

    model_type = "distilbert"


class AlbertConfig(_FamilyConfig):
    """``BertConfig(model_type="albert")`` (Lan et al. 2020)."""

    model_type = "albert"


class ElectraConfig(_FamilyConfig):
    """``BertConfig(model_type="electra")`` (Clark et al. 2020)."""

    model_type = "electra"


class MPNetConfig(_FamilyConfig):
    """``BertConfig(model_type="mpnet")`` (Song et al. 2020)."""

    model_type = "mpnet"


class DebertaV2Config(_FamilyConfig):
    """``BertConfig(model_type="deberta-v2")`` (He et al. 2021), which v3 is as well."""

    model_type = "deberta-v2"


class ModernBertConfig(_FamilyConfig):
    """``BertConfig(model_type="modernbert")`` (Warner et al. 2024)."""

    model_type = "modernbert"
