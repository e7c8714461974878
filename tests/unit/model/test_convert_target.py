"""Where ``convert`` writes: one process at a time, nothing left behind, nothing of anybody else touched."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bertkit import BertModel, ConfigError, InputError, ResourceError
from bertkit.model import convert as convert_module
from bertkit.model.convert import convert
from tensorflow_helpers import GOLDEN

SLOW = """
import sys, time
from bertkit.model import convert
verify = convert._verify
def slowly(draft, found):
    print("half way", flush=True)
    time.sleep(60)
convert._verify = slowly
convert.convert(sys.argv[1], sys.argv[2])
"""


def slow_conversion(target: Path) -> subprocess.Popen[str]:
    """A process that stops in the middle of its work, with files on the disk."""
    command = [sys.executable, "-c", SLOW, str(GOLDEN / "original"), str(target)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "half way\n"
    return process


@pytest.mark.campaign
@pytest.mark.slow
def test_what_a_killed_conversion_left_is_removed_by_the_next(tmp_path: Path) -> None:
    process = slow_conversion(tmp_path / "out")
    assert any(path.name == "model.safetensors" for path in tmp_path.rglob("*"))  # control: half a result
    with pytest.raises(ConfigError, match=r"another bertkit convert is writing .*out: wait for it"):
        convert(GOLDEN / "original", tmp_path / "out")
    assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    convert(GOLDEN / "original", tmp_path / "out")
    assert os.listdir(tmp_path) == ["out"]
    assert BertModel.from_pretrained(tmp_path / "out")


@pytest.mark.campaign
@pytest.mark.slow
def test_several_at_once_to_one_target(tmp_path: Path) -> None:
    """One of them makes it, the others say why not."""
    command = [sys.executable, "-m", "bertkit", "convert", str(GOLDEN / "original"), str(tmp_path / "out")]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate()[1] for process in processes]
    assert sorted(process.returncode for process in processes) == [0, 2, 2], said
    assert not any("Traceback" in one for one in said)
    assert os.listdir(tmp_path) == ["out"]
    assert BertModel.from_pretrained(tmp_path / "out")


def test_a_folder_that_appears_meanwhile_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verify = convert_module._verify

    def and_somebody_else(*arguments: object) -> object:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "precious").write_text("")
        return verify(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(convert_module, "_verify", and_somebody_else)
    with pytest.raises(InputError, match="exists already"):
        convert(GOLDEN / "original", tmp_path / "out")
    assert os.listdir(tmp_path) == ["out"]
    assert os.listdir(tmp_path / "out") == ["precious"]


def test_a_target_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for target in (tmp_path / "file" / "out", tmp_path / ("n" * 250)):
        with pytest.raises(ConfigError, match=r"is a file, or lies in one|is too long"):
            convert(GOLDEN / "original", target)
    assert os.listdir(tmp_path) == ["file"]


def test_the_current_folder_is_no_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = GOLDEN.resolve() / "original"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="name of a new folder, not the current one"):
        convert(source, ".")
    assert not os.listdir(tmp_path)


def test_a_source_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(convert_module, "open_archive", denied)
    with pytest.raises(ResourceError, match=r"original.*: Permission denied\. No conversion.* source can be read"):
        convert(GOLDEN / "original", tmp_path / "out")
    assert not os.listdir(tmp_path)
