"""A token store gives back what was written, is whole or visibly not, and never gives wrong ids."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.data.corpus.store_folders import MANIFEST, PROGRESS
from bertkit.data.store.store_manifest import Counts, id_type_for
from bertkit.data.store.store_writer import StoreWriter, TokenizedChunk
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import ConfigError, DataError, InputError
from bertkit.tokenization import BertTokenizer
from bertkit.tokenization.digest import tokenizer_digest

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
Documents = list[list[list[int]]]


def make_tokenizer(size: int = 300, **arguments: Any) -> BertTokenizer:
    return BertTokenizer(
        {token: number for number, token in enumerate([*SPECIAL, *map(str, range(5, size))])}, **arguments
    )


TOKENIZER = make_tokenizer()
LARGE = make_tokenizer(70_000)


def make_chunk(documents: Documents, id_type: str = "uint16", *, first: int = 0, num_read: int | None = None):
    sentences = [sentence for document in documents for sentence in document]
    ids = [number for sentence in sentences for number in sentence]
    counts = Counts(
        num_documents=len(documents),
        num_sentences=len(sentences),
        num_tokens=len(ids),
        num_unknown=ids.count(1),
        text_bytes=5 * len(ids),
    )
    return TokenizedChunk(
        ids=np.array(ids, id_type),
        sentence_lengths=np.array([len(sentence) for sentence in sentences], np.int32),
        document_lengths=np.array([len(document) for document in documents], np.int32),
        sources=[f"corpus.txt:{first + number}" for number in range(len(documents))],
        counts=counts,
        num_read=len(documents) if num_read is None else num_read,
    )


def write(folder: Path, chunks: list[Documents], tokenizer: BertTokenizer = TOKENIZER, **arguments: Any) -> TokenStore:
    arguments = {"settings": {"sentences": "line"}, **arguments}
    first = 0
    with StoreWriter(folder, tokenizer, **arguments) as writer:
        for documents in chunks:
            writer.add(make_chunk(documents, id_type_for(len(tokenizer)), first=first))
            first += len(documents)
        writer.finish()
    return TokenStore(folder)


def random_chunks(seed: int, chunks: int, documents: int, top: int = 300) -> list[Documents]:
    draw = random.Random(seed)
    return [
        [
            [[draw.randrange(1, top) for _ in range(draw.randint(1, 9))] for _ in range(draw.randint(1, 6))]
            for _ in range(documents)
        ]
        for _ in range(chunks)
    ]


def flat(sentences: list[list[int]]) -> list[int]:
    return [number for sentence in sentences for number in sentence]


def agrees(store: TokenStore, chunks: list[Documents]) -> bool:
    """Whether every document, and every range of sentences up to a length, is what was written."""
    documents = [document for chunk in chunks for document in chunk]
    sentences = [sentence for document in documents for sentence in document]
    spans = [
        (first, end) for first in range(len(sentences) + 1) for end in range(first, min(first + 9, len(sentences) + 1))
    ]
    return (
        len(store) == len(documents)
        and store.sentence_lengths.tolist() == [len(sentence) for sentence in sentences]
        and np.diff(store.sentence_boundaries).tolist() == store.sentence_lengths.tolist()
        and np.diff(store.document_boundaries).tolist() == [len(document) for document in documents]
        and all(store.tokens_of(number).tolist() == flat(document) for number, document in enumerate(documents))
        and all(store.tokens(first, end).tolist() == flat(sentences[first:end]) for first, end in spans)
        and [store.source_of(number) for number in range(len(store))]
        == [f"corpus.txt:{number}" for number in range(len(store))]
    )


SENTENCE = st.lists(st.integers(1, 299), min_size=1, max_size=5)
DOCUMENT = st.lists(SENTENCE, min_size=1, max_size=4)
CHUNKS = st.lists(st.lists(DOCUMENT, min_size=1, max_size=4), min_size=1, max_size=5)


@pytest.mark.slow
@given(CHUNKS, st.integers(1, 200), st.sampled_from([0, 50, 1 << 20]))
def test_what_was_written_comes_back(tmp_path_factory, chunks, shard_text_bytes, cache_bytes):
    folder = tmp_path_factory.mktemp("store")
    write(folder, chunks, shard_text_bytes=shard_text_bytes)
    store = TokenStore(folder, cache_bytes=cache_bytes)
    assert agrees(store, chunks)
    assert store._cached_bytes <= max(cache_bytes, 2 * 80)
    changed = [*chunks[:-1], [*chunks[-1], [[7]]]]
    assert not agrees(store, changed)  # the comparison can fail


def test_the_types_are_those_promised(tmp_path: Path) -> None:
    store = write(tmp_path, random_chunks(0, 3, 4))
    assert store.sentence_lengths.dtype == store.tokens(0, 3).dtype == store.tokens(2, 2).dtype == np.int32
    assert store.sentence_boundaries.dtype == store.document_boundaries.dtype == np.int64
    copy = store.tokens(0, 3)
    copy[:] = -100  # as masking does
    assert (store.tokens(0, 3) >= 0).all()
    with pytest.raises(ValueError, match="read-only"):
        store.sentence_lengths[0] = 1


def test_any_reader_of_parquet_opens_a_shard(tmp_path: Path) -> None:
    chunks = random_chunks(1, 4, 5)
    store = write(tmp_path, chunks, shard_text_bytes=300)
    names = [shard.name for shard in store.manifest.shards]
    assert names == [f"tokens-{number:05d}-of-{len(names):05d}.parquet" for number in range(len(names))]
    assert len(names) > 1
    rows = [row for name in names for row in pq.read_table(tmp_path / name).to_pylist()]
    documents = [document for chunk in chunks for document in chunk]
    assert [row["tokens"] for row in rows] == [flat(document) for document in documents]
    assert [row["sentence_lengths"] for row in rows] == [[len(one) for one in document] for document in documents]
    assert pq.read_schema(tmp_path / names[0]).field("tokens").type.value_type == pa.uint16()
    polars = pytest.importorskip("polars")
    frame = polars.read_parquet(tmp_path / names[0])
    assert frame["tokens"].to_list() == [row["tokens"] for row in rows[: len(frame)]]


def test_large_vocabularies_take_four_bytes(tmp_path: Path) -> None:
    assert [id_type_for(size) for size in (1, 65_536, 65_537)] == ["uint16", "uint16", "uint32"]
    store = write(tmp_path, [[[[69_999, 5]]]], LARGE)
    assert store.manifest.id_type == "uint32"
    assert store.tokens_of(0).tolist() == [69_999, 5]


def test_the_same_chunks_give_the_same_bytes(tmp_path: Path) -> None:
    chunks = random_chunks(2, 6, 5)
    for name in "ab":
        write(tmp_path / name, chunks, shard_text_bytes=500)
    assert content(tmp_path / "a") == content(tmp_path / "b")
    write(tmp_path / "c", chunks[::-1], shard_text_bytes=500)
    assert content(tmp_path / "a") != content(tmp_path / "c")


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_copy_reads_the_same_in_another_thread_and_after_pickling(tmp_path: Path) -> None:
    chunks = random_chunks(3, 4, 5)
    store = write(tmp_path, chunks, shard_text_bytes=200)
    assert agrees(pickle.loads(pickle.dumps(store)), chunks)
    store.cache_bytes = 100
    results: list[bool] = []
    threads = [threading.Thread(target=lambda: results.append(agrees(store, chunks))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


@pytest.mark.parametrize(("first", "end"), [(-1, 2), (2, 1), (0, 10_000)])
def test_sentences_that_are_not_there(tmp_path: Path, first: int, end: int) -> None:
    store = write(tmp_path, random_chunks(4, 1, 3))
    with pytest.raises(InputError, match=f"sentences {first} : {end} are not in"):
        store.tokens(first, end)
    with pytest.raises(InputError, match="document 3 is not in"):
        store.tokens_of(3)


# The tokenizer


def test_the_tokenizer_travels_with_the_store(tmp_path: Path) -> None:
    store = write(tmp_path, random_chunks(5, 1, 2))
    store.check_tokenizer(store.tokenizer())
    assert store.tokenizer().vocab == TOKENIZER.vocab
    for other in (make_tokenizer(301), make_tokenizer(do_lower_case=False), make_tokenizer(strip_accents=False)):
        with pytest.raises(DataError, match="made with another tokenizer"):
            store.check_tokenizer(other)


def test_the_digest_is_of_what_decides_the_ids(tmp_path: Path) -> None:
    digest = tokenizer_digest(TOKENIZER)
    assert digest == tokenizer_digest(make_tokenizer(model_max_length=64, source="elsewhere"))
    TOKENIZER.save_pretrained(tmp_path)
    assert digest == tokenizer_digest(BertTokenizer.from_pretrained(tmp_path))
    swapped = {token: {5: 6, 6: 5}.get(number, number) for token, number in TOKENIZER.vocab.items()}
    others = [
        BertTokenizer(swapped),
        make_tokenizer(max_input_chars_per_word=9),
        make_tokenizer(tokenize_chinese_chars=False),
    ]
    assert len({digest, *map(tokenizer_digest, others)}) == 4


# Damage


def spoil(folder: Path, change: str) -> None:
    shard = next(iter(sorted(folder.glob("*.parquet"))))
    manifest = folder / MANIFEST
    values = json.loads(manifest.read_text())
    match change:
        case "no shard":
            shard.unlink()
        case "short shard":
            shard.write_bytes(shard.read_bytes()[:-1])
        case "other shard":
            data = bytearray(shard.read_bytes())
            data[-8:] = b"\0" * 8
            shard.write_bytes(data)
        case "no manifest":
            manifest.unlink()
        case "not json":
            manifest.write_text("{")
        case "other version":
            manifest.write_text(json.dumps({**values, "format_version": 2}))
        case "other field":
            manifest.write_text(json.dumps({**values, "compression": "lz4"}))
        case "path in a name":
            values["shards"][0]["name"] = "../tokens-00000.parquet"
            manifest.write_text(json.dumps(values))
        case "other counts":
            values["counts"]["num_tokens"] += 1
            manifest.write_text(json.dumps(values))
        case "other counts of a shard":
            values["counts"]["num_tokens"] += 1
            values["shards"][0]["counts"]["num_tokens"] += 1
            manifest.write_text(json.dumps(values))
        case "other type":
            manifest.write_text(json.dumps({**values, "id_type": "uint32"}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("no shard", "is missing"),
        ("short shard", "the manifest says"),
        ("other shard", "cannot be read"),
        ("no manifest", "has no manifest.json.*bertkit prepare"),
        ("not json", "cannot be read as JSON"),
        ("other version", "format version 2"),
        ("other field", "compression"),
        ("path in a name", r"shards\.0\.name"),
        ("other counts", "not the sums"),
        ("other counts of a shard", "the manifest says"),
        ("other type", "other columns"),
    ],
)
def test_a_damaged_store_does_not_open(tmp_path: Path, change: str, message: str) -> None:
    write(tmp_path, random_chunks(6, 2, 4))
    spoil(tmp_path, change)
    with pytest.raises(DataError, match=message):
        TokenStore(tmp_path)


def test_no_store_at_all(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not there"):
        TokenStore(tmp_path / "nowhere")
    (tmp_path / "t.txt").touch()
    with pytest.raises(DataError, match=r"t\.txt is a file; a token store is a folder, made with: bertkit prepare"):
        TokenStore(tmp_path / "t.txt")


def test_a_flipped_bit_never_gives_wrong_ids(tmp_path: Path) -> None:
    chunks = random_chunks(7, 2, 6)
    store = write(tmp_path / "whole", chunks)
    store.verify()
    name = store.manifest.shards[0].name
    data = (tmp_path / "whole" / name).read_bytes()
    draw, refused = random.Random(0), 0
    shutil.copytree(tmp_path / "whole", tmp_path / "spoilt")
    # The footer, which has no checksum of its own, is left alone here: its damage is for verify() to find.
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    for place in draw.sample(range(4, footer), 150):
        spoilt = bytearray(data)
        spoilt[place] ^= 1 << draw.randrange(8)
        (tmp_path / "spoilt" / name).write_bytes(spoilt)
        try:
            again = TokenStore(tmp_path / "spoilt")
            assert (
                again.tokens(0, len(again.sentence_lengths)).tolist()
                == store.tokens(0, len(again.sentence_lengths)).tolist()
            )
        except DataError:
            refused += 1
    assert refused > 75  # most bytes are of ids and lengths
    (tmp_path / "whole" / name).write_bytes(data[:-20] + bytes([data[-20] ^ 1]) + data[-19:])
    with pytest.raises(DataError, match="damaged"):
        store.verify()


# Writing


def test_a_folder_that_is_taken_is_refused(tmp_path: Path) -> None:
    chunks = random_chunks(8, 1, 2)
    write(tmp_path / "store", chunks)
    with pytest.raises(ConfigError, match="finished token store"):
        write(tmp_path / "store", chunks)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.doc").touch()
    with pytest.raises(ConfigError, match=r"thesis\.doc"):
        write(tmp_path / "other", chunks)
    with (
        StoreWriter(tmp_path / "held", TOKENIZER, settings={}),
        pytest.raises(ConfigError, match="another process"),
    ):
        StoreWriter(tmp_path / "held", TOKENIZER, settings={})


def test_a_folder_that_is_refused_stays_as_it_was(tmp_path: Path) -> None:
    """Nothing is left in the folder of something else, and what looks like our own part is not taken for it."""
    chunks = random_chunks(8, 1, 2)
    for name in ("thesis.doc", "tokenizer"):
        (tmp_path / name / "folder").mkdir(parents=True)
        (tmp_path / name / "folder" / name).write_text("do not touch")
        with pytest.raises(ConfigError, match=f"is not empty .it has '{name}'"):
            write(tmp_path / name / "folder", chunks)
        assert [path.name for path in (tmp_path / name / "folder").iterdir()] == [name]
    write(tmp_path / "store", chunks)
    before = sorted(path.name for path in (tmp_path / "store").rglob("*"))
    with pytest.raises(ConfigError, match="finished token store"):
        write(tmp_path / "store", chunks)
    assert sorted(path.name for path in (tmp_path / "store").rglob("*")) == before
    assert ".lock" not in before
    file = tmp_path / "thesis.doc" / "folder" / "thesis.doc"
    for out in (file, file / "store"):
        with pytest.raises(ConfigError, match=r"thesis\.doc.* is a file, or lies in one; give the name of a folder"):
            write(out, chunks)
    assert file.read_text() == "do not touch"


@pytest.mark.parametrize("stop", [DataError("a bad line"), KeyboardInterrupt()], ids=["error", "Ctrl-C"])
def test_a_writer_that_stops_before_its_first_shard_leaves_nothing(tmp_path: Path, stop: BaseException) -> None:
    out, chunk = tmp_path / "store", make_chunk(random_chunks(8, 1, 2)[0])

    def begin(shard_text_bytes: int) -> None:
        with StoreWriter(out, TOKENIZER, settings={}, shard_text_bytes=shard_text_bytes) as writer:
            writer.add(chunk)
            assert {".lock", PROGRESS, "tokenizer"} < {path.name for path in out.iterdir()}
            raise stop

    with pytest.raises(type(stop)):
        begin(1 << 20)
    assert not out.exists()
    with pytest.raises(type(stop)):
        begin(1)
    assert sorted(path.name for path in out.iterdir()) == [PROGRESS, "tokenizer", "tokens-00000.parquet"]
    # A refused start takes nothing of it away.
    with pytest.raises(ConfigError, match=r"started with other settings.*--no-resume"):
        StoreWriter(out, TOKENIZER, settings={"sentences": "line"}, shard_text_bytes=1)
    with StoreWriter(out, TOKENIZER, settings={}, shard_text_bytes=1) as writer:
        assert writer.num_read == 2


def test_nothing_to_store(tmp_path: Path) -> None:
    with StoreWriter(tmp_path, TOKENIZER, settings={}) as writer:
        writer.add(make_chunk([], num_read=3))
        with pytest.raises(DataError, match="nothing to store"):
            writer.finish()


@pytest.mark.parametrize("stop", range(1, 7))
def test_a_writer_goes_on_where_another_stopped(tmp_path: Path, stop: int) -> None:
    chunks = random_chunks(9, 7, 3)
    write(tmp_path / "whole", chunks, shard_text_bytes=700)
    arguments: dict[str, Any] = {"settings": {"sentences": "line"}, "shard_text_bytes": 700}
    with StoreWriter(tmp_path / "parts", TOKENIZER, **arguments) as writer:
        for number, chunk in enumerate(chunks[:stop]):
            writer.add(make_chunk(chunk, first=3 * number))
    has_shards = bool(list((tmp_path / "parts").glob("tokens-*.parquet")))
    assert has_shards or stop < 3
    with pytest.raises(DataError, match="unfinished" if has_shards else "is not there"):
        TokenStore(tmp_path / "parts")
    with StoreWriter(tmp_path / "parts", TOKENIZER, **arguments) as writer:
        assert writer.num_read % 3 == 0
        assert writer.num_read <= 3 * stop
        for number in range(writer.num_read // 3, 7):
            writer.add(make_chunk(chunks[number], first=3 * number))
        writer.finish()
    assert content(tmp_path / "parts") == content(tmp_path / "whole")
    assert agrees(TokenStore(tmp_path / "parts"), chunks)


def test_a_kill_while_shards_get_their_names(tmp_path: Path) -> None:
    chunks = random_chunks(10, 6, 3)
    write(tmp_path / "whole", chunks, shard_text_bytes=1)
    arguments: dict[str, Any] = {"settings": {"sentences": "line"}, "shard_text_bytes": 1}
    with StoreWriter(tmp_path / "parts", TOKENIZER, **arguments) as writer:
        for number, chunk in enumerate(chunks):
            writer.add(make_chunk(chunk, first=3 * number))
        shards = len(list((tmp_path / "parts").glob("tokens-*.parquet")))
    first = tmp_path / "parts" / "tokens-00000.parquet"
    first.replace(first.with_name(f"tokens-00000-of-{shards:05d}.parquet"))
    (tmp_path / "parts" / "tokens-00099.parquet.writing").write_bytes(b"half")
    with StoreWriter(tmp_path / "parts", TOKENIZER, **arguments) as writer:
        assert writer.num_read == 18
        writer.finish()
    assert content(tmp_path / "parts") == content(tmp_path / "whole")


def test_another_corpus_does_not_go_on(tmp_path: Path) -> None:
    chunk = make_chunk(random_chunks(11, 1, 3)[0])
    begun: dict[str, Any] = {"settings": {"sentences": "line"}, "inputs": [["a.txt", 5]], "shard_text_bytes": 10}

    def begin(tokenizer: BertTokenizer = TOKENIZER, **changes: Any) -> int:
        with StoreWriter(tmp_path, tokenizer, **{**begun, **changes}) as writer:
            before = writer.num_read
            writer.add(chunk)
        return before

    assert [begin(), begin()] == [0, 3]
    with pytest.raises(ConfigError, match="started with other inputs"):
        begin(inputs=[["a.txt", 6]])
    with pytest.raises(ConfigError, match="started with other settings"):
        begin(settings={"sentences": "split"})
    with pytest.raises(ConfigError, match="started with other tokenizer"):
        begin(make_tokenizer(299))
    assert begin(inputs=[["a.txt", 6]], resume=False) == 0
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == ["tokens-00000.parquet"]
    next(tmp_path.glob("*.parquet")).write_bytes(b"")
    with pytest.raises(ConfigError, match="missing or damaged"):
        begin(inputs=[["a.txt", 6]])
    (tmp_path / PROGRESS).write_text("{}")
    with pytest.raises(ConfigError, match="cannot be used"):
        begin()


def test_a_path_that_parquet_cannot_take_is_refused_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"s\\xffe: .*must be UTF-8; choose another --out"):
        StoreWriter(tmp_path / os.fsdecode(b"s\xffe"), TOKENIZER, settings={})
    assert list(tmp_path.iterdir()) == []
