"""``bertkit visualize embeddings``: a map of texts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from bertkit.cli.cluster import TextFile, TextRows, text_rows
from bertkit.cli.common_options import Common, LongestText, ModelArgument
from bertkit.cli.embed import Pool, read_vectors
from bertkit.cli.task_options import TextColumns
from bertkit.cli.visualize.picture_options import Out, check_out, show
from bertkit.errors import ConfigError, DataError, did_you_mean, shorten

if TYPE_CHECKING:
    from bertkit.insight.layer_vectors import ReadOptions
    from bertkit.ragged import Floats

Method = Annotated[
    Literal["pca", "tsne", "umap"], Parameter(help="How the plane is found; umap needs the extra 'umap'.")
]
Perplexity = Annotated[
    float | None,
    Parameter(help="Of t-SNE: about how many neighbours a point has; default: 30, or fewer of few points."),
]


Layer = Annotated[
    int | None,
    Parameter(help="Take this hidden layer: 0 the embeddings, -1 the top; default: the model's own vectors."),
]


@Parameter(name="*")
@dataclass(frozen=True)
class Reading:
    """How texts become vectors."""

    layer: Layer = None
    pooling: Pool = "model"
    max_length: LongestText = None

    def options(self, common: Common) -> ReadOptions:
        """For the functions of ``bertkit.visualize``."""
        return {
            "layer": self.layer,
            "pooling": self.pooling,
            "max_length": self.max_length,
            "device": common.device,
        }


def embeddings(
    file: TextFile,
    /,
    *,
    model: Annotated[ModelArgument | None, Parameter(alias="-m")] = None,
    vectors: Annotated[
        Path | None, Parameter(help="Vectors of the texts, the .npy file of 'bertkit embed', in place of a model.")
    ] = None,
    label: Annotated[
        str | None, Parameter(help="Column of the label; default: a column with a usual name, if there is one.")
    ] = None,
    method: Method = "pca",
    perplexity: Perplexity = None,
    points: Annotated[int, Parameter(help="Of more texts, sample so many, each label by its share.")] = 5000,
    reading: Reading = Reading(),
    out: Out = None,
    columns: TextColumns = TextColumns(),
    common: Common = Common(),
) -> None:
    r"""Draw a map of texts, on which similar texts are near each other.

    Texts are colored by label. Shows how much of the vectors the map keeps: the
    share of variance of the principal components, its trustworthiness (1: the
    neighbours of a text on the map are its neighbours in the full space too), and how
    often the ten nearest texts have a text's label, in the full space and on the map.
    The page (.html) can be searched, and shows each text. Long texts are cut.

    For example:

        bertkit visualize embeddings tweets.csv --model DIR --out map.png
        bertkit visualize embeddings tweets.csv --model DIR --method tsne \
            --label sentiment --out map.html
        bertkit visualize embeddings reviews.tsv --model DIR --layer 3 --json
    """
    common.begin_without_torch()
    check_out(out)
    if (model is None) == (vectors is None):
        raise ConfigError("give --model or --vectors, one of the two")
    if vectors is not None and reading != Reading():
        raise ConfigError("--vectors are made already: leave --layer, --pooling and --max-length out")
    from bertkit.visualize import embeddings as draw

    rows = text_rows(file, columns)
    more: dict[str, Any] = reading.options(common) if vectors is None else {"vectors": _read(vectors, rows)}  # type: ignore[assignment]
    drawn = draw(
        rows.texts,
        labels_of(file, label, rows),
        model,
        method=method,
        perplexity=perplexity,
        points=points,
        seed=common.seed,
        **more,
    )
    show(drawn, out, common)


def labels_of(file: Path, column: str | None, rows: TextRows) -> list[str | None] | None:
    """The label of each text, None for one without; None without a column of labels."""
    from bertkit.tasks.reading.tables import column_of
    from bertkit.tasks.text.csv_task import LABEL_NAMES

    names: Collection[str] = rows.taken
    found = column_of(list(names), LABEL_NAMES if column is None else [column])
    if found is None and column is not None:
        near = did_you_mean(column, names)
        raise DataError(f"{file}: no label column {column!r}{near}. The other columns are {shorten(names, limit=20)}")
    if found is None:
        return None
    values = (row.columns.get(found) for row in rows.rows)
    return [None if value is None or not str(value).strip() else str(value).strip() for value in values]


def _read(file: Path, rows: TextRows) -> Floats:
    found = read_vectors(file)
    if len(rows.rows) != len(found):
        raise DataError(
            f"{file} has {len(found):,} vectors, and there are {len(rows.rows):,} texts that are not empty; "
            "give the vectors of the same texts"
        )
    return found
