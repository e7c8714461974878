"""The command bertkit vocab."""

from __future__ import annotations

import json
import lzma
import os
from pathlib import Path

import pytest

from bertkit.cli import main
from bertkit.cli.amounts import bytes_of
from bertkit.cli.vocab import _shared_out
from bertkit.errors import ConfigError
from bertkit.system.atomic_files import LOCK, claimed_folder
from bertkit.system.console import amount_of
from bertkit.tokenization import BertTokenizer, load_vocab
from disk_helpers import read_only
from tokenizer_helpers import vocab_file


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main(["vocab", *map(str, arguments), "--quiet"])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.fixture(scope="module")
def corpus(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first 100 documents of some Wikinews."""
    with lzma.open(shared / "data/pretrain_text/wikinews_en.valid.txt.xz", "rt", encoding="utf-8") as file:
        documents = file.read().split("\n\n")[:100]
    path = tmp_path_factory.mktemp("corpus") / "news.txt"
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


@pytest.mark.slow
def test_learns_saves_and_measures_beside_others(
    corpus: Path, shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    published = vocab_file(shared, "uncased")
    code, out, _ = run(
        capsys, corpus, "--size", 2000, "--out", tmp_path, "--held-out", 0.2, "--beside", published, "--json"
    )
    assert code == 0
    result = json.loads(out)
    assert (result["size"], result["documents"]) == (2000, 100)
    learned, beside = result["held_out"]["learned"], result["held_out"][str(published)]
    assert learned["words"] == beside["words"] > 1000
    assert 1 < beside["pieces_per_word"] < learned["pieces_per_word"] < 2
    assert learned["unknown_rate"] < 0.01
    tokenizer = BertTokenizer.from_pretrained(tmp_path)
    assert len(tokenizer.vocab) == 2000
    assert tokenizer.do_lower_case
    assert tokenizer.mask_token_id == 103

    code, out, _ = run(capsys, corpus, "--size", 2000, "--out", tmp_path / "again", "--held-out", 0.2)
    assert (tmp_path / "again/vocab.txt").read_bytes() == (tmp_path / "vocab.txt").read_bytes()
    assert "2,000 tokens" in out
    assert "pieces per word" in out


@pytest.mark.slow
def test_shards_in_any_order_give_the_same_vocabulary(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = corpus.read_text(encoding="utf-8").strip().split("\n\n")
    for number in range(3):
        part = "\n\n".join(documents[number::3])
        (tmp_path / f"part-{2 - number}.txt").write_text(part, encoding="utf-8")
    for name, paths in (("whole", [corpus]), ("parts", [tmp_path / "part-*.txt"])):
        code, _, _ = run(capsys, *paths, "--size", 1500, "--out", tmp_path / name, "--held-out", 0.2)
        assert code == 0
    assert (tmp_path / "whole/vocab.txt").read_bytes() == (tmp_path / "parts/vocab.txt").read_bytes()


@pytest.mark.campaign
@pytest.mark.slow
def test_extends_and_keeps_case(corpus: Path, shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, error = run(
        capsys, corpus, "--extend", vocab_file(shared, "uncased"), "--out", tmp_path / "more", "--held-out", 0
    )
    assert code == 0, error
    before, after = load_vocab(vocab_file(shared, "uncased")), load_vocab(tmp_path / "more/vocab.txt")
    assert len(before) == len(after)
    assert {token for token in before if token not in after} <= {f"[unused{number}]" for number in range(994)}
    assert "wikinews" in after.keys() - before.keys()
    for wrong, message in (
        (["--size", 2000], "--size 2,000 is less than the 30,522 tokens"),
        (["--cased"], "--cased contradicts"),
    ):
        code, _, error = run(
            capsys, corpus, "--extend", vocab_file(shared, "uncased"), "--out", tmp_path / "no", *wrong
        )
        assert code == 2
        assert message in error
    code, _, _ = run(capsys, corpus, "--size", 2000, "--cased", "--out", tmp_path / "cased")
    assert code == 0
    assert "The" in load_vocab(tmp_path / "cased/vocab.txt")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["missing.txt", "--out", "x"], 3, "missing.txt"),
        (["--out", "x"], 2, "no corpus"),
        (["a.txt", "--out", "x", "--held-out", "1"], 2, "--held-out must be from 0"),
        (["a.txt", "--out", "x", "--memory", "much"], 2, "'much' is not an amount of memory"),
        (
            [__file__, "--out", "x", "--memory", "1MB"],
            2,
            "--memory 1MB is too little for counting words: give at least 16MB",
        ),
        (["a.txt", "--out", __file__], 2, "is a file, or lies in one; give the name of a folder"),
        (["a.txt", "--out", ""], 2, "--out is empty; name a file or folder"),
        (["a.txt", "--out", "-"], 2, "--out cannot be '-'; name a file or folder"),
        (["a.txt", "--out", "x" * 300], 2, "File name too long: "),
        (["a.txt", "--out", f"{__file__}/tokenizer"], 2, "is a file, or lies in one; give the name of a folder"),
    ],
)
def test_mistakes(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found, _, error = run(capsys, *arguments)
    assert found == code
    assert message in error


@pytest.mark.slow
def test_a_tokenizer_is_not_overwritten_unless_that_is_asked_for(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--size", 1500, "--held-out", 0, "--out", tmp_path)
    assert run(capsys, corpus, *options)[0] == 0
    (tmp_path / "notes.txt").write_text("not of a tokenizer")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    # Before any work: that there is no such corpus is not noticed.
    code, _, error = run(capsys, "missing.txt", *options)
    assert code == 2
    assert "already holds a tokenizer (vocab.txt)" in error
    assert "--overwrite" in error
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert run(capsys, corpus, "--cased", "--overwrite", *options)[0] == 0
    assert (tmp_path / "vocab.txt").read_bytes() != before["vocab.txt"]
    assert (tmp_path / "notes.txt").exists()


def test_a_folder_of_other_files_is_not_written_to_unless_that_is_asked_for(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("somebody's notes")
    options = ("--size", 1500, "--held-out", 0, "--out", tmp_path)
    code, _, error = run(capsys, "missing.txt", *options)
    assert code == 2
    assert f"--out {tmp_path} holds other files ('notes.txt'); choose a new folder, or add --overwrite" in error
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert run(capsys, corpus, *options, "--overwrite")[0] == 0
    assert {"notes.txt", "vocab.txt"} <= {path.name for path in tmp_path.iterdir()}


def test_a_folder_that_cannot_be_written_is_noticed_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with read_only(tmp_path):
        code, _, error = run(capsys, "missing.txt", "--out", tmp_path / "a" / "b")
    assert code == 5
    assert f"{tmp_path} is read-only, or not yours to write to" in error


def test_one_process_at_a_time_writes_a_vocabulary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, out = tmp_path / "few.txt", tmp_path / "tokenizer"
    text.write_text("the cat sat on the mat\n" * 9)
    with claimed_folder(out, "never"):
        code, _, error = run(capsys, text, "--size", 150, "--out", out)
        assert code == 2
        assert f"another process is writing to {out}; wait for it or choose another --out" in error
    assert not out.exists()
    out.mkdir()
    (out / LOCK).touch()  # of a process that was killed
    assert run(capsys, text, "--size", 150, "--out", out)[0] == 0
    assert "vocab.txt" in os.listdir(out)
    assert LOCK not in os.listdir(out)


@pytest.mark.campaign
@pytest.mark.slow
def test_fewer_tokens_than_asked_for_are_explained(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "few.txt").write_text("the cat sat on the mat, the dog on the log\n" * 2)
    code, out, error = run(capsys, tmp_path / "few.txt", "--size", 2000, "--out", tmp_path / "few", "--held-out", 0)
    assert code == 0, error
    assert "smaller than requested: no other word or part of a word occurs twice in this text" in out
    many = corpus.read_text(encoding="utf-8") + " ".join(f"word{number}" for number in range(20_000))
    (tmp_path / "many.txt").write_text(many, encoding="utf-8")
    options = ("--size", 30_000, "--held-out", 0, "--memory", "16MB", "--json")
    _, out, _ = run(capsys, tmp_path / "many.txt", *options, "--out", tmp_path / "many")
    told = json.loads(out)
    assert told["size"] < 30_000
    assert told["fewer_because"].startswith("--memory is enough for the 8,192 most frequent words only")
    _, out, _ = run(capsys, corpus, "--size", 1500, "--held-out", 0, "--out", tmp_path / "enough", "--json")
    assert (json.loads(out)["size"], json.loads(out)["fewer_because"]) == (1500, None)


@pytest.mark.slow
def test_memory_is_shared_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _shared_out(None, None) == _shared_out(None, "near") == (4 << 30, None)
    assert _shared_out("1GB", None) == (1 << 30, None)
    assert _shared_out("1GB", "near") == (1 << 29, 1 << 29)
    # Room for 5,242 documents; that many and one more are different, and without --memory there is no limit.
    (tmp_path / "c.txt").write_text("\n\n".join(f"document {number}" for number in range(5243)))
    options = (tmp_path / "c.txt", "--size", 1500, "--held-out", 0, "--dedup", "near")
    code, _, error = run(capsys, *options, "--memory", "32MB", "--out", tmp_path / "a")
    assert (code, "full: 5,242 different documents" in error) == (5, True)
    assert not (tmp_path / "a").exists()
    assert run(capsys, *options, "--out", tmp_path / "a")[0] == 0


def test_amounts_of_memory() -> None:
    assert [bytes_of(amount) for amount in ("16", "4GB", "1.5 GiB", "500mb", "2K")] == [
        16,
        4 << 30,
        3 << 29,
        500 << 20,
        2048,
    ]
    with pytest.raises(ConfigError, match="not an amount"):
        bytes_of("-1GB")
    told = ["4GB", "1536MB", "900MB", "16KB", "100 bytes"]
    assert [amount_of(bytes_of(amount)) for amount in ("4GB", "1.5GB", "900MB", "16K", "100")] == told
    # Never more than there is, so that what is told to be enough is.
    assert all(num / 2 < bytes_of(amount_of(num)) <= num for num in (1024, 2047, 123_456_789, 2**30 - 1, 2**30 + 1))


@pytest.mark.parametrize("dedup", ["exact", "near"])
def test_duplicates_are_left_out(dedup: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Words of a repeated document count once: twice as often written, they would be in a small vocabulary."""
    text = "\n\n".join(["alpha beta gamma", "delta epsilon", "Alpha  beta gamma", "delta epsilon", "zeta"])
    (tmp_path / "twice.txt").write_text(text + "\n")
    (tmp_path / "once.txt").write_text("alpha beta gamma\n\ndelta epsilon\n\nzeta\n")
    options = ("--size", 1030, "--held-out", 0)
    code, out, _ = run(capsys, tmp_path / "twice.txt", *options, "--out", tmp_path / "a", "--dedup", dedup, "--json")
    assert code == 0
    told = json.loads(out)["duplicates"]
    assert (told["kept"], told["exact"], told["near"]) == (3, 2, 0)
    assert told["examples"][0] == [f"{tmp_path / 'twice.txt'}:5", f"{tmp_path / 'twice.txt'}:1"]
    run(capsys, tmp_path / "once.txt", *options, "--out", tmp_path / "b")
    assert (tmp_path / "a/vocab.txt").read_bytes() == (tmp_path / "b/vocab.txt").read_bytes()
    _, out, _ = run(capsys, tmp_path / "twice.txt", *options, "--out", tmp_path / "c", "--dedup", dedup)
    assert "3 of 5 documents kept" in out
