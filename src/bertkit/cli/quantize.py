"""``bertkit quantize``: a model in 8 bits that answers as the original does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bertkit.cli.common_options import Common, Source, read_texts


def quantize(
    model: Annotated[str, Parameter(help="Model folder, Hub name, or run folder of 'bertkit finetune'.")],
    /,
    *,
    out: Annotated[Path, Parameter(alias="-o", help="New folder for the model in 8 bits.")],
    calibrate: Annotated[Path, Parameter(help="Texts like those it will read, one a line; at least 100.")],
    dev: Annotated[
        Path | None, Parameter(help="Labelled rows of the run's task: its score must not fall either.")
    ] = None,
    bits: Annotated[
        Literal[8, 7] | None,
        Parameter(help="Of the weights; 7 for processors without VNNI. Default: as suits this one."),
    ] = None,
    any_speed: Annotated[
        bool, Parameter(negative=(), help="Write it also if it is not faster here, for another machine.")
    ] = False,
    encoding: Annotated[str | None, Parameter(help="Of the texts' file; default: UTF-8.")] = None,
    common: Common = Common(),
) -> None:
    """Turn a model's matrices and tables into 8 bits: a quarter of the size, and faster.

    Nothing is written unless the result passes: the vectors of the texts must keep
    their directions and their nearest neighbours, the score on --dev must not fall,
    and the model must be faster on this machine. Matrices that need it stay in
    float32. Every command and pipeline takes the folder as a model; it cannot be
    trained any further.

    For example:

        bertkit quantize run --calibrate texts.txt --dev dev.tsv --out run-int8
    """
    common.begin()
    from bertkit.quantization.quantize import quantize as quantize_model

    texts = list(read_texts((), Source(file=calibrate, encoding=encoding)))
    common.report(quantize_model(model, out, texts, source=str(calibrate), dev=dev, bits=bits, any_speed=any_speed))
