"""Pickled weights (``pytorch_model.bin``) to safetensors, in a process of its own that may do little.

A pickle is a program. torch's restricted reader (``weights_only=True``) runs only the instructions that build tensors;
it works in a separate process with bounded memory and file size, so that a fault in it harms nothing else. Nothing here
is called unless the user said ``--trust-pickle``. What the process wrote is then read as any file of a stranger: header
checked, and each tensor compared with the hash that the process took before writing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertkit.checkpoints.huggingface import INDEX, MAX_INDEX_BYTES, MAX_SHARDS, WEIGHTS
from bertkit.checkpoints.safetensors_header import read_header
from bertkit.errors import CheckpointError, ResourceError, shorten
from bertkit.system.atomic_files import disk_guard
from bertkit.system.untrusted_files import open_regular, strict_json

PICKLE = "pytorch_model.bin"
PICKLE_INDEX = "pytorch_model.bin.index.json"
#: What a program may have put its weights under, beside its optimizer.
_NESTED = ("state_dict", "model_state_dict", "model")
_SPARE_BYTES = 4 << 30
_BYTES_PER_S = 5e6


def find_pickles(path: Path) -> tuple[Path, ...]:
    """The pickles of a checkpoint, given as a folder or as one of them; empty where there are none.

    Raises:
        CheckpointError: an index that cannot be read or names files outside the folder.
    """
    if not path.is_dir():
        if path.name == PICKLE_INDEX:
            return _of_index(path)
        return (path,) if path.suffix in (".bin", ".pt", ".pth") and path.is_file() else ()
    if (path / PICKLE).is_file():
        return (path / PICKLE,)
    return _of_index(path / PICKLE_INDEX) if (path / PICKLE_INDEX).is_file() else ()


def unpickle(pickles: tuple[Path, ...], folder: Path) -> None:
    """Write the tensors of pickles into a folder of safetensors files, under the names they have.

    Args:
        pickles: the files, together one checkpoint.
        folder: an empty folder; gets ``model.safetensors``, or shards and their index.

    Raises:
        CheckpointError: not a pickle of tensors, one that wants to run other code, names in two shards.
        ResourceError: the process ran out of memory or time, or was killed; the disk is full.
    """
    weight_map: dict[str, str] = {}
    for number, pickle in enumerate(pickles, start=1):
        name = WEIGHTS if len(pickles) == 1 else f"model-{number:05d}-of-{len(pickles):05d}.safetensors"
        with disk_guard(folder, pickle.stat().st_size, what="the weights as safetensors"):
            hashes = _in_another_process(pickle, folder / name)
        _compare(folder / name, hashes, pickle)
        twice = weight_map.keys() & hashes.keys()
        if twice:
            raise CheckpointError(f"{pickle} and an earlier file both hold {shorten(sorted(twice))}")
        weight_map |= dict.fromkeys(hashes, name)
    if len(pickles) > 1:
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}), encoding="utf-8")


def _of_index(index: Path) -> tuple[Path, ...]:
    with open_regular(index) as stream:
        text = stream.read(MAX_INDEX_BYTES + 1)
    try:
        content = strict_json(text) if len(text) <= MAX_INDEX_BYTES else None
    except ValueError as error:
        raise CheckpointError(f"{index} is not a readable JSON file: {error}") from None
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not weight_map or len(set(map(str, weight_map.values()))) > MAX_SHARDS:
        raise CheckpointError(f"{index} has no weight_map that names the file of each tensor")
    names = sorted(set(map(str, weight_map.values())))
    for name in names:
        if name != os.path.basename(name) or "\\" in name or "\0" in name or not name.endswith(".bin"):
            raise CheckpointError(f"{index} names the file {name!r}: only the bare name of a .bin file is safe")
        if not (index.parent / name).is_file():
            raise CheckpointError(f"{index} names {name}, which is not there: the download or copy is not complete")
    return tuple(index.parent / name for name in names)


def _in_another_process(pickle: Path, out: Path) -> dict[str, str]:
    """SHA-256 of each tensor, as the process saw it before writing."""
    size = pickle.stat().st_size
    command = [sys.executable, "-P", "-m", "bertkit.checkpoints.pickled", str(pickle), str(out)]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120 + size / _BYTES_PER_S,
            check=False,
            env={**os.environ, "PYTHONIOENCODING": "utf-8", "OMP_NUM_THREADS": "1"},
        )
    except subprocess.TimeoutExpired:
        raise ResourceError(f"opening {pickle} took too long; nothing was written") from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        told = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise ResourceError(f"the process that opened {pickle} ended early: {told[0][:300]}") from None
    if "error" in answer:
        raise CheckpointError(f"{pickle}: {answer['error']}")
    hashes = answer["tensors"]
    assert isinstance(hashes, dict)
    return hashes


def _compare(file: Path, hashes: Mapping[str, str], pickle: Path) -> None:
    """The tensors that were written must be those that were in the pickle."""
    header = read_header(file)
    if header.tensors.keys() != hashes.keys():
        raise CheckpointError(f"{pickle}: what was written holds other tensors; nothing was converted")
    with open_regular(file) as stream:
        for name, info in header.tensors.items():
            stream.seek(info.start)
            if hashlib.sha256(stream.read(info.end - info.start)).hexdigest() != hashes[name]:
                raise CheckpointError(f"{pickle}: tensor {name!r} was written with other values; nothing was converted")


def _main(pickle: str, out: str) -> int:
    """What the other process does: one JSON object on stdout."""
    _bound(os.path.getsize(pickle))
    import torch
    from safetensors.torch import save_file

    try:
        content = torch.load(pickle, map_location="cpu", weights_only=True)
        tensors = {name: value.detach().clone().contiguous() for name, value in _tensors(content).items()}
        hashes = {
            name: hashlib.sha256(value.view(-1).view(torch.uint8).numpy()).hexdigest()
            for name, value in tensors.items()
        }
        del content
        save_file(tensors, out, {"format": "pt"})
    except MemoryError:
        raise
    except Exception as error:
        # Whatever the reader finds wrong with a stranger's file, it is the file's fault, and the caller's to tell.
        print(json.dumps({"error": _in_words(error)}))
        return 0
    print(json.dumps({"tensors": hashes}))
    return 0


def _bound(size: int) -> None:
    """Memory and file size in proportion to the pickle; where the system has such limits."""
    try:
        import resource
    except ImportError:
        return
    for kind, limit in ((resource.RLIMIT_DATA, 4 * size + _SPARE_BYTES), (resource.RLIMIT_FSIZE, 2 * size + (1 << 24))):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _tensors(content: Any) -> dict[str, Any]:
    """Tensors by name, out of a state dict or of a dict that holds one."""
    import torch

    for key in _NESTED:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not content:
        raise ValueError(f"it holds a {type(content).__name__}, expected tensors by name")
    others = [name for name, value in content.items() if not isinstance(name, str) or not torch.is_tensor(value)]
    if others:
        raise ValueError(f"it holds other things than tensors: {shorten(others)}")
    if any(value.layout != torch.strided or value.is_quantized for value in content.values()):
        raise ValueError("it holds sparse or quantised tensors, which are not read here")
    if all(name.startswith("module.") for name in content):  # saved from a model spread over several GPUs
        content = {name.removeprefix("module."): value for name, value in content.items()}
    return dict(content)


def _in_words(error: Exception) -> str:
    """What the reader found, without its advice to read the file with no care at all."""
    text = " ".join(str(error).split())
    wanted = re.search(r"GLOBAL ([\w.]+)", text)
    if wanted:
        return f"it is no plain pickle of tensors: it wants to use {wanted[1]!r}, which bertkit does not run"
    said = re.search(r"WeightsUnpickler error: (.{1,80}?)( Check the documentation|$)", text)
    what = said[1] if said else type(error).__name__ if "weights_only" in text else f"{type(error).__name__}: {text}"
    return f"it cannot be read as a pickle of tensors: {what[:200]}"


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:3]))
