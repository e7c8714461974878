"""What all workers have counted, in memory that they share: any of them answers for all.

The memory is anonymous and made before the first fork, so that nothing is left over, and no folder must be writable.
Each worker has a place, which only it writes: two halves in turn, so that one is whole whenever it is killed. The
supervisor adds what a worker that has ended had counted to what all the ended ones had, so that no sum ever falls.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import struct
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import Metric

#: Bytes of a half, of which a place has two; pages that nobody writes take no memory.
_HALF = 1 << 18
#: In the beginning of the memory how many times the supervisor has begun or ended to move what a worker had counted,
#: and for each place how many times it was written: the last write is in its first half if that is even.
_NUMBER = struct.Struct("<Q")
#: In the beginning of a half the bytes of what follows.
_LENGTH = struct.Struct("<Q")
#: Tries to read while nobody writes.
_TRIES = 1000
#: By name: type, description, and by name and labels of a sample its value.
Families = dict[str, tuple[str, str, dict[str, float]]]


class Board:
    """See the module. Place 0 is of the workers that have ended."""

    def __init__(self, most_workers: int) -> None:
        self._places = most_workers + 1
        self._first = (self._places + 1) * _NUMBER.size
        self._memory = mmap.mmap(-1, self._first + 2 * self._places * _HALF)
        #: Processes by their place; kept by the supervisor.
        self._taken: dict[int, int] = {}

    def free_place(self) -> int | None:
        """A place for a worker that is to be forked; None: there is none, and it counts for itself."""
        return next((place for place in range(1, self._places) if place not in self._taken.values()), None)

    def take(self, process: int, place: int | None) -> None:
        """Note whose place it is."""
        if place is not None:
            self._taken[process] = place

    def give_up(self, process: int) -> None:
        """Called by the supervisor when a worker has ended: keep what it had counted."""
        place = self._taken.pop(process, None)
        if place is None:
            return
        ended = merged([self._read(0), _without_gauges(self._read(place))])
        self._step(0)  # so that a reader sees both changes or none
        self._write(0, ended)
        self._write(place, {})
        self._step(0)

    def write(self, place: int, metrics: Iterable[Metric]) -> None:
        """Say what a worker has counted so far."""
        self._write(place, _families(metrics))

    def metrics(self) -> Iterator[Metric]:
        """The sums of all workers."""
        for _ in range(_TRIES):
            moves = self._number(0)
            found = [self._read(place) for place in range(self._places)]
            if not moves % 2 and self._number(0) == moves:
                break
            time.sleep(0.0001)
        living = sum(bool(families) for families in found[1:])
        workers = Metric("bertkit_workers", "Processes that answer.", "gauge")
        workers.add_sample("bertkit_workers", {}, living)
        yield workers
        for name, (kind, text, values) in merged(found).items():
            metric = Metric(name, text, kind)
            for key, value in values.items():
                sample, labels = json.loads(key)
                metric.add_sample(sample, labels, value)
            yield metric

    def _number(self, at: int) -> int:
        number: int = _NUMBER.unpack_from(self._memory, at * _NUMBER.size)[0]
        return number

    def _step(self, at: int) -> None:
        _NUMBER.pack_into(self._memory, at * _NUMBER.size, self._number(at) + 1)

    def _half(self, place: int, number: int) -> int:
        """Where a write of so many begins."""
        return self._first + (2 * place + number % 2) * _HALF

    def _write(self, place: int, families: Families) -> None:
        written = zlib.compress(json.dumps(families).encode(), 1)
        if len(written) > _HALF - _LENGTH.size:  # far more paths and models than anybody has: what was there stays
            return
        start = self._half(place, self._number(place + 1) + 1)
        _LENGTH.pack_into(self._memory, start, len(written))
        self._memory[start + _LENGTH.size : start + _LENGTH.size + len(written)] = written
        self._step(place + 1)

    def _read(self, place: int) -> Families:
        """What stands at a place."""
        for _ in range(_TRIES):
            number = self._number(place + 1)
            start = self._half(place, number)
            size = _LENGTH.unpack_from(self._memory, start)[0]
            written = self._memory[start + _LENGTH.size : start + _LENGTH.size + size]
            if self._number(place + 1) == number:
                with contextlib.suppress(zlib.error):  # on processors that write in another order
                    found: Families = json.loads(zlib.decompress(written)) if written else {}
                    return found
        return {}


def _families(metrics: Iterable[Metric]) -> Families:
    return {
        metric.name: (
            metric.type,
            metric.documentation,
            {_key(sample.name, sample.labels): sample.value for sample in metric.samples},
        )
        for metric in metrics
    }


def _key(name: str, labels: Mapping[str, Any]) -> str:
    return json.dumps([name, labels])


def _without_gauges(families: Families) -> Families:
    """What goes on counting for a worker that has ended."""
    return {name: each for name, each in families.items() if each[0] != "gauge"}


def merged(boards: Iterable[Families]) -> Families:
    """The sums of samples with the same name and labels; of the times at which counters were made the first."""
    found: Families = {}
    for families in boards:
        for name, (kind, text, values) in families.items():
            own = found.setdefault(name, (kind, text, {}))[2]
            for key, value in values.items():
                if key not in own:
                    own[key] = value
                elif key.partition('", ')[0].endswith("_created"):
                    own[key] = min(own[key], value)
                else:
                    own[key] += value
    return found
