"""The command that turns text into a token store: prepare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from bertkit.cli import STANDARD_STREAM
from bertkit.cli.common_options import COMMON, Common, Corpus, Dedup, bytes_of, write_json, write_line
from bertkit.errors import ConfigError

if TYPE_CHECKING:
    from bertkit.data.corpus.documents import CorpusReport


def prepare(
    *corpus: Corpus,
    tokenizer: Annotated[
        str, Parameter(alias="-t", help="Tokenizer: a folder as 'bertkit vocab' writes it, a vocab.txt, or a Hub name.")
    ],
    out: Annotated[Path, Parameter(alias="-o", help="Folder to write the token store to; new, or of a stopped run.")],
    sentences: Annotated[
        Literal["split", "line"], Parameter(help="Find sentences in running text, or take each line as one.")
    ] = "split",
    text: Annotated[str | None, Parameter(help="Column of .jsonl and .parquet files that has the text.")] = None,
    on_error: Annotated[
        Literal["raise", "skip"], Parameter(help="Stop at what cannot be read, or count it and go on.")
    ] = "raise",
    dedup: Dedup = None,
    workers: Annotated[int | None, Parameter(help="Processes that tokenise; default: one a core.")] = None,
    memory: Annotated[
        str | None, Parameter(help="Most memory of all processes together, for example 4GB; fewer start if need be.")
    ] = None,
    engine: Annotated[
        Literal["local", "ray"],
        Parameter(help="This machine, or a Ray cluster that shares its file system (needs the extra ray)."),
    ] = "local",
    resume: Annotated[bool, Parameter(help="Go on after the finished shards of the same command.")] = True,
    common: Common = COMMON,
) -> None:
    """Tokenise a corpus once, for pre-training.

    OUT is then a token store, for 'bertkit pretrain'; 'bertkit inspect' shows it.
    Plain text has a blank line between documents. The store is Parquet, which any
    Arrow reader opens, with the same bytes for any number of workers. Stopped at
    any moment, the same command goes on.

    For example:

        bertkit prepare corpus/*.txt.xz --tokenizer tokenizer --out store
        bertkit prepare lines.txt --sentences line --tokenizer bert-base-uncased --out store --memory 4GB
        bertkit prepare crawl/ --dedup near --on-error skip --tokenizer tokenizer --out store
    """
    if not corpus:
        raise ConfigError("no text: name the files to prepare, or - for standard input")
    from bertkit.data.corpus.documents import CorpusReport
    from bertkit.data.store.prepare import prepare as prepare_store
    from bertkit.data.store.store_report import inspect_store
    from bertkit.system.console import set_quiet

    set_quiet(common.quiet)
    report = CorpusReport()
    prepare_store(
        ["-" if path == STANDARD_STREAM else path for path in corpus],
        tokenizer,
        out,
        sentences=sentences,
        text=text,
        on_error=on_error,
        dedup=dedup,
        workers=workers,
        memory=None if memory is None else bytes_of(memory),
        engine=engine,
        resume=resume,
        report=report,
    )
    found = inspect_store(out)
    if common.json:
        write_json({**found.to_dict(), "skipped": dict(report.skipped)})
        return
    write_line(found.render())
    _tell_skipped(report)


def _tell_skipped(report: CorpusReport) -> None:
    if report.skipped:
        write_line(f"\nread: {report.summary()}")
        for example in report.examples:
            write_line(f"  {example}")
