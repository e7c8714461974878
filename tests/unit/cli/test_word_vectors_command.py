"""``bertkit word-vectors``: from an encoder or a corpus to neighbours, and what other commands make of the folder."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import bertkit
from bertkit import cli
from bertkit.sentence_transformers import SentenceTransformer
from bertkit.server.open_model import OpenModel
from pipeline_helpers import save_tiny

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    encoder, out = save_tiny(tmp_path_factory.mktemp("tiny")), tmp_path_factory.mktemp("out") / "words"
    assert (
        cli.main(["word-vectors", "distill", "--model", str(encoder), "--out", str(out), "--dimensions", "8", "-q"])
        == 0
    )
    return out


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    code = cli.main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_neighbours(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "word-vectors", "nearest", "film", "--vectors", str(words), "--top-k", "3", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert (code, len(found)) == (0, 3)
    assert found == sorted(found, key=lambda each: -each["score"])
    code, out, _ = run(capsys, "word-vectors", "analogy", "film", "good", "scene", "-v", str(words), "--top-k", "2")
    assert (code, len(out.splitlines())) == (0, 2)
    code, _, err = run(capsys, "word-vectors", "nearest", "☃", "-v", str(words))
    assert (code, "is not among the" in err) == (2, True)
    code, _, err = run(capsys, "word-vectors", "nearest", "film", "-v", str(words.parent))
    assert (code, "has no word vectors" in err) == (3, True)


def test_a_corpus(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text("the film is good . the scene is good .\n" * 20)
    out = tmp_path / "own.vec"
    code, said, _ = run(
        capsys, "word-vectors", "train", str(tmp_path / "text.txt"), "--out", str(out), "--dimensions", "3", "--json"
    )
    assert (code, json.loads(said)["words"]) == (0, 6)
    assert out.read_text().splitlines()[0] == "6 3"
    code, said, _ = run(
        capsys, "word-vectors", "coverage", "The films", "-v", str(out), "-m", "bertkit-tiny-en", "--json"
    )
    assert (code, json.loads(said)["unknown"]) == (0, 1)
    for bad, code in ((["--out", str(tmp_path / "x.bin")], 2), (["--out", str(tmp_path / "no" / "x.vec")], 2)):
        assert run(capsys, "word-vectors", "train", str(tmp_path / "text.txt"), *bad)[0] == code


def test_other_commands_take_the_folder(words: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "similarity", "--model", str(words), "the film", "the film", "a scene", "--json")
    assert (code, json.loads(out.splitlines()[0])["score"]) == (0, pytest.approx(1, abs=1e-5))
    npy = tmp_path / "v.npy"
    assert run(capsys, "embed", "--model", str(words), "the film", "", "--out", str(npy))[0] == 0
    assert np.load(npy).shape == (2, 8)
    texts = tmp_path / "texts.txt"
    texts.write_text(
        "".join(f"the {word} is {how}\n" for word in ("film", "scene", "end") for how in ("good", "bad", "dull"))
    )
    index = str(tmp_path / "index")
    assert run(capsys, "search", "build", index, str(texts), "--model", str(words))[0] == 0
    code, out, _ = run(capsys, "search", "query", index, "the film is good", "--top-k", "1")
    assert (code, "the film is good" in out) == (0, True)
    assert run(capsys, "cluster", str(texts), "--model", str(words), "--k", "2")[0] == 0
    code, out, _ = run(capsys, "inspect", str(words))
    assert (code, "word vectors" in out) == (0, True)
    code, _, err = run(capsys, "classify", "x", "--model", str(words))
    assert (code, "without an encoder or a head" in err) == (4, True)


def test_whatever_takes_a_sentence_encoder_takes_the_folder(
    words: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = tmp_path / "texts.csv"
    rows = [f"the {word} is {how},{how}" for word in ("film", "scene", "end", "world") for how in ("good", "bad")]
    texts.write_text("\n".join(("text,label", *rows)) + "\n")
    given = str(texts), "--model", str(words)
    out = tmp_path / "map.html"
    for command in (["topics", *given], ["duplicates", *given], ["visualize", "embeddings", *given, "--out", str(out)]):
        code, said, err = run(capsys, *command)
        assert (code, bool(said)) == (0, True), err
    code, said, _ = run(capsys, "embed", "--model", str(words), "the film is good", "--json")
    vector = json.loads(said)["embedding"]
    assert code == 0
    found = (
        SentenceTransformer(str(words)).encode(["the film is good"])[0],
        bertkit.BertVectorizer(str(words)).fit_transform(["the film is good"])[0],
        OpenModel(words).answer("embed", ["the film is good"], {}).values[0],
    )
    for each in found:
        np.testing.assert_allclose(each, vector, atol=1e-5)
