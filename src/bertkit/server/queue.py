"""Waiting requests of one encoder: admission by tokens, fair turns for clients, batches of one kind, deadlines.

No thread and no clock of its own: the time is passed in, and one owner (the batcher) calls everything under its lock.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
#: Of so many batches one begins with bulk work although somebody waits, so that it never starves.
BULK_EVERY = 8
#: Share of the queue that bulk work may fill, so that there is room for what somebody waits for.
BULK_SHARE = 0.5
#: Weight of the newest batch in the running rate.
_NEWEST = 0.2


@dataclass(slots=True, eq=False)
class Entry(Generic[T]):
    """A waiting request.

    key: requests of one key can be computed together.
    tokens: about how many it has.
    client: whose turn it uses.
    arrived, deadline: on the clock of the caller; deadline None: it waits as long as it takes.
    gone: nobody waits for it any more.
    """

    payload: T
    key: Hashable
    tokens: int
    client: str
    arrived: float
    deadline: float | None = None
    bulk: bool = False
    gone: bool = False


@dataclass(slots=True)
class Taken(Generic[T]):
    """A batch, and what was dropped on the way: whose client is gone, and whose deadline is over."""

    batch: list[Entry[T]] = field(default_factory=list)
    dropped: list[Entry[T]] = field(default_factory=list)
    expired: list[Entry[T]] = field(default_factory=list)


class _Lines(Generic[T]):
    """The entries of one class, a line for each client; clients take turns."""

    def __init__(self) -> None:
        self.clients: OrderedDict[str, deque[Entry[T]]] = OrderedDict()

    def add(self, entry: Entry[T]) -> None:
        self.clients.setdefault(entry.client, deque()).append(entry)

    def heads(self) -> Iterator[Entry[T]]:
        """The first entry of each client, in the order of their turns."""
        for client in list(self.clients):
            yield self.clients[client][0]

    def remove_head(self, client: str) -> None:
        """Take the first entry of a client, whose next turn is after all others."""
        line = self.clients.pop(client)
        line.popleft()
        if line:
            self.clients[client] = line


class RequestQueue(Generic[T]):
    """See the module.

    max_tokens: of what waits and what is being computed, because both must be done before a new request is.
    max_requests: of what waits.
    """

    def __init__(self, max_tokens: int, max_requests: int) -> None:
        self.max_tokens, self.max_requests = max_tokens, max_requests
        #: Tokens that wait or are being computed, and requests that wait.
        self.tokens = self.requests = 0
        self._lines: dict[bool, _Lines[T]] = {False: _Lines(), True: _Lines()}
        self._batches = 0
        self._rate = 0.0

    def __len__(self) -> int:
        return self.requests

    @property
    def rate(self) -> float:
        """Tokens a second of late; 0: nothing was computed yet."""
        return self._rate

    def room_for(self, tokens: int, bulk: bool = False) -> bool:
        """Whether a request of so many tokens may wait. One that is larger than the queue may, in an empty queue."""
        share = BULK_SHARE if bulk else 1.0
        within = not self.tokens or self.tokens + tokens <= self.max_tokens * share
        return within and self.requests < max(1, self.max_requests * share)

    def seconds_until_room(self) -> float:
        """About how long the work that waits takes."""
        return self.tokens / self._rate if self._rate else 1.0

    def offer(self, entry: Entry[T]) -> bool:
        """Add an entry; False: the queue is full."""
        if not self.room_for(entry.tokens, entry.bulk):
            return False
        self._lines[entry.bulk].add(entry)
        self.tokens += entry.tokens
        self.requests += 1
        return True

    def take(self, most_tokens: int, now: float) -> Taken[T]:
        """A batch of entries with one key, of at most so many tokens (or of one entry); empty if nothing waits."""
        taken: Taken[T] = Taken()
        has_both = all(lines.clients for lines in self._lines.values())
        first = has_both and self._batches % BULK_EVERY == BULK_EVERY - 1
        for bulk in (first, not first):
            self._fill(taken, self._lines[bulk], most_tokens, now)
        self._batches += bool(taken.batch)
        return taken

    def _fill(self, taken: Taken[T], lines: _Lines[T], most_tokens: int, now: float) -> None:
        used = sum(entry.tokens for entry in taken.batch)
        found = True
        while found:
            found = False
            for entry in lines.heads():
                late = entry.deadline is not None and entry.deadline <= now
                if entry.gone or late:
                    (taken.expired if late else taken.dropped).append(entry)
                elif taken.batch and (entry.key != taken.batch[0].key or used + entry.tokens > most_tokens):
                    continue
                else:
                    taken.batch.append(entry)
                    used += entry.tokens
                    self.tokens += entry.tokens  # until it is finished
                found = True
                lines.remove_head(entry.client)
                self.tokens -= entry.tokens
                self.requests -= 1

    def finished(self, batch: Iterable[Entry[T]]) -> None:
        """Forget a batch that was taken, whatever became of it."""
        self.tokens -= sum(entry.tokens for entry in batch)

    def note(self, tokens: int, seconds: float) -> None:
        """Note how long so many tokens took."""
        newest = tokens / max(seconds, 1e-6)
        self._rate = newest if not self._rate else (1 - _NEWEST) * self._rate + _NEWEST * newest

    def drain(self) -> list[Entry[T]]:
        """All entries, which are removed."""
        found = [entry for lines in self._lines.values() for line in lines.clients.values() for entry in line]
        self._lines = {False: _Lines(), True: _Lines()}
        self.tokens -= sum(entry.tokens for entry in found)
        self.requests = 0
        return found
