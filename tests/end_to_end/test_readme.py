"""The README's tour runs as it is written, in one folder, from top to bottom."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README.read_text(encoding="utf-8"), flags=re.M | re.S)


def test_the_two_commands_come_first():
    assert BLOCKS[0][0] == "console"
    assert [line.split("#")[0].strip() for line in BLOCKS[0][1].splitlines()] == ["make demo", "make test"]
    makefile = README.with_name("Makefile").read_text(encoding="utf-8")
    assert "\ndemo:" in makefile
    assert "\ntest:" in makefile


def test_the_tour_runs(tmp_path, minilm):
    """One Python process for the Python blocks before the shell block, one after: names live on through the tour."""
    environment = {
        **os.environ,
        "MINILM": str(minilm),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",
    }
    python: list[str] = []
    for language, block in BLOCKS[1:]:
        if language == "python":
            python.append(block)
            continue
        assert language == "bash"
        run([sys.executable, "-c", "\n".join(python)], tmp_path, environment)
        run(["bash", "-euc", block], tmp_path, environment)
    run([sys.executable, "-c", "\n".join(python)], tmp_path, environment)
    assert len((tmp_path / "labels.jsonl").read_text(encoding="utf-8").splitlines()) == 2
    assert (tmp_path / "run" / "model.safetensors").exists()


def run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
