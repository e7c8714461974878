"""``bertkit visualize explain`` and ``layers``: what they write and draw, and what they refuse."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bertkit import BertForSequenceClassification, BertForTokenClassification, errors
from bertkit.cli import main
from pipeline_helpers import save_tiny

pytestmark = pytest.mark.slow

LABELS = {"id2label": {0: "bad", 1: "good"}, "num_labels": 2}
TAGS = {"id2label": {0: "O", 1: "B-X", 2: "I-X"}, "num_labels": 3}
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("models")
    made = {
        "texts": save_tiny(folder / "texts", BertForSequenceClassification, **LABELS),
        "tags": save_tiny(folder / "tags", BertForTokenClassification, **TAGS),
        "encoder": save_tiny(folder / "encoder"),
    }
    return {name: str(path) for name, path in made.items()}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_command(*argv: str) -> tuple[int, str, str]:
        code = main(["visualize", *argv])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_command


def test_explain(run: Run, models: dict[str, str], tmp_path: Path) -> None:
    page = tmp_path / "why.html"
    code, out, err = run("explain", "The film is good.", "It was not.", "--model", models["texts"], "--out", str(page))
    assert (code, err) == (0, f"wrote {page}\n")
    assert out.splitlines()[2].split() == ["gradients", "occlusion", "word"]
    assert len(out.splitlines()) == 3 + 9
    assert "\x1b" not in out
    assert "Integrated gradients" in page.read_text(encoding="utf-8")
    code, out, _ = run("explain", "The film is good.", "--model", models["texts"], "--label", "bad", "--json")
    said = json.loads(out)
    assert (code, said["label"], len(said["words"])) == (0, "bad", 5)
    assert {"gradients", "occlusion", "start", "end"} < said["words"][0].keys()
    code, out, _ = run("explain", "the film is good", "--model", models["tags"], "--word", "good", "--json")
    assert (code, json.loads(out)["word"]) == (0, 3)


def test_explain_in_color_on_a_terminal(models: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    text = "the film is [bold]good[/bold] \x1b]0;title\x07"
    assert main(["visualize", "explain", text, "--model", models["texts"]]) == 0
    shown, report = terminal.getvalue().split(" (predicted)")
    assert "\x1b[" in shown
    assert "\x1b]0" not in shown
    assert "[bold]" in re.sub(r"\x1b\[[\d;]*m", "", shown)  # no markup
    assert "\x1b" not in report
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert main(["visualize", "explain", "good", "--model", models["texts"], "--json"]) == 0
    json.loads(terminal.getvalue())


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["explain", "a b", "--model", "encoder"], 2, "the model has no head"),
        (["explain", "a b", "--model", "texts", "--word", "a"], 2, "--word is for models that tag words"),
        (["explain", "", "--model", "texts"], 3, "a text is empty"),
        (["explain", "a " * 90, "--model", "texts"], 3, "92 tokens"),
        (["explain", "good", "--model", "texts", "--out", "x.bmp"], 2, "unknown format"),
        (["layers", "few.csv", "--model", "encoder"], 2, "a probe needs 20 examples and two labels"),
        (["layers", "few.csv", "--model", "encoder", "--label", "labl"], 3, "did you mean 'label'"),
        (["layers", "few.csv", "--model", "encoder", "--tag-column", "2"], 2, "go with --tags"),
        (["layers", "few.conll", "--model", "encoder", "--tags", "--label", "x"], 2, "choose a column by --tag-column"),
        (["layers", "few.conll", "--model", "encoder", "--tags", "--word-column", "5"], 3, "few.conll"),
        (["layers", "few.conll", "--model", "encoder", "--tags", "--pooling", "cls"], 2, "--pooling 'cls' has no"),
        (["layers", "few.conll", "--model", "encoder", "--tags", "--text-pair", "x"], 2, "--text-pair is for tables"),
        (["layers", "none.csv", "--model", "encoder"], 3, "none.csv"),
    ],
)
def test_refusals(
    arguments: list[str], code: int, message: str, run: Run, models: dict[str, str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("few.csv").write_text("text,label\nthe film,good\na scene,bad\nthe end,bad\nit was,good\n", encoding="utf-8")
    Path("few.conll").write_text("the O\nfilm B-X\n\nit O\n", encoding="utf-8")
    found, out, err = run(*(models.get(each, each) for each in arguments))
    assert (found, out) == (code, "")
    assert message in err


def test_layers(run: Run, models: dict[str, str], tmp_path: Path) -> None:
    table, picture = tmp_path / "t.csv", tmp_path / "layers.png"
    rows = [f"the {word} film,{word}" for word in ("good", "bad") * 20]
    table.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    code, out, err = run("layers", str(table), "--model", models["encoder"], "--out", str(picture))
    assert (code, err) == (0, f"wrote {picture}\n")
    name = "/".join(Path(models["encoder"]).parts[-2:])
    assert f"linear probes of {name}: 2 labels, train 32, dev 8" in out
    assert picture.stat().st_size > 5000
    code, out, _ = run("layers", str(table), "--model", models["encoder"], "--with", models["texts"], "--json")
    said: dict[str, Any] = json.loads(out)
    names = ["/".join(Path(models[name]).parts[-2:]) for name in ("encoder", "texts")]
    assert (code, said["models"], len(said["probes"]), said["dev"]) == (0, names, 2, 8)
    tagged = tmp_path / "t.conll"
    tagged.write_text("1 the DT\n2 good JJ\n3 film NN\n\n" * 20, encoding="utf-8")
    options = ["--word-column", "2", "--tag-column", "3", "--json"]
    code, out, _ = run("layers", str(tagged), "--tags", "--model", models["encoder"], *options)
    said = json.loads(out)
    assert (code, said["unit"], said["examples"], said["labels"]) == (0, "words", 60, 3)
    assert said["probes"][0][0]["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("command", "needs"),
    [
        ("layers none.csv --model ./none", True),
        ("senses --model ./none", True),
        ("anisotropy none.csv --model ./none", True),
        ("training ./none", True),
        ("confusion ./none", True),
        ("embeddings none.csv --model ./none", False),
        ("tokens text --model ./none", False),
        ("attention text --model ./none", False),
        ("heads text --model ./none", False),
        ("explain text --model ./none", False),
        ("errors ./none", False),
    ],
)
def test_a_page_that_holds_an_image_is_refused_before_any_work_without_matplotlib(
    command: str, needs: bool, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: where the page needs no image, the missing file or model is what is wrong."""
    monkeypatch.chdir(tmp_path)
    real = errors.import_module

    def without_matplotlib(name: str) -> object:
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError(name="matplotlib")
        return real(name)

    monkeypatch.setattr(errors, "import_module", without_matplotlib)
    code, _, err = run(*command.split(), "--out", "x.html")
    assert ("matplotlib" in err, code == 5) == (needs, needs), err
    assert not Path("x.html").exists()
