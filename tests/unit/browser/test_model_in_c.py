"""The engine of the page "try it here": for this machine through ctypes, and as WebAssembly under Node."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from bertkit import SentenceEncoder, pipeline
from bertkit.tokenization import BertTokenizer
from browser_model import PageInC, compiled_page

REPOSITORY = Path(__file__).parents[3]
MODEL = REPOSITORY / "src" / "bertkit" / "included" / "bertkit-tiny-en"
ANSWERS = REPOSITORY / "tests" / "native" / "browser_answers.mjs"
#: How far numbers of vectors (of length 1) and probabilities may be from Python's: 18 bits.
TOLERANCE = 2.0**-18
LINES = ["A cat sat on the mat.", "Rates rose again, by 0.25 %.", "na\u00efve caf\u00e9 \u4e2d\u6587", "word " * 126]
MASKED = ["He studied law at the [MASK] of Oxford.", "The [MASK] of [MASK] is Paris."]


@pytest.fixture(scope="module")
def library(once: Callable[[str, Callable[[Path], Any]], Any]) -> Path:
    return Path(once("page-in-c", compiled_page))


@pytest.fixture(scope="module")
def page(library: Path, page_build: ModuleType) -> PageInC:
    made = PageInC(library)
    made.load(page_build.model_file(MODEL))
    return made


def vectors(lines: list[str]) -> np.ndarray[Any, Any]:
    return np.asarray(SentenceEncoder("bertkit-tiny-en").encode(lines))


def likeliest(texts: list[str]) -> list[list[tuple[int, float]]]:
    """Of each mask of all texts, five ids with their probabilities."""
    fill, found = pipeline("fill-mask", model="bertkit-tiny-en"), []
    for text in texts:
        answers = fill(text, top_k=5)
        for each in answers if isinstance(answers[0], list) else [answers]:
            found.append([(answer["token"], answer["score"]) for answer in each])
    return found


def check_words(found: list[list[tuple[int, float]]], expected: list[list[tuple[int, float]]]) -> None:
    assert [[number for number, _ in row] for row in found] == [[number for number, _ in row] for row in expected]
    np.testing.assert_allclose(
        [[share for _, share in row] for row in found],
        [[share for _, share in row] for row in expected],
        rtol=0,
        atol=TOLERANCE,
    )


@pytest.mark.slow
def test_answers_are_those_of_python(page: PageInC) -> None:
    expected = vectors(LINES)
    cosines, found = page.similarities(LINES)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
    np.testing.assert_allclose(cosines, expected @ expected.T, rtol=0, atol=4 * TOLERANCE)
    assert np.abs(page.similarities([line.replace("cat", "dog") for line in LINES])[1] - expected).max() > 0.01
    check_words([row for text in MASKED for row in page.fill(text, 5)], likeliest(MASKED))
    assert page.entry(page.fill(MASKED[0], 1)[0][0][0]) == "university"
    tokenizer = BertTokenizer.from_pretrained(MODEL)
    assert [piece.id for piece in page.pieces(LINES[2])] == tokenizer(LINES[2])["input_ids"][1:-1]


@pytest.mark.slow
def test_errors_say_what_is_wrong(page: PageInC) -> None:
    refused: list[tuple[Callable[[], Any], str]] = [
        (lambda: page.similarities(["a", "word " * 127]), "line 2: it has 129 tokens.*the limit is 128"),
        (lambda: page.similarities(["a"] * 65), "65 lines; at most 64"),
        (lambda: page.fill("no mask", 5), r"no \[MASK\]; write"),
        (lambda: page.fill("[MASK]" * 511, 5), "513 tokens.*the limit is 512"),
        (lambda: page.load(b""), "the model is loaded"),
    ]
    for call, text in refused:
        with pytest.raises(ValueError, match=text):
            call()


@pytest.mark.slow
def test_damaged_files_are_refused(library: Path, tmp_path: Path, page_build: ModuleType) -> None:
    page = PageInC(Path(shutil.copy(library, tmp_path / "another.so")))
    whole = page_build.model_file(MODEL)
    huge = bytearray(whole)
    struct.pack_into("<i", huge, 8, 2**30)
    damaged = {
        b"": "not a model's file",
        whole[1:]: "not a model's file",
        whole[:-1]: "expected",
        bytes(huge): "layers",
    }
    for data, text in damaged.items():
        with pytest.raises(ValueError, match=text):
            page.load(data)
    page.load(whole)
    assert page.pieces("a")


def test_the_vector_of_several_lines_is_refused(node: str) -> None:
    source = (REPOSITORY / "docs" / "try" / "engine.js").read_text(encoding="utf-8")
    code = (
        f"const {{ Engine }} = await import('data:text/javascript,' + encodeURIComponent({json.dumps(source)}));\n"
        "try { new Engine().vector('one\\ntwo'); } catch (error) { console.log(error.message); }\n"
    )
    done = subprocess.run([node, "--input-type=module", "-e", code], capture_output=True, text=True, check=True)
    assert done.stdout == "One line is expected.\n"


@pytest.mark.campaign
def test_campaign_webassembly_answers_as_python(
    page_folder: Path, node: str, shared: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tokenizer_helpers import read_lines

    valid = [line for line in read_lines(shared / "data/pretrain_text/wikinews_en.valid.txt.xz") if line][:500]
    lines = [*LINES, *(" ".join(line.split()[:60]) for line in valid)]
    questions = {"vectors": lines, "fills": MASKED, "pieces": lines}
    done = subprocess.run([node, ANSWERS, page_folder], input=json.dumps(questions), text=True, capture_output=True)
    assert not done.returncode, done.stderr
    answers = json.loads(done.stdout)
    assert answers["missing"] is None
    difference = np.abs(np.array(answers["vectors"]) - vectors(lines)).max()
    assert difference < TOLERANCE
    found = [[(each["id"], each["probability"]) for each in row] for rows in answers["fills"] for row in rows]
    check_words(found, likeliest(MASKED))
    tokenizer = BertTokenizer.from_pretrained(MODEL)
    rows = tokenizer(lines, add_special_tokens=False)["input_ids"]
    assert [[piece[0] for piece in row] for row in answers["pieces"]] == rows
    with capsys.disabled():
        print(f"\nlargest difference of vectors: {difference:.2g}; milliseconds: {answers['milliseconds']}")
