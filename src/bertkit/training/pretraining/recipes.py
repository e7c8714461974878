"""Recipes: pre-training runs as TOML files, shipped with the package or written by users. Imports no torch.

A file has two tables. ``[model]`` has a preset (``preset = "bert-mini"``), fields of
:class:`~bertkit.config.bert_config.BertConfig`, or both; the size of the vocabulary comes from the token store.
``[training]`` has fields of :class:`~bertkit.training.pretraining.pretrain_settings.PretrainConfig`. Unknown keys are
errors.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.config.bert_config import BertConfig
from bertkit.config.presets import preset
from bertkit.errors import BertkitError, ConfigError, did_you_mean
from bertkit.training.pretraining.pretrain_settings import PretrainConfig

#: Folder of the recipes of the package; ``recipes/`` in the repository links to it.
FOLDER = Path(__file__).resolve().parent.parent.parent / "recipes"
_TABLES = ("model", "training")


@dataclass(frozen=True, slots=True)
class Recipe:
    """A pre-training run to repeat.

    name: of the file, without its suffix.
    summary: the comment in the first line of the file.
    model: its ``vocab_size`` is replaced by that of the store.
    training: the settings.
    """

    name: str
    summary: str
    model: BertConfig
    training: PretrainConfig


def recipe_names() -> tuple[str, ...]:
    """Names of the recipes of the package."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load_recipe(name_or_path: str | Path) -> Recipe:
    """A recipe of the package by name, or any file.

    Raises:
        ConfigError: no such name or file, no TOML, an unknown table or key (with the nearest known one), a value out of
            bounds, settings that contradict each other. Names the file, and the key where one is to blame.
    """
    path = _find(str(name_or_path))
    try:
        text = path.read_text(encoding="utf-8")
        tables = tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {getattr(error, 'strerror', None) or error}") from None
    for key, value in tables.items():
        if key not in _TABLES or not isinstance(value, dict):
            raise ConfigError(
                f"{path}: unknown key {key!r}{did_you_mean(key, _TABLES)}; a recipe has the tables [model] and "
                "[training]"
            )
    model, training = (tables.get(name, {}) for name in _TABLES)
    if not model:
        raise ConfigError(f'{path}: the table [model] is missing or empty; give preset = "bert-mini" or sizes')
    return Recipe(path.stem, _summary(text), _model(path, model), _training(path, training))


def _find(name: str) -> Path:
    names = recipe_names()
    if name in names:
        return FOLDER / f"{name}.toml"
    path = Path(name).expanduser()
    if path.is_file():
        return path
    raise ConfigError(
        f"there is no recipe {name!r}{did_you_mean(name, names)}: give a TOML file, or one of {', '.join(names)}"
    )


def _model(path: Path, table: dict[str, Any]) -> BertConfig:
    sizes = dict(table)
    named = sizes.pop("preset", None)
    try:
        if named is not None and not isinstance(named, str):
            raise ConfigError(f'preset = {named!r}: give a name, for example "bert-mini"')
        return BertConfig(**sizes) if named is None else preset(named).config.replace(**sizes)
    except BertkitError as error:
        raise ConfigError(f"{path}, [model]: {error}") from None


def _training(path: Path, table: dict[str, Any]) -> PretrainConfig:
    try:
        config = PretrainConfig(**table)
        config.check()
    except BertkitError as error:
        raise ConfigError(f"{path}, [training]: {error}") from None
    return config


def _summary(text: str) -> str:
    first = text.lstrip().partition("\n")[0]
    return first.lstrip("# ").rstrip() if first.startswith("#") else ""
