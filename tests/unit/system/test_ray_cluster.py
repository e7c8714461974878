"""Errors of a Ray that is not there, is too old, or does not answer."""

from __future__ import annotations

import socket

import pytest

from bertkit.errors import ConfigError, DataError, MissingExtraError, ResourceError
from bertkit.system.ray_cluster import cause_of, connected

ray = pytest.importorskip("ray")


def test_an_address_where_nobody_listens_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:  # bound and not listening: a connection is refused
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for written in (address, f"ray://{address}"):
            monkeypatch.setenv("RAY_ADDRESS", written)
            with pytest.raises(ConfigError, match=rf"no Ray at {written}: .*; check RAY_ADDRESS"), connected():
                pass
    assert not ray.is_initialized()


def test_an_old_ray_and_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "__version__", "2.9.3")
    with pytest.raises(ConfigError, match=r"Ray 2\.9\.3 is too old, 2\.50 is needed. Run: pip install"), connected():
        pass
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'bertkit\[ray\]'"), connected():
        pass


def test_the_error_of_a_task_is_found_in_that_of_ray() -> None:
    ours = DataError("file:3: bad")
    around = RuntimeError("RayTaskError")
    around.__cause__ = ours
    assert cause_of(around, "all stays") is ours
    found = cause_of(RuntimeError("worker\ndied"), "finished shards stay")
    assert isinstance(found, ResourceError)
    assert str(found) == "the Ray cluster failed, finished shards stay: died"
    assert "have no bertkit" in str(cause_of(RuntimeError("No module named 'bertkit'"), ""))
