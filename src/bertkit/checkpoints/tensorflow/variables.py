"""The variables of TensorFlow checkpoints under the tensor names of the published PyTorch files.

Reads checkpoints of the original BERT code, also fine-tuned ones with their optimizer, and SavedModels of TensorFlow 2
or TF-Hub. A variable that is not in the table of names, nor an optimizer's or a counter by name and shape, is an error.
See ``docs/decisions/0110-tensorflow-archives.md``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bertkit.checkpoints.explain import printable
from bertkit.checkpoints.safetensors_format import ITEM_BYTES, TensorInfo, Values
from bertkit.checkpoints.tensorflow.bundle import Bundle, BundleReader, open_bundle, read_graph
from bertkit.checkpoints.tensorflow.variable_names import TABLES, Layout, VariableNames, why_dropped
from bertkit.errors import CheckpointError, counted, shorten
from bertkit.system.protobuf import bytes_of, fields, text_of
from bertkit.system.untrusted_files import open_regular

_DATA = re.compile(r"\.data-\d{5}-of-\d{5}$")
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_SLOT = "/.OPTIMIZER_SLOT/"
_MAX_STATE_BYTES = 1 << 20
#: numpy types of :data:`Values`.
_NUMPY = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


@dataclass(frozen=True, slots=True)
class Origin:
    """The variable behind a published tensor: its name in the bundle and in TensorFlow, layout and shape."""

    key: str
    variable: str
    layout: Layout
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Archive:
    """A TensorFlow checkpoint under published names; no values are read yet.

    tensors: final shape and type, and the location in the bundle. dropped: why a variable is omitted.
    """

    bundle: Bundle
    names: VariableNames
    tensors: Mapping[str, TensorInfo]
    origins: Mapping[str, Origin]
    dropped: Mapping[str, str]
    lower_case: bool | None


def find_index(path: Path) -> Path | None:
    """The index of the TensorFlow checkpoint at a path; None if there is none.

    A path is a folder, the ``.index``, a data file beside it, or the name without these endings (``bert_model.ckpt``);
    in a folder with several, the latest according to its file ``checkpoint``.
    """
    if not path.is_dir():
        named = path if path.name.endswith(".index") else Path(f"{_DATA.sub('', str(path))}.index")
        return named if named.is_file() else None
    for folder in (path, path / "variables"):
        names = sorted(entry.name for entry in folder.glob("*.index") if entry.is_file())
        latest = _latest(folder)
        if latest in names:
            return folder / latest
        if len(names) > 1:
            raise CheckpointError(
                f"{folder} contains {len(names)} checkpoints ({shorten(names)}), and no file named checkpoint that "
                f"says which is the latest: pass one of them, for example {folder / names[-1]}"
            )
        if names:
            return folder / names[0]
    return None


def open_archive(index: Path) -> Archive:
    """Match the variables of a checkpoint with the table of names; all that are unknown are listed in the error."""
    bundle = open_bundle(index)
    keys = _variables(bundle)
    shapes = {variable: bundle.tensors[key].shape for variable, key in keys.items()}
    names, prefix = _fitting(keys, index)
    origins: dict[str, Origin] = {}
    tensors: dict[str, TensorInfo] = {}
    dropped: dict[str, str] = {}
    unknown = []
    for variable, key in keys.items():
        info, line = bundle.tensors[key], names.find(variable.removeprefix(prefix))
        why = "optimizer" if _SLOT in key else why_dropped(variable, shapes)
        if line is None and why is None:
            unknown.append(variable)
        elif line is None or _SLOT in key:
            dropped[variable] = why or "optimizer"
        elif line.published in origins:
            raise CheckpointError(f"{index}: {origins[line.published].variable!r} and {variable!r} are the same tensor")
        else:
            origins[line.published] = Origin(key, variable, line.layout, info.shape)
            tensors[line.published] = info._replace(name=line.published, shape=line.layout.shape(info.shape))
    if unknown:
        shown = "".join(f"\n  {printable(name)}  {list(shapes[name])}" for name in unknown[:60])
        more = f"\n  ... and {len(unknown) - 60} more" if len(unknown) > 60 else ""
        raise CheckpointError(
            f"{index} has {counted(len(unknown), 'unknown variable')}, neither {names.name}'s nor an optimizer's; "
            f"nothing was converted:{shown}{more}"
        )
    return Archive(bundle, names, tensors, origins, dropped, _lower_case(bundle, keys))


class ArchiveReader(BundleReader):
    """The values of an archive under published names."""

    def __init__(self, archive: Archive) -> None:
        super().__init__(archive.bundle)
        self._archive = archive

    def variable(self, name: str) -> Values:
        """The variable behind a published name in TensorFlow's layout."""
        origin, info = self._archive.origins[name], self._archive.tensors[name]
        if info.dtype not in _NUMPY:
            raise CheckpointError(f"{info.file}: {origin.variable!r} has the type {info.dtype}, but weights are floats")
        values = np.empty(info.num_values * ITEM_BYTES[info.dtype], np.uint8)
        self.read(origin.key, values)
        return values.view(_NUMPY[info.dtype]).reshape(origin.shape)

    def tensor(self, name: str) -> Values:
        """The published tensor, contiguous."""
        return np.ascontiguousarray(self._archive.origins[name].layout.apply(self.variable(name)))


