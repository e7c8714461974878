"""One encoder's worker: takes batches from its queue, computes them, and posts the answers back, once a batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from bertkit.errors import (
    BertkitError,
    CheckpointError,
    InputError,
    LongTextError,
    MissingExtraError,
    TextError,
    WidthError,
)
from bertkit.server.cache import AnswerCache
from bertkit.server.calls import Answer, Call, ModelFacts, Times
from bertkit.server.failures import Failure
from bertkit.server.inside import MOST_EXPLAINED
from bertkit.server.items import num_rows
from bertkit.server.open_model import OpenModel, Results
from bertkit.server.queue import Entry, RequestQueue

#: What becomes of a request: its rendered answer, or why there is none.
Outcome = Any
#: Hands outcomes to those who wait, all of a batch at once.
Post = Callable[[Sequence[tuple["Work", Outcome]]], None]
#: Records a batch; see :meth:`bertkit.server.tracing.Tracer.batch`.
Trace = Callable[[str, Sequence[tuple[Any, float]], float, float, int], None]


@dataclass(slots=True, eq=False)
class Work:
    """A call on its way.

    items: those of the call, for a cache; None: the answer is not kept.
    characters: of its texts. read: those that are computed, see :func:`bertkit.server.items.characters_read`.
    render: makes what the client gets; called in the worker's thread.
    waiter: who waits for the outcome, for :data:`Post`.
    span: of the request, for :data:`Trace`.
    """

    call: Call
    items: Hashable
    characters: int
    read: int
    render: Callable[[Answer], Any]
    waiter: Any
    span: Any = None


@dataclass(slots=True)
class Counts:
    """What a batcher has done, for the metrics."""

    batches: int = 0
    requests: int = 0
    tokens: int = 0
    dropped: int = 0
    expired: int = 0
    failed: int = 0


class Batcher:
    """The queue of a model, and the threads that empty it.

    facts: of the model, for its answers, even after another model has taken over its name.
    workers: threads, of which one may prepare a batch while another's is computed.
    """

    def __init__(
        self,
        model: OpenModel,
        facts: ModelFacts,
        post: Post,
        queue: RequestQueue[Work],
        *,
        max_batch_tokens: int,
        workers: int = 1,
        cache_bytes: int = 0,
        clock: Callable[[], float] = time.monotonic,
        observe: Callable[[str, Answer], None] = lambda task, answer: None,
        trace: Trace | None = None,
    ) -> None:
        self._trace = trace
        self.model, self.facts, self._post, self.queue = model, facts, post, queue
        self._max_tokens, self._clock, self._observe = max_batch_tokens, clock, observe
        self._changed = threading.Condition()
        self._stopping = False
        #: When each running batch began.
        self._running: dict[int, float] = {}
        #: When a batch was last computed without a failure.
        self.last_good = float("-inf")
        self.counts = Counts()
        self.cache = AnswerCache(cache_bytes) if cache_bytes else None
        self._tokens_per_character = 0.3
        self._num_workers = workers
        #: Started by the first request, so that a process may fork before.
        self._threads: list[threading.Thread] = []

    def tokens_in(self, call: Call, read: int) -> int:
        """About how many tokens are computed for a call, of so many characters that are read."""
        rows = sum(num_rows(item, call.task, call.options) for item in call.items)
        tokens = int(read * self._tokens_per_character) + 2 * rows
        if rows > len(call.items):  # no row is longer, and none is read in several windows
            tokens = min(tokens, rows * self.facts.max_length)
        return min(tokens, MOST_EXPLAINED) ** 2 if call.task == "explain" else tokens  # computed once for each word

    def submit(self, entry: Entry[Work]) -> None:
        """Queue a request.

        Raises:
            Failure: the queue is full, or the server is shutting down.
        """
        with self._changed:
            if self._stopping:
                raise Failure("not_ready", "the server is shutting down", retry_after=1.0)
            if not self.queue.offer(entry):
                raise self.overloaded()
            if not self._threads:
                self._start()
            self._changed.notify()

    def overloaded(self) -> Failure:
        """What a request is told that the queue has no room for."""
        seconds = self.queue.seconds_until_room()
        return Failure(
            "overloaded",
            f"the queue is full ({self.queue.requests:,} requests, about {self.queue.tokens:,} tokens); "
            f"try again in {seconds:.1f} seconds",
            retry_after=seconds,
        )

    def _start(self) -> None:
        for number in range(self._num_workers):
            thread = threading.Thread(target=self._work, name=f"bertkit-batcher-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def running_seconds(self) -> float:
        """How long the oldest running batch has taken so far; 0: none is running."""
        return max((self._clock() - begun for begun in list(self._running.values())), default=0.0)

    def stop(self, seconds: float) -> bool:
        """Take no more, finish what waits, for so many seconds at most; whether all of it was finished."""
        end = self._clock() + seconds
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(max(0.0, end - self._clock()))
        with self._changed:
            left = self.queue.drain()
        failure = Failure("not_ready", "the server was shut down before this request was computed", retry_after=1.0)
        self._post([(entry.payload, failure) for entry in left])
        return not left and not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not len(self.queue) and not self._stopping:
                    self._changed.wait()
                if not len(self.queue):
                    return
                begun = self._clock()
                taken = self.queue.take(self._max_tokens, begun)
                self.counts.dropped += len(taken.dropped)
                self.counts.expired += len(taken.expired)
                self._running[threading.get_ident()] = begun
            late = Failure("timeout", "the request waited longer than its timeout, and was not computed")
            outcomes: list[tuple[Work, Outcome]] = [(entry.payload, late) for entry in taken.expired]
            outcomes += [(entry.payload, None) for entry in taken.dropped]
            try:
                outcomes += self._outcomes(taken.batch, begun) if taken.batch else []
            except Exception as error:  # a fault of ours ends neither the thread nor anybody's wait
                outcomes += [(entry.payload, failure_of(error)) for entry in taken.batch]
            with self._changed:
                del self._running[threading.get_ident()]
                self.queue.finished(taken.batch)
            ended = self._clock()
            self._post(outcomes)
            if self._trace is not None and taken.batch:
                waited = [(entry.payload.span, entry.arrived) for entry in taken.batch]
                self._trace(self.facts.name, waited, begun, ended, sum(entry.tokens for entry in taken.batch))

    def _outcomes(self, batch: Sequence[Entry[Work]], begun: float) -> list[tuple[Work, Outcome]]:
        try:
            found = self._computed(batch)
        except Exception as error:
            if len(batch) == 1:
                with self._changed:
                    self.counts.failed += 1
                return [(batch[0].payload, failure_of(error))]
            half = len(batch) // 2  # so that a request that cannot be answered fails alone in the end
            return self._outcomes(batch[:half], begun) + self._outcomes(batch[half:], begun)
        ended = self._clock()
        with self._changed:
            tokens = sum(found.tokens)
            self.queue.note(tokens, ended - begun)
            self.last_good = ended
            read = sum(entry.payload.read for entry in batch)
            if read > 100 and batch[0].payload.call.task != "explain":
                self._tokens_per_character += 0.1 * (min(tokens / read, 2.0) - self._tokens_per_character)
            counts = self.counts
            counts.batches, counts.requests = counts.batches + 1, counts.requests + len(batch)
            counts.tokens += tokens
        outcomes, first = [], 0
        for entry in batch:
            work = entry.payload
            last = first + len(work.call.items)
            own = Results(found.values[first:last], found.tokens[first:last], found.truncated[first:last])
            first = last
            if self.cache is not None and work.items is not None:
                self.cache.keep((entry.key, work.items), own)
            times = Times(
                queue=begun - entry.arrived,
                compute=ended - begun,
                encode=found.encoding,
                total=ended - entry.arrived,
            )
            outcomes.append((work, self.rendered(work, own, times)))
        return outcomes

    def rendered(self, work: Work, found: Results, times: Times) -> Outcome:
        """What the client gets for the results of its request."""
        answer = Answer(
            results=found.values,
            model=self.facts,
            tokens=found.tokens,
            truncated=found.truncated,
            characters=work.characters,
            times=times,
        )
        self._observe(work.call.task, answer)
        try:
            return work.render(answer)
        except Exception as error:
            return failure_of(error)

    def _computed(self, batch: Sequence[Entry[Work]]) -> Results:
        call = batch[0].payload.call
        items = [item for entry in batch for item in entry.payload.call.items]
        found = self.model.answer(call.task, items, call.options, call.overflow)
        assert len(found.values) == len(items)
        return found


def failure_of(error: Exception) -> Failure:
    """What a client is told of an error; of a fault of bertkit no more than that it is one."""
    if isinstance(error, Failure):
        return error
    message = str(error)
    if isinstance(error, LongTextError):
        what = message.partition(" has ")[0]
        return Failure(
            "too_long",
            f"{what} has {error.num_tokens:,} tokens, special tokens included, and the model reads {error.limit:,}",
            details={"num_tokens": error.num_tokens, "limit": error.limit},
        )
    if isinstance(error, WidthError):
        return Failure("invalid", message, param="dimensions", details={"width": error.width})
    if isinstance(error, TextError | InputError):
        return Failure("invalid", message)
    if isinstance(error, MissingExtraError):
        return Failure("missing_package", message)
    if isinstance(error, CheckpointError):
        return Failure("damaged_model", message)
    if isinstance(error, BertkitError):
        return Failure("invalid", message)
    if isinstance(error, MemoryError):
        return Failure("overloaded", "not enough memory for this request", retry_after=1.0)
    fault = Failure("fault", "a fault of the server; its log has more")
    fault.__cause__ = error
    return fault
