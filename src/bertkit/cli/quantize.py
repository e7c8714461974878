"""``bertkit quantize``: a model in 8 bits that answers as the original does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bertkit.cli.common_options import Common, ModelArgument, Source, read_texts
from bertkit.cli.task_options import TextColumns


def quantize(
    model: ModelArgument,
    /,
    *,
    out: Annotated[Path, Parameter(alias="-o", help="New folder for the model in 8 bits.")],
    calibrate: Annotated[Path, Parameter(help="Texts like those the model will read, one per line; at least 100.")],
    dev: Annotated[
        Path | None, Parameter(help="Labelled rows of the run's task, whose score must not fall either.")
    ] = None,
    bits: Annotated[
        Literal[8, 7] | None,
        Parameter(help="Bits of each weight: 7 for processors without VNNI, else 8. Default: as suits this one."),
    ] = None,
    any_speed: Annotated[
        bool, Parameter(negative=(), help="Write the model even if it is not faster on this machine.")
    ] = False,
    on_error: Annotated[
        Literal["raise", "skip"], Parameter(help="Stop at the first bad row of --dev, or skip and report bad rows.")
    ] = "raise",
    encoding: Annotated[str | None, Parameter(help="Encoding of --calibrate; default: utf-8.")] = None,
    common: Common = Common(),
) -> None:
    """Turn a model's matrices and tables into 8 bits: faster, and a quarter of the size
    that it has in float32.

    Nothing is written unless the result passes: the vectors of the texts must keep
    their directions and their nearest neighbours, the score on --dev must not fall,
    and the model must be faster on this machine. Matrices that need it stay in
    float32, as does the word table of a masked language model, which also writes
    with it. Every command and pipeline takes the folder as a model; it cannot be
    trained any further.

    For a run whose task reads pairs, a line of --calibrate is two texts with a tab
    between them. Takes some minutes, and memory: about 2.5 GB for BERT-base, 7.5 GB
    for BERT-large.

    For example:

        bertkit quantize run --calibrate texts.txt --dev dev.tsv --out run-int8
    """
    common.refuse_device("quantize works on the processor")
    common.begin()
    from bertkit.quantization.quantize import quantize as quantize_model

    texts = read_texts((), Source(file=calibrate, columns=TextColumns(encoding=encoding)))
    common.report(
        quantize_model(
            model, out, texts, source=str(calibrate), dev=dev, bits=bits, any_speed=any_speed, on_error=on_error
        )
    )
