"""What the folder of a model in 8 bits contains: as text, and as a dict for programs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bertkit.checkpoints.int8_folder import Quantization, read_quantization
from bertkit.checkpoints.safetensors_format import read_header
from bertkit.checkpoints.weight_files import INT8_WEIGHTS
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import CONFIG
from bertkit.errors import counted


@dataclass(frozen=True, slots=True)
class Int8Report:
    """What was found; matrices, tables: what is in 8 bits, by name. floats: number of the values that are not."""

    path: str
    config: dict[str, Any]
    matrices: tuple[str, ...]
    tables: tuple[str, ...]
    floats: int
    num_bytes: int
    quantization: Quantization

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)

    def render(self) -> str:
        """A few lines for people."""
        facts = self.quantization
        measured = facts.measured
        lines = [
            f"{facts.model_class} in {facts.bits} bits: {self.path}",
            f"  weights: {INT8_WEIGHTS}, {self.num_bytes / 1e6:.1f} MB",
            f"  in 8 bits: {len(self.matrices)} matrices, {len(self.tables)} tables; {self.floats:,} values in float32",
            f"  inputs of each matrix in float32: {facts.apart}",
            f"  matrices in float32: {', '.join(facts.kept) or 'none'}",
            f"  calibrated on {counted(facts.texts, 'text')} ({facts.unknown:.1%} unknown tokens) by bertkit "
            f"{facts.bertkit}",
            f"  beside the original: {measured.vectors()}",
            f"  speed: {measured.speed}",
            *([] if measured.dev is None else [f"  dev: {measured.dev}"]),
        ]
        lines += ["  matrices in 8 bits:", *(f"    {name}" for name in self.matrices)]
        return "\n".join(lines)


def inspect_int8(folder: Path) -> Int8Report:
    """What a folder of a model in 8 bits contains; CheckpointError for missing or damaged files."""
    facts = read_quantization(folder)
    tensors = read_header(folder / INT8_WEIGHTS)
    in_bytes = {name.removesuffix(".weight") for name, info in tensors.items() if info.dtype == "I8"}
    tables = {name for name in in_bytes if f"{name}.column_scale" in tensors}
    return Int8Report(
        path=str(folder),
        config=BertConfig.from_json_file(folder / CONFIG).to_dict(),
        matrices=tuple(sorted(in_bytes - tables)),
        tables=tuple(sorted(tables)),
        floats=sum(math.prod(info.shape) for info in tensors.values() if info.dtype == "F32"),
        num_bytes=(folder / INT8_WEIGHTS).stat().st_size,
        quantization=facts,
    )
