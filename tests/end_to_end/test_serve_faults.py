"""The script that goes through the faults of a server, in its small form."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "serve_faults.py"


@pytest.mark.campaign
@pytest.mark.skipif(not hasattr(os, "fork") or not Path("/proc/self/task").exists(), reason="workers, and /proc")
@pytest.mark.parametrize("what", [[], ["--memory"]])
def test_faults(what: list[str]) -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--quick", *what], capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("| holds") == (1 if what else 14)
