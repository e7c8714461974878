"""A corpus becomes the same store whatever the workers, the kills and the memory; and what is in it is the corpus."""

from __future__ import annotations

import io
import itertools
import json
import lzma
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertkit.cli.amounts import bytes_of
from bertkit.cli.common_options import Common, CorpusReading
from bertkit.cli.prepare import Work
from bertkit.cli.prepare import prepare as command
from bertkit.data.corpus.documents import CorpusReport, read_documents
from bertkit.data.store.prepare import BASE_MEMORY, WORKER_MEMORY, prepare, workers_within
from bertkit.data.store.store_report import Histogram, inspect_store
from bertkit.data.store.store_writer import StoreWriter
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import ConfigError, DataError, InputError, ResourceError
from bertkit.tokenization import BertTokenizer, FullTokenizer
from pretrain_helpers import SPECIALS
from tokenizer_helpers import vocab_file

#: Small, so that a small corpus has many of each.
SMALL: dict[str, Any] = {"chunk_chars": 20_000, "shard_text_bytes": 60_000}


@pytest.fixture(scope="module")
def vocabulary(shared: Path) -> Path:
    return vocab_file(shared, "uncased")


@pytest.fixture(scope="module")
def tokenizer(vocabulary: Path) -> BertTokenizer:
    return BertTokenizer(vocab_file=vocabulary)


@pytest.fixture(scope="module")
def corpus(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first 250 kB of real text: paragraphs, a blank line between documents."""
    path = tmp_path_factory.mktemp("corpus") / "wiki.txt"
    with lzma.open(shared / "data" / "pretrain_text" / "wikipedia_en.valid.txt.xz", "rt", encoding="utf-8") as text:
        path.write_text(text.read(250_000), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def store(corpus: Path, tokenizer: BertTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores") / "one"
    prepare(corpus, tokenizer, folder, workers=1, **SMALL)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize("sentences", ["split", "line"])
def test_the_store_is_the_corpus(corpus: Path, vocabulary: Path, tokenizer: BertTokenizer, tmp_path: Path, sentences):
    manifest = prepare(corpus, tokenizer, tmp_path / "s", sentences=sentences, workers=1, **SMALL)
    store = TokenStore(tmp_path / "s")
    reference = FullTokenizer(vocabulary)
    documents = list(read_documents(corpus, sentences=sentences))
    assert len(store) == len(documents) == manifest.counts.num_documents
    assert len(manifest.shards) > 3
    for number, document in list(enumerate(documents))[:: 1 + len(documents) // 40]:
        rows = [reference.convert_tokens_to_ids(reference.tokenize(sentence)) for sentence in document.sentences]
        first, end = store.document_boundaries[number : number + 2].tolist()
        assert [store.tokens(place, place + 1).tolist() for place in range(first, end)] == rows
        assert store.source_of(number) == document.source
    whole = [sentence for document in documents for sentence in document.sentences]
    assert manifest.counts.num_sentences == len(whole)
    assert manifest.counts.text_bytes == sum(len(sentence.encode()) + 1 for sentence in whole)


@pytest.mark.slow
def test_the_bytes_do_not_depend_on_the_workers(corpus: Path, tokenizer: BertTokenizer, store: Path, tmp_path: Path):
    tokenizer.encode_ragged(["warm", "words", "change", "nothing"])
    prepare(corpus, tokenizer, tmp_path / "two", workers=2, **SMALL)
    assert content(tmp_path / "two") == content(store)
    prepare(corpus, tokenizer, tmp_path / "line", sentences="line", workers=1, **SMALL)
    assert content(tmp_path / "line") != content(store)


def test_the_names_of_special_tokens_are_text(tokenizer: BertTokenizer, vocabulary: Path, tmp_path: Path) -> None:
    lines = ["The [MASK] of [CLS] is [SEP][PAD] here.", "[UNK]", "\u200b", "a [mask] b"]
    (tmp_path / "c.txt").write_text("\n".join(lines) + "\n\n\u200b\n\nlast one\n", encoding="utf-8")
    manifest = prepare(tmp_path / "c.txt", tokenizer, tmp_path / "s", sentences="line", workers=1)
    store = TokenStore(tmp_path / "s")
    ids = store.tokens(0, 4).tolist()
    assert not set(ids) & set(tokenizer.all_special_ids)
    assert set(tokenizer.encode(lines[0], add_special_tokens=False)) & set(tokenizer.all_special_ids)  # as usual
    assert tokenizer.convert_ids_to_tokens(store.tokens(1, 2)) == ["[", "un", "##k", "]"]
    # What gives no token is not stored, nor is a document of nothing else.
    assert np.diff(store.document_boundaries).tolist() == [3, 1]
    assert manifest.counts.num_documents == 2
    assert manifest.counts.num_unknown == 0


def test_bad_input_is_reported_and_can_be_skipped(tokenizer: BertTokenizer, tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"good line\n\nb\xffd line\n\nlast line\n")
    with pytest.raises(DataError, match=r"bad\.txt:3"):
        prepare(bad, tokenizer, tmp_path / "s", sentences="line", workers=1)
    report = CorpusReport()
    assert not (tmp_path / "s").exists()
    manifest = prepare(bad, tokenizer, tmp_path / "s", sentences="line", workers=1, on_error="skip", report=report)
    assert (manifest.counts.num_documents, report.skipped.total()) == (2, 1)
    with pytest.raises(DataError, match="no file"):
        prepare(tmp_path / "missing.txt", tokenizer, tmp_path / "u", workers=1)
    with pytest.raises((ConfigError, InputError), match="split"):
        prepare(bad, tokenizer, tmp_path / "v", sentences="words", workers=1)  # type: ignore[arg-type]
    assert not (tmp_path / "u").exists()
    assert not (tmp_path / "v").exists()


def test_memory_limits_the_workers() -> None:
    assert workers_within(None, 7) == 7
    assert workers_within(BASE_MEMORY + 3 * WORKER_MEMORY + 1, 7) == 3
    assert workers_within(BASE_MEMORY + 9 * WORKER_MEMORY, 7) == 7
    with pytest.raises(ConfigError, match="at least"):
        workers_within(BASE_MEMORY + WORKER_MEMORY - 1, 7)
    with pytest.raises(ConfigError, match="--memory must be at least 1050MB for one worker, got 512MB; leave it out"):
        workers_within(bytes_of("0.5GB"), 7)
    workers_within(bytes_of("1050MB"), 7)  # what it asks for will do
    with pytest.raises(ConfigError, match="workers must be at least 1"):
        workers_within(None, 0)


# Kills

PROGRAM = """
import sys
from bertkit.data.store.prepare import prepare

if __name__ == "__main__":
    corpus, tokenizer, out, workers = sys.argv[1:]
    print("begin", flush=True)
    prepare(corpus, tokenizer, out, workers=int(workers), chunk_chars=20_000, shard_text_bytes=60_000)
"""


def killed_run(command: list[str], after_s: float) -> bool:
    """Start a preparation, kill it after some time, and tell whether it was finished before."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)
        return process.wait() == 0


def kills(corpus: Path, tokenizer: BertTokenizer, store: Path, tmp_path: Path, *, number: int, workers: int) -> None:
    tokenizer.save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "program.py").write_text(PROGRAM)
    out = tmp_path / "killed"
    command = [sys.executable, str(tmp_path / "program.py"), str(corpus), str(tmp_path / "tokenizer"), str(out)]
    draw = random.Random(number + 1)
    finished = [killed_run([*command, str(workers)], draw.uniform(0.0, 1.5)) for _ in range(number)]
    assert not all(finished)
    if not (out / "manifest.json").exists():
        subprocess.run([*command, str(workers)], check=True, capture_output=True)
    names = {name for name in content(out) if not name.endswith((".lock", ".writing", "progress.json"))}
    expected = content(store)
    assert names == {name for name in expected if not name.endswith(".lock")}
    assert all((out / name).read_bytes() == expected[name] for name in names)


