"""``bertkit prepare``: turn text into a token store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from bertkit.cli.amounts import bytes_of
from bertkit.cli.common_options import Common, Corpus, CorpusReading, paths_of, write_json, write_line
from bertkit.system.console import set_quiet


@Parameter(name="*")
@dataclass(frozen=True)
class Work:
    """Who does the work."""

    workers: Annotated[int | None, Parameter(help="Number of processes; default: one per core.")] = None
    memory: Annotated[
        str | None, Parameter(help="Memory limit of all processes together, for example 4GB; may reduce their number.")
    ] = None
    engine: Annotated[
        Literal["local", "ray"],
        Parameter(help="This machine, or a Ray cluster with a shared file system (extra: ray)."),
    ] = "local"


def prepare(
    *corpus: Corpus,
    tokenizer: Annotated[str, Parameter(alias="-t", help="Folder of a tokenizer or model, vocab.txt, or Hub name.")],
    out: Annotated[Path, Parameter(alias="-o", help="Folder of the token store; new, or of an interrupted run.")],
    sentences: Annotated[
        Literal["split", "line"], Parameter(help="Split running text into sentences, or take each line as one.")
    ] = "split",
    reading: CorpusReading = CorpusReading(),
    work: Work = Work(),
    resume: Annotated[bool, Parameter(help="Continue after the finished shards of the same command.")] = True,
    common: Common = Common(),
) -> None:
    r"""Tokenize a corpus once, for pre-training.

    OUT becomes a token store for 'bertkit pretrain'; 'bertkit inspect' shows it.
    In plain text, blank lines separate documents. The store is Parquet, readable
    with any Arrow library, and has the same bytes for any number of workers. If
    stopped at any point, the same command resumes, except with - (standard input).

    For example:

        bertkit prepare corpus/*.txt.xz --tokenizer tokenizer --out store
        bertkit prepare lines.txt --sentences line --memory 4GB \
            --tokenizer bert-base-uncased --out store
        bertkit prepare crawl/ --dedup near --on-error skip \
            --tokenizer answerdotai/ModernBERT-base --out store
    """
    paths = paths_of(corpus, "prepare")
    from bertkit.data.corpus.documents import CorpusReport
    from bertkit.data.store.prepare import prepare as prepare_store
    from bertkit.data.store.store_report import inspect_store

    set_quiet(common.quiet)
    report = CorpusReport()
    prepare_store(
        paths,
        tokenizer,
        out,
        sentences=sentences,
        text=reading.text,
        on_error=reading.on_error,
        dedup=reading.dedup,
        workers=work.workers,
        memory=None if work.memory is None else bytes_of(work.memory),
        engine=work.engine,
        resume=resume,
        report=report,
    )
    found = inspect_store(out)
    if common.json:
        write_json({**found.to_dict(), "skipped": dict(report.skipped)})
        return
    write_line(found.render())
    if report.skipped:
        write_line(f"\nread: {report.summary()}")
        for example in report.examples:
            write_line(f"  {example}")
