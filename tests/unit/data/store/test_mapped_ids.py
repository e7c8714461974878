"""The mapped copy of a large store: the same ids as the shards, whatever happened to the file or to who writes it."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from bertkit.data.store.mapped_ids import NAME, copies_of
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import DataError
from bertkit.system.atomic_files import try_lock
from pretrain_helpers import ToyTokens, random_tokens, write_store

TOKENS = random_tokens(21, 40)
#: Maps a store in a process of its own, perhaps one that may write only small files, and tells what it reads.
WORKER = """
import hashlib, resource, sys
from bertkit.data.store.token_store import TokenStore
if int(sys.argv[2]):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
store = TokenStore(sys.argv[1], cache_bytes=0)
made = store.make_random_access()
print(made, hashlib.sha256(store.tokens(0, len(store.sentence_lengths)).tobytes()).hexdigest())
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return write_store(TOKENS, tmp_path / "store", documents_a_group=3, groups_a_shard=5)


def large(folder: Path) -> TokenStore:
    """As it is opened where its ids do not fit into memory."""
    return TokenStore(folder, cache_bytes=0)


def everything(tokens: TokenStore | ToyTokens) -> list[int]:
    ids: list[int] = tokens.tokens(0, len(tokens.sentence_boundaries) - 1).tolist()
    return ids


def agrees(found: TokenStore, tokens: ToyTokens = TOKENS) -> bool:
    """In boundaries, as a whole, and in spans of sentences that are read in random order."""
    draw = random.Random(0)
    num_sentences = len(tokens.sentence_boundaries) - 1
    spans = [sorted((draw.randint(0, num_sentences), draw.randint(0, num_sentences))) for _ in range(60)]
    return (
        np.array_equal(found.sentence_boundaries, tokens.sentence_boundaries)
        and np.array_equal(found.document_boundaries, tokens.document_boundaries)
        and np.array_equal(found.sentence_lengths, np.diff(tokens.sentence_boundaries))
        and all(found.tokens(a, b).tolist() == tokens.tokens(a, b).tolist() for a, b in spans)
        and everything(found) == everything(tokens)
        and [found.source_of(d) for d in (0, 17, len(found) - 1)]
        == [f"corpus.txt:{d}" for d in (0, 17, len(found) - 1)]
    )


@pytest.mark.slow
def test_a_mapped_store_reads_the_same(store: Path) -> None:
    found = large(store)
    assert agrees(found)
    assert not (store / NAME).exists(), "reading alone writes nothing"
    assert found.make_random_access()
    assert agrees(found)
    assert agrees(large(store))
    assert found.tokens(0, 3).dtype == np.int32
    found.tokens(0, 3)[:] = -100  # a copy, as masking needs it
    assert agrees(found)
    with pytest.raises(ValueError, match="read-only"):
        found.sentence_boundaries[0] = 1
    other = random_tokens(22, 40)
    assert not agrees(found, other), "the comparison can fail"


def test_a_store_that_fits_into_memory_is_left_alone(store: Path, cache: Path) -> None:
    found = TokenStore(store)
    assert found.make_random_access()
    assert found._mapped is None
    assert not cache.exists()
    assert not (store / NAME).exists()


def test_a_mapped_store_decodes_no_shard(store: Path) -> None:
    large(store).make_random_access()
    for path in store.glob("*.parquet"):  # the ids are most of it; footers stay as they are
        data = bytearray(path.read_bytes())
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        data[4:footer] = bytes(footer - 4)
        path.write_bytes(data)
    assert everything(large(store)) == everything(TOKENS)
    with pytest.raises(DataError, match="cannot be read"):
        everything(TokenStore(store))


def test_the_file_has_the_ids_as_they_are(store: Path) -> None:
    large(store).make_random_access()
    assert np.fromfile(store / NAME, "<u2", TOKENS.num_tokens).tolist() == everything(TOKENS)


@pytest.mark.slow
def test_large_vocabularies_are_mapped_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pretrain_helpers

    monkeypatch.setattr(pretrain_helpers, "FIRST", 66_000)
    tokens = random_tokens(23, 5)
    found = large(write_store(tokens, tmp_path / "store", documents_a_group=2))
    assert found.manifest.id_type == "uint32"
    assert found.make_random_access()
    assert min(everything(found)) == 66_000
    assert everything(found) == everything(tokens) == everything(large(tmp_path / "store"))


# ---------------------------------------------------------------------------------------------- damaged or stale


def damage(path: Path, how: str) -> None:
    data = path.read_bytes()
    match how:
        case "empty":
            data = b""
        case "short":
            data = data[:-1]
        case "half":
            data = data[: len(data) // 2]
        case "ids":
            data = data[:99] + bytes([data[99] ^ 4]) + data[100:]
        case "boundaries":
            at = 2 * TOKENS.num_tokens + 64
            data = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        case "json":
            data = data[:-30] + bytes([data[-30] ^ 4]) + data[-29:]
        case "something else":
            data = b"It was a dark and stormy night." * 1000
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["empty", "short", "half", "ids", "boundaries", "json", "something else"])
def test_a_damaged_copy_is_written_again(store: Path, how: str, capfd: pytest.CaptureFixture[str]) -> None:
    large(store).make_random_access()
    whole = (store / NAME).read_bytes()
    damage(store / NAME, how)
    assert (store / NAME).read_bytes() != whole
    capfd.readouterr()
    found = large(store)
    assert found.make_random_access()
    assert agrees(found)
    assert (store / NAME).read_bytes() == whole
    said = capfd.readouterr().err
    assert f"writing {TOKENS.num_tokens:,} ids once" in said
    assert ("the checksum of block 0 is wrong; it is rewritten" in said) == (how == "ids")


