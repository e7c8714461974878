"""Messages and progress on stderr, so that stdout holds only results.

On a terminal, :class:`Progress` draws a bar for work that takes longer than two seconds, one bar at a time. Elsewhere
(a log file, a pipe, a notebook server) it writes a line about every thirty seconds. :func:`quiet` silences both, in the
thread or task that asks for it.
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import TYPE_CHECKING, BinaryIO, Self, TextIO, TypeVar

from bertkit.errors import ConfigError

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

T = TypeVar("T")

#: Seconds of work before a bar appears on a terminal.
BAR_AFTER_S = 2.0
#: Seconds between two redraws of the bar: often enough for the eye, too rarely to cost anything.
REDRAW_EVERY_S = 0.2
#: Seconds between two lines where there is no terminal.
LINE_EVERY_S = 30.0

#: Control characters, except line feeds and tabs, and those that change the direction of writing.
_CONTROL = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"

_quiet: ContextVar[bool] = ContextVar("quiet", default=False)
_wording: ContextVar[Callable[[str], str]] = ContextVar("wording", default=str)
#: Takes what is said in this process, in place of stderr.
_sink: Callable[[str], None] | None = None
#: The progress whose bar is on the terminal. There is one per process because there is one terminal.
_shown: Progress | None = None


def set_quiet(quiet: bool) -> None:
    """Silence :func:`say` and :class:`Progress` in the current context (``--quiet``); errors are not affected."""
    _quiet.set(quiet)


def set_sink(sink: Callable[[str], None] | None) -> None:
    """Give all messages of this process to ``sink``, and draw no bars; None: they go to stderr again."""
    global _sink
    _sink = sink


def set_wording(wording: Callable[[str], str]) -> None:
    """Pass messages of the current context through ``wording``: a command names options as they are typed."""
    _wording.set(wording)


@contextmanager
def quiet(silent: bool = True) -> Iterator[None]:
    """Suppress messages and progress inside a ``with`` block when ``silent``; restores the previous setting."""
    before = _quiet.get()
    _quiet.set(before or silent)
    try:
        yield
    finally:
        _quiet.set(before)


def escape_controls(text: str) -> str:
    r"""``text`` with control characters as escapes that JSON knows (``\u202e``), so that no terminal obeys them."""
    return re.sub(_CONTROL, lambda found: f"\\{'x%02x' if found[0] < ' ' else 'u%04x'}" % ord(found[0]), text)


def one_line(text: str) -> str:
    """``text`` with a space for each line break or tab and the white space around it; else unchanged."""
    lines = text.replace("\t", "\n").splitlines()
    return text if lines == [text] else " ".join(filter(None, map(str.strip, lines)))


def for_stream(text: str, stream: TextIO) -> str:
    """``text`` as a stream can show it: with escapes for what its encoding lacks, and on a terminal for controls."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    plain = escape_controls(text) if stream.isatty() else text
    return plain.encode(encoding, "backslashreplace").decode(encoding)


def say(message: str = "") -> None:
    """Write one message to stderr, unless quiet; above the bar if one is shown."""
    if _quiet.get():
        return
    message = _wording.get()(message)
    if _shown is not None and _shown._bar is not None:
        _shown._bar.console.print(escape_controls(message), markup=False, highlight=False, soft_wrap=True)
    else:
        _write(f"{message}\n")


@lru_cache(maxsize=256)
def say_once(message: str) -> None:
    """:func:`say`, but a message that was said lately is not repeated: what is found each time a file is read."""
    say(message)


def progress(items: Iterable[T], *, label: str, unit: str = "items") -> Iterator[T]:
    """Yield ``items`` unchanged and lazily, and show progress: only a count if they have no length."""
    total = len(items) if isinstance(items, Sized) else None
    with Progress(total, label=label, unit=unit) as shown:
        for item in items:
            yield item
            shown.advance()


class Progress:
    """A bar on a terminal, an occasional line elsewhere; use it in a ``with`` block.

    There is never more than one bar. A progress takes the terminal over from one that has not advanced for
    :data:`BAR_AFTER_S`: from training during a long evaluation, or from an iterator that was abandoned half-way.
    ``done`` units were finished earlier (a resumed run) and do not count in the speed. ``check`` is called after each
    step, and may raise to stop the work.
    """

    def __init__(
        self,
        total: int | None,
        *,
        label: str,
        unit: str = "items",
        done: int = 0,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.total = total
        self.label = label
        self.unit = unit
        self.done = done
        self.note = ""
        self._check = check
        self._done_before = done
        self._started = self._last_shown = self._last_advance = time.monotonic()
        self._bar: RichProgress | None = None

    def __enter__(self) -> Self:
        self._started = self._last_shown = self._last_advance = time.monotonic()
        return self

    def advance(self, count: int = 1, *, note: str | None = None) -> None:
        """Count ``count`` more finished units; ``note`` (for example the current loss) is shown next to the bar."""
        self.done += count
        self._check()
        if note is not None:
            self.note = note
        now = self._last_advance = time.monotonic()
        if _quiet.get():
            return
        if _sink is not None or sys.stderr is None or not sys.stderr.isatty():
            if now - self._last_shown >= LINE_EVERY_S:
                self._last_shown = now
                _write(f"{self.line(now)}\n")
        elif now - self._started >= BAR_AFTER_S and now - self._last_shown >= REDRAW_EVERY_S:
            self._last_shown = now
            if self._take_terminal(now):
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

    def _take_terminal(self, now: float) -> bool:
        """Whether this progress may draw; erases the bar of another that has stopped advancing."""
        global _shown
        if _shown is not None and _shown is not self:
            if now - _shown._last_advance < BAR_AFTER_S:
                return False
            if _shown._bar is not None:
                _shown._bar.live.transient = True
                _shown._bar.stop()
                _shown._bar = None
        _shown = self
        return True

    def _draw(self) -> None:
        if self._bar is None:
            self._bar = _new_bar()
            self._bar.add_task(self.label, total=self.total, completed=self.done, unit=self.unit, note="")
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=self.done, note=self.note)
        self._bar.refresh()

    def __exit__(self, *_: object) -> None:
        global _shown
        if self._bar is not None:
            self._draw()
            self._bar.stop()
            self._bar = None
        if _shown is self:
            _shown = None


def clock(seconds: float) -> str:
    """Format seconds as ``4 s``, ``1:05`` or ``2:03:09``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def amount_of(num_bytes: int) -> str:
    """Format bytes as ``--memory`` takes them, ``900MB`` or ``4GB``, in powers of 1,024, rounded down."""
    for shift, unit in ((30, "GB"), (20, "MB"), (10, "KB")):
        whole, rest = divmod(num_bytes, 1 << shift)
        if whole and (not rest or unit == "KB"):
            return f"{whole}{unit}"
    return f"{num_bytes} bytes"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as lines of text: columns padded to the same width, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def standard_input() -> BinaryIO:
    """Standard input as bytes; a ConfigError if it is closed."""
    if sys.stdin is None:
        raise ConfigError("standard input is closed, so - has nothing to read; leave out '<&-'")
    return sys.stdin.buffer


def _new_bar() -> RichProgress:
    # Imported here: rich takes 60 ms, too much for a command that finishes at once.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    # No refresh thread, which would compete with the training step for the processor.
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


def _write(text: str) -> None:
    if _sink is not None:
        _sink(text.rstrip("\n"))
        return
    if sys.stderr is None:  # closed, or pythonw
        return
    with contextlib.suppress(OSError, ValueError):  # a full log file or a closed terminal must not end a training run
        sys.stderr.write(for_stream(text, sys.stderr))
        sys.stderr.flush()
