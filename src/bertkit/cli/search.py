"""``bertkit search``: find texts by their meaning, in an index on disk."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from bertkit.cli import STANDARD_STREAM
from bertkit.cli.common_options import (
    Computing,
    LongestText,
    Source,
    Truncate,
    read_texts,
    write_json,
    write_line,
)
from bertkit.cli.embed import Pool
from bertkit.cli.placed import located, refuse_file_name
from bertkit.cli.results import ResultFile, row_with
from bertkit.cli.search_questions import Evaluating
from bertkit.cli.task_options import IndexColumns, TextColumns
from bertkit.errors import ConfigError, counted, shorten
from bertkit.system.console import one_line, say

if TYPE_CHECKING:
    from bertkit.inference.retrieval.document_texts import DocumentTexts
    from bertkit.inference.retrieval.hits import Hit
    from bertkit.inference.retrieval.index_writer import Located
    from bertkit.inference.retrieval.text_vectors import TextEncoder

Action = Literal["build", "add", "update", "delete", "query", "evaluate", "info"]


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
    passage_tokens: Annotated[
        int | None, Parameter(help="Cut documents into passages of at most this many tokens; default: 256.")
    ] = None
    passage_overlap: Annotated[
        int | None, Parameter(help="Tokens that neighboring passages may share; default: 32.")
    ] = None


@Parameter(name="*", group=Group("Querying (query)", sort_key=2))
@dataclass(frozen=True)
class Querying:
    """What is found."""

    top_k: Annotated[int, Parameter(help="Show this many texts for each query; evaluate: judge so many.")] = 10
    by: Annotated[
        Literal["vectors", "words", "both"] | None,
        Parameter(
            help="Search by meaning (vectors), by words (BM25) or by both; default: as the index says ("
            "'search info'): both for documents, vectors for lines and rows."
        ),
    ] = None
    hybrid: Annotated[bool, Parameter(negative=(), help="The same as --by both.")] = False


def search(
    action: Annotated[Action, Parameter(help="What to do; see above.")],
    index: Annotated[Path, Parameter(help="The folder of the index.")],
    /,
    *text: Annotated[
        str,
        Parameter(
            help="Files, folders or patterns (build, add, update), ids (delete), queries, or a table of questions "
            "(evaluate); - reads standard input, one per line."
        ),
    ],
    model: Annotated[
        str | None,
        Parameter(alias="-m", help="An encoder. Required to build; otherwise only if the index's model has moved."),
    ] = None,
    truncate: Truncate = False,
    building: Building = Building(),
    querying: Querying = Querying(),
    evaluating: Evaluating = Evaluating(),
    results: ResultFile = ResultFile(),
    columns: IndexColumns = IndexColumns(),
    common: Computing = Computing(),
) -> None:
    r"""Search texts by meaning, in an index on disk.

    build makes a new index from folders and patterns of documents (.txt .md .html
    .docx .pdf .eml), cut into passages; from tables; or from files with one text per
    line (a .txt that is named by itself). add adds texts. update brings the index up
    to date with its files: only what has changed is read and embedded, and what is
    gone is removed. delete removes texts by their ids. query finds the best texts;
    every text is compared. evaluate scores the index on questions whose answers are
    known. info shows what an index holds, and checks it.

    Each of them can be interrupted; the same command resumes.

    For example:

        bertkit search build index manuals/ --model bertkit-tiny-en
        bertkit search query index "How do I get a refund?" --top-k 5
        bertkit search query index --out found.xlsx "Refunds?" "Opening hours?"
        bertkit search update index manuals/
        bertkit search evaluate index questions.csv --relevant document --set
        bertkit search build faq faq.csv --text question --show answer \
            --model bertkit-tiny-en
    """
    _refuse(action, text, (building, querying, evaluating, columns))
    if action != "query" and results != ResultFile():
        raise ConfigError(f"--out is for 'search query'; 'search {action}' writes the index alone, so leave it out")
    to_rows = results.check()
    common.begin()
    if action == "info":
        _info(index, common)
    elif action == "evaluate":
        from bertkit.cli.search_questions import evaluate_index

        evaluate_index(index, text[0], model, querying.top_k, columns, evaluating, common, truncate=truncate)
    elif action != "query":
        _change(action, index, text, model, building, columns, common, truncate=truncate)
    else:
        refuse_file_name(text, f"bertkit search query {index} - < {{0}}, which takes each line as a query")
        given = read_texts(text, Source(columns=TextColumns(encoding=columns.encoding)))
        found = _found(index, given, model, querying, common, truncate=truncate)
        if to_rows:
            results.write_lists(((row_with(query=query), _cells(hits)) for query, hits in found), "hits", {}, common)
        else:
            _show(found, common)


def _found(
    index: Path, given: Iterable[str], model: str | None, querying: Querying, common: Computing, *, truncate: bool
) -> list[tuple[str, Sequence[Hit]]]:
    """Queries, each with its hits."""
    from bertkit.inference.retrieval.search_index import SearchIndex

    opened = SearchIndex(index, model, device=common.device, **common.engine)
    queries = list(given)
    with located(given):
        by = "both" if querying.hybrid else querying.by
        found = opened.search(queries, querying.top_k, by=by, truncate=truncate)
    return list(zip(queries, found, strict=True))


def _cells(hits: Sequence[Hit]) -> list[dict[str, Any]]:
    """Hits as the cells of rows; a column of their table may be called rank."""
    from bertkit.inference.row_cells import own_name

    facts = [hit.to_dict() for hit in hits]
    return [{own_name("rank", each): rank, **each} for rank, each in enumerate(facts, start=1)]


def _show(found: list[tuple[str, Sequence[Hit]]], common: Computing) -> None:
    for query, hits in found:
        if common.json:
            write_json({"query": query, "hits": [hit.to_dict() for hit in hits]})
            continue
        if len(found) > 1:
            write_line(one_line(query))
        for hit in hits:
            write_line(_shown(hit))


def _shown(hit: Hit) -> str:
    """A hit in one line: of a passage with its document, headings and characters, of a row with what is shown of it."""
    cells = [f"{hit.score:.4f}", hit.id, one_line(hit.text)]
    more = dict(hit.more or {})
    if "start" in more:
        page = f" page {more['page']}" if "page" in more else ""
        cells[1:2] = [f"{hit.source}{page} [{more['start']}:{more['end']}]", one_line(str(more["heading"]))]
    else:
        cells += [one_line(str(value)) for value in more.values()]
    return "\t".join(cells)


#: Options that mean something to an action, by their classes.
EVERY = frozenset({"*"})
_MEANT: dict[Action, dict[type, Collection[str]]] = {
    "build": {Building: EVERY, IndexColumns: EVERY},
    "add": {IndexColumns: EVERY},
    "update": {IndexColumns: EVERY},
    "delete": {IndexColumns: {"encoding"}},
    "query": {Querying: EVERY, IndexColumns: {"encoding"}},
    "evaluate": {
        Evaluating: EVERY,
        Querying: {"top_k"},
        IndexColumns: {"text", "encoding", "delimiter", "quoting"},
    },
    "info": {},
}


def _refuse(action: Action, text: tuple[str, ...], groups: tuple[Building, Querying, Evaluating, IndexColumns]) -> None:
    """Refuse options that mean nothing to an action, and no texts where some are needed."""
    querying, columns = groups[1], groups[3]
    reads_files = action in ("build", "add", "update")
    for given in groups:
        default = asdict(type(given)())
        names = [name for name, value in asdict(given).items() if value != default[name]]
        allowed = _MEANT[action].get(type(given), set())
        names = [name for name in names if allowed != EVERY and name not in allowed]
        if names:
            raise ConfigError(f"--{names[0].replace('_', '-')} is not for 'search {action}'; leave it out")
    if querying.hybrid and querying.by not in (None, "both"):
        raise ConfigError(f"--hybrid is --by both, not --by {querying.by}; leave one of them out")
    if columns.text_pair:
        raise ConfigError("an index holds single texts; leave --text-pair out")
    if action == "evaluate" and len(text) != 1:
        raise ConfigError("search evaluate needs one table of questions; name it after the index")
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
    from bertkit.inference.retrieval.index_encoder import open_encoder
    from bertkit.inference.retrieval.index_files import read_manifest
    from bertkit.inference.retrieval.index_writer import IndexWriter
    from bertkit.inference.retrieval.passages import Cutter
    from bertkit.inference.retrieval.text_vectors import TextEncoder, model_name
    from bertkit.tasks.reading.lines import check_file

    if action == "build" and model is None:
        raise ConfigError("search build needs --model, an encoder such as one of sentence-transformers")
    manifest = None if action == "build" else read_manifest(index)
    documents, files = None, text
    if action != "delete":
        documents, files = _documents(text, columns, set(manifest.documents) if manifest else set())
        for file in files:
            if file != STANDARD_STREAM:
                check_file(Path(file))  # before a model is loaded
    computing: dict[str, Any] = {"device": common.device, **common.engine}
    encoder: TextEncoder | None = None
    if action == "build":
        made = {name: getattr(building, name) for name in ("pooling", "prompt", "query_prompt", "max_length")}
        encoder = TextEncoder(str(model), by_products=True, **made, **computing)
    elif manifest is not None and action != "delete":
        encoder = open_encoder(index, manifest, model, **computing)
    if documents is not None and encoder is not None:
        sizes = (building.passage_tokens, building.passage_overlap)
        cutter = Cutter(encoder, *sizes) if manifest is None else Cutter.of(manifest, encoder)
        documents.begin(cutter, manifest.documents if manifest else None, adding=action == "add")
    elif building.passage_tokens is not None or building.passage_overlap is not None:
        raise ConfigError("--passage-tokens and --passage-overlap are for documents, and none is named; leave them out")
    with IndexWriter(index, encoder, truncate=truncate, documents=documents) as writer:
        if action == "delete":
            piped = STANDARD_STREAM in text  # the id of a document is the name of a file
            changes = writer.delete(
                read_texts(text, Source(columns=TextColumns(encoding=columns.encoding))) if piped else text
            )
        elif action == "build":
            changes = writer.build(_located(files, columns, documents), model_name(str(model)), building.numbers)
        elif action == "add":
            changes = writer.add(_located(files, columns, documents))
        else:
            gone = documents.touched if documents else ()
            changes = writer.update(_located(files, columns, documents), chain(map(_source, files), gone))
    facts = asdict(changes)
    done = ", ".join(f"{count:,} {name}" for name, count in facts.items() if count and name != "total")
    line = f"{index}: {counted(changes.total, 'text')} ({done or 'nothing changed'})"
    more = documents.to_dict() if documents else {}
    if documents and documents.left_out:
        line += f"; left out {counted(len(documents.left_out), 'document')}"
    common.show({"index": str(index), **facts, **more}, line)


def _documents(
    text: tuple[str, ...], columns: IndexColumns, known: set[str]
) -> tuple[DocumentTexts | None, tuple[str, ...]]:
    """The documents among the arguments, if there are any, and the other files."""
    from bertkit.inference.retrieval.document_texts import DocumentTexts, names_documents

    files = [name for name in text if name != STANDARD_STREAM]
    named = {name for name in files if names_documents(name, known)}
    if named:  # a .txt beside other documents is one too
        named |= {name for name in files if Path(name).suffix.lower() in (".txt", ".text")}
    elif lines := [name for name in files if Path(name).suffix.lower() == ".txt"]:
        say(f"each line of {shorten(lines)} is a text; to search passages of documents, name their folder")
    if not named:
        return None, text
    others = tuple(name for name in text if name not in named)
    if columns.given and not others:
        raise ConfigError(f"documents have no columns; leave --{next(iter(columns.given)).replace('_', '-')} out")
    return DocumentTexts([name for name in files if name in named], columns.encoding, known), others


def _source(file: str) -> str:
    from bertkit.inference.retrieval.source_texts import source_name

    return "-" if file == STANDARD_STREAM else source_name(Path(file))


def _located(files: tuple[str, ...], columns: IndexColumns, documents: DocumentTexts | None) -> Iterator[Located]:
    from bertkit.inference.retrieval.index_writer import index_rows
    from bertkit.inference.retrieval.source_texts import SourceText, texts_with_ids

    def texts() -> Iterator[SourceText]:
        if documents is not None:
            yield from documents.texts()
        for file in files:
            if file == STANDARD_STREAM:
                lines = enumerate(read_texts((file,), Source(columns=TextColumns(encoding=columns.encoding))), start=1)
                yield from (SourceText(_source(file), line, None, text) for line, text in lines)
            else:
                yield from texts_with_ids(Path(file), columns.places, columns.id, columns.shown)

    return index_rows(texts())
