"""``bertkit quantize`` and the commands that take what it writes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bertkit.cli import main
from bertkit.system.model_sources import INCLUDED

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    subjects = ("the film", "this story", "her music", "a long game", "our city", "the old house", "his last book")
    verbs = ("was", "seemed", "became", "is not", "could be", "will stay")
    ends = ("quiet and slow", "a great joy", "far too loud", "hard to like", "worth the money")
    file = tmp_path_factory.mktemp("texts") / "texts.txt"
    file.write_text("\n".join(f"{s} {v} {e}" for s in subjects for v in verbs for e in ends) + "\n", encoding="utf-8")
    return file


def test_from_texts_to_vectors(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from bertkit.engine.closeness import Closeness
    from bertkit.quantization import quantize

    # So many alike sentences have many almost equal neighbours.
    monkeypatch.setattr(quantize, "NEAR_ENOUGH", Closeness(0.998, 0.995, 0.5))
    out = tmp_path / "int8"
    given = ["quantize", INCLUDED, "--calibrate", str(texts), "--out", str(out), "--any-speed", "--json"]
    assert main(given) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["bits"] in (7, 8)
    assert report["closeness"]["cosine_mean"] > 0.998
    assert main(["embed", "--model", str(out), "the film was quiet", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["embedding"]) == 384
    assert main(["inspect", str(out)]) == 0
    assert "encoder.layer.0.attention.qkv" in capsys.readouterr().out
    assert main(["embed", "--model", str(out), "--precision", "bf16", "a film"]) == 2
    assert "the model is in int8" in capsys.readouterr().err
    assert main(["finetune", "sst2", "--data", str(tmp_path), "--model", str(out), "--out", str(tmp_path / "run")]) != 0
    assert main(given) == 2
    assert "exists and is not empty" in capsys.readouterr().err


def test_too_few_texts(minilm: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "few.txt").write_text("one\ntwo\none\n", encoding="utf-8")
    given = ["quantize", str(minilm), "--calibrate", str(tmp_path / "few.txt"), "--out", str(tmp_path / "out")]
    assert main(given) == 3
    assert "2 different texts, and 100 are needed" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_another_device_is_refused(
    minilm: Path, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["quantize", str(minilm), "--calibrate", str(texts), "--out", str(tmp_path / "out"), "--device", "cuda"]
    assert main(given) == 2
    assert "quantize works on the processor, so --device cuda has no effect; leave it out" in capsys.readouterr().err


@pytest.mark.parametrize(
    "stage",
    [
        "observe",
        pytest.param("_view", marks=pytest.mark.campaign),
        pytest.param("compare_speed", marks=pytest.mark.campaign),
        pytest.param("save_int8", marks=pytest.mark.campaign),
    ],
)
def test_interrupted_it_leaves_nothing_behind(
    texts: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
) -> None:
    from bertkit.engine.closeness import Closeness
    from bertkit.quantization import quantize

    def stop(*given: object, **named: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(quantize, "NEAR_ENOUGH", Closeness(0.0, 0.0, 0.0))
    monkeypatch.setattr(quantize, stage, stop)
    given = ["quantize", INCLUDED, "--calibrate", str(texts), "--out", str(tmp_path / "out"), "--any-speed"]
    assert main(given) == 130
    assert capsys.readouterr().err == "bertkit quantize: interrupted\n"
    assert not list(tmp_path.iterdir())
