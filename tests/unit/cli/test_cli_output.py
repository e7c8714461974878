"""What commands write to closed pipes and to terminals."""

from __future__ import annotations

import io
import json
import os
import pty
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bertkit.cli import NAMES, main
from bertkit.cli.common_options import write_json
from bertkit.cli.help_pages import typed_options
from bertkit.system.console import escape_controls, say, set_wording
from pipeline_helpers import save_tiny

HOSTILE = "a good \x1b[2J\x07 film \x9b31m \u202e end \x7f"
SHOWN = r"a good \x1b[2J\x07 film \u009b31m \u202e end \u007f"


@contextmanager
def written_to(monkeypatch: pytest.MonkeyPatch, handle: int, name: str = "stdout") -> Iterator[None]:
    with open(handle, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, name, stream)
        yield


@pytest.mark.parametrize(
    "argv",
    [
        ["--help"],
        ["--help-all"],
        ["classify", "--help"],
        *(pytest.param([name, "--help"], marks=pytest.mark.campaign) for name in NAMES if name != "classify"),
    ],
    ids=" ".join,
)
def test_a_reader_that_has_had_enough_is_no_error(argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # as 'head' does, but before anything is written
    with written_to(monkeypatch, writer):
        assert main(argv) == 0


def test_other_exits_keep_their_status(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(tokens: list[str]) -> int:
        raise SystemExit(3)

    monkeypatch.setattr("bertkit.cli.run_command", leave)
    with pytest.raises(SystemExit):
        main(["doctor"])


def on_terminal(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object], name: str = "stdout") -> str:
    """What ``work`` writes to a stream that is a terminal."""
    controller, terminal = pty.openpty()
    shown = b""
    with written_to(monkeypatch, terminal, name):
        work()
        os.write(terminal, b"\0")
        while not shown.endswith(b"\0"):  # a terminal gives one line at a time
            shown += os.read(controller, 1 << 16)
    os.close(controller)
    return shown[:-1].decode("utf-8")


def test_texts_cannot_control_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A document, its id and a query, in an index; and the same text in a message, an error and as JSON."""
    model, index = str(save_tiny(tmp_path / "m")), str(tmp_path / "index")
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": HOSTILE, "text": HOSTILE}) + "\n", encoding="utf-8")
    assert main(["search", "build", index, str(tmp_path / "a.jsonl"), "--model", model, "--quiet"]) == 0
    query = ["search", "query", index, HOSTILE, "good", "--quiet"]
    shown = on_terminal(monkeypatch, lambda: main(query))
    assert shown.count(SHOWN) == 5  # the query, and twice id and text
    assert escape_controls(shown.replace("\r\n", "\n")) == shown.replace("\r\n", "\n")
    piped = io.StringIO()
    with monkeypatch.context() as patch:  # the control: elsewhere texts are as they are
        patch.setattr(sys, "stdout", piped)
        main(query)
    assert piped.getvalue().count(HOSTILE) == 5
    assert on_terminal(monkeypatch, lambda: say(HOSTILE), "stderr") == f"{SHOWN}\r\n"
    assert SHOWN in on_terminal(monkeypatch, lambda: main([HOSTILE.replace("a", "--")]), "stderr").replace("--", "a")
    told = on_terminal(monkeypatch, lambda: write_json({"text": HOSTILE}))
    assert json.loads(told) == {"text": HOSTILE}
    assert "\x7f" not in told


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("7 rows are few: few_shot=True (--few-shot) compares ways", "7 rows are few: --few-shot compares ways"),
        ("leave bad rows out with on_error='skip' (--on-error skip)", "leave bad rows out with --on-error skip"),
        ("Pass truncation=True (on the command line: --truncate) to cut", "Pass --truncate to cut"),
        ("read the beginning (on the command line: --truncate)", "read the beginning (--truncate)"),
        ("search for them with negatives=N (--negatives N)", "search for them with --negatives N"),
        ("start over with resume=False (--no-resume), which", "start over with --no-resume, which"),
        ("a=b (c), {x=1} (see --help)", "a=b (c), {x=1} (see --help)"),
    ],
)
def test_messages_of_commands_name_options_as_they_are_typed(
    message: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed_options(message) == told
    set_wording(typed_options)
    try:
        say(message)
    finally:
        set_wording(str)
    assert capsys.readouterr().err == f"{told}\n"
