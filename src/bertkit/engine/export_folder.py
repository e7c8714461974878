"""What ``bertkit export`` wrote: the names of its files, and what its manifest says of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from bertkit.errors import CheckpointError
from bertkit.system.checksums import checksum_of, not_as_written
from bertkit.system.json_files import parsed, read_json, write_json
from bertkit.system.untrusted_files import is_there
from bertkit.system.validated_settings import Field, FileSettings

Variant = Literal["packed", "padded"]
#: The file of each variant. ``model.onnx`` is the one that other software looks for.
FILES: Mapping[str, str] = {"padded": "model.onnx", "packed": "model_packed.onnx"}
#: The weights of all graphs, after the name of the first.
WEIGHTS = "model.onnx_data"
#: What was exported, how, and what the check found.
MANIFEST = "export.json"


class Graph(FileSettings):
    """What the manifest says of a graph; ``largest_difference`` is that from the model, None without a check."""

    file: str
    sha256: str | None = None
    inputs: dict[str, list[str]] = Field({})
    outputs: dict[str, list[str]] = Field({})
    largest_difference: float | None = Field(None, ge=0)


class Manifest(FileSettings):
    """What an export says of itself.

    model: the class. precision: of the products. token_outputs: have one row a token.
    problem_type: of the model. crc32: of the graphs and their weights, by name. Version 0.1.0 wrote neither.
    files: what versions between 0.1.0 and this one wrote in place of checksums; not read.
    """

    model: str
    variants: dict[Variant, Graph] = Field(min_length=1)
    token_outputs: list[str]
    precision: Literal["fp32", "int8"] = "fp32"
    opset: int | None = Field(None, ge=1)
    format: Literal["onnx"] = "onnx"
    bertkit: str = ""
    torch: str = ""
    problem_type: str | None = None
    crc32: dict[str, str] = Field({})
    files: dict[str, dict[str, int | str]] = Field({})


def is_export(path: Path) -> bool:
    """Whether a path is what ``bertkit export`` wrote."""
    return is_there(path / MANIFEST)


def check_class(folder: Path, manifest: Mapping[str, Any], wanted: str) -> None:
    """CheckpointError where an export, of which this is the manifest, is of another class than is wanted."""
    if manifest["model"] != wanted:
        from bertkit.checkpoints.explain import task_of_class

        raise CheckpointError(
            f"{folder} is an export of a {manifest['model']}, and this needs a {wanted}. A graph has one head: "
            f"export the model again with --task {task_of_class(wanted)}"
        )


def exported_files(folder: Path) -> list[Path]:
    """The graphs of an export, and their weights where they are beside them."""
    return [path for name in (*FILES.values(), WEIGHTS) if (path := folder / name).is_file()]


def read_manifest(folder: Path) -> dict[str, Any]:
    """What an export wrote about itself, see :class:`Manifest`; CheckpointError where that is missing or damaged."""
    path = folder / MANIFEST
    if not path.exists():
        raise CheckpointError(
            f"{folder} is not an exported model: it has no {MANIFEST}. Make one with: bertkit export MODEL"
        )
    manifest = parsed(read_json(path, dict[str, Any]), Manifest, str(path))
    for name, graph in manifest.variants.items():
        if graph.file != FILES[name]:
            raise CheckpointError(
                f"{path} is damaged: the {name} variant is in {graph.file!r:.60}, expected {FILES[name]}; export the "
                "model again"
            )
    return manifest.model_dump(exclude_unset=True)


def checksums_of(folder: Path) -> dict[str, str]:
    """For the manifest, the checksums of the graphs and their weights."""
    return {path.name: checksum_of(path) for path in exported_files(folder)}


def check_files(folder: Path, manifest: Mapping[str, Any]) -> None:
    """CheckpointError if a graph or the weights are not as ``bertkit export`` wrote them."""
    for name, checksum in manifest.get("crc32", {}).items():
        path = folder / name
        if not path.is_file():
            raise CheckpointError(
                f"{folder} is incomplete: {name} is missing; copy it whole, or export the model again"
            )
        if checksum_of(path) != checksum:
            raise not_as_written(path)


def accept_files(folder: Path) -> bool:
    """Give an export whose graphs or weights were changed the checksums of what they are; whether it had others."""
    manifest, found = read_manifest(folder), checksums_of(folder)
    if manifest.get("crc32", found) == found:
        return False
    write_json(folder / MANIFEST, {**manifest, "crc32": found})
    return True
