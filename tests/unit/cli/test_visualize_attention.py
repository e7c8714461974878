"""``bertkit visualize attention`` and ``heads`` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertkit import BertForMaskedLM, visualize
from bertkit.cli import main
from pipeline_helpers import save_tiny

pytestmark = pytest.mark.slow

TEXT = "the film is good"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny(tmp_path_factory.mktemp("model"), BertForMaskedLM))


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = main(["visualize", *argv])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_attention_is_printed_and_written(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "page.html"
    code, told, said = run(capsys, "attention", TEXT, "--model", folder, "--out", str(out))
    assert (code, said) == (0, f"wrote {out}\n")
    assert told == visualize.attention(TEXT, model=folder).render() + "\n"
    assert "layer 2, strongest links of each head between different words:" in told
    assert out.read_text(encoding="utf-8") == visualize.attention(TEXT, model=folder).page()
    chosen = ("--view", "lines", "--layer", "-2", "--head", "3", "--words")
    code, told, _ = run(capsys, "attention", TEXT, "not bad", *chosen, "--model", folder, "--json")
    found = visualize.attention(TEXT, "not bad", model=folder, view="lines", layer=1, head=3, words=True)
    assert (code, json.loads(told)) == (0, found.to_dict())


def test_heads_of_a_file_are_counted(folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "texts.txt"
    file.write_text(f"{TEXT}\n\nnot bad\nthe end.\n")
    out = tmp_path / "heads.png"
    code, told, _ = run(capsys, "heads", "--file", str(file), "--model", folder, "--json", "--out", str(out))
    found = visualize.heads([TEXT, "", "not bad", "the end."], model=folder)
    assert (code, json.loads(told)) == (0, found.to_dict())
    assert json.loads(told)["num_empty"] == 1
    assert out.read_bytes()[:4] == b"\x89PNG"
    code, told, _ = run(capsys, "heads", "--file", str(file), "--model", folder, "--max-texts", "3")
    assert told.startswith("2 layers of 4 heads, the first 2 texts, 10 tokens, 1 empty text left out\n")
    code, told, _ = run(capsys, "heads", TEXT, "not bad", "--pairs", "--model", folder, "--json")
    pairs = visualize.heads([(TEXT, "not bad")], model=folder)
    assert (code, json.loads(told)) == (0, pairs.to_dict())


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        (["attention", ""], 3, "the text is empty"),
        (["attention", "good " * 70], 3, "has 72 tokens, special tokens included; the limit is 64. Shorten it"),
        (["attention", TEXT, "--layer", "3"], 2, "the model has no layer 3: it has 2"),
        (["attention", TEXT, "--view", "lines", "--head", "5"], 2, "the model has no head 5"),
        (["attention", TEXT, "--head", "1"], 2, "--head"),
        (["attention", TEXT, "--part", "cross"], 2, "--part"),
        (["attention", "-"], 2, "TEXT cannot be '-'"),
        (["attention", TEXT, "--out", "heads.gif"], 2, "the name must end in .png"),
        (["heads"], 2, "no text: give texts as arguments"),
        (["heads", " "], 3, "there is no text, or all of them are empty"),
    ],
)
def test_errors_say_what_is_wrong(
    folder: str, command: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, out, said = run(capsys, *command, "--model", folder)
    assert (found, out) == (code, "")
    assert told in said
    assert said.count("\n") == 1


def test_a_long_text_of_a_file_is_named_by_its_line(
    folder: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "texts.txt"
    file.write_text(f"{TEXT}\n\n{'good ' * 70}\n")
    code, _, said = run(capsys, "heads", "--file", str(file), "--model", folder, "--out", str(tmp_path / "x.html"))
    assert (code, f"{file}:3: the text has 72 tokens" in said) == (3, True)
    assert not (tmp_path / "x.html").exists()
    code, told, _ = run(capsys, "heads", "--file", str(file), "--model", folder, "--truncate")
    assert (code, "1 text truncated" in told) == (0, True)
