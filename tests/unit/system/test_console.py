"""Talk goes to stderr, a bar only to a terminal, lines now and then elsewhere, nothing when quiet."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bertkit.system import console
from bertkit.system.console import Progress, clock, one_line, progress, quiet, say


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> Clock:
    ticking = Clock()
    monkeypatch.setattr(console, "time", ticking)
    return ticking


def test_say_writes_to_stderr_only(capsys: pytest.CaptureFixture[str]) -> None:
    say("hello")
    assert capsys.readouterr() == ("", "hello\n")


@pytest.mark.parametrize("text", ["", "a  b ", " a", "a\u00a0b", "a\x1bb"])
def test_a_text_without_breaks_stays_as_it_is(text: str) -> None:
    assert one_line(text) == text


def test_breaks_become_spaces() -> None:
    assert one_line("\n a\r\n\n  b\tc\u2028d\x0be \n") == "a b c d e"
    assert one_line("\n") == one_line("\t\n ") == ""


def test_quiet_silences_and_comes_back(capsys: pytest.CaptureFixture[str]) -> None:
    with quiet():
        say("one")
        with quiet(False):
            say("two")
    with quiet(False):
        say("three")
    assert capsys.readouterr().err == "three\n"


def test_progress_yields_everything_lazily() -> None:
    taken = []

    def source() -> Any:
        for number in range(5):
            taken.append(number)
            yield number

    seen = progress(source(), label="counting")
    assert taken == []
    assert next(seen) == 0
    assert taken == [0]
    assert [*seen] == [1, 2, 3, 4]


def test_without_a_terminal_there_is_a_line_every_thirty_seconds(
    ticking: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress(100, label="training", unit="steps") as shown:
        for _ in range(100):
            ticking.now += 1.0
            shown.advance(note="loss 0.5")
    assert capsys.readouterr().err.splitlines() == [
        "training: 30/100 steps (30 %), 1:10 left, loss 0.5",
        "training: 60/100 steps (60 %), 40 s left, loss 0.5",
        "training: 90/100 steps (90 %), 10 s left, loss 0.5",
    ]


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(list(progress(range(1000), label="counting"))) == 1000
    assert capsys.readouterr() == ("", "")


def test_work_done_before_does_not_count_for_the_speed(ticking: Clock) -> None:
    with Progress(100, label="x", done=90) as shown:
        ticking.now += 10.0
        shown.advance(5)
        assert shown.line() == "x: 95/100 items (95 %), 10 s left"


def test_unknown_total_counts(ticking: Clock) -> None:
    with Progress(None, label="reading", unit="rows") as shown:
        ticking.now += 65.0
        with quiet():
            shown.advance(1234)
        assert shown.line() == "reading: 1,234 rows, 1:05"


def test_progress_is_silent_when_quiet(ticking: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with quiet(), Progress(10, label="x") as shown:
        for _ in range(10):
            ticking.now += 100.0
            shown.advance()
    assert capsys.readouterr().err == ""


def test_a_step_that_is_told_to_stop_stops_the_work() -> None:
    def check() -> None:
        if bar.done > 1:
            raise KeyboardInterrupt

    with quiet(), Progress(3, label="work", check=check) as bar:
        bar.advance()
        with pytest.raises(KeyboardInterrupt):
            bar.advance()


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "0 s"), (59.4, "59 s"), (60, "1:00"), (3725, "1:02:05")])
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_a_terminal_that_is_not_utf8_does_not_stop_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(raw, encoding="ascii"))
    say("résumé")
    assert raw.getvalue() == b"r\\xe9sum\\xe9\n"


def test_no_stderr_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    say("nobody hears this")
    list(progress(range(3), label="x"))


BAR = """
import time
from bertkit.system import console
console.BAR_AFTER_S = 0.1
with console.Progress(30, label="training", unit="steps") as shown:
    for number in range(30):
        time.sleep(0.01)
        shown.advance(note="loss 0.25")
        if number == 20:
            console.say("said [in] between")
            for _ in console.progress(range(EVALUATED), label="evaluating"):
                time.sleep(0.01)
print("data")
"""


def on_a_terminal(script: str) -> tuple[bytes, str]:
    """Standard output, and what a terminal was sent."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=terminal,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    out, _ = process.communicate(timeout=60)
    os.close(terminal)
    time.sleep(0.05)
    shown = os.read(controller, 100_000).decode()
    os.close(controller)
    return out, shown


def test_on_a_terminal_there_is_one_bar_on_stderr() -> None:
    out, shown = on_a_terminal(BAR.replace("EVALUATED", "5"))
    assert out == b"data\n"
    assert "training" in shown
    assert "30/30" in shown
    assert "loss 0.25" in shown
    assert "said [in] between\r\n" in shown
    assert "evaluating" not in shown  # one bar at a time


@pytest.mark.slow
def test_a_long_inner_work_takes_the_terminal_and_gives_it_back() -> None:
    _, shown = on_a_terminal(BAR.replace("EVALUATED", "40"))
    assert shown.index("training") < shown.index("evaluating") < shown.index("30/30")


ABANDONED = """
import time
from bertkit.system import console
console.BAR_AFTER_S = 0.05
def work(label):
    for number in console.progress(range(1000), label=label):
        time.sleep(0.01)
        yield number
kept = work("first")
for number in kept:
    if number == 20:
        break
for number in work("second"):
    if number == 30:
        break
"""


@pytest.mark.slow
def test_an_iterator_that_is_not_exhausted_does_not_hide_later_bars() -> None:
    _, shown = on_a_terminal(ABANDONED)
    assert shown.index("first") < shown.index("second")


def test_quiet_holds_in_its_own_thread_only(capsys: pytest.CaptureFixture[str]) -> None:
    with quiet():
        other = threading.Thread(target=say, args=("from another request",))
        other.start()
        other.join()
    assert capsys.readouterr().err == "from another request\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_log_file_does_not_stop_the_work() -> None:
    code = "from bertkit.system.console import say; say('nobody reads this'); print('goes on', flush=True)"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=full, check=False)
    assert done.stdout == b"goes on\n"


def test_console_imports_neither_torch_nor_rich() -> None:
    code = "import sys, bertkit.system.console; print([m for m in ('torch', 'rich', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
