"""One encoder's worker: takes batches from its queue, computes them, and posts the answers back, once a batch."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
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
from bertkit.server.inside import explained_tokens
from bertkit.server.items import characters_read, num_rows
from bertkit.server.model_tasks import OF_TOKENIZERS, may_read_windows
from bertkit.server.open_model import OpenModel, Results
from bertkit.server.parts import Part, Work, cut, joined
from bertkit.server.queue import Entry, RequestQueue
from bertkit.server.watch import Watch

#: What becomes of a request: its rendered answer, or why there is none.
Outcome = Any
#: Hands outcomes to those who wait, all of a batch at once.
Post = Callable[[Sequence[tuple[Work, Outcome]]], None]
#: Records a batch; see :meth:`bertkit.server.tracing.Tracer.batch`.
Trace = Callable[[str, Sequence[tuple[Any, float]], float, float, int], None]
#: Parts of a large request that fill a batch: so small that those of others find room beside them.
PARTS_OF_A_BATCH = 8


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
        queue: RequestQueue[Part],
        *,
        max_batch_tokens: int,
        workers: int = 1,
        cache_bytes: int = 0,
        clock: Callable[[], float] = time.monotonic,
        watch: Watch = Watch(),  # noqa: B008  (it has no state)
        trace: Trace | None = None,
    ) -> None:
        self._trace = trace
        self.model, self.facts, self._post, self.queue = model, facts, post, queue
        self._max_tokens, self._clock, self._watch = max_batch_tokens, clock, watch
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

    def tokens_in(self, call: Call, item: Any) -> int:
        """About how many tokens are computed for an item of a call."""
        if call.task in OF_TOKENIZERS:
            return 0
        rows = num_rows(item, call.task, call.options)
        tokens = int(characters_read(item, call.task, call.options) * self._tokens_per_character) + 2 * rows
        if not may_read_windows(call.task, call.overflow):  # no row is longer
            tokens = min(tokens, rows * self.facts.max_length)
        return explained_tokens(tokens, call.options.get("by")) if call.task == "explain" else tokens

    def add(self, work: Work, key: Hashable, client: str, seconds: float | None) -> None:
        """Queue a request, in parts where it is large; ``seconds``: how long it may wait.

        Raises:
            Failure: the queue is full, one of its items is larger than the queue, or the server is shutting down.
        """
        call, most = work.call, self.queue.max_tokens
        batch = min(self._max_tokens, most)
        size = max(1, min(self._max_tokens // PARTS_OF_A_BATCH, most))
        parts = cut(call, lambda item: self.tokens_in(call, item), size, batch)
        now = self._clock()
        entries: list[Entry[Part]] = []
        for pieces in parts:
            tokens = sum(piece.tokens for piece in pieces)
            if tokens > most:
                raise _too_large(pieces[0].number, tokens, most)
            read = sum(characters_read(piece.item, call.task, call.options) for piece in pieces)
            deadline = None if seconds is None else now + seconds
            entries.append(Entry(Part(work, pieces, read), key, tokens, client, now, deadline, call.bulk, last=False))
        entries[-1].last = True
        with self._changed:
            if self._stopping:
                raise Failure("not_ready", "the server is shutting down", retry_after=1.0)
            if not self.queue.offer(*entries):
                raise self.overloaded(sum(entry.tokens for entry in entries), call.bulk)
            work.entries, work.missing = entries, len(entries)
            if not self._threads:
                self._start()
            self._changed.notify()

    def overloaded(self, tokens: int = 1, bulk: bool = False) -> Failure:
        """What a request of so many tokens is told that the queue has no room for."""
        seconds = self.queue.seconds_until_room()
        return Failure(
            "overloaded",
            f"the queue is full ({self.queue.requests:,} requests, about {self.queue.tokens:,} tokens); "
            f"try again in {seconds:.1f} seconds",
            retry_after=seconds,
            cause="queue_requests" if self.queue.lacks(tokens, bulk) == "requests" else "queue_tokens",
        )

    def _start(self) -> None:
        for number in range(self._num_workers):
            thread = threading.Thread(target=self._work, name=f"bertkit-batcher-{number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def texts_waiting(self) -> int:
        """Texts of requests that wait."""
        with self._changed:
            waiting = self.queue.waiting()
        return sum(entry.payload.rows for entry in waiting)

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
        self._post(outcomes := _ended((entry.payload.work for entry in left), failure))
        _forget_entries(outcomes)
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
                late = Failure("timeout", "the request waited longer than its timeout, and was not computed")
                outcomes = _ended((entry.payload.work for entry in taken.expired), late)
                self.counts.expired += len(outcomes)
                dropped = _ended((entry.payload.work for entry in taken.dropped), None)
                self.counts.dropped += len(dropped)
                self._running[threading.get_ident()] = begun
            batch = [entry for entry in taken.batch if not entry.payload.work.over]  # no trace has the others
            try:
                outcomes += self._outcomes(batch, begun)
            except Exception as error:  # a fault of ours ends neither the thread nor anybody's wait
                outcomes += _ended((entry.payload.work for entry in batch), failure_of(error))
            with self._changed:
                del self._running[threading.get_ident()]
                self.queue.finished(taken.batch)
            ended = self._clock()
            self._post(outcomes)
            if self._trace is not None and batch:
                waited = {entry.payload.work: (entry.payload.work.span, entry.arrived) for entry in batch}
                self._trace(self.facts.name, list(waited.values()), begun, ended, sum(each.tokens for each in batch))
            _forget_entries((*outcomes, *dropped))

    def _outcomes(self, batch: Sequence[Entry[Part]], begun: float) -> list[tuple[Work, Outcome]]:
        """What becomes of the requests whose last part, or a part that failed, is in a batch."""
        batch = [entry for entry in batch if not entry.payload.work.over]  # of others a part has just failed
        if not batch:
            return []
        try:
            found = self._computed(batch)
        except Exception as error:
            if len(batch) == 1:
                part = batch[0].payload
                with self._changed:
                    self.counts.failed += 1
                    return _ended([part.work], failure_of(error, part.renumbered))
            half = len(batch) // 2  # so that a request that cannot be answered fails alone in the end
            return self._outcomes(batch[:half], begun) + self._outcomes(batch[half:], self._clock())
        ended = self._clock()
        self._note(batch, found, begun, ended)
        with self._changed:
            done = _share_out(batch, found, ended - begun)
            self.counts.requests += len(done)
        return [(work, self._answered(work, ended)) for work in done]

    def _answered(self, work: Work, ended: float) -> Outcome:
        """What the client gets whose request has all its results."""
        try:
            found = joined(work)
            if self.cache is not None and work.digest is not None:
                self.cache.keep(work.digest, found)
        except Exception as error:
            return failure_of(error)
        total = ended - work.entries[0].arrived
        times = Times(queue=total - work.compute, compute=work.compute, encode=work.encode, total=total)
        return self.rendered(work, found, times)

    def _note(self, batch: Sequence[Entry[Part]], found: Results, begun: float, ended: float) -> None:
        """Learn from a batch how fast the model is, and how many tokens a character has."""
        task, tokens = batch[0].payload.work.call.task, sum(found.tokens)
        with self._changed:
            self.last_good = ended
            self.counts.batches += 1
            self.counts.tokens += tokens
            if task in OF_TOKENIZERS:  # without the encoder
                return
            self.queue.note(tokens, ended - begun)
            read = sum(entry.payload.read for entry in batch)
            if read > 100 and task != "explain":
                self._tokens_per_character += 0.1 * (min(tokens / read, 2.0) - self._tokens_per_character)
        self._watch.batch(sum(entry.payload.rows for entry in batch), tokens)

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
        try:
            self._watch.answer(work.call.task, answer)
            return work.render(answer)
        except Exception as error:
            return failure_of(error)

    def _computed(self, batch: Sequence[Entry[Part]]) -> Results:
        call = batch[0].payload.work.call
        items = [item for entry in batch for item in entry.payload.items]
        found = self.model.answer(call.task, items, call.options, call.overflow)
        assert len(found.values) == len(items)
        return found


def _share_out(batch: Sequence[Entry[Part]], found: Results, seconds: float) -> list[Work]:
    """Give each part of a batch its results; returns the requests that have all of theirs now."""
    done, first = [], 0
    for work in dict.fromkeys(entry.payload.work for entry in batch):
        work.compute += seconds
        work.encode += found.encoding
    for entry in batch:
        part = entry.payload
        last = first + len(part.pieces)
        part.results = Results(
            found.values[first:last],
            found.tokens[first:last],
            found.truncated[first:last],
            shared=found.shared[first:last],
        )
        first = last
        part.work.spend(sum(part.results.tokens))
        part.work.missing -= 1
        if not part.work.missing and not part.work.over:
            part.work.end()
            done.append(part.work)
    return done


def _ended(works: Iterable[Work], failure: Failure | None) -> list[tuple[Work, Outcome]]:
    """End requests without an answer; the outcomes of those that had none yet. None: nobody waits for it."""
    outcomes: list[tuple[Work, Outcome]] = []
    for work in works:
        if not work.over:
            work.end()
            outcomes.append((work, failure))
    return outcomes


def _forget_entries(outcomes: Iterable[tuple[Work, Outcome]]) -> None:
    """Break the cycle of a request and its entries, which only the collector would free. Call it last."""
    for work, _ in outcomes:
        work.entries = []


def _too_large(number: int, tokens: int, most: int) -> Failure:
    return Failure(
        "too_long",
        f"input {number} (counted from 0) has about {tokens:,} tokens, and this server computes at most {most:,} "
        "of one input (--max-queue-tokens): send it in parts",
        details={"num_tokens": tokens, "limit": most},
    )


def failure_of(error: Exception, renumbered: Callable[[str], str] = str) -> Failure:
    """What a client is told of an error; of a fault of bertkit no more than that it is one.

    renumbered: makes of a message about one of the items that were computed together one about the items of the call.
    """
    if isinstance(error, Failure):
        return error
    message = renumbered(str(error))
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
        return Failure("overloaded", "not enough memory for this request", retry_after=1.0, cause="memory")
    fault = Failure("fault", "a fault of the server; its log has more")
    fault.__cause__ = error
    return fault
