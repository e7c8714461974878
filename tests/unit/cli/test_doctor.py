"""What ``bertkit doctor`` says of the model in the package."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bertkit.cli import main
from bertkit.system import model_sources
from bertkit.system.atomic_files import sha256_file
from pipeline_helpers import save_tiny


def test_the_included_model_is_whole_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save_tiny(tmp_path / "model")
    monkeypatch.setattr(model_sources, "INCLUDED_FOLDER", folder)

    def told() -> str:
        assert main(["doctor", "--json"]) == 0
        return str(json.loads(capsys.readouterr().out)["included_model"])

    weights = folder / "model.safetensors"
    assert str(folder) in told()
    assert sha256_file(weights) in told()
    weights.write_bytes(weights.read_bytes()[:-100])
    assert told().startswith("UNUSABLE: ")
    assert "model.safetensors" in told()
    shutil.rmtree(folder)
    assert "UNUSABLE: this installation of bertkit lacks its model" in told()