def _variables(bundle: Bundle) -> dict[str, str]:
    """Variable -> key: equal in TensorFlow 1, related by the object graph in TensorFlow 2."""
    graph = read_graph(bundle) or b""
    names: dict[str, str] = {}  # key -> name in the program, from ``TrackableObjectGraph``
    try:
        for number, node in fields(memoryview(graph)):
            for part, attribute in fields(bytes_of(node)) if number == 1 else ():
                if part == 2:
                    texts = {key: text_of(value) for key, value in fields(bytes_of(attribute)) if key in (2, 3)}
                    names[texts.get(3, "")] = texts.get(2, "").removesuffix(":0")
    except ValueError as error:
        raise CheckpointError(f"{bundle.index}: the description of its objects is damaged: {error}") from None
    keys: dict[str, str] = {}
    for key in bundle.tensors:
        plain = key.removesuffix(_VALUE)
        name = plain if plain.startswith("optimizer/") or _SLOT in key else names.get(key) or plain
        keys[name if name not in keys else plain] = key
    return keys


def _fitting(keys: Mapping[str, str], index: Path) -> tuple[VariableNames, str]:
    """The table whose anchor is among the variables, and the prefix of all names."""
    for names in TABLES:
        anchors = [name for name in keys if f"/{name}".endswith(f"/{names.anchor}")]
        prefixes = [name.removesuffix(names.anchor) for name in anchors]
        if len(prefixes) > 1:
            raise CheckpointError(f"{index} contains {len(prefixes)} encoders, under {shorten(prefixes)}; expected one")
        if prefixes:
            return names, prefixes[0]
    known = " or ".join(repr(names.anchor) for names in TABLES)
    raise CheckpointError(
        f"{index} is not a BERT: it has no variable {known}, but {shorten(map(printable, keys)) or 'nothing'}"
    )


def _lower_case(bundle: Bundle, keys: Mapping[str, str]) -> bool | None:
    """The variable ``do_lower_case`` of models on TF-Hub."""
    for variable, key in keys.items():
        if variable.rpartition("/")[2] == "do_lower_case" and bundle.tensors[key].dtype == "BOOL":
            value = np.empty(bundle.tensors[key].num_values, np.uint8)
            with BundleReader(bundle) as reader:
                reader.read(key, value)
            return bool(value[0]) if len(value) == 1 else None
    return None


def _latest(folder: Path) -> str | None:
    """Name of the latest index according to the file ``checkpoint``, without its folder."""
    file = folder / "checkpoint"
    if not file.is_file():
        return None
    with open_regular(file) as stream:
        text = stream.read(_MAX_STATE_BYTES).decode("utf-8", "replace")
    found = re.search(r'^model_checkpoint_path: "([^"\n]+)"', text, re.MULTILINE)
    return None if found is None else re.split(r"[/\\]", found[1])[-1] + ".index"