@pytest.mark.slow
def test_killed_at_any_moment_it_goes_on(corpus: Path, tokenizer: BertTokenizer, store: Path, tmp_path: Path) -> None:
    kills(corpus, tokenizer, store, tmp_path, number=2, workers=1)


@pytest.mark.campaign
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_twenty_times(corpus: Path, tokenizer: BertTokenizer, store: Path, tmp_path: Path, workers: int) -> None:
    kills(corpus, tokenizer, store, tmp_path, number=20, workers=workers)


# Looking


@pytest.mark.slow
def test_the_report_counts(store: Path) -> None:
    report = inspect_store(store, num_samples=4)
    opened = TokenStore(store)
    assert report.manifest == opened.manifest
    assert sum(report.documents.counts) == len(opened)
    assert sum(report.sentences.counts) == len(opened.sentence_lengths)
    assert report.sentences.counts[0] == int((opened.sentence_lengths <= 4).sum())
    assert report.sentences.counts[-1] == int((opened.sentence_lengths > 512).sum())
    assert len(report.samples) == 4
    assert (report.samples[0].document, report.samples[-1].document) == (0, len(opened) - 1)
    text = report.render()
    assert f"{len(opened):,}" in text
    assert report.samples[0].text in text
    assert report.to_dict()["documents"]["longest"] == report.documents.longest


