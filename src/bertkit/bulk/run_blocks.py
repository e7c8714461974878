"""All blocks of a shard: begun, waited for, and where workers die at one, halved down to the row."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from bertkit.bulk.compute import Job
from bertkit.bulk.plan import Plan
from bertkit.bulk.pools import DEAD, Outcome, Pool
from bertkit.bulk.state import Manifest
from bertkit.errors import DataError, ResourceError, counted
from bertkit.system.console import Progress, say
from bertkit.system.interrupts import Interrupts

#: Deaths of workers at a block after which it is halved.
DEATHS = 2
#: Deaths of workers at a block, none of whose rows is to blame, after which the run ends.
MOST_DEATHS = 6


@dataclass
class Totals:
    """What has been done."""

    blocks: int = 0
    rows: int = 0
    truncated: int = 0
    empty: int = 0
    errors: int = 0
    first_error: str = ""

    def add(self, manifest: Manifest) -> None:
        """Count a block."""
        self.blocks += 1
        self.rows += manifest.rows
        self.truncated += manifest.truncated
        self.empty += manifest.empty
        self.errors += len(manifest.errors)
        if manifest.errors and not self.first_error:
            self.first_error = "{place}: {error}".format(**manifest.errors[0])


@dataclass
class Run:
    """The blocks of a driver, and what became of them. max_errors: rows without a result that are tolerated."""

    plan: Plan
    pool: Pool
    progress: Progress
    signals: Interrupts
    totals: Totals
    max_errors: int | None = None
    counts_rows: bool = False
    _waiting: deque[Job] = field(default_factory=deque)
    fresh: int = 0
    _under_way: int = 0
    _began: float = field(default_factory=time.monotonic)

    def all(self, jobs: Iterable[Job]) -> None:
        """Do all jobs.

        Raises:
            DataError: more errors than are tolerated.
            ResourceError: workers die at a block, but at none of its rows alone.
            Interrupted: a signal.
        """
        self._check_errors()  # those of an earlier run count as well
        self._waiting.extend(jobs)
        while self._waiting or self._under_way:
            while self._waiting and self.pool.room() > 0:
                job = self._waiting.popleft()
                if job.deaths >= DEATHS and not job.searched:
                    job = self._without_poison(job)
                self.pool.begin(job)
                self._under_way += 1
            self._look()

    def _look(self) -> list[bool]:
        """Take what has ended; of a probe, whether its worker died."""
        probes = []
        for job, outcome in self.pool.ended():
            if job.probe is None:
                self._under_way -= 1
                self._take(job, outcome)
            elif isinstance(outcome, Exception):
                raise outcome
            else:
                probes.append(outcome == DEAD)
        self.signals.check()
        return probes

    def _take(self, job: Job, outcome: Outcome) -> None:
        if isinstance(outcome, Exception):
            raise outcome
        if outcome != DEAD:
            self._count(outcome)
            return
        if job.deaths + 1 >= MOST_DEATHS:
            raise self._out_of_memory(job)
        say(f"a worker died at {self._name(job)}; it is computed again")
        self._waiting.appendleft(replace(job, deaths=job.deaths + 1))

    def _count(self, manifest: Manifest) -> None:
        self.totals.add(manifest)
        failed = self.totals.errors
        self.fresh += manifest.rows
        speed = f"{self.fresh / max(time.monotonic() - self._began, 1e-9):,.0f} rows/s"
        note = f"{speed}, {counted(failed, 'error')}" if failed else speed
        self.progress.advance(0 if self.counts_rows else manifest.rows, note=note)
        self._check_errors()

    def _check_errors(self) -> None:
        failed = self.totals.errors
        if self.max_errors is not None and failed > self.max_errors:
            raise DataError(
                f"more rows have no result ({failed:,}) than --max-errors {self.max_errors:,} allows; the first is "
                f"{self.totals.first_error}. Finished blocks are kept: run the same command with a higher number to "
                "resume"
            )

    def _without_poison(self, job: Job) -> Job:
        """The job without the rows at which workers die; none of it is committed meanwhile."""
        say(f"workers died {job.deaths} times at {self._name(job)}; looking for the row that ends them")
        rows = self.plan.blocks[job.number].rows
        found = tuple(self._poison(job, 0, rows)) if self._dies(job, 0, rows) else ()
        for number in found:
            row = f"row {number + 1} of the block"
            say(f"WARNING: {self._name(job)}: {row} ends its worker; it is skipped, and listed among the errors")
        return replace(job, skip=found, searched=True)

    def _poison(self, job: Job, start: int, end: int) -> Sequence[int]:
        """The rows of a range at which workers die, if they do at the whole."""
        if end - start == 1:
            return [start]
        middle = (start + end) // 2
        halves = [(first, last) for first, last in ((start, middle), (middle, end)) if self._dies(job, first, last)]
        return [number for first, last in halves for number in self._poison(job, first, last)]

    def _dies(self, job: Job, start: int, end: int) -> bool:
        self.pool.begin(replace(job, probe=(start, end)))
        while not (found := self._look()):
            pass
        return found[0]

    def _name(self, job: Job) -> str:
        block = self.plan.blocks[job.number]
        return f"block {job.number} ({self.plan.files[block.file].name}, from line {block.line + 1:,})"

    def _out_of_memory(self, job: Job) -> ResourceError:
        return ResourceError(
            f"workers die at {self._name(job)} even without the rows that end them alone, most often because memory "
            "ran out: use fewer --workers or a smaller --block-rows"
        )
