"""From a call to its answer: which model, what is refused at once, and the wait for the batch. No HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from bertkit import __version__
from bertkit.server.batcher import Batcher, Outcome, Trace, failure_of
from bertkit.server.cache import digest_of
from bertkit.server.calls import Answer, Call, Look, ModelFacts, ServerFacts, Times
from bertkit.server.failures import NO_ROOM, Failure
from bertkit.server.indexes import Indexes
from bertkit.server.items import num_characters, num_rows
from bertkit.server.keys import KeyLimits
from bertkit.server.model_tasks import OF_TOKENIZERS
from bertkit.server.models import Models, Slot, warming
from bertkit.server.parts import Work
from bertkit.server.settings import ServeSettings
from bertkit.server.tracing import CURRENT
from bertkit.server.watch import Watch

ReplyT = TypeVar("ReplyT")
#: Options that some tasks' requests may have, and of which two requests with other values are computed apart.
_UNHASHABLE = (list, dict)
#: Searches at the same time.
_SEARCHES = 8
#: Seconds between two tries to get a request into a full queue.
PAUSE = 0.02
#: Answers that are handed out before the event loop looks for new requests again: each has to be written as well.
_AT_ONCE = 16


class Service:
    """The models of a server, for the coroutines of one event loop."""

    def __init__(
        self,
        settings: ServeSettings,
        watch: Watch = Watch(),  # noqa: B008  (it has no state)
        trace: Trace | None = None,
        limits: KeyLimits | None = None,
    ) -> None:
        self._limits = limits
        self.settings, self.watch = settings, watch
        self.indexes = Indexes(settings.indexes)
        self.models = Models(settings, _post, watch, self.indexes.bind, trace=trace)
        #: Not asyncio's own threads: many slow searches would leave none for the bodies of other requests.
        self._searching = ThreadPoolExecutor(_SEARCHES, "bertkit-search")
        #: Requests that were accepted and are not answered yet.
        self.open_requests = 0
        #: Requests that wait for room in a queue, and whose turn it is by what they ask.
        self._waiting = 0
        self._turns: dict[tuple[str, bool], asyncio.Lock] = {}
        #: Set some time after the server was told to stop: then bulk requests take no more lines.
        self.ending = asyncio.Event()

    def look(self, look: Look) -> ServerFacts:
        """What is known of the server's models, or of one."""
        return ServerFacts(
            version=__version__,
            limits=self.settings.limits,
            models=list(map(_without_places, self.models.facts(look.model))),
            indexes=self.indexes.facts(),
        )

    def check_room(self) -> None:
        """Raise a Failure if the queues of all models that are loaded are full."""
        batchers = [slot.batcher for slot in self.models.slots.values() if slot.batcher is not None]
        if batchers and not any(batcher.queue.room_for(1) for batcher in batchers):
            raise batchers[0].overloaded()

    async def answer(self, call: Call, render: Callable[[Answer], ReplyT], client: str = "") -> ReplyT:
        """The rendered answer to a call. Where the waiting coroutine is cancelled, the work is dropped.

        render: called with the answer, in the thread that computed it.

        Raises:
            Failure: the call cannot be answered.
        """
        if not call.wait or self._waiting >= self.settings.max_requests:
            return await self.submit(call, render, client)
        return await (await self._once_there_is_room(call, render, client))

    async def _once_there_is_room(
        self, call: Call, render: Callable[[Answer], ReplyT], client: str
    ) -> asyncio.Future[ReplyT]:
        """Submit a call, in turn with others of its class that wait, too."""
        loop = asyncio.get_running_loop()
        seconds = self._seconds_for(call)
        deadline = loop.time() + seconds
        wait = min(call.wait or 0.0, seconds)
        full: Failure | None = None
        turn = self._turns.setdefault((call.model or call.task, call.bulk), asyncio.Lock())
        self._waiting += 1
        try:
            async with asyncio.timeout(wait), turn:
                while True:
                    try:
                        return self.submit(call, render, client, deadline)
                    except Failure as failure:
                        if failure.cause not in NO_ROOM:
                            raise
                        full = failure
                    await asyncio.sleep(PAUSE)
        except TimeoutError:
            if full is None or wait == seconds:
                said = f"the queue had no room within {wait:g} seconds"
                raise Failure("timeout" if wait == seconds else "overloaded", said, retry_after=1.0) from None
            raise full from None
        finally:
            self._waiting -= 1
            full = None  # its traceback refers to this frame: they would keep each other alive

    def submit(
        self, call: Call, render: Callable[[Answer], ReplyT], client: str = "", deadline: float | None = None
    ) -> asyncio.Future[ReplyT]:
        """The same without waiting: the answer to come, or a Failure. Where it is cancelled, the work is dropped.

        deadline: by the clock of the loop, where that of the call has begun to run.

        Raises:
            Failure: the call was not accepted.
        """
        self._check(call)
        if self._limits is not None:
            self._limits.check_tokens(client)
        if call.task == "search":
            return self._search(call, render, client)
        call, render = self.models.addressed(call, render)
        batcher = self.models.batcher_for(call)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[ReplyT] = loop.create_future()
        seconds = self._seconds_for(call)
        left = seconds if deadline is None else deadline - loop.time()
        key = (call.task, call.overflow, *((name, _hashable(value)) for name, value in call.options.items()))
        work = Work(call, None, num_characters(call.items), render, future, CURRENT.get())
        if self._limits is not None:
            work.spend = partial(self._limits.spend, client)
        if batcher.cache is not None:
            work.digest = digest_of(key, call.items)
            if (known := batcher.cache.get(work.digest)) is not None:
                outcome = batcher.rendered(work, known, Times(queue=0.0, compute=0.0, total=0.0))
                if isinstance(outcome, Exception):
                    raise outcome
                future.set_result(outcome)
                return future
        try:
            batcher.add(work, key, client, left)
        except Failure:
            if (newer := self.models.batcher_for(call)) is batcher:
                raise
            newer.add(work, key, client, left)  # the model has just been loaded again
        if batcher.cache is not None:
            batcher.cache.misses += 1
        self.open_requests += 1
        timer = loop.call_later(left, _expire, future, seconds)

        def done(future: asyncio.Future[ReplyT]) -> None:
            work.drop()
            timer.cancel()
            self.open_requests -= 1
            _note(future)

        future.add_done_callback(done)
        return future

    def self_test(self, slot: Slot, batcher: Batcher) -> asyncio.Future[Answer]:
        """Ask a model a question to see whether it still computes; returns the pending outcome.

        The question goes through the queue like any request, but is never answered from the cache and does not count
        as use of the model.

        Raises:
            Failure: the queue is full, or the model is being unloaded.
        """
        task, items, options = warming(slot.facts)
        call = Call(task=task, items=items, options=options)
        outcome: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        outcome.add_done_callback(_note)
        work = Work(call, None, num_characters(items), lambda answer: answer, outcome)
        batcher.add(work, ("self-test",), "", None)
        return outcome

    def _search(self, call: Call, render: Callable[[Answer], ReplyT], client: str) -> asyncio.Future[ReplyT]:
        """Vectors of the queries from the batcher of the index's model, and the search in a thread of its own."""
        options = dict(call.options)
        index = self.indexes.index(options.pop("index", None))
        by = index.by(options.pop("by", None))
        vectors = None
        if by != "words":
            embed = replace(call, task="embed", model=index.model, options=index.reading)
            if index.model is None:
                for slot in self.models.slots.values():
                    if slot.facts.state in ("unloaded", "loading"):  # perhaps that is the one
                        self.models.batcher_for(replace(embed, model=slot.name))
                raise index.lacks_its_model()
            vectors = self.submit(embed, lambda answer: answer, client)

        def found(embedded: Answer | None) -> ReplyT:
            return render(index.search(call.items, embedded, by, **options))

        seconds = self._seconds_for(call)

        async def searched() -> ReplyT:
            self.open_requests += 1
            try:
                async with asyncio.timeout(seconds):
                    embedded = None if vectors is None else await vectors
                    return await asyncio.get_running_loop().run_in_executor(self._searching, found, embedded)
            except TimeoutError:
                raise Failure("timeout", f"no answer within {seconds:g} seconds") from None
            except Exception as error:
                raise failure_of(error) from error
            finally:
                self.open_requests -= 1

        searching = asyncio.ensure_future(searched())
        searching.add_done_callback(_note)
        return searching

    def _seconds_for(self, call: Call) -> float:
        """How long its client may wait: as it asked for, but no longer than the server allows."""
        return min(call.timeout or self.settings.timeout, self.settings.timeout)

    def _check(self, call: Call) -> None:
        if not call.items:
            raise Failure("empty", "there is nothing to compute: the input is empty")
        count = sum(num_rows(item, call.task, call.options) for item in call.items)
        if count > self.settings.max_items:
            raise Failure(
                "too_many",
                f"{count:,} inputs, and one request may have {self.settings.max_items:,}: send several",
                details={"num_items": count, "limit": self.settings.max_items},
            )
        if call.task in OF_TOKENIZERS:
            return
        for number, item in enumerate(call.items):
            if blank := _blank_part(item):
                raise Failure("empty", f"input {number} (counted from 0) has no text{blank}")


