"""What tests of fine-tuning share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from finetune_data import no_pictures, tiny_start


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random BERT with a vocabulary of whole words."""
    return tiny_start(tmp_path_factory.mktemp("start"))


@pytest.fixture(scope="module")
def without_pictures() -> Iterator[None]:
    """Runs of the module draw nothing."""
    with no_pictures():
        yield