def test_histogram_of_known_lengths() -> None:
    histogram = Histogram.of(np.array([1, 4, 5, 8, 9, 100]), (4, 8))
    assert histogram.counts == (2, 2, 2)
    assert (histogram.median, histogram.longest) == (6.5, 100)
    assert "longest 100" in histogram.lines("sentence")[0]


# The command


@pytest.mark.slow
def test_the_command_writes_a_store_and_tells_of_it(corpus: Path, vocabulary: Path, tmp_path: Path, capsys) -> None:
    command(
        str(corpus),
        tokenizer=str(vocabulary),
        out=tmp_path / "s",
        work=Work(workers=1),
        common=Common(json=True, quiet=True),
    )
    told = json.loads(capsys.readouterr().out)
    assert told["counts"] == TokenStore(tmp_path / "s").manifest.counts.model_dump()
    (tmp_path / "bad.txt").write_bytes(b"good line\n\nb\xffd line\n")
    command(
        str(tmp_path / "bad.txt"), tokenizer=str(vocabulary), out=tmp_path / "t", work=Work(workers=1),
        reading=CorpusReading(on_error="skip"), sentences="line", common=Common(quiet=True),
    )  # fmt: skip
    assert "skipped: bad UTF-8 1" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="no corpus"):
        command(tokenizer=str(vocabulary), out=tmp_path / "u")
    with pytest.raises(ConfigError, match="memory must be at least"):
        command(str(corpus), tokenizer=str(vocabulary), out=tmp_path / "u", work=Work(memory="1MB"))
    assert not (tmp_path / "u").exists()
    for out in (corpus, corpus / "store"):
        with pytest.raises(ConfigError, match=r" is a file, or lies in one; give the name of a folder"):
            command(str(corpus), tokenizer=str(vocabulary), out=out)


# Duplicates


