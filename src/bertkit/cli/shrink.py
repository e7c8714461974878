"""``bertkit shrink``: a smaller model without training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.common_options import Common, ModelArgument


def shrink(
    model: ModelArgument,
    /,
    *,
    out: Annotated[Path, Parameter(alias="-o", help="New folder for the smaller model.")],
    vocab_from: Annotated[
        list[Path] | None,
        Parameter(negative=(), help="Keep the tokens that these texts need: files, as for 'bertkit prepare'."),
    ] = None,
    min_count: Annotated[int, Parameter(help="With --vocab-from: keep tokens that occur at least this often.")] = 1,
    keep_layers: Annotated[
        str | None, Parameter(help="Keep 0,2,4 (these layers, counted from 0), or 3 (three layers, evenly spaced).")
    ] = None,
    common: Common = Common(),
) -> None:
    r"""Make a model smaller without training: fewer tokens, fewer layers.

    With --vocab-from, a multilingual model becomes a model of your language. Texts
    whose tokens are kept get the same vectors, bit for bit; other texts are split
    into shorter pieces. This is checked on your texts before anything is written.

    With --keep-layers, layers are removed. That changes the answers: fine-tune the
    result, or pass it to 'bertkit distill' as --student.

    For example:

        bertkit shrink bert-base-multilingual-cased --vocab-from german.txt \
            --out bert-german
        bertkit shrink run --keep-layers 0,2,4 --out start
    """
    common.refuse_device("shrink only moves weights")
    common.begin()
    from bertkit.training.distillation.shrink import shrink as shrink_model

    files = [str(path) for path in vocab_from or ()]
    common.report(shrink_model(model, out, vocab_from=files, min_count=min_count, layers=keep_layers))
