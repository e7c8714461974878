"""Folders in the layout of the Hugging Face Hub: ``config.json`` beside ``model.safetensors``, single or sharded.

Also the vocabulary beside them, each token of which must have a row in the embedding table. Only headers are read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bertkit.checkpoints.safetensors_format import TensorInfo, read_header
from bertkit.checkpoints.weight_files import INDEX, INT8_FACTS, INT8_WEIGHTS, POOLED_WEIGHTS, WEIGHTS
from bertkit.config.adapter_config import ADAPTER_WEIGHTS, POOLED_ADAPTER_WEIGHTS
from bertkit.config.any_config import AnyConfig
from bertkit.config.config_file import checkpoint_folder
from bertkit.errors import CheckpointError, shorten
from bertkit.system.model_sources import ADAPTER, HEAD, HEADS, adapted_model
from bertkit.system.untrusted_files import Json, is_there, read_object
from bertkit.tokenization.formats.tokenizer_files import count_lines, read_bytes, read_json, read_json_if_there

MAX_INDEX_BYTES = 16 << 20
MAX_SHARDS = 1_000

#: Whole numbers behind a colon, and pieces with scores, in a ``tokenizer.json``: no token has a larger id.
_NUMBER, _SCORED = re.compile(rb":\s*(\d{1,12})"), re.compile(rb'\[\s*"(?:[^"\\]|\\.)*"\s*,\s*-?\d')
_VOCAB = re.compile(rb'"vocab"\s*:\s*[\[{]')
#: Usual endings of files written by ``torch.save``.
PICKLE_SUFFIXES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
_PICKLE_INDEX = ".bin.index.json"
_PICKLES = ("pytorch_model.bin", f"pytorch_model{_PICKLE_INDEX}", "pytorch_model.pt", "model.pt", "model.bin")


class Weights(NamedTuple):
    """The tensors of a checkpoint by name, none of them read yet; ``folder`` holds config and vocabulary."""

    folder: Path
    files: tuple[Path, ...]
    tensors: Mapping[str, TensorInfo]

    @property
    def where(self) -> str:
        """The file, or the folder of the shards, for messages."""
        return str(self.files[0] if len(self.files) == 1 else self.folder)


def find_weights(path: Path) -> Weights:
    """The checked weights of a folder, a ``.safetensors`` file, or the ``.index.json`` of a sharded checkpoint.

    Of an adapter: those of the model that it changes, with what it adds; of a head (``RUN/heads/NAME``) also RUN's.
    """
    if is_adapter(path):
        return _read_adapter(path)
    if is_head(path):
        return _read_head(checkpoint_folder(path))
    if path.is_dir():
        for name in (WEIGHTS, INDEX, POOLED_WEIGHTS):
            if os.path.lexists(path / name):
                return _read_weights(path / name)
        raise CheckpointError(_nothing_in(path))
    return _read_weights(path)


def is_int8(folder: Path) -> bool:
    """Whether a folder holds a model in 8 bits, or what is left of one."""
    return (folder / INT8_FACTS).exists() or (folder / INT8_WEIGHTS).exists()


def is_adapter(path: Path) -> bool:
    """Whether a folder holds an adapter, or a file is that of one; CheckpointError if a model lies beside it."""
    if path.name in (ADAPTER_WEIGHTS, POOLED_ADAPTER_WEIGHTS):
        return True
    if not is_there(path / ADAPTER):
        return False
    if beside := [name for name in (WEIGHTS, INDEX, POOLED_WEIGHTS) if (path / name).exists()]:
        raise CheckpointError(
            f"{path} holds a model ({beside[0]}) and an adapter ({ADAPTER}): move one of them elsewhere, or give the "
            f"path of the file {path / beside[0]}"
        )
    return True


def is_head(path: Path) -> bool:
    """Whether a folder holds a head alone, or a file is that of one."""
    if path.is_dir():  # a whole model comes first, which is there until the head was taken out of it
        return is_there(path / HEAD) and not any((path / name).exists() for name in (WEIGHTS, POOLED_WEIGHTS))
    return path.name == HEAD


def heads_in(folder: Path) -> list[str]:
    """Names of the heads that have their encoder in a folder, in alphabetical order; none for other models."""
    return sorted(file.parent.name for file in folder.glob(f"{HEADS}/*/{HEAD}"))


def _read_head(folder: Path) -> Weights:
    from bertkit.checkpoints.adapter_folder import with_head

    run = folder.absolute().parent.parent
    if not (run / WEIGHTS).is_file():
        raise CheckpointError(
            f"{folder} holds a head without its encoder, which should be {run / WEIGHTS}: copy the run as one folder; "
            f"to take a head out of it as a model of its own: bertkit convert RUN/heads/{folder.name} NEW_FOLDER"
        )
    base = find_weights(run / WEIGHTS)
    return Weights(folder, (*base.files, folder / HEAD), with_head(folder, base.tensors, base.where))


def _read_adapter(path: Path) -> Weights:
    from bertkit.checkpoints.adapter_folder import adapted, adapter_weights

    folder = checkpoint_folder(path)
    model = adapted_model(folder)
    if model is None:
        raise CheckpointError(f"{folder} has no {ADAPTER}, which says to which model {path.name} is added")
    if is_adapter(model):
        raise CheckpointError(
            f"{folder} is an adapter for {model}, which is an adapter itself: make a model of that one first:\n"
            f"  bertkit convert {model} NEW_FOLDER\nand name it as base_model_name_or_path in {folder / ADAPTER}"
        )
    base = find_weights(model)
    return Weights(folder, (*base.files, adapter_weights(folder)), adapted(folder, base.tensors, base.where))


def _read_weights(path: Path) -> Weights:
    if path.name.endswith((*PICKLE_SUFFIXES, _PICKLE_INDEX)):
        raise CheckpointError(_pickle(path))
    if path.name.endswith(".index.json"):
        return _read_shards(path)
    if path.suffix != ".safetensors":
        if path.suffix in (".zip", ".index", ".pb"):
            raise CheckpointError(
                f"{path} cannot be loaded directly. If it is a TensorFlow checkpoint or an archive of one, convert it "
                f"once:\n  bertkit convert {path} NEW_FOLDER"
            )
        raise CheckpointError(f"{path} is not a model: expected a folder, a .safetensors file or a .index.json file")
    return Weights(path.parent, (path,), read_header(path))


def _pickle(path: Path) -> str:
    what = "names pickles" if path.name.endswith(_PICKLE_INDEX) else "is a pickle"
    return (
        f"{path} {what}, and opening a pickle can run any code hidden in it, so bertkit loads safetensors only. "
        f"If you trust its origin, convert it once:\n  bertkit convert --trust-pickle {path} NEW_FOLDER"
    )


def _nothing_in(folder: Path) -> str:
    names = sorted(entry.name for entry in folder.iterdir())
    for name in names:
        if name in _PICKLES:
            return f"{folder} has no {WEIGHTS}; " + _pickle(folder / name)
    if INT8_WEIGHTS in names:
        return (
            f"{folder} is a model in 8 bits, for use only: to train, convert or compare its weights, take the original"
        )
    if any(name.endswith(".onnx") for name in names):
        return (
            f"{folder} has an ONNX graph, but no {WEIGHTS}: an export is for use only. Its facts are in export.json "
            "(without that file it is incomplete); to look at weights, or to train, take the model it was made of"
        )
    others = [name for name in names if name.endswith(".safetensors")]
    if others:
        return f"{folder} has no {WEIGHTS}, but {shorten(others)}: give the path of the file itself"
    if any(name.endswith((".index", ".ckpt.meta", "saved_model.pb")) for name in names):
        return (
            f"{folder} has a TensorFlow checkpoint, but no {WEIGHTS}. Convert the .index and .data files of the "
            f"original code once:\n  bertkit convert {folder} NEW_FOLDER"
        )
    if foreign := [name for name in names if name.endswith((".h5", ".msgpack"))]:
        return (
            f"{folder} has no {WEIGHTS}, but weights of Keras or Flax ({shorten(foreign)}), which bertkit does not "
            "read: save them as safetensors with transformers (save_pretrained)"
        )
    found = f"{folder} has neither {WEIGHTS} nor {INDEX}; it contains {shorten(names) or 'nothing'}"
    home = folder.parent.parent
    if folder.parent.name != "snapshots" or not home.name.startswith("models--"):  # not in the cache of the Hub
        return found
    repository = home.name.removeprefix("models--").replace("--", "/")
    return (
        f"{found}. Only safetensors are fetched from the Hub; {repository} may have its weights as a pickle or for "
        "TensorFlow. Opening a pickle can run any code hidden in it; if you trust its origin, convert it once:\n"
        f"  bertkit convert --trust-pickle {repository} NEW_FOLDER"
    )


def _read_shards(index: Path) -> Weights:
    weight_map = read_weight_map(index, ".safetensors")
    headers = {shard: _read_shard(index, shard) for shard in sorted(set(weight_map.values()))}
    for shard, header in headers.items():
        absent = [name for name, listed in weight_map.items() if listed == shard and name not in header]
        if absent:
            raise CheckpointError(f"{index} lists {_few(absent)} in {shard}, which does not contain it")
    tensors: dict[str, TensorInfo] = {}
    for shard, header in headers.items():
        surplus = [name for name in header if weight_map.get(name) != shard]
        if surplus:
            raise CheckpointError(f"{index.parent / shard} contains {_few(surplus)}, which {index.name} does not list")
        tensors.update(header)
    return Weights(index.parent, tuple(index.parent / shard for shard in headers), tensors)


def _few(names: Iterable[str]) -> str:
    return shorten(name[:80] for name in names)


def read_weight_map(index: Path, ending: str) -> dict[str, str]:
    """The file of each tensor, from the ``.index.json`` of a sharded checkpoint; files end in ``ending``."""
    weight_map = read_object(index, max_bytes=MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError(f"{index} has no weight_map that names the file of each tensor")
    for name, shard in weight_map.items():
        if not isinstance(shard, str):
            said = f"gives {str(shard)[:60]!r} as the file of {name[:80]!r}, expected a file name"
            raise CheckpointError(f"{index} {said}")
        if shard != os.path.basename(shard) or "\\" in shard or "\0" in shard or not shard.endswith(ending):
            said = f"only the bare name of a {ending} file in the same folder is safe"
            raise CheckpointError(f"{index} names the file {shard[:80]!r}: {said}")
    if len(set(weight_map.values())) > MAX_SHARDS:
        raise CheckpointError(f"{index} names {len(set(weight_map.values())):,} files, more than {MAX_SHARDS:,}")
    return weight_map


def _read_shard(index: Path, name: str) -> dict[str, TensorInfo]:
    """The header of a shard, which must really lie in the folder of the index."""
    shard = index.parent / name
    try:
        target = shard.resolve(strict=True)
    except FileNotFoundError:
        raise CheckpointError(
            f"{index} names {name[:80]}, which does not exist: the download or copy is incomplete"
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


class VocabularyFile(NamedTuple):
    """A file, its highest id plus one (None: not counted), the content of ``tokenizer_config.json`` (empty without)."""

    file: Path
    size: int | None
    settings: Mapping[str, Json]


def find_vocabulary(folder: Path) -> VocabularyFile | None:
    """The vocabulary file of a folder, its tokens counted unless it is a SentencePiece model; None without any."""
    settings = read_json_if_there(folder / "tokenizer_config.json")
    counts = {"vocab.txt": count_lines, "tokenizer.json": _highest_id, "vocab.json": _highest_id}
    for name in (*counts, "spiece.model", "spm.model", "sentencepiece.bpe.model"):
        if (file := folder / name).exists():
            return VocabularyFile(file, counts[name](file) if name in counts else None, settings)
    return None


def check_vocabulary(folder: Path, config: AnyConfig) -> None:
    """Refuse a vocabulary, if :func:`find_vocabulary` counts it, with ids that have no row in the embedding table.

    A BART may lack the row of the last token, the mask: those that were trained to write summaries do.
    """
    file, most = folder / "tokenizer.json", config.vocab_size + (config.model_type in ("bart", "mbart"))
    if not (folder / "vocab.txt").exists() and file.exists() and _bound(file) <= most:
        return
    found = find_vocabulary(folder)
    if found is not None and found.size is not None and found.size > most:
        raise CheckpointError(
            f"{found.file} has {found.size:,} tokens, but the embedding table has only {config.vocab_size:,} rows "
            "(vocab_size in config.json): the tokenizer belongs to another model"
        )


def _bound(file: Path) -> float:
    """A number that no id in a ``tokenizer.json`` reaches, found without parsing it: that takes five times as long."""
    text = read_bytes(file)
    if not _VOCAB.search(text):
        return float("inf")
    return max(max(map(int, _NUMBER.findall(text)), default=0) + 1, sum(1 for _ in _SCORED.finditer(text)))


def _highest_id(file: Path) -> int:
    """The highest id in a ``tokenizer.json`` or ``vocab.json``, plus one."""
    content: Any = read_json(file)
    content = {"model": {"vocab": content}} if file.name == "vocab.json" else content
    try:
        vocab = content["model"]["vocab"]  # of unigram models a list, in the order of the ids
        ids = range(len(vocab)) if isinstance(vocab, list) else vocab.values()
        return int(max([*ids, *(added["id"] for added in content.get("added_tokens") or ())])) + 1
    except (AttributeError, KeyError, TypeError, ValueError):
        raise CheckpointError(f"{file} has no vocabulary of tokens and their ids") from None
