"""On a Ray cluster (a local one of two CPUs) a corpus becomes the same store."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from bertkit.data.corpus.documents import CorpusReport
from bertkit.data.store.prepare import prepare
from bertkit.errors import ConfigError, DataError, MissingExtraError
from bertkit.tokenization import BertTokenizer
from pretrain_helpers import SPECIALS

pytestmark = pytest.mark.slow

WORDS = ["one", "two", "three", "go", "##es", "home", ",", ".", "river"]
SMALL: dict[str, Any] = {"chunk_chars": 3000, "shard_text_bytes": 5000, "sentences": "line"}


@pytest.fixture(scope="module")
def tokenizer() -> BertTokenizer:
    return BertTokenizer({word: number for number, word in enumerate([*SPECIALS, *WORDS])})


def test_standard_input_is_not_read_on_a_cluster(tokenizer: BertTokenizer, tmp_path: Path) -> None:
    """The process that reads has another standard input: it would find nothing there, or something else."""
    with pytest.raises(ConfigError, match="without your standard input; name files"):
        prepare(["-", __file__], tokenizer, tmp_path / "s", engine="ray")
    assert not (tmp_path / "s").exists()


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray = pytest.importorskip("ray")
        ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        yield ray
        ray.shutdown()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    draw = random.Random(0)
    line = lambda: " ".join(draw.choices([*WORDS, "goes", "unknown"], k=12))  # noqa: E731
    documents = ["\n".join(line() for _ in range(5)) for _ in range(60)]
    path = tmp_path / "c.txt"
    path.write_text("\n\n".join([*documents, *documents[:3]]) + "\n", encoding="utf-8")
    return path


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.campaign
def test_the_same_bytes_with_ray(
    ray: Any, corpus: Path, tokenizer: BertTokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # names of files are relative, as they are given
    reports = [CorpusReport(files=3, documents=40, examples=["of a call before"]) for _ in range(2)]
    for engine, report in zip(("local", "ray"), reports, strict=True):
        prepare(
            "c.txt", tokenizer, engine, engine=engine, dedup="exact", workers=2 if engine == "ray" else 1,
            report=report, **SMALL,
        )  # fmt: skip
    assert content(tmp_path / "ray") == content(tmp_path / "local")
    assert len(list((tmp_path / "ray").glob("tokens-*.parquet"))) > 1
    assert asdict(reports[0]) == asdict(reports[1])
    assert (reports[1].files, reports[1].documents) == (4, 103), "a report that was filled before is filled further"
    assert ray.is_initialized(), "a Ray that was there before stays"


@pytest.mark.campaign
def test_errors_and_resuming_with_ray(ray: Any, corpus: Path, tokenizer: BertTokenizer, tmp_path: Path) -> None:
    """A bad line on the cluster is the same error as here; after it is mended, finished shards are kept."""
    whole = corpus.read_bytes()
    prepare(corpus, tokenizer, tmp_path / "whole", workers=1, **SMALL)
    bad = whole[:-40] + b"\xff" + whole[-39:]
    corpus.write_bytes(bad)
    with pytest.raises(DataError, match=r"c\.txt:\d+: byte \d+ of the line \(0xff\) is not UTF-8"):
        prepare(corpus, tokenizer, tmp_path / "s", engine="ray", workers=2, **SMALL)
    with pytest.raises(DataError, match="is not UTF-8"):
        prepare(corpus, tokenizer, tmp_path / "s", workers=1, **SMALL)
    prepare(corpus, tokenizer, tmp_path / "s", engine="ray", workers=2, on_error="skip", **SMALL)
    prepare(corpus, tokenizer, tmp_path / "t", workers=1, on_error="skip", **SMALL)
    assert content(tmp_path / "s") == content(tmp_path / "t") != content(tmp_path / "whole")


def test_wrong_engines(tokenizer: BertTokenizer, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="engine must be 'local' or 'ray', got 'spark'"):
        prepare(corpus, tokenizer, tmp_path / "s", engine="spark")  # type: ignore[arg-type]
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    for memory in (None, 1 << 20):  # which limits the processes of this machine only
        with pytest.raises(MissingExtraError, match=r"pip install 'bertkit\[ray\]'"):
            prepare(corpus, tokenizer, tmp_path / "s", engine="ray", memory=memory)
    with pytest.raises(ConfigError, match="memory must be at least"):
        prepare(corpus, tokenizer, tmp_path / "s", memory=1 << 20)
