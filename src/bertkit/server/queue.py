"""Waiting requests of one encoder: admission by tokens, fair turns for clients, batches of one kind, deadlines.

A large request has several entries, which are admitted together and take turns one by one.

No thread and no clock of its own: the time is passed in, and one owner (the batcher) calls everything under its lock.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

T = TypeVar("T")
#: Of so many batches one begins with bulk work although somebody waits, so that it never starves.
BULK_EVERY = 8
#: Share of the queue that bulk work may fill, so that there is room for what somebody waits for.
BULK_SHARE = 0.5
#: Share of the queue's tokens that one request counts as at most. A larger one does not shut the queue for others, whom
#: it does not hold up either: its entries take turns with theirs.
LARGEST_SHARE = 0.5
#: Weight of the newest batch in the running rate.
_NEWEST = 0.2


@dataclass(slots=True, eq=False)
class Entry(Generic[T]):
    """A request that waits, or a part of one.

    key: entries of one key can be computed together.
    tokens: about how many it has.
    client: whose turn it uses.
    arrived, deadline: on the clock of the caller; deadline None: it waits as long as it takes.
    gone: nobody waits for it any more.
    last: of its request, which is counted with it. charged: how many tokens it counts as; set by the queue.
    """

    payload: T
    key: Hashable
    tokens: int
    client: str
    arrived: float
    deadline: float | None = None
    bulk: bool = False
    gone: bool = False
    last: bool = True
    charged: int = 0


@dataclass(slots=True)
class Taken(Generic[T]):
    """A batch, and what was dropped on the way: whose client is gone, and whose deadline is over."""

    batch: list[Entry[T]] = field(default_factory=list)
    dropped: list[Entry[T]] = field(default_factory=list)
    expired: list[Entry[T]] = field(default_factory=list)


class _Lines(Generic[T]):
    """The entries of one class, a line of requests for each client. Clients take turns, and so do their requests."""

    def __init__(self) -> None:
        self.clients: OrderedDict[str, deque[deque[Entry[T]]]] = OrderedDict()

    def add(self, entries: Sequence[Entry[T]]) -> None:
        """Add the entries of a request."""
        self.clients.setdefault(entries[0].client, deque()).append(deque(entries))

    def all(self) -> Iterator[Entry[T]]:
        """All entries."""
        for line in self.clients.values():
            for request in line:
                yield from request

    def heads(self) -> Iterator[Entry[T]]:
        """The next entry of each client, in the order of their turns."""
        for client in list(self.clients):
            yield self.clients[client][0][0]

    def remove_head(self, client: str) -> None:
        """Take the next entry of a client, whose next turn is after all others; that request's is after its others."""
        line = self.clients.pop(client)
        request = line.popleft()
        request.popleft()
        if request:
            line.append(request)
        if line:
            self.clients[client] = line


class RequestQueue(Generic[T]):
    """See the module.

    max_tokens: of what waits and what is being computed, because both must be done before a new request is.
    max_requests: of what waits.
    """

    def __init__(self, max_tokens: int, max_requests: int) -> None:
        self.max_tokens, self.max_requests = max_tokens, max_requests
        #: Tokens that wait or are being computed, how many they count as, and requests that wait.
        self.tokens = self.charged = self.requests = 0
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
        """Whether a request of so many tokens may wait; a large one counts as a part of the queue."""
        return self.lacks(tokens, bulk) is None

    def lacks(self, tokens: int, bulk: bool = False) -> Literal["tokens", "requests"] | None:
        """What there is no room for; None: a request of so many tokens may wait."""
        share = BULK_SHARE if bulk else 1.0
        if self.charged + min(tokens, self._largest(bulk)) > self.max_tokens * share:
            return "tokens"
        return None if self.requests < max(1, self.max_requests * share) else "requests"

    def _largest(self, bulk: bool) -> int:
        """What a request counts as at most: a share of what its class may have."""
        return max(1, int(self.max_tokens * (BULK_SHARE if bulk else 1.0) * LARGEST_SHARE))

    @property
    def fullness(self) -> float:
        """The share of its tokens or of its requests that is taken, whichever is larger."""
        return max(self.charged / self.max_tokens, self.requests / self.max_requests)

    def seconds_until_room(self) -> float:
        """About how long the work that waits takes."""
        return self.tokens / self._rate if self._rate else 1.0

    def offer(self, *entries: Entry[T]) -> bool:
        """Add the entries of a request, all or none; False: the queue is full."""
        tokens, bulk = sum(entry.tokens for entry in entries), entries[0].bulk
        if not self.room_for(tokens, bulk):
            return False
        left = min(tokens, self._largest(bulk))
        for entry in entries:
            entry.charged = left * entry.tokens // tokens if tokens else 0
            left, tokens = left - entry.charged, tokens - entry.tokens
            self._count(entry, 1)
        self._lines[bulk].add(entries)
        self.requests += 1
        return True

    def _count(self, entry: Entry[T], sign: int) -> None:
        self.tokens += sign * entry.tokens
        self.charged += sign * entry.charged

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
                    self._count(entry, 1)  # until it is finished
                found = True
                lines.remove_head(entry.client)
                self._count(entry, -1)
                self.requests -= entry.last

    def finished(self, batch: Iterable[Entry[T]]) -> None:
        """Forget a batch that was taken, whatever became of it."""
        for entry in batch:
            self._count(entry, -1)

    def note(self, tokens: int, seconds: float) -> None:
        """Note how long so many tokens took."""
        newest = tokens / max(seconds, 1e-6)
        self._rate = newest if not self._rate else (1 - _NEWEST) * self._rate + _NEWEST * newest

    def waiting(self) -> list[Entry[T]]:
        """All entries."""
        return [entry for lines in self._lines.values() for entry in lines.all()]

    def drain(self) -> list[Entry[T]]:
        """All entries, which are removed."""
        found = self.waiting()
        self._lines = {False: _Lines(), True: _Lines()}
        self.finished(found)
        self.requests = 0
        return found