def _without_places(facts: ModelFacts) -> ModelFacts:
    """Facts for clients, whom the folders of this machine do not concern: of a folder its name."""
    folder = Path(facts.source)
    return replace(facts, source=folder.resolve().name) if folder.exists() else facts


def _blank_part(item: Any) -> str:
    """How a message ends that says which part of an item is empty or blank; "" if no part is."""
    if isinstance(item, str):
        return "" if item.strip() else "."
    if isinstance(item, dict):
        for name, part in item.items():
            texts = [part] if isinstance(part, str) else part
            if not texts or any(not text.strip() for text in texts):
                return f" in {name!r}."
        return ""
    if not item:
        return "."
    return "." if any(isinstance(part, str) and not part.strip() for part in item) else ""


def _note(future: asyncio.Future[Any]) -> None:
    """Ask for the failure of an answer that nobody may wait for any more; otherwise asyncio complains."""
    if not future.cancelled():
        future.exception()


def _hashable(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((name, _hashable(each)) for name, each in value.items())
    return tuple(map(_hashable, value)) if isinstance(value, _UNHASHABLE) else value


def _expire(future: asyncio.Future[Any], seconds: float) -> None:
    if not future.done():
        future.set_exception(Failure("timeout", f"no answer within {seconds:g} seconds"))


def _post(outcomes: Sequence[tuple[Work, Outcome]]) -> None:
    """Hand outcomes to their event loop, once for all of a batch."""
    if not outcomes:
        return
    loop = outcomes[0][0].waiter.get_loop()
    try:
        loop.call_soon_threadsafe(_deliver, loop, outcomes)
    except RuntimeError:  # the loop is closed: nobody waits any more
        return


def _deliver(loop: asyncio.AbstractEventLoop, outcomes: Sequence[tuple[Work, Outcome]]) -> None:
    """Hand out the first outcomes; the others follow once the loop has done what else is due."""
    if len(outcomes) > _AT_ONCE:
        loop.call_soon(_deliver, loop, outcomes[_AT_ONCE:])
    for work, outcome in outcomes[:_AT_ONCE]:
        future = work.waiter
        if future.done():
            continue
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        elif outcome is not None:
            future.set_result(outcome)
