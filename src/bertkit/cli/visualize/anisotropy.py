"""``bertkit visualize anisotropy``: how narrow the space of the vectors is."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from bertkit.cli.cluster import TextFile, text_rows
from bertkit.cli.common_options import Common, Model
from bertkit.cli.task_options import TextColumns
from bertkit.cli.visualize.embeddings import Reading
from bertkit.cli.visualize.picture_options import Out, check_out, show


def anisotropy(
    file: TextFile,
    /,
    *,
    model: Model,
    points: Annotated[int, Parameter(help="Of more texts, sample so many.")] = 2000,
    reading: Reading = Reading(),
    out: Out = None,
    columns: TextColumns = TextColumns(),
    common: Common = Common(),
) -> None:
    """Show how narrow the space of a model's vectors is.

    In a narrow space the cosine of any two vectors is high, and a few directions have
    most of the variance. Shows the mean cosine of random tokens and texts in each
    layer; and of the vectors of texts their mean cosine, the effective number of
    dimensions, and the variance of the principal components: as they are, with the
    mean and the first components removed, and whitened. What is removed is taken from
    one half of the texts, and shown for the other.

    For example:

        bertkit visualize anisotropy texts.txt --model DIR --out space.png
        bertkit visualize anisotropy tweets.csv --model DIR --pooling cls --json
    """
    common.begin_without_torch()
    check_out(out, own_page=False)
    from bertkit.visualize import anisotropy as draw

    rows = text_rows(file, columns)
    show(draw(rows.texts, model, points=points, seed=common.seed, **reading.options(common)), out, common)
