"""``bertkit search``: find texts by their meaning, in an index on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from bertkit.cli import STANDARD_STREAM
from bertkit.cli.common_options import Computing, LongestText, Source, Truncate, read_texts, write_json, write_line
from bertkit.cli.embed import Pool
from bertkit.cli.placed import located
from bertkit.cli.results import ResultFile, row_with
from bertkit.cli.task_options import IndexColumns, TextColumns
from bertkit.errors import ConfigError, counted
from bertkit.system.console import one_line

if TYPE_CHECKING:
    from bertkit.inference.retrieval.index_writer import Located
    from bertkit.inference.retrieval.text_vectors import TextEncoder

Action = Literal["build", "add", "update", "delete", "query", "info"]


@Parameter(name="*", group=Group("Building (build)", sort_key=1))
@dataclass(frozen=True)
class Building:
    """How the vectors of an index are made and kept; it remembers all of it."""

    pooling: Pool = "model"
    prompt: Annotated[str | None, Parameter(help="Prefix of each text; default: the model's ('passage: ').")] = None
    query_prompt: Annotated[str | None, Parameter(help="Prefix of each query; default: the model's ('query: ').")] = (
        None
    )
    max_length: LongestText = None
    numbers: Annotated[
        Literal["float32", "float16", "int8"],
        Parameter(help="How vectors are stored. float16 takes half the space, int8 a quarter; scores differ slightly."),
    ] = "float32"


@Parameter(name="*", group=Group("Querying (query)", sort_key=2))
@dataclass(frozen=True)
class Querying:
    """What is found."""

    top_k: Annotated[int, Parameter(help="Show this many texts for each query.")] = 10
    hybrid: Annotated[
        bool, Parameter(negative=(), help="Also search by words (BM25), and combine the two rankings; reads all texts.")
    ] = False


def search(
    action: Annotated[Action, Parameter(help="What to do; see above.")],
    index: Annotated[Path, Parameter(help="The folder of the index.")],
    /,
    *text: Annotated[
        str,
        Parameter(help="Files (build, add, update), ids (delete) or queries; - reads standard input, one per line."),
    ],
    model: Annotated[
        str | None,
        Parameter(alias="-m", help="An encoder. Required to build; otherwise only if the index's model has moved."),
    ] = None,
    truncate: Truncate = False,
    building: Building = Building(),
    querying: Querying = Querying(),
    results: ResultFile = ResultFile(),
    columns: IndexColumns = IndexColumns(),
    common: Computing = Computing(),
) -> None:
    """Search texts by meaning, in an index on disk.

    build makes a new index from files with one text per line (.txt), or from tables.
    add adds texts. update brings the index up to date with its files, and embeds only
    what has changed. delete removes texts by their ids. query finds the nearest
    texts; every text is compared. info shows what an index holds, and checks it.

    Each of them can be interrupted; the same command resumes.

    For example:

        bertkit search build index docs.jsonl notes.txt --model bertkit-tiny-en
        bertkit search query index "How do I get a refund?" --top-k 5
        bertkit search query index --out found.xlsx "Refunds?" "Opening hours?"
        bertkit search update index docs.jsonl
    """
    _refuse(action, text, building, querying, columns)
    if action != "query" and results != ResultFile():
        raise ConfigError(f"--out is for 'search query'; 'search {action}' writes the index alone, so leave it out")
    to_rows = results.check()
    common.begin()
    if action == "info":
        _info(index, common)
        return
    if action != "query":
        _change(action, index, text, model, building, columns, common, truncate=truncate)
        return
    from bertkit.inference.retrieval.search_index import SearchIndex

    opened = SearchIndex(index, model, device=common.device, **common.engine)
    given = read_texts(text, Source(columns=TextColumns(encoding=columns.encoding)))
    queries = list(given)
    with located(given):
        found = opened.search(queries, querying.top_k, hybrid=querying.hybrid, truncate=truncate)
    if to_rows:
        ranked = ([{"rank": rank, **hit._asdict()} for rank, hit in enumerate(hits, start=1)] for hits in found)
        listed = ((row_with(query=query), hits) for query, hits in zip(queries, ranked, strict=True))
        results.write_lists(listed, "hits", {}, common)
        return
    for query, hits in zip(queries, found, strict=True):
        if common.json:
            write_json({"query": query, "hits": [hit._asdict() for hit in hits]})
            continue
        if len(queries) > 1:
            write_line(one_line(query))
        for hit in hits:
            write_line(f"{hit.score:.4f}\t{hit.id}\t{one_line(hit.text)}")


def _refuse(
    action: Action, text: tuple[str, ...], building: Building, querying: Querying, columns: IndexColumns
) -> None:
    """Refuse options that mean nothing to an action, and no texts where some are needed."""
    reads_files = action in ("build", "add", "update")
    for given, allowed in ((building, action == "build"), (querying, action == "query"), (columns, reads_files)):
        default = asdict(type(given)())
        names = [name for name, value in asdict(given).items() if value != default[name]]
        if columns is given and action in ("query", "delete"):
            names = [name for name in names if name != "encoding"]
        if names and not allowed:
            raise ConfigError(f"--{names[0].replace('_', '-')} is not for 'search {action}'; leave it out")
    if columns.text_pair:
        raise ConfigError("an index holds single texts; leave --text-pair out")
    if not text and action != "info":
        what = "files to read" if reads_files else "ids to remove" if action == "delete" else "query"
        raise ConfigError(f"search {action} needs {what}; name them after the index")
    if text and action == "info":
        raise ConfigError(f"search info takes an index only, got {text[0]!r}")


def _info(index: Path, common: Computing) -> None:
    from bertkit.inference.retrieval.search_index import SearchIndex

    facts = SearchIndex(index).check()
    if common.json:
        write_json(facts)
        return
    for name, value in facts.items():
        shown = value if value is None or isinstance(value, str) else format(value, ",")
        write_line(f"{name.replace('_', ' ')}: {shown}")


def _change(
    action: Action,
    index: Path,
    text: tuple[str, ...],
    model: str | None,
    building: Building,
    columns: IndexColumns,
    common: Computing,
    *,
    truncate: bool,
) -> None:
    from bertkit.inference.retrieval.index_files import read_manifest
    from bertkit.inference.retrieval.index_writer import IndexWriter
    from bertkit.inference.retrieval.search_index import open_encoder
    from bertkit.inference.retrieval.text_vectors import TextEncoder, model_name
    from bertkit.tasks.reading.lines import check_file

    if action != "delete":
        for file in text:
            if file != STANDARD_STREAM:
                check_file(Path(file))  # before a model is loaded
    computing: dict[str, Any] = {"device": common.device, **common.engine}
    encoder: TextEncoder | None = None
    if action == "build":
        if model is None:
            raise ConfigError("search build needs --model, an encoder such as one of sentence-transformers")
        made = {name: value for name, value in asdict(building).items() if name != "numbers"}
        encoder = TextEncoder(model, by_products=True, **made, **computing)
    elif action != "delete":
        encoder = open_encoder(index, read_manifest(index), model, **computing)
    with IndexWriter(index, encoder, truncate=truncate) as writer:
        if action == "delete":
            changes = writer.delete(read_texts(text, Source(columns=TextColumns(encoding=columns.encoding))))
        elif action == "build":
            changes = writer.build(_located(text, columns), model_name(str(model)), building.numbers)
        elif action == "add":
            changes = writer.add(_located(text, columns))
        else:
            changes = writer.update(_located(text, columns), map(_source, text))
    facts = asdict(changes)
    done = ", ".join(f"{count:,} {name}" for name, count in facts.items() if count and name != "total")
    line = f"{index}: {counted(changes.total, 'text')} ({done or 'nothing changed'})"
    common.show({"index": str(index), **facts}, line)


def _source(file: str) -> str:
    from bertkit.inference.retrieval.source_texts import source_name

    return "-" if file == STANDARD_STREAM else source_name(Path(file))


def _located(files: tuple[str, ...], columns: IndexColumns) -> Iterator[Located]:
    from bertkit.inference.retrieval.index_writer import index_rows
    from bertkit.inference.retrieval.source_texts import SourceText, texts_with_ids

    def texts() -> Iterator[SourceText]:
        for file in files:
            if file == STANDARD_STREAM:
                lines = enumerate(read_texts((file,), Source(columns=TextColumns(encoding=columns.encoding))), start=1)
                yield from (SourceText(_source(file), line, None, text) for line, text in lines)
            else:
                yield from texts_with_ids(Path(file), columns.places, columns.id)

    return index_rows(texts())
