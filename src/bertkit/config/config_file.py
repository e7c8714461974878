"""A config as the file of a checkpoint folder: reading and writing it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from bertkit.config.adapter_config import ADAPTER_WEIGHTS, with_adapter
from bertkit.config.labels import LABEL_KEYS
from bertkit.errors import CheckpointError, ConfigError, ResourceError
from bertkit.habit_table import no_attribute, remedy
from bertkit.system.atomic_files import write_atomically
from bertkit.system.model_sources import ADAPTER, adapted_folder, resolve
from bertkit.system.paths import user_path
from bertkit.system.untrusted_files import Json, is_there, read_object, read_regular, strict_json
from bertkit.system.validated_settings import Field, FileSettings

#: The file of a checkpoint folder that holds the shape.
CONFIG = "config.json"
#: The file of a folder of sentence-transformers that lists its modules.
MODULES = "modules.json"
#: What the configs of other software say of a model's calls and its training: the usual value, and what says it here.
_SAID_ELSEWHERE: Mapping[str, tuple[bool, str]] = {
    "return_dict": (True, "it is an argument of the call, model(..., return_dict={0!r})"),
    "torchscript": (False, "call model(..., return_dict=False) for tuples, or export the model with 'bertkit export'"),
    "gradient_checkpointing": (False, "call model.set_gradient_checkpointing({0!r})"),
}
#: What a call returns besides, where its arguments do not say; may be set on the config of a model.
OF_CALLS = ("output_attentions", "output_hidden_states")
#: Most files have a thousand bytes; many labels take more.
MAX_CONFIG_BYTES = 4_000_000


def checkpoint_folder(path: Path) -> Path:
    """The folder of a checkpoint: of a file the one it lies in; refuses sentence-transformers without its encoder."""
    folder = path if path.is_dir() else path.parent
    if is_there(folder / MODULES) and not (folder / CONFIG).exists():
        _check_modules(folder / MODULES)
    return folder


def first_module(file: Path) -> tuple[str, str]:
    """The kind and the folder of the first entry of a ``modules.json``; empty where that says none."""
    try:
        listed = strict_json(read_regular(file, max_bytes=MAX_CONFIG_BYTES))
    except ValueError as error:
        raise CheckpointError(f"{file} is not a readable JSON file: {error}") from None
    first = listed[0] if isinstance(listed, list) and listed else None
    entry: dict[str, Json] = first if isinstance(first, dict) else {}
    return str(entry.get("type")).rpartition(".")[2], str(entry.get("path", ""))


def _check_modules(file: Path) -> None:
    kind, place = first_module(file)
    if kind not in ("Transformer", "MLMTransformer"):
        several = "which sends queries and documents to models of their own. Give the folder of one of them"
        static = "word vectors without an encoder, which make vectors of texts ('bertkit embed'), and no more"
        what = {"Router": several, "Asym": several, "StaticEmbedding": static}
        raise CheckpointError(
            f"{file.parent} is a folder of sentence-transformers whose first module is {kind[:80]!r}, "
            f"{what.get(kind, 'which bertkit does not have')}; bertkit reads folders that begin with a Transformer"
        )
    if place:
        raise CheckpointError(
            f"{file} has the encoder in {place[:80]!r}, as before release 2: load it with sentence-transformers and "
            "save it again, which puts it into the folder itself"
        )


def config_path(path: Path) -> Path:
    """The ``config.json`` of a checkpoint given as folder or file."""
    return checkpoint_folder(path) / CONFIG


def read_config(file: Path) -> dict[str, Json]:
    """The content of a ``config.json``; of an adapter without one, that of its model, with the adapter's head."""
    folder = file.parent
    home = folder if file.exists() or file.name != CONFIG else adapted_folder(folder)
    if home == folder:
        return read_object(file, max_bytes=MAX_CONFIG_BYTES)
    return with_adapter(read_object(home / CONFIG, max_bytes=MAX_CONFIG_BYTES), folder)