@pytest.fixture(scope="module")
def repetitive(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of the corpus, some of them again: as they are, in capitals, or with one word more."""
    documents = corpus.read_text(encoding="utf-8").strip().split("\n\n")[:60]
    long = [document for document in documents if len(document.split()) > 100]
    path = tmp_path_factory.mktemp("repetitive") / "c.txt"
    again = [documents[3], documents[4].upper(), *(f"{document} indeed" for document in long[-5:])]
    path.write_text("\n\n".join([*documents, *again, *documents[:2]]) + "\n", encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("dedup", ["exact", "near"])
def test_duplicates_are_left_out_and_told_of(
    repetitive: Path, tokenizer: BertTokenizer, tmp_path: Path, capsys, dedup: Any
) -> None:
    plain = prepare(repetitive, tokenizer, tmp_path / "all", sentences="line", workers=1, **SMALL)
    manifest = prepare(repetitive, tokenizer, tmp_path / "one", sentences="line", workers=1, dedup=dedup, **SMALL)
    found = manifest.duplicates
    assert plain.duplicates is None
    assert found is not None
    assert (found.exact, found.near) == (4, 5 if dedup == "near" else 0)
    assert manifest.counts.num_documents == found.kept == plain.counts.num_documents - found.exact - found.near
    assert found.dropped_bytes == plain.counts.text_bytes - manifest.counts.text_bytes
    lines = repetitive.read_text(encoding="utf-8").split("\n")
    for dropped, kept in found.examples:
        one, other = (lines[int(source.rpartition(":")[2]) - 1].lower() for source in (dropped, kept))
        assert one == other or (dedup == "near" and (one == f"{other} indeed" or not one.endswith(" indeed")))
    path = tmp_path / "one" / "manifest.json"
    assert found == TokenStore(path.parent).manifest.duplicates
    assert (
        f"{found.examples[0][0]} dropped, a duplicate of {found.examples[0][1]}"
        in inspect_store(tmp_path / "one").render()
    )
    path.write_text(re.sub(r'"exact": \d+,', "", path.read_text()))
    with pytest.raises(DataError, match=r"damaged: duplicates lacks .*exact"):
        TokenStore(path.parent)


@pytest.mark.campaign
@pytest.mark.slow
def test_duplicates_of_a_stopped_preparation(
    repetitive: Path, tokenizer: BertTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped after some shards, gone on with other workers: the same bytes, the report of the whole corpus."""
    settings: dict[str, Any] = {"dedup": "near", "sentences": "line", "chunk_chars": 5000, "shard_text_bytes": 9000}
    prepare(repetitive, tokenizer, tmp_path / "whole", workers=1, **settings)
    add, added = StoreWriter.add, []

    def stopping(writer: StoreWriter, chunk: Any) -> None:
        add(writer, chunk)
        added.append(chunk)
        if len(added) == 7:
            raise KeyboardInterrupt

    monkeypatch.setattr(StoreWriter, "add", stopping)
    with pytest.raises(KeyboardInterrupt):
        prepare(repetitive, tokenizer, tmp_path / "parts", workers=1, **settings)
    monkeypatch.undo()
    assert list((tmp_path / "parts").glob("tokens-*.parquet"))
    with pytest.raises(ConfigError, match="was started with other settings"):
        prepare(repetitive, tokenizer, tmp_path / "parts", workers=1, **{**settings, "dedup": "exact"})
    prepare(repetitive, tokenizer, tmp_path / "parts", workers=2, **settings)
    assert content(tmp_path / "parts") == content(tmp_path / "whole")


# Where the corpus is, and where the store


TOKENS = {"one": 5, "two": 6, "three": 7}
LINES = [f"{' '.join(words)}\n\n" for words in itertools.permutations(TOKENS)] * 40
TINY: dict[str, Any] = {"chunk_chars": 300, "shard_text_bytes": 900, "sentences": "line", "workers": 1}


@pytest.fixture(scope="module")
def words() -> BertTokenizer:
    return BertTokenizer({**{name: number for number, name in enumerate(SPECIALS)}, **TOKENS})


def stopped(monkeypatch: pytest.MonkeyPatch, corpus: Path | str, tokenizer: BertTokenizer, out: Path) -> list[Path]:
    """The shards of a preparation that ends at its ninth chunk."""
    add, added = StoreWriter.add, []

    def stopping(writer: StoreWriter, chunk: Any) -> None:
        add(writer, chunk)
        added.append(chunk)
        if len(added) == 9:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(StoreWriter, "add", stopping)
        with pytest.raises(KeyboardInterrupt):
            prepare(corpus, tokenizer, out, **TINY)
    shards = sorted(out.glob("tokens-*.parquet"))
    assert len(shards) > 1
    return shards


def test_standard_input_deletes_no_shards_of_another_corpus(
    words: BertTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.txt").write_text("".join(LINES))
    shards = stopped(monkeypatch, tmp_path / "c.txt", words, tmp_path / "s")
    before = [shard.read_bytes() for shard in shards]

    def give(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    give("three\n")
    with pytest.raises(ConfigError, match=r"was started with other inputs; choose another --out, or .*--no-resume"):
        prepare("-", words, tmp_path / "s", **TINY)
    assert [shard.read_bytes() for shard in shards] == before
    give("three\n")
    assert prepare("-", words, tmp_path / "s", **TINY, resume=False).counts.num_tokens == 1
    # A text from standard input is never known to be the one of before.
    give("".join(LINES))
    stopped(monkeypatch, "-", words, tmp_path / "t")
    give("".join(LINES))
    with pytest.raises(ConfigError, match="was started with other inputs"):
        prepare("-", words, tmp_path / "t", **TINY)


def test_a_store_in_the_folder_of_its_corpus(
    words: BertTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It can be continued, and neither its shards nor its vocabulary are texts for what reads the folder later."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "c.txt").write_text("".join(LINES))
    texts = list(read_documents(corpus))
    whole = prepare(corpus, words, tmp_path / "whole", **TINY)
    stopped(monkeypatch, corpus, words, corpus / "store")
    assert list(read_documents(corpus)) == texts
    assert prepare(corpus, words, corpus / "store", **TINY) == whole
    assert content(corpus / "store") == content(tmp_path / "whole")
    assert list(read_documents(corpus)) == texts
    assert list(read_documents(str(corpus / "**"))) == texts
    assert prepare(corpus, words, corpus / "again", **TINY) == whole
    shard = next((corpus / "store").glob("tokens-*.parquet"))
    for store in (corpus / "store", corpus / "store" / "tokenizer", shard):
        with pytest.raises(DataError, match="nothing but ids of tokens: it is a token store"):
            read_documents(store)


def test_texts_that_only_look_like_a_store(tmp_path: Path) -> None:
    """Control: names alone leave out nothing."""
    for name in ("manifest.json", "progress.json", "tokenizer/a.json", "tokens-00000.parquet.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"text": "one", "shards": "two"}')
    assert len(list(read_documents(tmp_path))) == 4


def test_memory_bounds_what_is_remembered_of_documents(repetitive: Path, tokenizer: BertTokenizer, tmp_path: Path):
    memory = BASE_MEMORY + WORKER_MEMORY + 2 * 3200 * 20
    with pytest.raises(ResourceError, match=r"full: 20 different documents before .*c\.txt:\d+, at 3,200 .*--memory"):
        prepare(repetitive, tokenizer, tmp_path / "s", workers=1, dedup="near", memory=memory)
    with pytest.raises(ConfigError, match="dedup must be"):
        prepare(repetitive, tokenizer, tmp_path / "t", dedup="fuzzy")  # type: ignore[arg-type]
