"""Commands write into the folders that they are given and into bertkit's own cache, nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bertkit.system.processor import SWITCH
from finetune_data import labelled_texts, tiny_start, write_splits

pytestmark = pytest.mark.slow

#: In one process: what a command imports stays for the next.
RUN = """
import sys
from bertkit.cli import main
for line in sys.stdin:
    assert not main(line.rstrip("\\n").split("\\t")), line
"""
COMMANDS = (
    "finetune csv --model start --data data --epochs 1 --seeds 1 --out run",
    "evaluate csv --model run --data data",
    "predict --model run --out answers.jsonl texts.txt",
    "embed --model start --file texts.txt --out vectors.npy",
    "search build index texts.txt --model start",
    "export run --out exported",
    "inspect exported",
    "classify --model exported --file texts.txt",
    "doctor",
)


def written(program: str, lines: Sequence[str], folder: Path) -> set[str]:
    """What a process leaves in its home, its cache and its folder for temporary files."""
    watched = {name: folder / name.lower() for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR")}
    for path in watched.values():
        path.mkdir()
    told = "\n".join(lines)
    environment = {**os.environ, SWITCH: "0", **{name: str(path) for name, path in watched.items()}}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    done = subprocess.run(
        [sys.executable, "-c", program], input=told, env=environment, cwd=folder, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr[-2000:]
    found = (file.relative_to(folder) for path in watched.values() for file in path.rglob("*") if not file.is_dir())
    return {str(Path(*file.parts[:2])) for file in found}


@pytest.mark.campaign
def test_commands_leave_nothing_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    write_splits(tmp_path / "data", labelled_texts(24, 1), labelled_texts(12, 2))
    (tmp_path / "texts.txt").write_text("\n".join(text for text, _ in labelled_texts(5, 0)) + "\n", encoding="utf-8")
    tiny_start(tmp_path / "start")
    found = written(RUN, ["\t".join(command.split()) for command in COMMANDS], tmp_path)
    assert found <= {"xdg_cache_home/matplotlib"}, "the list of fonts, for the pictures of a run"


def test_control_what_onnx_runtime_writes_by_itself(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    if not written("import onnxruntime", [], tmp_path):
        pytest.skip("this build of ONNX Runtime collects nothing, so nothing need be switched off")
