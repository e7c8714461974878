"""The models of a server by name: loading, warming, unloading, reloading."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from bertkit.errors import BertkitError, ConfigError, did_you_mean
from bertkit.server import log
from bertkit.server.batcher import Batcher, Post, Trace
from bertkit.server.calls import Answer, Call, ModelFacts, Task
from bertkit.server.failures import Failure
from bertkit.server.model_facts import facts_of, head_facts, listed
from bertkit.server.model_tasks import OF_TOKENIZERS
from bertkit.server.open_model import OpenModel
from bertkit.server.queue import RequestQueue
from bertkit.server.settings import ServeSettings, named, thresholds_of
from bertkit.server.watch import Watch
from bertkit.system.fork_locks import ForkSafeLock
from bertkit.system.model_sources import resolve

ReplyT = TypeVar("ReplyT")
#: One question for each task, which a model answers before clients are let in.
WARMING: dict[Task, Any] = {
    "rerank": {"query": "A bank.", "documents": ["The river.", "A loan."]},
    "next-sentence": ("A bank.", "The river."),
    "answer": {"question": "What?", "context": "The river bank."},
    "choose": {"context": "A bank.", "choices": ["The river.", "A loan."]},
    "similarity": {"source_sentence": "A bank.", "sentences": ["The river."]},
}


@dataclass(slots=True, eq=False)
class Slot:
    """A name with the model that answers to it, once it is loaded."""

    name: str
    source: str
    facts: ModelFacts
    batcher: Batcher | None = None
    last_used: float = 0.0
    lock: ForkSafeLock = field(default_factory=ForkSafeLock)


class Models:
    """See the module. ``loaded`` is told of each model before it answers."""

    def __init__(
        self,
        settings: ServeSettings,
        post: Post,
        watch: Watch,
        loaded: Callable[[str, OpenModel], None] = lambda name, model: None,
        clock: Callable[[], float] = time.monotonic,
        trace: Trace | None = None,
    ) -> None:
        self._settings, self._post, self._watch, self._clock = settings, post, watch, clock
        self._loaded, self._trace = loaded, trace
        self.slots: dict[str, Slot] = {}
        for given in settings.models:
            name, source = named(given)
            if name in self.slots:
                raise ConfigError(f"two models are called {name!r}: name one otherwise, NAME={source}")
            resolve(source)  # an early word for a wrong path, as for wrong thresholds
            thresholds_of(settings, name)
            facts = ModelFacts(name=name, state="unloaded", tasks=(), source=source, created=int(time.time()))
            self.slots[name] = Slot(name, source, facts)
        self._guard = ForkSafeLock()
        #: Whether each model has been loaded once, or is when somebody asks for it.
        self._tried = settings.lazy
        #: Whether another process loads them, in whose place this one asks for patience.
        self.are_loaded_elsewhere = False

    def begin(self) -> None:
        """Start loading, if models are not loaded when somebody asks for them, nor loaded already."""
        if self.are_loaded_elsewhere or not self._tried:
            for slot in self.slots.values():
                slot.facts = replace(slot.facts, state="loading")
        if not (self.are_loaded_elsewhere or self._tried):
            threading.Thread(target=self.load_all, name="bertkit-loader", daemon=True).start()

    def load_all(self) -> bool:
        """Load all models in this thread; whether all of them answer, or did until another took their room."""
        loaded = [self.load(slot) for slot in self.slots.values()]
        self._tried = True
        return all(loaded)

    def in_use(self) -> list[Slot]:
        """All models except those that are unloaded until somebody asks for them."""
        return [slot for slot in self.slots.values() if slot.facts.state != "unloaded"]

    @property
    def settled(self) -> bool:
        """Whether nothing is still to be loaded."""
        return self._tried and not any(slot.facts.state == "loading" for slot in self.slots.values())

    @property
    def _patience(self) -> float:
        """Seconds after which no client still waits for a request that was accepted before."""
        return max(self._settings.grace, self._settings.timeout)

    def facts(self, name: str | None = None) -> list[ModelFacts]:
        """Of one model, or of all; a head of a run is an entry of its own behind the run."""
        if name is None:
            return [facts for slot in self.slots.values() for facts in listed(slot.facts)]
        slot, head = self._place(name)
        return [listed(slot.facts)[0] if head is None else head_facts(slot.facts, head)]

    def slot(self, name: str) -> Slot:
        """A model by its name, by what it was given as, or by ``NAME/HEAD``."""
        return self._place(name)[0]

    def _place(self, name: str) -> tuple[Slot, str | None]:
        """A model, and of ``NAME/HEAD`` the head."""
        if (found := self._named(name)) is not None:
            return found, None
        run, _, head = name.rpartition("/")
        if run and (found := self._named(run)) is not None and (head in found.facts.heads or not found.facts.tasks):
            return found, head
        known = [facts.name for slot in self.slots.values() for facts in listed(slot.facts)]
        near = did_you_mean(name, known)
        raise Failure("unknown_model", f"no model {name!r:.200}{near}; there are: {', '.join(known)}", param="model")

    def _named(self, name: str) -> Slot | None:
        return self.slots.get(name) or next((slot for slot in self.slots.values() if slot.source == name), None)

    def addressed(self, call: Call, render: Callable[[Answer], ReplyT]) -> tuple[Call, Callable[[Answer], ReplyT]]:
        """The same call, and where it is for a head of a run, with the head: the one named, else the first that fits.

        Its answer is of the head, by whose facts it is rendered.

        Raises:
            Failure: no such model, or the head does not do the task.
        """
        slot, name = (self._first_with(call.task), None) if call.model is None else self._place(call.model)
        if not slot.facts.tasks:  # its heads are not known either: a Failure, unless it has just been loaded
            self.batcher_for(replace(call, model=slot.name))
        heads = slot.facts.heads
        if name is None:
            if call.task in OF_TOKENIZERS:
                return call, render
            name = next((name for name, head in heads.items() if call.task in head.tasks), None)
        if name is None:
            return call, render
        if (head := heads.get(name)) is None:
            raise Failure(
                "unknown_model", f"{slot.name} has no head {name!r:.200}; it has: {', '.join(heads) or 'none'}"
            )
        if call.task not in head.tasks:
            does = ", ".join(head.tasks)
            said = f"the model {head.name} is a {head.model_class}, which does not do {call.task!r}; it does {does}"
            raise Failure("wrong_task", said, param="model")

        def rendered(answer: Answer) -> ReplyT:
            return render(replace(answer, model=head_facts(answer.model, name)))

        own = {} if call.task in OF_TOKENIZERS else {"run_head": name}
        return replace(call, model=slot.name, options={**call.options, **own}), rendered

    def batcher_for(self, call: Call) -> Batcher:
        """The batcher of the model that a call is for.

        Raises:
            Failure: no such model, it lacks the task's head, or it is not loaded yet.
        """
        slot = self.slot(call.model) if call.model is not None else self._first_with(call.task)
        batcher = slot.batcher
        if batcher is None:
            if slot.facts.state == "failed":
                raise Failure("damaged_model", f"the model {slot.name} could not be loaded: {slot.facts.error}")
            with self._guard:  # of many requests the first starts it
                if self._settings.on_demand and slot.facts.state == "unloaded":
                    slot.facts = replace(slot.facts, state="loading", error=None)
                    threading.Thread(target=self.load, args=(slot,), daemon=True).start()
            raise Failure("not_ready", f"the model {slot.name} is being loaded", retry_after=1.0)
        if call.task not in slot.facts.tasks:
            reason = slot.facts.lacks.get(call.task)
            raise Failure(
                "wrong_task",
                f"the model {slot.name} is a {slot.facts.model_class}, which does not do {call.task!r}"
                f"{'' if reason is None else f' because {reason}'}; it does {', '.join(slot.facts.tasks)}",
                param="model",
            )
        slot.last_used = self._clock()
        return batcher

    def _first_with(self, task: Task) -> Slot:
        slots = self.slots.values()
        for slot in slots:
            is_known = bool(slot.facts.tasks)
            if slot.facts.tasks[:1] == (task,) or (not is_known and slot.facts.state in ("unloaded", "loading")):
                return slot  # its own task, or perhaps: who answers must not depend on what is loaded
        doing = [slot for slot in slots if task in slot.facts.tasks]
        if doing:  # any encoder makes vectors: rather one that is there for them
            return min(doing, key=lambda slot: slot.facts.tasks.index(task))
        waiting = [slot for slot in slots if slot.facts.state in ("unloaded", "loading")]
        if waiting:
            return waiting[0]
        does = "; ".join(f"{slot.name}: {', '.join(slot.facts.tasks) or slot.facts.error}" for slot in slots)
        raise Failure("wrong_task", f"no model here does {task!r} ({does})")

    def load(self, slot: Slot) -> bool:
        """Load and warm a model in this thread, or load it again; whether it answers. One that cannot changes nothing.

        The old one answers until the new one has.
        """
        with slot.lock:
            before = slot.batcher
            if before is None:
                slot.facts = replace(slot.facts, state="loading", error=None)
            try:
                model = OpenModel(
                    slot.source,
                    device=self._settings.device,
                    precision=self._settings.precision,
                    threads=self._settings.threads,
                    engine=self._settings.engine,
                )
                facts = facts_of(slot.facts, model, thresholds_of(self._settings, slot.name))
                model.answer(*warming(facts))
                self._loaded(slot.name, model)
            except Exception as error:
                if isinstance(error, BertkitError | OSError | MemoryError):
                    said = _without_place(str(error), slot.source)
                else:
                    said = "a fault while it was loaded; the log has more"
                    log.fault(self._settings, f"a fault while the model {slot.name} was loaded", error)
                log.write(self._settings, "error", f"the model {slot.name} cannot be loaded: {error}")
                if before is None:
                    slot.facts = replace(slot.facts, state="failed", error=said)
                return False
            limits = self._settings
            batcher = Batcher(
                model,
                facts,
                self._post,
                RequestQueue(limits.max_queue_tokens, limits.max_requests),
                max_batch_tokens=limits.max_batch_tokens,
                cache_bytes=limits.cache_bytes,
                watch=self._watch,
                trace=self._trace,
            )
            slot.facts, slot.last_used = facts, self._clock()
            slot.batcher = batcher
        if before is not None:
            before.stop(self._patience)
        self._make_room(slot)
        revision = model.revision  # reads all weights; the model may be unloaded meanwhile
        with slot.lock:
            batcher.facts = replace(batcher.facts, revision=revision)
            if slot.batcher is batcher:
                slot.facts = replace(slot.facts, revision=revision)
        return True

    def unload(self, slot: Slot) -> None:
        """Give a model's memory back, once what waits for it is computed."""
        with slot.lock:
            batcher, slot.batcher = slot.batcher, None
            slot.facts = replace(slot.facts, state="unloaded")
        if batcher is not None:
            batcher.stop(self._patience)

    def unload_idle(self) -> None:
        """Unload what nobody has asked for a while."""
        if (seconds := self._settings.keep_alive) is None:
            return
        for slot in self.slots.values():
            if slot.batcher is not None and self._clock() - slot.last_used > seconds and not len(slot.batcher.queue):
                self.unload(slot)

    def _make_room(self, newest: Slot) -> None:
        if self._settings.memory is None:
            return
        loaded = [slot for slot in self.slots.values() if slot.batcher is not None]
        for slot in sorted(loaded, key=lambda slot: slot.last_used):
            if sum(each.facts.num_bytes for each in loaded if each.batcher) <= self._settings.memory * 1_000_000:
                return
            if slot is not newest:
                self.unload(slot)

    def stop(self, seconds: float) -> bool:
        """Finish what was taken, for so many seconds; whether all of it was."""
        end = self._clock() + seconds
        batchers = [slot.batcher for slot in self.slots.values() if slot.batcher is not None]
        return all([batcher.stop(max(0.0, end - self._clock())) for batcher in batchers])


def _without_place(error: str, source: str) -> str:
    """An error for clients, whom the folders of this machine do not concern: of a folder its name."""
    folder = Path(source).resolve()
    for place in (str(folder), source) if folder.exists() else ():
        error = error.replace(place, folder.name)
    return error


def warming(facts: ModelFacts) -> tuple[Task, list[Any], dict[str, Any]]:
    """A question of the own task of a model, or of a run's first head, with its options."""
    for name, head in facts.heads.items():
        task, items, _ = warming(head)
        return task, items, {"run_head": name}
    task = facts.tasks[0]
    usual = f"The {facts.mask} bank." if task == "fill-mask" else "The river bank."
    return task, [WARMING.get(task) or usual], {}
