"""Talk to the person at the terminal: messages and progress on stderr, so that stdout stays data. Imports no torch.

On a terminal, :class:`Progress` draws one bar, and only for work that takes longer than two seconds. Elsewhere (a log
file, a pipe, a notebook server) it writes a line about every thirty seconds. ``set_quiet(True)`` silences both.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

T = TypeVar("T")

#: Seconds of work before a bar appears on a terminal.
BAR_AFTER_S = 2.0
#: Seconds between two redraws of the bar: often enough for the eye, too rarely to cost anything.
REDRAW_EVERY_S = 0.2
#: Seconds between two lines where there is no terminal.
LINE_EVERY_S = 30.0

_quiet = False
#: The progress that may draw a bar; those inside it may not.
_outermost: Progress | None = None


def set_quiet(quiet: bool) -> None:
    """Silence :func:`say` and :class:`Progress` for this process (``--quiet``); errors are not affected."""
    global _quiet
    _quiet = quiet


@contextmanager
def quiet(silent: bool = True) -> Iterator[None]:
    """Silence talk inside a ``with`` block when ``silent``; the former setting comes back afterwards."""
    before = _quiet
    set_quiet(before or silent)
    try:
        yield
    finally:
        set_quiet(before)


def say(message: str = "") -> None:
    """Write one message to stderr, unless quiet; above the bar, where one is shown."""
    if _quiet:
        return
    if _outermost is not None and _outermost._bar is not None:
        _outermost._bar.console.print(message, markup=False, highlight=False, soft_wrap=True)
    else:
        _write(f"{message}\n")


def progress(items: Iterable[T], *, total: int | None = None, label: str, unit: str = "items") -> Iterator[T]:
    """Yield ``items`` unchanged and show how far the work is.

    Args:
        items: anything iterable; consumed lazily.
        total: how many there will be; None asks ``len(items)``, and without a length only the count is shown.
        label: what is being done, for example ``"tokenising"``.
        unit: what is counted, plural.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    with Progress(total, label=label, unit=unit) as shown:
        for item in items:
            yield item
            shown.advance()


class Progress:
    """A bar on a terminal, a line now and then elsewhere; use it in a ``with`` block.

    Inside another one (an evaluation in the middle of training) there is no second bar.

    Args:
        total: units of the whole work; None when nobody knows.
        label: what is being done.
        unit: what is counted, plural.
        done: units that were finished earlier (a resumed run); they do not count for the speed.
    """

    def __init__(self, total: int | None, *, label: str, unit: str = "items", done: int = 0) -> None:
        self.total = total
        self.label = label
        self.unit = unit
        self.done = done
        self.note = ""
        self._done_before = done
        self._started = self._last_shown = time.monotonic()
        self._bar: RichProgress | None = None

    def __enter__(self) -> Self:
        global _outermost
        self._started = self._last_shown = time.monotonic()
        if _outermost is None:
            _outermost = self
        return self

    def advance(self, count: int = 1, *, note: str | None = None) -> None:
        """``count`` more units are finished; ``note`` (for example the current loss) is shown beside the bar."""
        self.done += count
        if note is not None:
            self.note = note
        if _quiet:
            return
        now = time.monotonic()
        if not _on_terminal():
            if now - self._last_shown >= LINE_EVERY_S:
                self._last_shown = now
                _write(f"{self.line(now)}\n")
        elif self is _outermost and now - self._started >= BAR_AFTER_S and now - self._last_shown >= REDRAW_EVERY_S:
            self._last_shown = now
            self._draw()

    def line(self, now: float | None = None) -> str:
        """The state of the work in one line: ``label: 120/600 steps (20 %), 1:30 left, loss 0.31``."""
        elapsed_s = (time.monotonic() if now is None else now) - self._started
        count = f"{self.done:,}" if self.total is None else f"{self.done:,}/{self.total:,}"
        parts = [f"{self.label}: {count} {self.unit}"]
        if self.total:
            parts[0] += f" ({100 * self.done // self.total} %)"
            fresh = self.done - self._done_before
            if fresh > 0 and self.done < self.total:
                parts.append(f"{clock(elapsed_s / fresh * (self.total - self.done))} left")
        else:
            parts.append(clock(elapsed_s))
        return ", ".join([*parts, self.note] if self.note else parts)

    def _draw(self) -> None:
        if self._bar is None:
            self._bar = _new_bar()
            self._bar.add_task(self.label, total=self.total, completed=self._done_before, unit=self.unit, note="")
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=self.done, note=self.note)
        self._bar.refresh()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        global _outermost
        if self is _outermost:
            _outermost = None
        if self._bar is not None:
            self._draw()
            self._bar.stop()
            self._bar = None


def clock(seconds: float) -> str:
    """Seconds as ``4 s``, ``1:05`` or ``2:03:09``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def amount_of(num_bytes: int) -> str:
    """Bytes as ``--memory`` takes them, ``900MB`` or ``4GB``, in powers of 1,024; never more than there are."""
    for shift, unit in ((30, "GB"), (20, "MB"), (10, "KB")):
        whole, rest = divmod(num_bytes, 1 << shift)
        if whole and (not rest or unit == "KB"):
            return f"{whole}{unit}"
    return f"{num_bytes} bytes"


def _new_bar() -> RichProgress:
    # Imported here: rich costs 60 ms, which a command that finishes at once need not pay.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    # No refresh thread: a training step should not compete with a thread that draws.
    return RichProgress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[unit]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
        auto_refresh=False,
    )


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _write(text: str) -> None:
    if sys.stderr is None:  # pythonw, some services
        return
    try:
        sys.stderr.write(text)
    except UnicodeEncodeError:  # a terminal that is not UTF-8 must not stop a training run
        sys.stderr.write(text.encode("ascii", "backslashreplace").decode("ascii"))
    sys.stderr.flush()
