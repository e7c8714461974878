"""One server for the tests that change nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bertkit.server.app import ServerApp
from server_helpers import save_models, serving


class Server(NamedTuple):
    """A running server, and the folder of its models."""

    app: ServerApp
    address: str
    folder: Path


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """All tiny models."""
    folder = tmp_path_factory.mktemp("models")
    with serving(*save_models(folder), max_items=16, precision="fp32") as (app, address):
        yield Server(app, address, folder)
