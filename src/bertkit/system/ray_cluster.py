"""The Ray cluster that work goes to: connected in one place, with errors that say what to do."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from urllib.parse import urlsplit

from bertkit.errors import BertkitError, ConfigError, ResourceError, require

#: The oldest release of Ray that the tests know; the extra ``ray`` asks for it too.
OLDEST_RAY = (2, 50)
#: Seconds in which a cluster accepts a connection.
ANSWER_S = 10.0


@contextmanager
def connected(needed_for: str = "engine 'ray'") -> Iterator[ModuleType]:
    """Ray, connected in a ``with`` block: that of this process, else the cluster at ``RAY_ADDRESS``, else a new one.

    A new one is on this machine and ends with the block; a Ray that was there before stays. Usage statistics are off
    unless ``RAY_USAGE_STATS_ENABLED`` is set. Ray itself reads ``RAY_AUTH_MODE`` and ``RAY_AUTH_TOKEN``.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigError: it is too old, or there is no cluster at the address that lets us in.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray = require("ray", extra="ray", needed_for=needed_for)
    _check_release(ray.__version__)
    mine = not ray.is_initialized()
    try:
        if mine:
            _connect(ray)
        yield ray
    finally:
        if mine:
            ray.shutdown()


def _check_release(installed: str) -> None:
    found = tuple(map(int, re.findall(r"\d+", installed)[:2]))
    if found < OLDEST_RAY:
        oldest = ".".join(map(str, OLDEST_RAY))
        raise ConfigError(f"Ray {installed} is too old, {oldest} is needed. Run: pip install -U 'bertkit[ray]'")


def _connect(ray: ModuleType) -> None:
    where = os.environ.get("RAY_ADDRESS", "this machine")
    try:
        _knock(where)
        ray.init(include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        why = str(error).strip() or type(error).__name__
        raise ConfigError(f"no Ray at {where}: {why}; check RAY_ADDRESS") from error
    logging.getLogger("ray.data").setLevel(logging.ERROR)  # it reports each plan and run


def _knock(address: str) -> None:
    """An OSError where nobody listens at ``host:port`` or ``ray://host:port``; Ray tries for more than two minutes."""
    place = urlsplit(address if "://" in address else f"//{address}")
    if place.hostname and place.port:
        socket.create_connection((place.hostname, place.port), timeout=ANSWER_S).close()


def cause_of(error: BaseException, kept: str) -> BertkitError:
    """The bertkit error that made Ray fail; if there is none, one with Ray's message. ``kept``: what is not lost."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, BertkitError) and type(cause).__module__ == BertkitError.__module__:
            return cause
        cause = getattr(cause, "cause", None) or cause.__cause__
    said = str(error).strip() or type(error).__name__
    if "No module named 'bertkit" in said:
        return ConfigError("the machines of the Ray cluster have no bertkit: install there what is installed here")
    return ResourceError(f"the Ray cluster failed, {kept}: {said.splitlines()[-1]}")
