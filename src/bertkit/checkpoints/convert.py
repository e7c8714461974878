"""Apply the name table to real tensors: a file's values into our model, our model's values under the file's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from io import BufferedReader
from pathlib import Path

import torch
from torch import Tensor

from bertkit.checkpoints.header import TensorInfo, open_regular
from bertkit.checkpoints.match import Match, Status
from bertkit.checkpoints.names import ClassSpec, NameTable, Op
from bertkit.config import BertConfig
from bertkit.errors import CheckpointError

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def to_ours(match: Match, tensors: Mapping[str, TensorInfo], dtype: torch.dtype) -> dict[str, Tensor]:
    """Read what a matched file holds for our model.

    Each value is read once, straight to its place in memory of our own (the three projections of attention into one
    matrix); no map of the file is kept, so that a file replaced later changes nothing.

    Args:
        match: the table; it must have no problem.
        tensors: where each of the file's tensors lies.
        dtype: type of the result; values are converted one tensor at a time.

    Returns:
        Tensors on the CPU by our names.

    Raises:
        CheckpointError: a value that is not finite (in the file, or too large for ``dtype``), a tied tensor that
            differs from its original, a file that changed under our hands. Names tensor and file.
    """
    assert not match.problems
    state: dict[str, Tensor] = {}
    by_name: dict[str, Tensor] = {}
    for row in match.of(Status.EXACT):
        state[row.ours] = torch.empty(row.shape, dtype=dtype)
        pieces = state[row.ours].chunk(len(row.theirs)) if len(row.theirs) > 1 else (state[row.ours],)
        by_name.update(zip(row.theirs, pieces, strict=True))
    with ExitStack() as files:
        streams = {file: files.enter_context(open_regular(file)) for file in {tensors[n].file for n in by_name}}
        for name in sorted(by_name, key=lambda name: (str(tensors[name].file), tensors[name].start)):
            _read(streams, tensors[name], by_name[name])
            _check_finite(tensors[name], by_name[name])
        for row in match.of(Status.TIED):
            copy, original = row.theirs
            again = torch.empty(row.shape, dtype=dtype)
            with open_regular(tensors[copy].file) as stream:
                _read({tensors[copy].file: stream}, tensors[copy], again)
            if not torch.equal(again, by_name[original]):
                raise CheckpointError(
                    f"{tensors[copy].file}: {copy!r} differs from {original!r}, to which this model ties it. bertkit "
                    "computes the tied model only; a model with its own decoder would give other results"
                )
    return state


def _read(streams: Mapping[Path, BufferedReader], info: TensorInfo, out: Tensor) -> None:
    """Fill ``out``, a contiguous CPU tensor of the right shape, with the file's values."""
    stored = _DTYPES[info.dtype]
    target = out if out.dtype == stored else torch.empty(info.shape, dtype=stored)
    stream = streams[info.file]
    stream.seek(info.start)
    buffer = memoryview(target.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    done = 0
    while done < len(buffer):
        count = stream.readinto(buffer[done:])
        if not count:
            raise CheckpointError(f"{info.file} was cut off while {info.name!r} was being read")
        done += count
    if target is not out:
        out.copy_(target)


def _check_finite(info: TensorInfo, values: Tensor) -> None:
    """One sum shows that all values are finite; only where it is not, each is looked at."""
    if bool(torch.isfinite(values.sum(dtype=torch.float32))):
        return
    wrong = ~torch.isfinite(values)
    count = int(wrong.sum())
    if count:
        place = wrong.nonzero()[0].tolist()
        raise CheckpointError(
            f"{info.file}: tensor {info.name!r} has {count} values that are not finite in {values.dtype} (the first "
            f"at {place} is {float(values[tuple(place)])}). The file is damaged or its training diverged"
        )


def to_theirs(
    state: Mapping[str, Tensor], config: BertConfig, spec: ClassSpec, table: NameTable
) -> Iterator[tuple[str, Tensor]]:
    """Our tensors under the names of the file format, without ties and buffers.

    Args:
        state: ``state_dict()`` of a model of the class.
        config: of the model.
        spec: the class.
        table: names of the family.

    Yields:
        (name in the file, contiguous CPU tensor; for a stacked one a view of its part).
    """
    left = dict(state)
    for part in table.parts:
        prefix = table.written_prefix(part, spec.base_prefix)
        for rule in table.rules(part, config.num_hidden_layers):
            tensor = left.pop(prefix + rule.ours, None)
            if tensor is None:
                continue
            tensor = tensor.detach().to("cpu").contiguous()
            written = (table.prefix if prefix else "", rule.theirs)
            pieces = tensor.chunk(len(rule.theirs)) if rule.op is Op.STACK else (tensor,)
            yield from zip((written[0] + name for name in written[1]), pieces, strict=True)
    if left:
        raise CheckpointError(
            f"the name table of {table.family} has no place for {sorted(left)}; this class cannot be saved"
        )