@pytest.mark.slow
def test_a_flipped_bit_never_gives_wrong_ids(store: Path) -> None:
    large(store).make_random_access()
    whole = (store / NAME).read_bytes()
    draw = random.Random(0)
    for place in [*draw.sample(range(len(whole)), 8), *range(len(whole) - 20, len(whole), 5)]:
        spoilt = bytearray(whole)
        spoilt[place] ^= 1 << draw.randrange(8)
        (store / NAME).unlink()
        (store / NAME).write_bytes(spoilt)
        found = large(store)
        found.make_random_access()
        assert everything(found) == everything(TOKENS), place
        assert np.array_equal(found.sentence_boundaries, TOKENS.sentence_boundaries), place


@pytest.mark.slow
def test_a_copy_of_another_store_is_replaced(store: Path, tmp_path: Path) -> None:
    other = random_tokens(24, 40)
    write_store(other, tmp_path / "other", documents_a_group=3)
    large(tmp_path / "other").make_random_access()
    shutil.copy(tmp_path / "other" / NAME, store / NAME)
    before = (store / NAME).read_bytes()
    found = large(store)
    assert found._mapped is None
    assert agrees(found)
    assert found.make_random_access()
    assert agrees(found)
    assert (store / NAME).read_bytes() != before
    shutil.rmtree(store)  # the store is made anew, from other text, in the same place
    shutil.copytree(tmp_path / "other", store)
    assert agrees(large(store), other)


def test_damage_that_two_readers_meet_is_mended_once(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    large(store).make_random_access()
    damage(store / NAME, "ids")
    first, second = large(store), large(store)
    capfd.readouterr()
    assert everything(first) == everything(second) == everything(TOKENS)
    assert capfd.readouterr().err.count("ids once to") == 1


# ------------------------------------------------------------------------------------------- where it is written


def close_folder(folder: Path, how: str) -> None:
    """Make writing a copy there fail."""
    if how == "read-only":
        folder.chmod(0o555)
        if os.access(folder, os.W_OK):
            folder.chmod(0o755)
            pytest.skip("this user may write anywhere")
    else:  # fails for every user
        (folder / f".{NAME}.lock").mkdir()


@pytest.mark.parametrize("how", ["read-only", "occupied"])
def test_a_folder_that_cannot_be_written(store: Path, cache: Path, how: str) -> None:
    close_folder(store, how)
    found = large(store)
    assert found.make_random_access()
    assert agrees(found)
    assert not (store / NAME).exists()
    (copy,) = cache.rglob("*.ids")
    assert copies_of(store) == [store / NAME, copy]
    again = large(store)
    assert again._mapped is not None
    assert again._mapped.path == copy
    assert agrees(again)
    store.chmod(0o755)


@pytest.mark.slow
def test_no_place_at_all(store: Path, cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    close_folder(store, "occupied")
    cache.write_text("a file where a folder should be")
    found = large(store)
    assert not found.make_random_access()
    assert agrees(found)
    said = capfd.readouterr().err
    assert "is read the slow way" in said
    assert "set XDG_CACHE_HOME" in said
    assert "space for its" not in said


def run_worker(store: Path, limit: int = 0) -> Any:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(store), str(limit)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def digest(tokens: ToyTokens) -> str:
    return sha256(tokens.tokens(0, len(tokens.sentence_boundaries) - 1).tobytes()).hexdigest()


@pytest.mark.slow
def test_a_disk_that_fills_up_while_it_is_written(store: Path, cache: Path) -> None:
    out, err = run_worker(store, limit=TOKENS.num_tokens).communicate(timeout=60)
    assert out.split() == ["False", digest(TOKENS)]
    assert "no room for mapped.ids" in err
    assert not [path for path in (*store.iterdir(), *cache.rglob("*")) if path.suffix in (".tmp", ".ids")]


@pytest.mark.slow
def test_several_processes_write_it_once(store: Path) -> None:
    """All of them come to the lock before the first may have it."""
    with (store / f".{NAME}.lock").open("w") as lock:
        assert try_lock(lock)
        workers = [run_worker(store) for _ in range(2)]
        for worker in workers:
            assert "waiting for another process" in worker.stderr.readline()
    results = [worker.communicate(timeout=60) for worker in workers]
    assert [out.split() for out, _ in results] == [["True", digest(TOKENS)]] * 2
    assert sum(err.count("ids once to") for _, err in results) == 1
    assert agrees(large(store))


def test_a_writer_that_was_killed_leaves_nothing(store: Path) -> None:
    left = store / f".{NAME}.99999.tmp"
    left.write_bytes(b"half")
    assert large(store).make_random_access()
    assert not left.exists()


def test_a_damaged_shard_is_not_copied(store: Path) -> None:
    path = next(store.glob("*.parquet"))
    data = bytearray(path.read_bytes())
    ids = pq.read_metadata(path).row_group(0).column(2)
    start, size = ids.data_page_offset, ids.total_compressed_size
    data[start : start + size] = bytes(size)
    found = large(store)
    path.write_bytes(data)
    with pytest.raises(DataError, match="cannot be read"):
        found.make_random_access()
    assert not (store / NAME).exists()
    assert not list(store.glob(".*.tmp"))


def test_a_process_that_comes_later_needs_no_lock(store: Path) -> None:
    """Otherwise it would wait here for ever."""
    large(store).make_random_access()
    with (store / f".{NAME}.lock").open("w") as lock:
        assert try_lock(lock)
        assert large(store).make_random_access()
