"""Folders as the Hugging Face Hub has them: ``config.json`` beside ``model.safetensors``, whole or in shards.

Reading looks at headers only; nothing here allocates a weight. Imports torch only to write.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bertkit.checkpoints.safetensors_header import Header, TensorInfo, read_header
from bertkit.config.bert_config import CONFIG, BertConfig
from bertkit.errors import CheckpointError, ResourceError, shorten
from bertkit.system.atomic_files import sync_file, sync_folder
from bertkit.system.untrusted_files import open_regular, strict_json

if TYPE_CHECKING:
    from torch import Tensor

WEIGHTS = "model.safetensors"
#: Where a model with another pooling than that of [CLS] is: other software must not find it; see ``OWN_MODEL_TYPE``.
POOLED_WEIGHTS = "model-pooled.safetensors"
INDEX = "model.safetensors.index.json"
MAX_INDEX_BYTES = 16 << 20
MAX_SHARDS = 1_000

_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model.pt", "model.pt", "model.bin")


@dataclass(frozen=True, slots=True)
class Weights:
    """Tensors of a checkpoint, by the names in its files; none is read yet.

    folder: where config and vocabulary lie.
    files: the safetensors files, in the order of their names.
    """

    folder: Path
    files: tuple[Path, ...]
    tensors: Mapping[str, TensorInfo]
    metadata: Mapping[str, str]

    @property
    def where(self) -> str:
        """The file, or the folder of the shards, for messages."""
        return str(self.files[0] if len(self.files) == 1 else self.folder)


def find_weights(path: Path) -> Weights:
    """Find and check the weights of a checkpoint.

    Args:
        path: a folder, a ``.safetensors`` file, or the ``.index.json`` of a sharded checkpoint. In a folder,
            ``model.safetensors`` comes before an index.

    Raises:
        CheckpointError: nothing usable there (a pickle is named, with the way to convert it), a damaged file, an
            index that does not fit its shards or names a file outside the folder.
    """
    if path.is_dir():
        for name in (WEIGHTS, INDEX, POOLED_WEIGHTS):
            if os.path.lexists(path / name):
                return _read_weights(path / name)
        raise CheckpointError(_nothing_in(path))
    return _read_weights(path)


def _read_weights(path: Path) -> Weights:
    if path.name.endswith(".index.json"):
        return _read_shards(path)
    if path.suffix != ".safetensors":
        if path.suffix in (".bin", ".pt", ".pth", ".pkl", ".ckpt"):
            raise CheckpointError(_pickle(path))
        if path.suffix in (".zip", ".index", ".pb"):
            raise CheckpointError(
                f"{path} is not loaded as it is. If it is a TensorFlow checkpoint or an archive of one, convert it "
                f"once:\n  bertkit convert {path} NEW_FOLDER"
            )
        raise CheckpointError(f"{path} is no model: expected a folder, a .safetensors file or a .index.json file")
    header = read_header(path)
    return Weights(path.parent, (path,), header.tensors, header.metadata)


def config_path(path: Path) -> Path:
    """The ``config.json`` of a checkpoint given as folder or file."""
    return (path if path.is_dir() else path.parent) / CONFIG


def _pickle(path: Path) -> str:
    return (
        f"{path} is a pickle, and opening a pickle can run any code that is hidden in it, so bertkit loads safetensors "
        f"only. If you trust where it comes from, convert it once:\n  bertkit convert --trust-pickle {path} NEW_FOLDER"
    )


def _nothing_in(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    for name in names:
        if name in _PICKLES:
            return f"{folder} has no {WEIGHTS}; " + _pickle(folder / name)
    others = [name for name in names if name.endswith(".safetensors")]
    if others:
        return f"{folder} has no {WEIGHTS}, but {shorten(others)}: give the path of the file itself"
    kinds = (".index", ".ckpt.meta", ".h5", ".msgpack", "saved_model.pb")
    if any(name.endswith(kinds) for name in names):
        return (
            f"{folder} holds a TensorFlow or Flax checkpoint; bertkit loads {WEIGHTS}. The original code's .index and "
            f".data files become that with:\n  bertkit convert {folder} NEW_FOLDER"
        )
    found = f"{folder} has neither {WEIGHTS} nor {INDEX}; it holds {shorten(names) or 'nothing'}"
    repository = _repository(folder)
    if repository is None:
        return found
    return (
        f"{found}. Of the Hub only safetensors are fetched to be loaded; {repository} may hold its weights as a pickle "
        "or for TensorFlow. Opening a pickle can run any code that is hidden in it; if you trust where it comes from, "
        f"convert it once:\n  bertkit convert --trust-pickle {repository} NEW_FOLDER"
    )


def _repository(folder: Path) -> str | None:
    """Name of the repository whose snapshot in the Hub cache a folder is; None for any other folder."""
    home = folder.parent.parent
    if folder.parent.name != "snapshots" or not home.name.startswith("models--"):
        return None
    return home.name.removeprefix("models--").replace("--", "/")


def _read_shards(index: Path) -> Weights:
    weight_map = _read_index(index)
    headers = [_read_shard(index, name) for name in sorted(set(weight_map.values()))]
    tensors: dict[str, TensorInfo] = {}
    for header in headers:
        absent = [
            name for name, shard in weight_map.items() if shard == header.file.name and name not in header.tensors
        ]
        if absent:
            raise CheckpointError(f"{index} says that {header.file.name} has {_few(absent)}; it has not")
    for header in headers:
        surplus = [name for name in header.tensors if weight_map.get(name) != header.file.name]
        if surplus:
            raise CheckpointError(f"{header.file} has {_few(surplus)}, which {index.name} does not list for it")
        tensors.update(header.tensors)
    return Weights(index.parent, tuple(header.file for header in headers), tensors, headers[0].metadata)


def _few(names: Iterable[str]) -> str:
    return shorten(name[:80] for name in names)


def _read_index(index: Path) -> dict[str, str]:
    with open_regular(index) as stream:
        text = stream.read(MAX_INDEX_BYTES + 1)
    if len(text) > MAX_INDEX_BYTES:
        raise CheckpointError(f"{index} has more than {MAX_INDEX_BYTES:,} bytes; an index has some ten thousand")
    try:
        content = strict_json(text)
    except ValueError as error:
        raise CheckpointError(f"{index} is not a readable JSON file: {error}") from None
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index} has no weight_map that names the file of each tensor")
    for name, shard in weight_map.items():
        if not isinstance(shard, str):
            raise CheckpointError(
                f"{index} gives {str(shard)[:60]!r} as the file of {name[:80]!r}, expected a file name"
            )
    if len(set(weight_map.values())) > MAX_SHARDS:
        raise CheckpointError(f"{index} names {len(set(weight_map.values())):,} files, more than {MAX_SHARDS:,}")
    return weight_map


def _read_shard(index: Path, name: str) -> Header:
    """Header of a shard that must lie in the folder of the index, and not only seem to."""
    if name != os.path.basename(name) or "\\" in name or "\0" in name or not name.endswith(".safetensors"):
        raise CheckpointError(
            f"{index} names the file {name[:80]!r}: only the bare name of a .safetensors file in the same folder is "
            "safe"
        )
    shard = index.parent / name
    try:
        target = shard.resolve(strict=True)
    except FileNotFoundError:
        raise CheckpointError(
            f"{index} names {name[:80]}, which is not there: the download or copy is not complete"
        ) from None
    except (OSError, RuntimeError, ValueError) as error:  # too long, a loop of links, no name at all
        raise CheckpointError(f"{index} names {name[:80]!r}, which cannot be read: {str(error)[:200]}") from None
    folder = index.parent.resolve()
    homes = [folder]
    if folder.parent.name == "snapshots":  # the Hub cache links each file to blobs/<hash> of the same repository
        homes.append(folder.parent.parent / "blobs")
    if target.parent not in homes:
        raise CheckpointError(f"{index} names {name}, a link out of the folder (to {target}): copy the file itself")
    return read_header(shard)


def write_folder(folder: Path, config: BertConfig, tensors: Mapping[str, Tensor]) -> None:
    """Write ``config.json`` and ``model.safetensors`` so that a reader finds each of them old or new, never half.

    Both are written under other names and forced to disk before they are renamed; only a crash between the two
    renames, which follow each other at once, can leave the old config beside the new weights.

    Raises:
        CheckpointError: ``folder`` is a file.
        ResourceError: disk full, no permission.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    mark = f".{secrets.token_hex(4)}.tmp"
    weights, settings = folder / f".{WEIGHTS}{mark}", folder / f".{CONFIG}{mark}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(dict(tensors), weights, {"format": "pt"})
        config.to_json_file(settings)
        weights.chmod(settings.stat().st_mode & 0o777)  # the library makes its file private
        for draft in (weights, settings):
            sync_file(draft)
        name, other = (WEIGHTS, POOLED_WEIGHTS) if config.pooling == "cls" else (POOLED_WEIGHTS, WEIGHTS)
        (folder / other).unlink(missing_ok=True)  # of a model that was saved here before
        weights.replace(folder / name)
        settings.replace(folder / CONFIG)
        sync_folder(folder)
    except (FileExistsError, NotADirectoryError):
        raise CheckpointError(f"{folder} is a file; a model is saved to a folder") from None
    except (OSError, SafetensorError) as error:
        raise ResourceError(f"cannot write the model to {folder}: {error}") from error
    finally:
        for draft in (weights, settings):
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
