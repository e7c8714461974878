"""``bertkit export``: write a model for other runtimes."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bertkit.cli.common_options import Common, ModelArgument, write_json, write_line


def export(
    model: ModelArgument,
    /,
    *,
    out: Annotated[Path, Parameter(alias="-o", help="New folder for the exported model.")],
    format: Annotated[Literal["onnx"], Parameter(help="Format to write.")] = "onnx",
    task: Annotated[
        str | None, Parameter(help="Task of the model, for example fill-mask; default: as its config.json says.")
    ] = None,
    variant: Annotated[
        Literal["padded", "packed", "both"],
        Parameter(
            help="Input without padding (model_packed.onnx), which bertkit runs; with padding (model.onnx), for other "
            "software; or both."
        ),
    ] = "packed",
    opset: Annotated[int, Parameter(help="Version of the ONNX operators, 18 to 23.")] = 20,
    check: Annotated[bool, Parameter(help="Run the written files and compare them with the model.")] = True,
    common: Common = Common(),
) -> None:
    r"""Write a model as ONNX with its tokenizer and labels, and check it.

    Commands that use a model take the folder in its place, without torch. A graph
    has one head: for embed and similarity, export a classifier, or bertkit-tiny-en,
    with --task feature-extraction.

    The check runs every file with ONNX Runtime on batches of random shapes, and
    fails if a result differs from the model's by more than 1e-4; of a model that
    'bertkit quantize' made, if the results differ by more than a few per cent as
    a whole. Needs the extra onnx: pip install 'bertkit[onnx]'

    For example:

        bertkit export run --out run-onnx
        bertkit export bert-base-uncased --task feature-extraction \
            --variant both --out bert-onnx
    """
    common.refuse_device("export works on the processor")
    common.begin()
    from bertkit.export.onnx_export import export_onnx, load_for_export

    given = load_for_export(model, task)
    exported = export_onnx(
        given.model,
        given.tokenizer,
        out,
        variants=("padded", "packed") if variant == "both" else (variant,),
        opset=opset,
        check=check,
        seed=common.seed,
        decision=given.decision,
        beside=given.beside,
        sentence=given.sentence,
    )
    if common.json:
        write_json({**asdict(exported), "folder": str(exported.folder), "format": format})
        return
    write_line(f"{exported.model} ({exported.precision}) in {exported.folder}, opset {exported.opset}")
    for name, facts in exported.variants.items():
        worst = facts["largest_difference"]
        shown = "not checked" if worst is None else f"largest difference from the model {worst:.1e}"
        write_line(f"  {facts['file']:<18} {name}: {', '.join(facts['inputs'])} -> {', '.join(facts['outputs'])}")
        write_line(f"  {'':<18} {shown}")
