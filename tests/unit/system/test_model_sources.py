"""Names of models: paths first, then the model in the package, then the Hub (``test_sources_hub.py``)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bertkit.errors import CheckpointError, InputError
from bertkit.system import model_sources
from bertkit.system.model_sources import ADAPTER, INCLUDED, adapted_model, included_model, is_of_hub, resolve


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation with a model, seen from an empty folder."""
    folder = tmp_path / "package" / INCLUDED
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    monkeypatch.setattr(model_sources, "INCLUDED_FOLDER", folder)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return folder


@pytest.mark.parametrize("name", [INCLUDED, Path(INCLUDED)])
def test_the_included_model_is_found_by_its_name(package: Path, name: str | Path) -> None:
    assert resolve(name) == resolve(name, revision="main") == resolve(name, files=["vocab.txt"]) == package
    with pytest.raises(CheckpointError, match=r"comes with bertkit and has no revisions; got revision='v1'"):
        resolve(name, revision="v1")


def test_a_folder_of_that_name_comes_first(package: Path) -> None:
    Path(INCLUDED).mkdir()
    assert resolve(INCLUDED) == Path(INCLUDED)
    assert included_model() == package
    with pytest.raises(CheckpointError, match="is a local path and has no revisions"):
        resolve(INCLUDED, revision="v1")


def test_an_installation_without_it_says_so(package: Path) -> None:
    shutil.rmtree(package)
    with pytest.raises(
        CheckpointError, match=f"this installation of bertkit lacks its model {INCLUDED}.*Install it again"
    ):
        resolve(INCLUDED)


@pytest.mark.parametrize("name", ["bertkit-tiny", "BertKit-Tiny-En", "bertkit_tiny_en", "owner/bertkit-tiny-en"])
def test_nearly_its_name(package: Path, name: str) -> None:
    with pytest.raises(CheckpointError, match=f"did you mean '{INCLUDED}'"):
        resolve(f"./{name}")


def test_names_of_other_models_do_not_mean_it(package: Path) -> None:
    Path("bertkit-tiny-de").mkdir()
    with pytest.raises(CheckpointError, match="did you mean 'bertkit-tiny-de'"):
        resolve("./bertkit-tiny-dx")
    for name in ("./bert-tiny", "./prajjwal1/bert-tiny", "./tiny-en"):
        with pytest.raises(CheckpointError) as told:
            resolve(name)
        assert INCLUDED not in str(told.value)
    with pytest.raises(InputError):
        resolve("")


def test_what_is_looked_up_on_the_hub(package: Path) -> None:
    Path("mine").mkdir()
    names = ("bert-base-uncased", "owner/name", "mine", INCLUDED, package)
    assert [is_of_hub(name) for name in names] == [True, True, False, False, False]


def test_an_adapter_may_be_for_it(package: Path) -> None:
    said = {"base_model_name_or_path": INCLUDED, "revision": None}
    Path(ADAPTER).write_text(json.dumps(said))
    assert adapted_model(Path()) == package
    Path(ADAPTER).write_text(json.dumps({**said, "revision": "abc"}))
    assert adapted_model(Path()) == package  # as for a folder: what peft wrote of it
