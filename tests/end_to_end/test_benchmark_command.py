"""``bertkit benchmark`` on a tiny model, with real processes of bertkit and of its peers."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bertkit import BertForSequenceClassification, errors
from bertkit.benchmark import measure, runtimes
from bertkit.cli import main
from bertkit.visualize.benchmark_pictures import relative_times
from bertkit.visualize.figures import save_figure
from pipeline_helpers import save_tiny

#: See ``conftest.py``.
DRAWS = True

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*argv: object) -> tuple[int, str, str]:
        code = main(["benchmark", *map(str, argv)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "classify", BertForSequenceClassification, num_labels=3)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    path = tmp_path / "texts.txt"
    path.write_text("the film is good\na bad scene\n\nnot very dull " + "and good " * 20 + "\n", encoding="utf-8")
    return path


@pytest.mark.campaign
def test_a_classifier_beside_two_peers(run: Run, classifier: Path, texts: Path, tmp_path: Path) -> None:
    picture = tmp_path / "speed.png"
    peers = ("--against", "transformers,onnxruntime", "--precision", "fp32")
    code, out, err = run(classifier, "--texts", texts, *peers, "--rounds", 2, "--out", picture, "--json", "--quiet")
    assert (code, err) == (0, "")
    report = json.loads(out)
    assert (report["complete"], report["num_texts"], report["not_installed"]) == (True, 4, [])
    assert list(report["systems"]) == ["bertkit fp32", "transformers fp32", "onnxruntime fp32"]
    for name, system in report["systems"].items():
        assert system["error"] is None
        assert system["passes"] is True
        assert system["quality"]["difference"] < 1e-4
        rounds = {figure: len(values["rounds"]) for figure, values in system["figures"].items()}
        orders = {"pass_arrival": 2} if name.startswith("bertkit") else {"pass_arrival": 2, "pass_sorted": 2}
        assert rounds == {
            "single_16": 2, "single_own": 2, "single_own_p95": 2, **orders, "memory": 1, "cold_start": 2,
        }  # fmt: skip
        assert all(value > 0 for values in system["figures"].values() for value in values["rounds"])
    assert report["advice"].startswith("Use precision fp32 on this machine: no other was measured. The fastest")
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.campaign
def test_a_peer_that_computes_something_else_is_told(
    run: Run, classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: with scripts that lose the attention mask, and that fail."""
    wrong = tmp_path / "peers"
    wrong.mkdir()
    for path in runtimes.PEERS_FOLDER.glob("*.py"):
        text = path.read_text(encoding="utf-8").replace("if not mask.all():", "if False:")
        (wrong / path.name).write_text(text, encoding="utf-8")
    (wrong / "run_onnxruntime.py").write_text("raise SystemExit('no luck today')\n", encoding="utf-8")
    monkeypatch.setattr(runtimes, "PEERS_FOLDER", wrong)
    peers = ("--against", "transformers,onnxruntime", "--precision", "fp32")
    code, out, err = run(classifier, *peers, "--rounds", 1)
    assert code == 0
    assert "onnxruntime fp32 is left out: the process of onnxruntime fp32 ended: no luck today" in err
    line = next(line for line in out.splitlines() if line.endswith("NOT NEAR ENOUGH"))
    assert line.split()[:2] == ["transformers", "fp32"]
    assert "fastest peers" not in out


@pytest.mark.campaign
def test_ctrl_c_shows_what_was_measured(classifier: Path) -> None:
    options = ["--against", "none", "--precision", "fp32", "--rounds", "500"]
    command = [sys.executable, "-m", "bertkit", "benchmark", str(classifier), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if re.search(r"round (?!1,)", line))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "bertkit benchmark: stopped by SIGINT" in err
    assert "interrupted: what was measured until then" in out
    assert "Use precision" in out


def test_bad_input(run: Run, classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = tmp_path / "empty.txt"
    empty.touch()
    for options, code, message in (
        (("--texts", empty), 3, "has no text to measure with; it should have one text per line"),
        (("--texts", tmp_path / "none.txt"), 3, "none.txt"),
        (("--against", "tensorrt"), 2, "unknown runtime 'tensorrt'"),
        (("--against", "none", "--precision", "int4"), 2, "unknown precision 'int4' (did you mean 'int8'?)"),
        (("--against", "none", "--rounds", 0), 2, "--rounds must be a whole number from 1, got 0"),
        (("--against", "none", "--threads", 0), 2, "--threads must be a whole number from 1, got 0"),
        (("--device", "cuda"), 2, "--device cuda has no effect"),
        (("--out", tmp_path / "speed.gif"), 2, "the name must end in .png"),
        (("--against", "none", "--precision", "int8"), 2, "precision int8: it needs the model in 8 bits"),
        (("--int8", classifier), 2, "is not in 8 bits; make it with: bertkit quantize"),
        (("--peers-python", tmp_path / "python"), 2, "is not a Python interpreter that runs here"),
    ):
        found, out, err = run(classifier, *options)
        assert (found, out) == (code, ""), err
        assert message in err
    (tmp_path / "export.json").write_text("{}")
    code, _, err = run(tmp_path, "--against", "transformers")
    assert (code, "is an exported graph, which peers cannot convert" in err) == (2, True)
    graph = {"model": "BertForMaskedLM", "variants": {"packed": {"file": "model_packed.onnx"}}, "token_outputs": []}
    (tmp_path / "export.json").write_text(json.dumps(graph))
    code, _, err = run(tmp_path, "--against", "none")
    assert (code, "export the model again with --task feature-extraction" in err) == (4, True)
    code, _, err = run(tmp_path / "no-model", "--against", "none")
    assert (code, "no-model" in err) == (4, True)

    def absent(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name="matplotlib")

    monkeypatch.setattr(errors, "import_module", absent)
    code, _, err = run(classifier, "--out", tmp_path / "speed.png")
    assert code == 5
    assert "pip install 'bertkit[plots]'" in err


def test_a_picture_of_nothing_is_not_drawn(
    run: Run, classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure.Session, "run", lambda self, rounds: None)
    code, out, err = run(classifier, "--against", "none", "--out", tmp_path / "speed.png")
    assert (code, "Too little was measured for any advice." in out) == (0, True)
    assert f"no plot was written to {tmp_path / 'speed.png'}: too little was measured" in err
    assert not (tmp_path / "speed.png").exists()


def test_the_picture_has_a_bar_for_every_figure(tmp_path: Path) -> None:
    bars = {"bertkit fp32": [1.0, 1.0], "a peer": [0.5, 4.0]}
    figure = relative_times(bars, ["1 x 16 tokens", "all texts"], "bertkit fp32")
    path = save_figure(figure, tmp_path / "bars.png")
    assert path.read_bytes().startswith(b"\x89PNG")
