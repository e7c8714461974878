"""The commands that draw maps: files, options, and nothing half written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bertkit import SentenceEncoder
from bertkit.cli import main
from pipeline_helpers import WORDS, save_tiny

pytestmark = pytest.mark.slow

ROWS = [(f"the {word} film is {'good' if number % 2 else 'bad'}", number % 2) for number, word in enumerate(WORDS)]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("maps")
    save_tiny(folder / "m")
    lines = [f"{text},{('no', 'yes')[good]},{number}" for number, (text, good) in enumerate(ROWS)]
    (folder / "rows.csv").write_text("\n".join(["text,liked,number", *lines, " ,no,99"]) + "\n")
    (folder / "plain.txt").write_text("\n".join(text for text, _ in ROWS) + "\n")
    np.save(folder / "vectors.npy", SentenceEncoder(folder / "m").encode([text for text, _ in ROWS]))
    return folder


def run(capsys: pytest.CaptureFixture[str], work: Path, command: str) -> tuple[int, str, str]:
    """A command in which @ stands for the folder."""
    code = main(["visualize", *(word.replace("@", f"{work}/") for word in command.split())])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_table_by_label_as_numbers_and_as_a_page(capsys: pytest.CaptureFixture[str], work: Path) -> None:
    command = "embeddings @rows.csv --label liked --method tsne --model @m"
    code, out, err = run(capsys, work, f"{command} --json --out @map.html")
    said = json.loads(out)
    assert code == 0, err
    assert (said["texts"], said["labels"]) == (len(ROWS), {"no": 11, "yes": 10})
    assert {point["label"] for point in said["points"]} == {"no", "yes"}
    assert f"left out 1 empty text of {work}/rows.csv" in err
    assert f"wrote {work}/map.html" in err
    assert json.loads((work / "map.html").read_text().partition('id="data">')[2].partition("</script>")[0])["texts"]
    code, again, _ = run(capsys, work, f"{command} -q")
    assert code == 0
    assert again.startswith(f"{len(ROWS)} texts: the model's vectors of 32 numbers\ntsne, perplexity 6.67: ")
    assert "label by the 10 nearest texts" in again


def test_vectors_made_earlier_give_the_same_map(capsys: pytest.CaptureFixture[str], work: Path) -> None:
    _, out, _ = run(capsys, work, "embeddings @rows.csv --vectors @vectors.npy --json")
    _, other, _ = run(capsys, work, "embeddings @rows.csv --model @m --json")
    first, second = (json.loads(each) for each in (out, other))
    assert first["labels"] == {}  # no column with a usual name
    np.testing.assert_allclose(first["variance"], second["variance"], atol=1e-6)


def test_lines_of_text_and_a_picture_of_a_sample(capsys: pytest.CaptureFixture[str], work: Path) -> None:
    pytest.importorskip("matplotlib")
    code, out, err = run(capsys, work, "embeddings @plain.txt --model @m --points 7 --layer -1 -o @map.png")
    assert (code, (work / "map.png").read_bytes()[:4]) == (0, b"\x89PNG"), err
    assert out.startswith(f"7 texts of {len(ROWS)}: vectors of layer 2 of 32 numbers")


def test_pieces_of_arguments_and_of_a_file(capsys: pytest.CaptureFixture[str], work: Path) -> None:
    code = main(["visualize", "tokens", "the film is good", "is the end good", "--model", f"{work}/m", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert code == 0
    assert [point["piece"] for point in said["points"]] == "the film is good is the end good".split()
    code, out, err = run(capsys, work, "tokens --file @plain.txt --model @m --layer 0 --special --out @pieces.svg")
    assert (code, "in layer 0" in out) == (0, True), err
    assert (work / "pieces.svg").read_text().startswith("<?xml")


def test_how_narrow_a_space_is(capsys: pytest.CaptureFixture[str], work: Path) -> None:
    code, out, err = run(capsys, work, "anisotropy @rows.csv --model @m --out @space.json")
    assert code == 0, err
    assert "as they are" in out
    assert [each["layer"] for each in json.loads((work / "space.json").read_text())["layers"]] == [0, 1, 2]


@pytest.mark.parametrize(
    ("command", "expected", "told"),
    [
        ("embeddings @rows.csv", 2, "give --model or --vectors, one of the two"),
        ("embeddings @rows.csv --model @m --vectors @vectors.npy", 2, "give --model or --vectors, one of the two"),
        ("embeddings @rows.csv --vectors @vectors.npy --layer 1", 2, "leave --layer, --pooling and --max-length out"),
        ("embeddings @rows.csv --vectors @rows.csv", 3, "is not a .npy file of vectors"),
        ("embeddings @plain.txt --vectors @short.npy", 3, "has 3 vectors, and there are 21 texts"),
        ("embeddings @rows.csv --model @m --label like", 3, "no label column 'like' (did you mean 'liked'?)"),
        ("embeddings @plain.txt --model @m --label liked", 3, "no label column 'liked'"),
        ("embeddings @missing.csv --model @m", 3, "missing.csv"),
        ("embeddings @one.txt --model @m --method tsne", 2, "a map by tsne needs 4 texts at least, got 1"),
        ("embeddings @plain.txt --model @m --method tsne --perplexity 21", 2, "--perplexity 21 must be less"),
        ("embeddings @plain.txt --model @m --perplexity 5", 2, "--perplexity 5 is for --method 'tsne' only"),
        ("embeddings @plain.txt --model @m --method mds", 2, "mds"),
        ("embeddings @plain.txt --model @m --layer 3", 2, "the model has no layer 3: it has 2"),
        ("embeddings @plain.txt --model @m --out @map.gif", 2, "the name must end in .png"),
        ("tokens --model @m", 2, "no text"),
        ("tokens one two --model @nothing", 4, "nothing"),
        ("anisotropy @one.txt --model @m", 2, "8 texts are needed at least, got 1"),
    ],
)
def test_what_is_refused(
    command: str, expected: int, told: str, capsys: pytest.CaptureFixture[str], work: Path, tmp_path: Path
) -> None:
    (work / "one.txt").write_text("a film\n")
    np.save(work / "short.npy", np.eye(3, dtype=np.float32))
    out = "" if "--out" in command else f" --out {tmp_path}/never.html"
    code, printed, err = run(capsys, work, command + out)
    assert (code, printed, told in err) == (expected, "", True), err
    assert list(tmp_path.iterdir()) == []
