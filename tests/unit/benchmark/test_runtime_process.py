"""Processes that fail, hang or are interrupted."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bertkit.benchmark import runtime_process, runtimes
from bertkit.benchmark.runtime_process import Launch, RuntimeProcess, prepare
from bertkit.benchmark.runtimes import INT8, PEERS, REFERENCE, Mode
from bertkit.errors import ResourceError
from bertkit.system.interrupts import Interrupted

PEER = Mode(PEERS["transformers"], "fp32")
READY = "print('noise')\nprint('{\"ready\": true}', flush=True)\n"
HANGS = "import time\ntime.sleep(60)\n"


def launch_of(folder: Path, check: Callable[[], None] = lambda: None) -> Launch:
    model = folder / "model"
    return Launch(folder / "source", folder / "int8", model, folder, sys.executable, sys.executable, 1, check)


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Launch]:
    def write(text: str) -> Launch:
        (tmp_path / "run_transformers.py").write_text(text)
        return launch_of(tmp_path)

    monkeypatch.setattr(runtimes, "PEERS_FOLDER", tmp_path)
    return write


def test_the_model_in_8_bits_is_that_of_int8_only(tmp_path: Path) -> None:
    launch = launch_of(tmp_path)
    for mode, name in (
        (REFERENCE, "source"),
        (INT8, "int8"),
        (PEER, "model"),
        (Mode(PEERS["openvino"], "int8"), "model"),
    ):
        assert f"--model={tmp_path / name}" in launch.command(mode)


def test_a_process_that_ends_leaves_its_last_words(script: Callable[[str], Launch]) -> None:
    launch = script(f"{READY}raise SystemExit('no luck')\n")
    with pytest.raises(ResourceError, match="the process of transformers fp32 ended: no luck"):
        prepare(launch, PEER)
    with RuntimeProcess(launch, PEER) as process:
        process.wait_until_ready()
        with pytest.raises(ResourceError, match="ended: no luck"):
            process.ask("memory")
    prepare(script(READY), PEER)


@pytest.mark.parametrize(
    ("signal", "told"), [("SIGKILL", "SIGKILL; perhaps memory ran out"), ("SIGTERM", "SIGTERM"), ("SIGSEGV", "SIGSEGV")]
)
def test_a_signal_is_told(script: Callable[[str], Launch], signal: str, told: str) -> None:
    """Not the line that happened to be written before."""
    launch = script(
        "import os, signal, sys\nprint('all is well', file=sys.stderr, flush=True)\n"
        f"os.kill(os.getpid(), signal.{signal})\n"
    )
    with pytest.raises(ResourceError, match=rf"^the process of transformers fp32 was ended by {told}$"):
        prepare(launch, PEER)


@pytest.mark.slow
def test_a_process_that_hangs_is_ended(script: Callable[[str], Launch], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_process, "ANSWER_S", 0.5)
    monkeypatch.setattr(runtime_process, "PREPARE_S", 0.5)
    launch = script(HANGS)
    with pytest.raises(ResourceError, match="transformers fp32 was ended: it did not respond for"):
        prepare(launch, PEER)
    with RuntimeProcess(launch, PEER) as process, pytest.raises(ResourceError, match="did not respond"):
        process.wait_until_ready()


@pytest.mark.slow
def test_a_signal_ends_the_waiting_at_once(script: Callable[[str], Launch], tmp_path: Path) -> None:
    script(HANGS)
    start = time.monotonic()

    def stop() -> None:
        if time.monotonic() > start + 0.5:
            raise Interrupted("stopped by SIGINT")

    with pytest.raises(Interrupted):
        prepare(launch_of(tmp_path, stop), PEER)
    assert time.monotonic() < start + 20  # not until the process has ended
