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
    calibrate: Annotated[
        Path, Parameter(help="Texts like those that the model will read, one per line; at least 100.")
    ],
    dev: Annotated[
        Path | None, Parameter(help="Labelled rows of the run's task; the score on them must not drop.")
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
    encoding: Annotated[str | None, Parameter(help="Encoding of --calibrate; default: as found.")] = None,
    common: Common = Common(),
) -> None:
    """Convert a model to 8 bits: faster, and a quarter of its size in float32.

    Nothing is written unless the result passes: text vectors must keep their
    directions and nearest neighbours, the score on --dev must not drop, and the model
    must be faster on this machine. Matrices that need it stay in float32, and so do
    the word embeddings of a masked language model, which its output layer shares.
    All commands and pipelines load the folder; it cannot be trained further.

    If the task reads pairs, each line of --calibrate is two texts separated by a tab.
    Takes some minutes, and about 2.5 GB of memory for BERT-base, 7.5 GB for
    BERT-large.

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
