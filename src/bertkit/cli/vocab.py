"""``bertkit vocab``: learn a vocabulary."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from bertkit.cli.amounts import bytes_of
from bertkit.cli.common_options import (
    Common,
    Corpus,
    CorpusReading,
    JsonLike,
    check_writable,
    paths_of,
    write_json,
    write_line,
)
from bertkit.errors import ConfigError, counted, shorten
from bertkit.system.atomic_files import LOCK, claimed_folder
from bertkit.system.console import progress, set_quiet

if TYPE_CHECKING:
    from bertkit.data.corpus.documents import Document
    from bertkit.data.corpus.near_duplicates import Dedup, DedupReport
    from bertkit.tokenization.bert_tokenizer import BertTokenizer
    from bertkit.tokenization.learn.word_counts import WordCounter
    from bertkit.tokenization.learn.wordpiece_learner import Fertility


@Parameter(name="*")
@dataclass(frozen=True)
class Wanted:
    """What the vocabulary should be."""

    size: Annotated[int, Parameter(help="Maximum size, including special and [unusedN] tokens.")] = 30522
    cased: Annotated[bool, Parameter(negative=(), help="Keep capitals and accents; by default they are removed.")] = (
        False
    )
    extend: Annotated[
        str | None, Parameter(help="Add words to this tokenizer: first in place of [unusedN], then up to --size.")
    ] = None


@Parameter(name="*")
@dataclass(frozen=True)
class Measured:
    """How its fit is measured."""

    beside: Annotated[str | None, Parameter(help="Compare with this tokenizer, for example bert-base-uncased.")] = None
    held_out: Annotated[float, Parameter(help="Share of documents held out to evaluate the vocabulary.")] = 0.01


@Parameter(name="*")
@dataclass(frozen=True)
class Work:
    """What the work may take."""

    memory: Annotated[
        str | None,
        Parameter(help="Memory limit, for example 500MB; --dedup takes half. Default: 4GB, and no limit for --dedup."),
    ] = None
    workers: Annotated[int, Parameter(help="Number of processes.")] = 1


def vocab(
    *corpus: Corpus,
    out: Annotated[Path, Parameter(alias="-o", help="Folder for the tokenizer.")],
    wanted: Wanted = Wanted(),
    measured: Measured = Measured(),
    reading: CorpusReading = CorpusReading(),
    overwrite: Annotated[bool, Parameter(negative=(), help="Allow a folder that is not empty.")] = False,
    work: Work = Work(),
    common: Common = Common(),
) -> None:
    """Learn a WordPiece vocabulary from text, and report how well it fits.

    OUT becomes a tokenizer for 'bertkit prepare'. In plain text, blank lines
    separate documents. The same text gives the same vocabulary, however it is
    divided into files and whatever --workers is. Reported on held-out text: pieces
    per word, and the share of words that become [UNK].

    For example:

        bertkit vocab corpus/*.txt.xz --size 8192 --out tokenizer
        bertkit vocab notes.jsonl --extend bert-base-uncased --out tokenizer
    """
    paths = paths_of(corpus, "learn from")
    from bertkit.data.corpus.documents import CorpusReport, read_documents
    from bertkit.tokenization.learn.word_counts import count_words
    from bertkit.tokenization.learn.wordpiece_learner import BYTES_PER_WORD, fertility, vocabulary_from_counts

    set_quiet(common.quiet)
    _check_out(out, overwrite)
    base, other = _load(wanted.extend, "--extend"), _load(measured.beside, "--beside")
    budget, remembered = _shared_out(work.memory, reading.dedup)
    lower = not wanted.cased if base is None else base.do_lower_case
    _check_base(base, wanted)
    report = CorpusReport()
    busy = f"another process is writing to {out}; wait for it or choose another --out"
    with claimed_folder(out, busy), ExitStack() as open_tables:
        kinds = {lower, *(each.do_lower_case for each in (base, other) if each is not None)}
        kept = _HeldOut(measured.held_out, kinds, budget)
        for table in kept.tables.values():
            open_tables.enter_context(table)
        # No need to find sentences: lines have the same words.
        documents = read_documents(paths, sentences="line", text=reading.text, on_error=reading.on_error, report=report)
        unique, duplicates = _without_duplicates(documents, reading.dedup, remembered)
        counter = count_words(kept.without(unique), lower, memory=budget, workers=work.workers)
        words = open_tables.enter_context(counter)
        room = budget // BYTES_PER_WORD
        counts = words.most_frequent(room)
        learned = vocabulary_from_counts(counts, wanted.size, extend=None if base is None else _tokens(base))
        _save(learned, lower, base, out)
        rows = {"learned": fertility(kept.tables[lower].items(), learned)}
        for name, tokenizer in ((wanted.extend, base), (measured.beside, other)):
            if name is not None and tokenizer is not None:
                rows[name] = fertility(kept.tables[tokenizer.do_lower_case].items(), _tokens(tokenizer))
    fewer = None
    if len(learned) < wanted.size and len(counts) >= room:
        fewer = f"--memory is enough for the {room:,} most frequent words only; raise it"
    elif len(learned) < wanted.size:
        fewer = "no other word or part of a word occurs twice in this text; use more text"
    found: dict[str, JsonLike] = {
        "out": str(out),
        "size": len(learned),
        "fewer_because": fewer,
        "documents": report.documents,
        "skipped": dict(report.skipped),
        "duplicates": None if duplicates is None else asdict(duplicates),
        "held_out": {name: _facts(row) for name, row in rows.items()} if rows["learned"].words else None,
    }
    if common.json:
        write_json(found)
        return
    write_line(f"{counted(len(learned), 'token')} in {out}; {counted(report.documents, 'document')} read")
    if fewer is not None:
        write_line(f"smaller than requested: {fewer}")
    if report.skipped:
        write_line(f"skipped: {report.summary()}")
    if duplicates is not None:
        write_line(duplicates.render())
    _show_fit(rows)


def _without_duplicates(
    documents: Iterable[Document], kind: Dedup | None, memory: int | None
) -> tuple[Iterable[Document], DedupReport | None]:
    """The documents, and the report that is filled while they are read; None where all are kept."""
    if kind is None:
        return documents, None
    from bertkit.data.corpus.near_duplicates import DedupReport, documents_within, drop_duplicates

    report, limit = DedupReport(), documents_within(memory, kind)
    return drop_duplicates(documents, near=kind == "near", report=report, max_documents=limit), report


class _HeldOut:
    """Holds documents out, by their text alone, and counts their words under each normalization that is compared."""

    def __init__(self, share: float, kinds: Iterable[bool], memory: int) -> None:
        from bertkit.tokenization.learn.word_counts import MIN_MEMORY, WordCounter

        if not 0 <= share < 1:
            raise ConfigError(f"--held-out must be from 0 to under 1, got {share}")
        self.limit = int(share * (1 << 32))
        # A small share of the text needs little memory.
        memory = max(MIN_MEMORY, memory // 8)
        self.tables: dict[bool, WordCounter] = {lower: WordCounter(lower, memory=memory) for lower in kinds}

    def without(self, documents: Iterable[Document]) -> Iterator[str]:
        """The sentences of the documents that are not held out."""
        for document in progress(documents, label="reading text", unit="documents"):
            if zlib.crc32("\n".join(document.sentences).encode("utf-8", "replace")) < self.limit:
                for table in self.tables.values():
                    table.add(document.sentences)
            else:
                yield from document.sentences


def _check_out(out: Path, overwrite: bool) -> None:
    """Find what prevents writing to ``--out`` now, not after an hour of counting."""
    from bertkit.tokenization.formats.vocabulary_files import WORDPIECE

    existing = next(path for path in (out, *out.absolute().parents) if os.path.lexists(path))
    if not existing.is_dir():
        raise ConfigError(f"--out {out} is a file, or lies in one; give the name of a folder")
    check_writable(out, existing)
    if overwrite or not out.is_dir():
        return
    names = sorted(path.name for path in out.iterdir() if path.name != LOCK)
    if old := [name for name in WORDPIECE.files if name in names]:
        raise ConfigError(
            f"--out {out} already holds a tokenizer ({old[0]}), which token stores and models may have been made with; "
            "choose another folder, or add --overwrite to replace it"
        )
    if names:
        raise ConfigError(f"--out {out} holds other files ({shorten(names)}); choose a new folder, or add --overwrite")


def _check_base(base: BertTokenizer | None, wanted: Wanted) -> None:
    if base is None:
        return
    if wanted.cased and base.do_lower_case:
        raise ConfigError(f"--cased contradicts --extend {wanted.extend}, which lower-cases")
    if wanted.size < len(base.vocab):
        raise ConfigError(
            f"--size {wanted.size:,} is less than the {len(base.vocab):,} tokens of --extend {wanted.extend}; "
            "vocabularies only grow"
        )


def _shared_out(memory: str | None, dedup: str | None) -> tuple[int, int | None]:
    """Bytes for words and for seen documents; None means no limit."""
    from bertkit.tokenization.learn.word_counts import DEFAULT_MEMORY

    if memory is None:
        return DEFAULT_MEMORY, None
    given = bytes_of(memory)
    return (given, None) if dedup is None else (given - given // 2, given // 2)


def _load(name: str | None, option: str) -> BertTokenizer | None:
    if name is None:
        return None
    from bertkit.tokenization.auto_tokenizer import AutoTokenizer
    from bertkit.tokenization.bert_tokenizer import BertTokenizer

    found = AutoTokenizer.from_pretrained(name)
    if not isinstance(found, BertTokenizer):
        raise ConfigError(
            f"{option} {name} is a {type(found).__name__}, and 'bertkit vocab' works with WordPiece vocabularies "
            "only; a model with this tokenizer goes on with its own vocabulary: bertkit prepare CORPUS --tokenizer "
            f"{name} --out STORE"
        )
    return found


def _tokens(tokenizer: BertTokenizer) -> list[str]:
    return sorted(tokenizer.vocab, key=tokenizer.vocab.__getitem__)


def _save(learned: list[str], lower: bool, base: BertTokenizer | None, out: Path) -> None:
    from bertkit.tokenization.bert_tokenizer import BertTokenizer

    vocabulary = {token: number for number, token in enumerate(learned)}
    made = BertTokenizer if base is None else type(base)
    names = () if base is None else ("strip_accents", "tokenize_chinese_chars", "model_max_length")
    made(vocabulary, lower, **{name: getattr(base, name) for name in names}).save_pretrained(out)


def _facts(row: Fertility) -> dict[str, float]:
    return {**asdict(row), "pieces_per_word": row.pieces_per_word, "unknown_rate": row.unknown_rate}


def _show_fit(rows: dict[str, Fertility]) -> None:
    if not rows["learned"].words:
        write_line("no document was held out, so the fit was not measured (see --held-out)")
        return
    width = max(13, *map(len, rows))
    write_line(f"{'held-out text':<{width}}  pieces per word   [UNK]")
    for name, row in rows.items():
        write_line(f"{name:<{width}}  {row.pieces_per_word:>15.3f}  {100 * row.unknown_rate:>5.2f} %")
