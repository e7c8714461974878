"""What the folder of an exported model contains: as text, and as a dict for programs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import CONFIG
from bertkit.engine.export_folder import MANIFEST, check_files, read_manifest
from bertkit.errors import CheckpointError, shorten


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was found; ``manifest`` is what ``bertkit export`` wrote about it, ``num_bytes`` the size of all files."""

    path: str
    config: BertConfig
    manifest: dict[str, Any]
    num_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "path": self.path,
            "config": self.config.to_dict(),
            "export": self.manifest,
            "num_bytes": self.num_bytes,
        }

    def render(self) -> str:
        """A few lines for people."""
        facts, config = self.manifest, self.config
        made = ", ".join(f"{name} {facts[name]}" for name in ("bertkit", "torch") if name in facts)
        lines = [
            f"{facts['model']} as ONNX, {facts.get('precision', 'fp32')}, for use only: {self.path}",
            f"  {config.model_type}, {config.num_hidden_layers} layers x {config.hidden_size}, "
            f"{config.num_attention_heads} heads, vocabulary {config.vocab_size:,}",
        ]
        if facts["model"].endswith("Classification"):
            lines.append(f"  labels: {shorten(list(config.id2label.values()))}")
        for name, graph in facts["variants"].items():
            lines.append(f"  {name}: {graph['file']}, {', '.join(graph['inputs'])} -> {', '.join(graph['outputs'])}")
            if graph.get("largest_difference") is not None:
                lines.append(f"    largest difference from the model: {graph['largest_difference']:.1e}")
        return "\n".join([*lines, f"  {self.num_bytes / 1e6:.1f} MB in all, made by {made or 'an unknown version'}"])


def inspect_export(folder: Path, *, verify: bool = False) -> ExportReport:
    """What an exported folder contains; with ``verify`` one whose manifest has no checksums is refused."""
    manifest = read_manifest(folder)
    check_files(folder, manifest)
    if verify and "crc32" not in manifest:
        raise CheckpointError(f"{folder / MANIFEST} has no checksums, as of bertkit 0.1.0; export the model again")
    config = BertConfig.from_json_file(folder / CONFIG)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return ExportReport(str(folder), config, manifest, size)
