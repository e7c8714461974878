"""``bertkit inspect`` tells apart what looks alike: models, token stores, and training states."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bertkit import BertForMaskedLM
from bertkit.cli import main
from bertkit.data.store.prepare import prepare
from bertkit.training.trainer.snapshot import Snapshot, save_snapshot, step_name
from pipeline_helpers import save_tiny

LOOK = """
import sys
from bertkit.cli import main
code = main(["inspect", sys.argv[1]])
print([name for name in ("pyarrow", "torch") if name in sys.modules], file=sys.stderr)
sys.exit(code)
"""


def look(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", LOOK, str(path)], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("inspect") / "model", BertForMaskedLM)


@pytest.fixture(scope="module")
def store(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspect")
    (folder / "text.txt").write_text("a film\nthe end\n\na good film\n")
    prepare(folder / "text.txt", model, folder / "store", sentences="line", workers=1)
    return folder / "store"


def test_a_model_is_looked_at_without_pyarrow_and_torch(model: Path, store: Path) -> None:
    done = look(model)
    assert done.returncode == 0, done.stderr
    assert "can be loaded" in done.stdout
    assert done.stderr == "[]\n"
    assert "pyarrow" in look(store).stderr  # the log shows an import that happens


def test_a_store_is_known_in_every_state(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(store)]) == 0
    assert "documents    2\n" in capsys.readouterr().out
    manifest = store / "manifest.json"
    content = manifest.read_text()
    manifest.unlink()
    try:
        assert main(["inspect", str(store)]) == 3
        assert "has no manifest.json; a token store is made with" in capsys.readouterr().err
        (store / "progress.json").write_text("{}")
        assert main(["inspect", str(store)]) == 3
        assert "an unfinished token store" in capsys.readouterr().err
    finally:
        (store / "progress.json").unlink(missing_ok=True)
        manifest.write_text(content)


def test_the_hashes_of_a_store_are_checked_on_request(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(store), "--verify"]) == 0
    assert capsys.readouterr().out.endswith("every shard has the hash that the manifest gives\n")
    assert main(["inspect", str(store), "--against", str(store)]) == 2
    assert "--against compares models only" in capsys.readouterr().err
    copy = shutil.copytree(store, tmp_path / "copy")
    (shard,) = copy.glob("*.parquet")
    shard.write_bytes(shard.read_bytes().replace(b"parquet-cpp", b"PARQUET-CPP"))  # in the footer, without a checksum
    assert main(["inspect", str(copy), "--verify"]) == 3
    assert "is damaged" in capsys.readouterr().err


def test_a_training_state_is_called_by_its_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = save_snapshot(tmp_path / "checkpoints", step_name(7), Snapshot({"a": torch.ones(2)}, {"step": 7}))
    for folder, told in ((state, "is a training state"), (state.parent, "holds training states ('step-00000007')")):
        assert main(["inspect", str(folder)]) == 4
        error = capsys.readouterr().err
        assert told in error
        assert "Inspect the run's model instead" in error
