"""Whether the models still compute: by their last batches, and by a question of our own where there were none."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from bertkit.server.batcher import Batcher
from bertkit.server.calls import Answer
from bertkit.server.failures import Failure
from bertkit.server.models import Slot
from bertkit.server.service import Service

#: Seconds for which a good batch proves that a model computes.
FRESH = 30.0
#: Seconds that a probe waits for a self-test; one that takes longer is looked at by the next probe.
WAIT = 1.0
#: Kinds of failure that say nothing of the model: it has other work, or is shut down.
_BUSY = ("overloaded", "not_ready")


@dataclass(slots=True)
class _SelfTest:
    """A question to a model that no client asked."""

    batcher: Batcher
    begun: float
    outcome: asyncio.Future[Answer]


class Health:
    """Answers at once, or within :data:`WAIT`."""

    def __init__(self, service: Service, clock: Callable[[], float] = time.monotonic) -> None:
        self._service, self._clock = service, clock
        self._tests: dict[str, _SelfTest] = {}

    async def fault(self) -> str | None:
        """What is wrong with a model that is loaded; None: nothing."""
        slots = self._service.models.slots.values()
        looks = [self._fault_of(slot, batcher) for slot in slots if (batcher := slot.batcher) is not None]
        found = await asyncio.gather(*looks)
        return next(filter(None, found), None)

    async def _fault_of(self, slot: Slot, batcher: Batcher) -> str | None:
        limit = self._service.settings.max_batch_seconds
        if (seconds := batcher.running_seconds()) > limit:
            return f"a batch of {slot.name} has taken {seconds:.1f} seconds"
        if self._clock() - batcher.last_good < FRESH:
            return None
        test = self._tests.get(slot.name)
        if test is None or test.batcher is not batcher or test.outcome.done():
            try:
                outcome = self._service.self_test(slot, batcher)
            except Failure:  # the queue is full, or closed
                return None
            test = self._tests[slot.name] = _SelfTest(batcher, self._clock(), outcome)
        await asyncio.wait([test.outcome], timeout=WAIT)
        if not test.outcome.done():
            seconds = self._clock() - test.begun
            return f"a self-test of {slot.name} has waited {seconds:.1f} seconds" if seconds > limit else None
        error = test.outcome.exception()
        if error is None or (isinstance(error, Failure) and error.kind in _BUSY):
            return None
        return f"the self-test of {slot.name} failed: {error}"