class ConfigFile(FileSettings):
    """A config that is read from and written to ``config.json``."""

    #: Keys of files that change nothing here.
    without_effect: ClassVar[frozenset[str]] = frozenset()
    output_attentions: bool = Field(False, description="whether a call that does not say returns attentions")
    output_hidden_states: bool = Field(False, description="whether a call that does not say returns hidden states")

    def __setattr__(self, name: str, value: Any) -> None:
        """Frozen, except for what a call returns, names of labels, the loss, and keys that change nothing.

        Labels keep their number, and ``problem_type`` is checked. ConfigError for another field, unless it has the
        value already, and for a key that says elsewhere what a model returns or how it trains, unless it says the
        usual.
        """
        usual, instead = _SAID_ELSEWHERE.get(name, (value, ""))
        if value != usual:
            raise ConfigError(f"config.{name} = {value!r:.80} would do nothing: {instead.format(value)}")
        if name in OF_CALLS:
            if not isinstance(value, bool):
                raise ConfigError(f"config.{name} must be True or False, got {value!r:.80}")
            self.__dict__[name] = value
        elif self.ignores(name):
            object.__setattr__(self, name, value)
        elif name in ("id2label", "label2id"):
            if value is None:
                raise ConfigError(f"config.{name} = None: the {self.num_labels} labels need names; leave these")
            named = self.replace(**{name: value})
            if len(named.id2label) != len(self.id2label):
                raise self._not_set(name, f"num_labels={len(named.id2label)}", f", and this has {len(self.id2label)}")
            self.__dict__["id2label"] = named.id2label
        elif name == "problem_type":
            self.__dict__[name] = self.replace(problem_type=value).problem_type
        elif name not in (known := [*type(self).model_fields, "label2id", "num_labels"]):
            raise ConfigError(f"{type(self).__name__} has no field {name!r}{remedy('config.', name, known)}")
        elif value != getattr(self, name):
            raise self._not_set(name, f"{name}={value!r:.80}")

    def _not_set(self, name: str, change: str, more: str = "") -> ConfigError:
        return ConfigError(
            f"config.{name} cannot be set, because models are built from it{more}; write config = "
            f"config.replace({change}) and make the model of that, or from_pretrained(NAME, {change})"
        )

    def __getattr__(self, name: str) -> Any:
        if name in ("return_dict", "use_return_dict"):  # read in a forward of one's own
            return True
        raise no_attribute(self, "config.", name, type(self).model_fields)

    @property
    def num_labels(self) -> int:
        """Outputs of a task head."""
        return len(self.id2label)

    @property
    def label2id(self) -> dict[str, int]:
        """Number of each label."""
        return {label: number for number, label in self.id2label.items()}

    @classmethod
    def ignores(cls, name: str) -> bool:
        """Whether a key of a file changes nothing here."""
        return name in cls.without_effect and name not in cls.model_fields

    def returned(self, attentions: bool | None, hidden_states: bool | None) -> tuple[bool, bool]:
        """Whether a call returns attentions and hidden states: as its arguments say, or, for None, the config."""
        return (
            self.output_attentions if attentions is None else attentions,
            self.output_hidden_states if hidden_states is None else hidden_states,
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Json]) -> Self:
        """The config that the content of a file describes."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Json]:
        """The content of a file that other software reads."""
        raise NotImplementedError

    def check_heads(self) -> None:
        """Check that a model can be built: that the attention heads divide the width."""
        raise NotImplementedError

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed, by the constructor's arguments; labels that are None stay as they are."""
        return type(self)(**self._changed(changes))

    def _changed(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """The constructor's arguments for a copy."""
        changes = {name: value for name, value in changes.items() if value is not None or name not in LABEL_KEYS}
        replaced = {"id2label"} if changes.keys() & set(LABEL_KEYS) else None
        return {**self.model_dump(exclude=replaced), **changes}

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, *, revision: str | None = None, **changes: Any) -> Self:
        """The shape of a checkpoint, without its weights.

        Args:
            name_or_path: a folder with a ``config.json`` or an adapter, such a file, or a Hub name.
            revision: branch, tag or commit on the Hub.
            **changes: fields to set otherwise, for example ``num_labels=3``.

        Raises:
            CheckpointError: there is no config, or it cannot be read.
            ConfigError: an unknown field, or a value out of bounds.
        """
        path = resolve(name_or_path, files=[CONFIG, ADAPTER, ADAPTER_WEIGHTS], revision=revision)
        found = cls.from_json_file(path / CONFIG if path.is_dir() else path)
        changes = {name: value for name, value in changes.items() if not found.ignores(name)}
        return found.replace(**changes) if changes else found

    def save_pretrained(self, folder: str | Path) -> None:
        """Write ``config.json`` into ``folder``, which is created if missing.

        Raises:
            CheckpointError: ``folder`` is a file.
            ResourceError: the file cannot be written.
        """
        target = user_path(folder)
        if target.exists() and not target.is_dir():
            raise CheckpointError(f"{target} is a file; give the name of a folder")
        self.to_json_file(target / CONFIG)

    @classmethod
    def from_json_file(cls, path: str | Path) -> Self:
        """Read a ``config.json``, of BERT also the original ``bert_config.json``.

        Raises:
            CheckpointError: the file is missing, no regular file, too large, not JSON, not an object, or holds a wrong
                value; names the file.
        """
        path = Path(path)
        values = read_config(path)
        try:
            config = cls.from_dict(values)
            config.check_heads()
            return config
        except ConfigError as error:
            raise CheckpointError(f"{path}: {error}") from None

    def to_json_string(self) -> str:
        """The text of a ``config.json``."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    def to_json_file(self, path: str | Path) -> None:
        """Write ``config.json``.

        Raises:
            ResourceError: the file cannot be written.
        """
        try:
            write_atomically(Path(path), self.to_json_string())
        except OSError as error:
            raise ResourceError(f"{path} cannot be written: {error.strerror or error}") from error
