"""Pickled weights (``pytorch_model.bin``) to safetensors, in a separate process with few rights.

A pickle is a program. torch's restricted reader (``weights_only=True``) runs only the instructions that build tensors,
here in a process with bounded memory and file size, and only with ``--trust-pickle``. The file that it wrote is not
trusted either: its header is checked, and each tensor is compared with the hash computed before writing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from bertkit.checkpoints.huggingface import PICKLE_SUFFIXES, read_weight_map
from bertkit.checkpoints.safetensors_format import read_header
from bertkit.checkpoints.weight_files import INDEX, WEIGHTS
from bertkit.errors import CheckpointError, ResourceError, shorten
from bertkit.system.atomic_files import disk_guard
from bertkit.system.untrusted_files import open_regular

PICKLE = "pytorch_model.bin"
PICKLE_INDEX = "pytorch_model.bin.index.json"
#: Keys under which training scripts keep the weights beside the optimizer.
_NESTED = ("state_dict", "model_state_dict", "model")
_SPARE_BYTES = 4 << 30
_BYTES_PER_S = 5e6


def find_pickles(path: Path) -> tuple[Path, ...]:
    """The pickles of a checkpoint, given as a folder or as one of its files; empty if there are none."""
    if path.is_dir():
        path /= PICKLE if (path / PICKLE).is_file() else PICKLE_INDEX
        if not path.is_file():
            return ()
    if path.name != PICKLE_INDEX:
        return (path,) if path.suffix in PICKLE_SUFFIXES and path.is_file() else ()
    files = tuple(path.with_name(name) for name in sorted(set(read_weight_map(path, ".bin").values())))
    for file in files:
        if not file.is_file():
            raise CheckpointError(f"{path} names {file.name}, which does not exist: the download is incomplete")
    return files


def unpickle(pickles: tuple[Path, ...], folder: Path) -> None:
    """Write the tensors of pickles into safetensors files in an empty folder, under their own names."""
    weight_map: dict[str, str] = {}
    for number, pickle in enumerate(pickles, start=1):
        name = WEIGHTS if len(pickles) == 1 else f"model-{number:05d}-of-{len(pickles):05d}.safetensors"
        with disk_guard(folder, pickle.stat().st_size, what="the weights as safetensors"):
            hashes = _in_another_process(pickle, folder / name)
        tensors = read_header(folder / name)
        if tensors.keys() != hashes.keys():
            raise CheckpointError(f"{pickle}: other tensors were written than it contains; nothing was converted")
        with open_regular(folder / name) as stream:
            for tensor, info in tensors.items():
                stream.seek(info.start)
                if hashlib.sha256(stream.read(info.end - info.start)).hexdigest() != hashes[tensor]:
                    said = f"tensor {tensor!r} reads back with other values than were written; nothing was converted"
                    raise CheckpointError(f"{pickle}: {said}")
        twice = weight_map.keys() & hashes.keys()
        if twice:
            raise CheckpointError(f"{pickle} and an earlier file both contain {shorten(sorted(twice))}")
        weight_map |= dict.fromkeys(hashes, name)
    if len(pickles) > 1:
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}), encoding="utf-8")


def _in_another_process(pickle: Path, out: Path) -> dict[str, str]:
    """SHA-256 of each tensor, computed by the process before writing."""
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
        last = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise ResourceError(f"the process that opened {pickle} ended early: {last[0][:300]}") from None
    if "error" in answer:
        raise CheckpointError(f"{pickle}: {answer['error']}")
    hashes = answer["tensors"]
    assert isinstance(hashes, dict)
    return hashes


def _main(pickle: str, out: str) -> int:
    """The separate process: prints one JSON object."""
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
        # Any error while reading an untrusted file is a fault of the file, which the caller reports.
        print(json.dumps({"error": _in_words(error)}))
        return 0
    print(json.dumps({"tensors": hashes}))
    return 0


def _bound(size: int) -> None:
    """Limit memory and file size in proportion to the pickle, where the system can."""
    try:
        import resource
    except ImportError:
        return
    for kind, limit in ((resource.RLIMIT_DATA, 4 * size + _SPARE_BYTES), (resource.RLIMIT_FSIZE, 2 * size + (1 << 24))):
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _tensors(content: Any) -> dict[str, Any]:
    """Tensors by name, from a state dict or a dict that contains one."""
    import torch

    for key in _NESTED:
        if isinstance(content, dict) and isinstance(content.get(key), dict):
            content = content[key]
    if not isinstance(content, dict) or not content:
        raise ValueError(f"it contains a {type(content).__name__}, expected tensors by name")
    others = [name for name, value in content.items() if not isinstance(name, str) or not torch.is_tensor(value)]
    if others:
        raise ValueError(f"it contains more than tensors: {shorten(others)}")
    if any(value.layout != torch.strided or value.is_quantized for value in content.values()):
        raise ValueError("it contains sparse or quantized tensors, which are not supported")
    if all(name.startswith("module.") for name in content):  # saved from DataParallel
        content = {name.removeprefix("module."): value for name, value in content.items()}
    return dict(content)


def _in_words(error: Exception) -> str:
    """The error of the reader, without its advice to switch the restriction off."""
    text = " ".join(str(error).split())
    wanted = re.search(r"GLOBAL ([\w.]+)", text)
    if wanted:
        return f"it is not a plain pickle of tensors: it wants to use {wanted[1]!r}, which bertkit does not run"
    said = re.search(r"WeightsUnpickler error: (.{1,80}?)( Check the documentation|$)", text)
    what = said[1] if said else type(error).__name__ if "weights_only" in text else f"{type(error).__name__}: {text}"
    return f"it cannot be read as a pickle of tensors: {what[:200]}"


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:3]))
