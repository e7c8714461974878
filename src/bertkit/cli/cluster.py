"""``bertkit cluster``: texts in groups of similar ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from bertkit.cli import STANDARD_STREAM
from bertkit.cli.common_options import Computing, LongestText, Model, Truncate, rows_of
from bertkit.cli.embed import Pool
from bertkit.cli.results import ResultFile, beside
from bertkit.cli.task_options import TextColumns
from bertkit.errors import ConfigError, DataError, counted
from bertkit.system.console import Progress, say

if TYPE_CHECKING:
    from bertkit.inference.retrieval.text_clusters import Clustering
    from bertkit.inference.retrieval.text_vectors import TextEncoder
    from bertkit.ragged import Floats
    from bertkit.tasks.reading.file_rows import FileRow, Samples

TextFile = Annotated[
    Path, Parameter(help="One text per line (.txt), or a .csv, .tsv, .xlsx, .json, .jsonl or .parquet file; or -.")
]
GROUP = Group("Clusters", sort_key=1)


@Parameter(name="*")
@dataclass(frozen=True)
class Encoding:
    """How texts become vectors."""

    pooling: Pool = "model"
    prompt: Annotated[str | None, Parameter(help="Prefix of each text; default: the model's.")] = None
    truncate: Truncate = False
    max_length: LongestText = None

    def encoder(self, model: str, common: Computing) -> TextEncoder:
        """A model that makes vectors of length 1."""
        from bertkit.inference.retrieval.text_vectors import TextEncoder

        return TextEncoder(
            model,
            pooling=self.pooling,
            prompt=self.prompt,
            max_length=self.max_length,
            device=common.device,
            **common.engine,
        )

    def vectors(self, encoder: TextEncoder, texts: list[str], places: list[str]) -> Floats:
        """The vectors of texts, in order; ``places`` says where each text is."""
        from bertkit.inference.retrieval.text_vectors import refuse_truncated

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
        Parameter(
            help="Instead of --k, with --method agglomerative: merge clusters while their mean cosine is at least this."
        ),
    ] = None


@dataclass(frozen=True, slots=True)
class TextRows:
    """The texts of a file that are not empty, where each is, and its whole row. taken: names of other columns."""

    texts: list[str]
    places: list[str]
    rows: list[FileRow]
    taken: Samples


def cluster(
    file: TextFile,
    /,
    *,
    model: Model,
    results: ResultFile = ResultFile(),
    clusters: Clusters = Clusters(),
    encoding: Encoding = Encoding(),
    columns: TextColumns = TextColumns(),
    common: Computing = Computing(),
) -> None:
    """Group similar texts.

    Shows the size of each cluster, the texts nearest to its centre, and its
    silhouette: from -1 to 1, how much nearer texts are to their own cluster than to
    the next one. 'bertkit topics' also shows the words of each cluster.

    For example:

        bertkit cluster tickets.csv --model DIR
        bertkit cluster tickets.csv --model DIR --k 12 --out clustered.xlsx
    """
    common.begin()
    rows, found = clustered(file, model, results, clusters, encoding, columns, common)
    finish(rows, found, results, common)


def clustered(
    file: Path,
    model: str,
    results: ResultFile,
    clusters: Clusters,
    encoding: Encoding,
    columns: TextColumns,
    common: Computing,
    words: int = 0,
) -> tuple[TextRows, Clustering]:
    """The texts of a file, and their clusters, each with so many words."""
    results.check()
    from bertkit.inference.retrieval.text_clusters import cluster_texts

    rows = text_rows(file, columns, model)
    encoder = encoding.encoder(model, common)
    vectors = encoding.vectors(encoder, rows.texts, rows.places)
    found = cluster_texts(rows.texts, vectors, **asdict(clusters), seed=common.seed)
    if not words:
        return rows, found
    from bertkit.inference.retrieval.grouped_texts import with_words

    return rows, with_words(found, rows.texts, vectors, encoder, words)


def finish(rows: TextRows, found: Clustering, results: ResultFile, common: Computing) -> None:
    """Write the rows with their clusters and the words of these, if there are some, and the report."""
    more: dict[str, Any] = {}
    if results.out is not None:
        words = [{} if each.words is None else {"words": ", ".join(each.words)} for each in found.clusters]
        lines = (
            beside(row, {"cluster": int(number), "nearness": round(float(near), 6), **words[number]}, rows.taken)
            for row, number, near in zip(rows.rows, found.assigned, found.nearness, strict=True)
        )
        more = {"out": str(results.out), "rows": results.write_quietly(lines, rows.taken)}
    common.report(found, **more)


def text_rows(file: Path, columns: TextColumns, model: str | None = None) -> TextRows:
    """The texts of a file or of standard input, one or more; the empty ones are counted and left out.

    model: where nothing is said, a table is read in the columns that it was trained on, if that is known.
    """
    from bertkit.inference.run_files import trained_places
    from bertkit.tasks.examples import place_of

    if columns.text_pair:
        raise ConfigError("this command reads single texts; leave --text-pair out")
    from_stdin = str(file) == STANDARD_STREAM
    name, short = ("standard input", "-") if from_stdin else (str(file), str(file))
    trained = None if model is None else trained_places(file, model, columns.places)
    taken, given = rows_of(file, columns, trained, inferred=trained is not None)
    every = list(given)
    rows = [row for row in every if row.text.strip()]
    if not rows:
        raise DataError(f"{name} has no texts")
    if empty := len(every) - len(rows):
        say(f"left out {counted(empty, 'empty text')} of {name}")
    return TextRows([row.text for row in rows], [place_of(short, row.line) for row in rows], rows, taken)
