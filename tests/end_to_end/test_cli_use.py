"""Commands that use a model, from the command line to stdout and files."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from bertkit import (
    BertForMaskedLM,
    BertForNextSentencePrediction,
    BertForSequenceClassification,
    BertModel,
    pipeline,
)
from disk_helpers import largest_file
from pipeline_helpers import Command, save_tiny


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    classes = {
        "mask": BertForMaskedLM,
        "next": BertForNextSentencePrediction,
        "classify": BertForSequenceClassification,
        "encoder": BertModel,
    }
    return {name: save_tiny(root / name, model_class) for name, model_class in classes.items()}


def stdin(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode("utf-8"))))


def test_fill_mask(command: Command, models: dict[str, Path]) -> None:
    code, out, err = command(
        "fill-mask", "-m", models["mask"], "--json", "--top-k", 2, "the [MASK]", "[MASK] is [MASK]"
    )
    assert (code, err) == (0, "")
    one, two = (json.loads(line) for line in out.splitlines())
    assert one["text"] == "the [MASK]"
    assert [len(one["masks"]), len(two["masks"])] == [1, 2]
    pipe = pipeline("fill-mask", models["mask"])
    assert one["masks"][0][0]["token"] == pipe("the [MASK]")[0]["token"]
    code, out, _ = command(
        "fill-mask", "-m", models["mask"], "--targets", "good", "--targets", "bad", "the film is [MASK]"
    )
    assert {line.split("  ", 1)[1].split()[0] for line in out.splitlines()} == {"good", "bad"}


def test_classify_reads_arguments_files_and_stdin_alike(
    command: Command, models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["a good film", "a bad one", "the end"]
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(texts) + "\n", encoding="utf-8")
    _, from_arguments, _ = command("classify", "-m", models["classify"], "--json", *texts)
    _, from_file, _ = command("classify", "-m", models["classify"], "--json", "--file", file)
    stdin(monkeypatch, "\n".join(texts))
    _, from_stdin, _ = command("classify", "-m", models["classify"], "--json", "-")
    assert from_arguments == from_file == from_stdin
    found = [json.loads(line) for line in from_stdin.splitlines()]
    assert [row["text"] for row in found] == texts
    expected = pipeline("text-classification", models["classify"])(texts)
    for row, best in zip(found, expected, strict=True):
        assert row["label"] == best["label"]
        assert row["score"] == pytest.approx(best["score"], abs=1e-6)
    _, plain, _ = command("classify", "-m", models["classify"], "--all", "--", "-5 is bad")
    assert plain.count("LABEL_") == 2
    assert plain.endswith("\t-5 is bad\n")


def test_pairs(command: Command, models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = pipeline("next-sentence", models["next"])("a film", "the end")
    code, out, _ = command("next-sentence", "-m", models["next"], "--json", "a film", "the end")
    assert code == 0
    assert json.loads(out) == {"text": "a film", "text_pair": "the end", **expected}
    stdin(monkeypatch, "a film\tthe end\nthe end\ta film\n")
    _, out, _ = command("next-sentence", "-m", models["next"], "-")
    assert len(out.splitlines()) == 2
    _, out, _ = command("classify", "-m", models["classify"], "--pairs", "--json", "a film", "the end")
    assert json.loads(out)["text_pair"] == "the end"
    code, _, err = command("next-sentence", "-m", models["next"], "a film")
    assert (code, "1 text does not make pairs" in err) == (3, True)
    stdin(monkeypatch, "a film\tthe end\nno tab\n")
    code, _, err = command("next-sentence", "-m", models["next"], "-")
    assert (code, "line 2: 0 tabs found, expected one" in err) == (3, True)


def test_embed_in_every_form_gives_the_same_vectors(command: Command, models: dict[str, Path], tmp_path: Path) -> None:
    texts = ["a good film", "", "the end of it, with a comma"]
    expected = np.stack(pipeline("feature-extraction", models["encoder"])(texts, pooling="max", normalize=True))
    options = ("-m", models["encoder"], "--pooling", "max", "--normalize", *texts)
    _, out, _ = command("embed", *options)
    np.testing.assert_allclose(np.loadtxt(io.StringIO(out)), expected, atol=1e-6)
    _, out, _ = command("embed", "--json", *options)
    rows = [json.loads(line) for line in out.splitlines()]
    np.testing.assert_allclose([row["embedding"] for row in rows], expected, atol=1e-6)
    assert [(row["text"], row["truncated"]) for row in rows] == [(text, False) for text in texts]
    for name in ("v.npy", "v.jsonl", "v.parquet"):
        code, out, err = command("embed", "--out", tmp_path / name, *options)
        assert (code, out) == (0, "")
        assert "wrote 3 vectors of 32 numbers" in err
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, atol=1e-6)
    assert [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()] == rows
    table = pq.read_table(tmp_path / "v.parquet").to_pydict()
    np.testing.assert_allclose(table["embedding"], expected, atol=1e-6)
    assert table["num_tokens"] == [row["num_tokens"] for row in rows]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["v.jsonl", "v.npy", "v.parquet"]


def test_the_model_may_say_how_its_vectors_are_pooled(
    command: Command, models: dict[str, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(models["encoder"], tmp_path / "model")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    vectors = {
        (name, pooling): command("embed", "-m", model, *(["--pooling", pooling] if pooling else []), "a good film")[1]
        for name, model in (("says", folder), ("silent", models["encoder"]))
        for pooling in (None, "cls", "mean")
    }
    assert vectors["says", None] == vectors["says", "cls"] == vectors["silent", "cls"]
    assert vectors["silent", None] == vectors["silent", "mean"] == vectors["says", "mean"]
    assert vectors["says", None] != vectors["says", "mean"]


def test_an_embedding_file_is_whole_or_absent(command: Command, models: dict[str, Path], tmp_path: Path) -> None:
    long = "film " * 80
    code, _, err = command("embed", "-m", models["encoder"], "--out", tmp_path / "v.npy", "short", long)
    assert code == 3
    assert "text 1 (counted from 0) has 82 tokens" in err
    assert list(tmp_path.iterdir()) == []
    code, _, _ = command("embed", "-m", models["encoder"], "--out", tmp_path / "v.npy", "--truncate", "short", long)
    assert np.load(tmp_path / "v.npy").shape == (2, 32)
    assert command("embed", "-m", models["encoder"], "--out", tmp_path / "v.txt", "a")[0] == 2
    assert command("embed", "-m", models["encoder"], "--out", tmp_path / "no" / "v.npy", "a")[0] == 2
    empty = tmp_path / "empty.txt"
    empty.touch()
    assert command("embed", "-m", models["encoder"], "--out", tmp_path / "v.npy" / "v.npy", "a")[0] == 2
    (tmp_path / "d.npy").mkdir()
    code, _, err = command("embed", "-m", models["encoder"], "--out", tmp_path / "d.npy", "a")
    assert (code, "d.npy is a folder; give the name of a file" in err) == (2, True)
    (tmp_path / "d.npy").rmdir()
    for name in ("f.npy", "f.parquet", "f.jsonl"):
        with largest_file(100):
            code, _, err = command("embed", "-m", models["encoder"], "--out", tmp_path / name, "a", "b")
        assert (code, f"no room for {name} in {tmp_path}" in err) == (5, True), err
    assert [path.name for path in tmp_path.iterdir() if path.name != "empty.txt"] == ["v.npy"]
    for name in ("e.parquet", "e.npy"):
        code, _, err = command("embed", "-m", models["encoder"], "--out", tmp_path / name, "--file", empty)
        assert (code, "the input has no rows" in err, (tmp_path / name).exists()) == (3, True, False)


def test_vectors_of_a_file_are_made_in_blocks_that_are_joined(
    command: Command, models: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    source, texts = tmp_path / "in" / "rows.jsonl", [f"film {number}" for number in range(9)]
    rows = [{"text": text, "embedding": number} for number, text in enumerate(texts)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    expected = np.stack(pipeline("feature-extraction", models["encoder"])(texts, pooling="model"))
    options = ("-m", models["encoder"], "--file", source, "--block-rows", "2")
    for name, more in (("v.npy", ("--workers", "2")), ("v.jsonl", ("--format", "jsonl")), ("v.parquet", ())):
        code, _, err = command("embed", *options, *more, "--out", tmp_path / name)
        assert (code, "wrote 9 vectors of 32 numbers" in err) == (0, True), err
    lines = [json.loads(line) for line in (tmp_path / "v.jsonl").read_text().splitlines()]
    table = pq.read_table(tmp_path / "v.parquet")
    assert [line["text"] for line in lines] == table["text"].to_pylist() == texts
    assert table.column_names == list(lines[0]) == ["text", "embedding", "num_tokens", "truncated"]
    vectors = np.load(tmp_path / "v.npy")
    np.testing.assert_allclose(vectors, expected, atol=1e-6)
    for found in (table["embedding"].to_pylist(), [line["embedding"] for line in lines]):
        np.testing.assert_array_equal(np.array(found, np.float32), vectors)
    calibration = ("--vector-precision", "int8", "--calibration", tmp_path / "v.npy")
    assert command("embed", *options, *calibration, "--out", tmp_path / "8.npy")[0] == 0
    assert np.load(tmp_path / "8.npy").dtype == np.int8
    for row, told in (({"text": "film " * 80}, "rows.jsonl:5: the text has 82 tokens"), ({"text": None}, "holds None")):
        source.write_text("".join(json.dumps(each) + "\n" for each in [*rows[:4], row, *rows]))
        code, _, err = command("embed", *options, "--out", tmp_path / "w.npy")
        assert (code, told in err) == (3, True), err
        shutil.rmtree(tmp_path / "w.npy.parts")  # two finished blocks
    assert command("embed", *options, "--out", tmp_path / "v.npy")[0] == 2, "it is there"
    for wrong in (("--sparse", "a"), ("a",)):
        code, _, err = command("embed", "-m", models["mask"], *wrong, "--out", tmp_path / "x.jsonl", "--workers", "2")
        assert (code, "--workers is for inputs that are computed in blocks" in err) == (2, True), err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["8.npy", "in", "v.jsonl", "v.npy", "v.parquet"]


def test_similarity(command: Command, models: dict[str, Path]) -> None:
    others = ["a good film", "the end", "a film"]
    scores = pipeline("sentence-similarity", models["encoder"])("a film", others)
    _, out, _ = command("similarity", "-m", models["encoder"], "--json", "a film", *others)
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["text_pair"] for row in rows] == others
    np.testing.assert_allclose([row["score"] for row in rows], scores, atol=1e-6)
    _, out, _ = command("similarity", "-m", models["encoder"], "--top-k", 1, "a film", *others)
    assert out == "1.0000  a film\n"


def test_inspect(command: Command, models: dict[str, Path]) -> None:
    code, out, _ = command("inspect", models["mask"], "--json")
    assert code == 0
    assert json.loads(out)
    code, out, _ = command("inspect", models["mask"])
    assert "32" in out


def test_what_is_wrong_with_a_model_ends_with_4(command: Command, models: dict[str, Path], tmp_path: Path) -> None:
    for argv in (
        ("classify", "-m", tmp_path / "nothing", "a"),
        ("classify", "-m", models["encoder"], "a"),
        ("inspect", tmp_path / "nothing"),
    ):
        code, out, err = command(*argv)
        assert (code, out) == (4, "")
        assert err.startswith(f"bertkit {argv[0]}: ")
        assert "Traceback" not in err
    assert command("classify", "-m", models["classify"], "--device", "cuda:77", "a")[0] == 2


def test_a_closed_pipe_is_no_drama(models: dict[str, Path], tmp_path: Path) -> None:
    """``bertkit embed ... | head -1`` with far more output than a pipe holds."""
    file = tmp_path / "texts.txt"
    file.write_text("a film\n" * 2000)
    line = [sys.executable, "-m", "bertkit", "embed", "-m", str(models["encoder"]), "--file", str(file)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert len(process.stdout.readline().split()) == 32
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0


def test_ctrl_c_ends_with_130(models: dict[str, Path]) -> None:
    """While waiting for standard input; the process says so in one line."""
    import signal

    line = [sys.executable, "-m", "bertkit", "classify", "-m", str(models["classify"]), "--json", "-"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    # A shell without job control starts what it puts into the background with this signal ignored.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(line, **pipes, preexec_fn=heard) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        # One full first window: when all of its answers are there, the next window is waited for. A moment later the
        # process is in that wait for sure; Python loses an interrupt that comes while it is freeing an object.
        process.stdin.write(b"a film\n" * 64)
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(64)]
        assert {answer["text"] for answer in answers} == {"a film"}
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
        assert process.stderr.read() == b"bertkit classify: interrupted\n"
