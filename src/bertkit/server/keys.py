"""Keys of clients, and how much each of them may ask for in a minute.

A file has a key a line, and behind it perhaps limits: ``KEY requests_per_minute=60 tokens_per_minute=100000``.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from bertkit.errors import ConfigError
from bertkit.server.failures import Cause, Failure
from bertkit.server.settings import ServeSettings
from bertkit.system.fork_locks import ForkSafeLock
from bertkit.system.untrusted_files import read_regular

_MAX_BYTES = 1 << 20
_LIMITS = ("requests_per_minute", "tokens_per_minute")
#: Of a key what is left of its requests and of its tokens, and when that was.
_LEFT = struct.Struct("<ddd")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key, and its limits; None: there is none."""

    key: bytes
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


def read_keys(settings: ServeSettings) -> list[ApiKey]:
    """The keys that clients may send; none: they need none.

    Raises:
        ConfigError: the file has no key, or a line is wrong; names the line, and not the key.
    """
    keys = [ApiKey(settings.api_key.encode())] if settings.api_key else []
    if (file := settings.api_keys_file) is not None:
        lines = read_regular(Path(file), max_bytes=_MAX_BYTES).decode().splitlines()
        keys += [
            _key_in(line, f"{file}, line {number}")
            for number, line in enumerate(lines, start=1)
            if line.strip() and not line.startswith("#")
        ]
        if not keys:
            raise ConfigError(f"{file} has no key: write one a line")
        if len({each.key for each in keys}) < len(keys):
            raise ConfigError(f"{file} has a key twice, or that of --api-key: which limits it has would not be known")
    return keys


def _key_in(line: str, place: str) -> ApiKey:
    key, *words = line.split()
    limits: dict[str, int] = {}
    for word in words:
        name, _, number = word.partition("=")
        if name not in _LIMITS:
            raise ConfigError(f"{place}: behind a key may stand {' and '.join(f'{name}=N' for name in _LIMITS)} only")
        if not number.isdecimal() or not number.isascii() or int(number) < 1:
            raise ConfigError(f"{place}: {name} must be a whole number from 1, got {number!r:.40}")
        limits[name] = int(number)
    return ApiKey(key.encode(), **limits)


def client_of_key(number: int) -> str:
    """The client name of requests with a key, in the queue and in the log."""
    return f"key {number}"


class KeyLimits:
    """What each key has left: a minute's worth at most, which comes back evenly.

    Processes that are forked afterwards count together. Requests count when they come. Tokens count when they are
    computed: a key whose tokens are used up is refused until it has paid back what it used beyond them.
    """

    def __init__(self, keys: Sequence[ApiKey], clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = [(key.requests_per_minute, key.tokens_per_minute) for key in keys]
        self._numbers = {client_of_key(number): number for number, each in enumerate(self._limits) if any(each)}
        self._clock, self._lock = clock, ForkSafeLock()
        self._file, self._memory = _shared(max(1, len(keys)) * _LEFT.size)
        now = clock()
        for number, (requests, tokens) in enumerate(self._limits):
            _LEFT.pack_into(self._memory, number * _LEFT.size, requests or 0, tokens or 0, now)

    def take_request(self, client: str) -> None:
        """Count a request.

        Raises:
            Failure: the key has no more of them, or of tokens.
        """
        if (number := self._numbers.get(client)) is None:
            return
        self.check_tokens(client)
        limit = self._limits[number][0]
        if limit is None:
            return
        with self._left(number) as left:
            if left[0] < 1:
                raise _used_up("key_requests", "requests", limit, 1 - left[0])
            left[0] -= 1

    def check_tokens(self, client: str) -> None:
        """Raise a Failure if the key has no more tokens."""
        if (number := self._numbers.get(client)) is None or (limit := self._limits[number][1]) is None:
            return
        with self._left(number) as left:
            if left[1] <= 0:
                raise _used_up("key_tokens", "tokens", limit, 1 - left[1])

    def spend(self, client: str, tokens: int) -> None:
        """Count tokens that were computed."""
        if (number := self._numbers.get(client)) is not None and self._limits[number][1] is not None:
            with self._left(number) as left:
                left[1] -= tokens

    @contextlib.contextmanager
    def _left(self, number: int) -> Iterator[list[float]]:
        """What a key has left of requests and tokens now; what is changed of it is kept."""
        place = number * _LEFT.size
        with self._lock, _alone(self._file):
            requests, tokens, then = _LEFT.unpack_from(self._memory, place)
            now = self._clock()
            share = max(0.0, now - then) / 60
            most = [limit or 0 for limit in self._limits[number]]
            found = [min(each, left + each * share) for left, each in zip((requests, tokens), most, strict=True)]
            try:
                yield found
            finally:
                _LEFT.pack_into(self._memory, place, *found, now)


def _used_up(cause: Cause, what: str, limit: int, missing: float) -> Failure:
    seconds = missing * 60 / limit
    return Failure(
        "overloaded",
        f"this key may have {limit:,} {what} a minute; try again in {seconds:.1f} seconds",
        retry_after=seconds,
        cause=cause,
    )


def _shared(size: int) -> tuple[BinaryIO | None, mmap.mmap]:
    """Memory that forked processes share, with a file without a name by which they lock it, where there is one."""
    if not hasattr(os, "memfd_create"):
        return None, mmap.mmap(-1, size)
    file = os.fdopen(os.memfd_create("bertkit-keys", os.MFD_CLOEXEC), "r+b", buffering=0)
    file.truncate(size)
    return file, mmap.mmap(file.fileno(), size)


@contextlib.contextmanager
def _alone(file: BinaryIO | None) -> Iterator[None]:
    """While no other process changes the memory. A process that is killed leaves no lock behind."""
    if file is None:
        yield
        return
    import fcntl  # not on Windows, where there is no such memory either

    fcntl.lockf(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.lockf(file, fcntl.LOCK_UN)
