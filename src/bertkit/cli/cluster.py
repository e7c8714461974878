"""``bertkit cluster``: texts in groups of similar ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from bertkit.cli import STANDARD_STREAM
from bertkit.cli.common_options import Computing, Model, Source, check_format, read_texts
from bertkit.cli.embed import Pool
from bertkit.cli.task_options import TextColumns
from bertkit.errors import ConfigError, DataError
from bertkit.system.console import Progress, say

if TYPE_CHECKING:
    from bertkit.inference.predict_files import FileRow
    from bertkit.inference.retrieval.text_clusters import Clustering
    from bertkit.ragged import Floats

TextFile = Annotated[
    Path, Parameter(help="One text per line (.txt), or a .csv, .tsv, .xlsx, .json, .jsonl or .parquet file; or -.")
]
Out = Annotated[
    Path | None,
    Parameter(alias="-o", help="Also write the rows, with their cluster, as .jsonl, .csv, .tsv or .parquet."),
]
GROUP = Group("Clusters", sort_key=1)


@Parameter(name="*")
@dataclass(frozen=True)
class Encoding:
    """How texts become vectors."""

    pooling: Pool = "model"
    prompt: Annotated[
        str | None, Parameter(help="Put this before each text; default: what the model has for texts.")
    ] = None
    truncate: Annotated[
        bool, Parameter(negative=(), help="Truncate texts that are too long, instead of refusing them.")
    ] = False
    max_length: Annotated[int | None, Parameter(help="Most tokens of a text; default: what the model reads.")] = None

    def vectors(self, model: str, texts: list[str], places: list[str], common: Computing) -> Floats:
        """Of length 1, in order; ``places`` says where each text is."""
        from bertkit.inference.retrieval.text_vectors import TextEncoder, refuse_truncated

        encoder = TextEncoder(
            model,
            pooling=self.pooling,
            prompt=self.prompt,
            max_length=self.max_length,
            device=common.device,
            **common.engine,
        )
        with Progress(len(texts), label="encoding", unit="texts") as bar:
            encoded = encoder.encode(texts, advance=bar.advance)
        if not self.truncate:
            refuse_truncated(encoded, lambda number: places[number], encoder.longest)
        return encoded.vectors


@Parameter(name="*", group=GROUP)
@dataclass(frozen=True)
class Clusters:
    """How texts are grouped."""

    k: Annotated[int | None, Parameter(help="Number of clusters; default: the one with the best silhouette.")] = None
    method: Annotated[Literal["kmeans", "agglomerative"], Parameter(help="agglomerative: for up to 10,000 texts.")] = (
        "kmeans"
    )
    threshold: Annotated[
        float | None,
        Parameter(help="In place of --k, with --method agglomerative: join clusters up to this mean cosine."),
    ] = None

    def of(self, rows: TextRows, vectors: Floats, seed: int) -> Clustering:
        """The clusters of some texts."""
        from bertkit.inference.retrieval.text_clusters import cluster_texts

        return cluster_texts(rows.texts, vectors, **asdict(self), seed=seed)


@dataclass(frozen=True, slots=True)
class TextRows:
    """The texts of a file that are not empty, where each is, and its whole row. taken: names of other columns."""

    texts: list[str]
    places: list[str]
    rows: list[FileRow]
    taken: Collection[str]


def cluster(
    file: TextFile,
    /,
    *,
    model: Model,
    out: Out = None,
    clusters: Clusters = Clusters(),
    encoding: Encoding = Encoding(),
    columns: TextColumns = TextColumns(),
    common: Computing = Computing(),
) -> None:
    """Put texts into groups of similar ones.

    Shows the size of each cluster, the texts nearest to its centre, and its
    silhouette: from -1 to 1, how much nearer texts are to their own cluster than to
    the next one. 'bertkit topics' also shows the words of each.

    For example:

        bertkit cluster tickets.csv --model DIR
        bertkit cluster tickets.csv --model DIR --k 12 --out clustered.csv
    """
    common.begin()
    rows, found = clustered(file, model, out, clusters, encoding, columns, common)
    finish(rows, found, out, common)


def clustered(
    file: Path,
    model: str,
    out: Path | None,
    clusters: Clusters,
    encoding: Encoding,
    columns: TextColumns,
    common: Computing,
) -> tuple[TextRows, Clustering]:
    """The texts of a file, and their clusters."""
    from bertkit.inference.predict_files import FORMATS

    if out is not None:
        check_format(out, FORMATS)
        if out.exists():
            raise ConfigError(f"--out {out} exists already; remove it or choose another name")
    rows = text_rows(file, columns)
    vectors = encoding.vectors(model, rows.texts, rows.places, common)
    return rows, clusters.of(rows, vectors, common.seed)


def finish(rows: TextRows, found: Clustering, out: Path | None, common: Computing) -> None:
    """Write the rows with their clusters, and the report."""
    more: dict[str, Any] = {}
    if out is not None:
        from bertkit.inference.predict_files import own_name, write_rows

        names = [own_name(name, rows.taken) for name in ("cluster", "nearness")]
        lines = (
            {
                **(row.columns or {"text": row.text}),
                **dict(zip(names, (int(number), round(float(near), 6)), strict=True)),
            }
            for row, number, near in zip(rows.rows, found.assigned, found.nearness, strict=True)
        )
        more = {"out": str(out), "rows": write_rows(lines, out)}
        say(f"wrote {more['rows']:,} rows to {out}")
    common.report(found, **more)


def text_rows(file: Path, columns: TextColumns) -> TextRows:
    """The texts of a file or of standard input, one or more; the empty ones are counted and left out."""
    from bertkit.inference.predict_files import FileRow
    from bertkit.inference.retrieval.source_texts import source_texts

    if columns.text_pair:
        raise ConfigError("this command reads single texts; leave --text-pair out")
    if str(file) == STANDARD_STREAM:
        if columns.given:
            raise ConfigError("standard input holds one text per line and has no columns")
        taken: Collection[str] = ()
        given: Iterable[FileRow] = (
            FileRow(text, None, {}) for text in read_texts((STANDARD_STREAM,), Source(encoding=columns.encoding))
        )
        name = "standard input"
    else:
        taken, given = source_texts(file, columns.places)
        name = str(file)
    every = list(enumerate(given, start=1))
    numbered = [(number, row) for number, row in every if row.text.strip()]
    if not numbered:
        raise DataError(f"{name} has no texts")
    if empty := len(every) - len(numbered):
        say(f"left out {empty:,} empty texts of {name}")
    rows = [row for _, row in numbered]
    places = [f"{'-' if name == 'standard input' else name}:{number}" for number, _ in numbered]
    return TextRows([row.text for row in rows], places, rows, taken)
