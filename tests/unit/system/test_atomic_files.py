"""Files that are whole or not there, clear words for a full disk, and small files that others wrote."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bertkit.errors import CheckpointError, ConfigError, ResourceError
from bertkit.system.atomic_files import (
    disk_guard,
    is_full_disk,
    new_file,
    new_folder,
    replace_file,
    replace_files,
    sha256_file,
    sync_file,
    sync_folder,
    try_lock,
    write_atomically,
)
from bertkit.system.json_files import as_stored, printable, read_json, write_json
from bertkit.system.untrusted_files import read_regular, strict_json
from disk_helpers import largest_file


def test_content_is_replaced_and_folders_are_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "metrics.json"
    write_atomically(path, "é")
    assert path.read_bytes() == "é".encode()
    write_atomically(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert [entry.name for entry in path.parent.iterdir()] == ["metrics.json"]
    assert stat.S_ISREG(path.stat().st_mode)


def test_the_old_content_stays_when_the_disk_is_full(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    write_atomically(path, "old")
    limit = r"no room for metrics\.json in .*: it exceeds the largest file size allowed here \(ulimit -f\)\. Nothing"
    with largest_file(1000), pytest.raises(ResourceError, match=limit):
        write_atomically(path, "x" * 5000)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["metrics.json"]


def test_a_file_of_unknown_size_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_text("old")

    def write(content: str, error: Exception | None = None) -> None:
        with new_file(path) as draft:
            draft.write_text(content)
            if error is not None:
                raise error

    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(ResourceError, match=r"no room for a\.npy in .*: [\d,]+ MB are free\. Nothing was overwritten"):
        write("half", full)
    with pytest.raises(ValueError, match="a row"):
        write("half", ValueError("a row"))
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a.npy", "old")]
    write("whole")
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("a.npy", "whole")]


def test_an_error_in_a_new_folder_names_the_folder(tmp_path: Path) -> None:
    with (
        pytest.raises(ResourceError, match=f"^no room in {tmp_path / 'model'}: full$"),
        new_folder(tmp_path / "model") as draft,
    ):
        raise ResourceError(f"no room in {draft}: full")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    killed = subprocess.Popen([sys.executable, "-c", ""])
    killed.wait()
    left = [tmp_path / f".a.{pid}.tmp" for pid in (killed.pid, os.getppid())]
    for path in left:
        path.write_text("half")
    replace_files(tmp_path, {"a": b"new"})
    assert {path.name for path in tmp_path.iterdir()} == {"a", left[1].name}  # the other's writer is running


def test_a_folder_that_cannot_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for name, told in (("file/metrics.json", "file is a file, or lies in one"), ("x" * 300 + "/a", "is too long")):
        with pytest.raises(ConfigError, match=told):
            write_atomically(tmp_path / name, "text")


@pytest.mark.parametrize("target", ["loop", "nowhere", "empty"])
def test_a_link_is_refused_before_any_work(target: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    link = tmp_path / "loop"
    link.symlink_to(tmp_path / target)
    with pytest.raises(ConfigError, match="loop is a link"), new_folder(link):
        raise AssertionError("work was begun")


def test_a_new_folder_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for target in (tmp_path / "deep" / "new", tmp_path / "empty"):
        with new_folder(target) as draft:
            (draft / "file").touch()
            assert not (target / "file").exists()
        assert [path.name for path in target.iterdir()] == ["file"]
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "failed") as draft:
        (draft / "file").write_text(str(1 / 0))
    with pytest.raises(ConfigError, match="exists and is not empty"), new_folder(tmp_path / "deep"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "empty"]


def test_a_new_folder_takes_away_drafts_of_killed_processes(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as killed:
        killed.wait()
    left = [tmp_path / f".new.0a1b2c3d.{pid}.tmp" for pid in (killed.pid, os.getppid())]
    for draft in left:
        (draft / "deep").mkdir(parents=True)
    with new_folder(tmp_path / "new"):
        pass
    assert [draft.exists() for draft in left] == [False, True]


def test_a_caller_with_its_own_errors_gets_those_of_the_system(tmp_path: Path) -> None:
    path, temporary = tmp_path / "progress.json", tmp_path / "progress.json.writing"
    replace_file(path, b"old", temporary)
    with largest_file(1000), pytest.raises(OSError, match="too large") as caught:
        replace_file(path, b"x" * 5000, temporary)
    assert is_full_disk(caught.value)
    assert path.read_bytes() == b"old"
    assert not temporary.exists()


def test_files_that_belong_together_are_replaced_together(tmp_path: Path) -> None:
    """The second does not fit, and the first would: both stay as they were."""
    replace_files(tmp_path, {"a": b"old a", "b": b"old b"})
    with largest_file(1000), pytest.raises(OSError, match="too large"):
        replace_files(tmp_path, {"a": b"new a", "b": b"x" * 5000})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old a", "b": b"old b"}
    replace_files(tmp_path, {"b": b"new b"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"a": b"old a", "b": b"new b"}


def test_too_little_room_is_found_before_writing(tmp_path: Path) -> None:
    with (
        pytest.raises(ResourceError, match=r"a test in .*: it needs about .* MB and .* MB are free"),
        disk_guard(tmp_path, 10**18, what="a test"),
    ):
        raise AssertionError("must not be entered")


def test_the_caller_says_how_its_work_goes_on(tmp_path: Path) -> None:
    with pytest.raises(ResourceError) as plain, disk_guard(tmp_path, 10**18, what="a test"):
        raise AssertionError("must not be entered")
    assert str(plain.value).endswith("Nothing was overwritten. Free some space and try again")
    advice = "Make room. Run the same command to go on"
    with largest_file(10), pytest.raises(ResourceError) as told, disk_guard(tmp_path, 1, what="a test", advice=advice):
        (tmp_path / "file").write_bytes(b"x" * 100)
    assert str(told.value).endswith(f"Nothing was overwritten. {advice}")
    assert "--resume" not in str(plain.value) + str(told.value)


def test_other_errors_pass_the_guard_unchanged(tmp_path: Path) -> None:
    assert not is_full_disk(PermissionError(errno.EACCES, "no"))
    with pytest.raises(PermissionError), disk_guard(tmp_path, 1, what="a test"):
        raise PermissionError(errno.EACCES, "no")


def test_hash_is_that_of_the_bytes(tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    (tmp_path / "file").write_bytes(data)
    sync_file(tmp_path / "file")
    sync_folder(tmp_path)
    assert sha256_file(tmp_path / "file") == hashlib.sha256(data).hexdigest()


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    code = "import sys; from bertkit.system.atomic_files import try_lock; file = open(sys.argv[1], 'w')"
    code += "; print(try_lock(file), flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "True\n"
        with path.open("w") as file:
            assert not try_lock(file)
    finally:
        holder.kill()
        holder.communicate()
    with path.open("w") as file:
        assert try_lock(file)


# --- reading what others wrote ---------------------------------------------------------------------------------------


def test_only_regular_files_of_sensible_size_are_read(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(b"12345")
    assert read_regular(path, max_bytes=5) == b"12345"
    with pytest.raises(CheckpointError, match=r"settings\.json has 5 bytes; such a file has at most 4"):
        read_regular(path, max_bytes=4)
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for ever
    for odd, said in (
        (tmp_path / "pipe", "not a regular file"),
        (Path("/dev/zero"), "not a reg"),
        (tmp_path, "folder"),
    ):
        with pytest.raises(CheckpointError, match=said):
            read_regular(odd, max_bytes=5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b'{"a": 1, "a": 2}', "it has 'a' more than once"),
        (b'{"a": NaN}', "it holds NaN"),
        (b'{"a": -Infinity}', "it holds -Infinity"),
        (b'{"a": ' + b"9" * 5000 + b"}", "a whole number of 5,000 digits: 9999"),
        (b'{"a": "\\ud800"}', r"it holds '\\ud800', half of a character"),
        (b'{"\\uDFFF": 1}', r"it holds '\\udfff', half of a character"),
        (b'{"a": "\xff"}', "can't decode byte 0xff"),
        (b"[" * 101 + b"]" * 101, r"nested too deeply \(more than 100 levels\)"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[" + b"{}," * 250_000 + b"0]", "some 1,250,001 values, more than the limit 1,000,000"),
        (b"{", "Expecting property name"),
    ],
)
def test_what_json_leaves_undefined_is_refused(text: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        strict_json(text)


def test_json_is_read_as_elsewhere() -> None:
    text = b'{"a": [1, -2.5, 1e30, true, null, {"\\u00e9": "\\ud83d\\ude00"}], "b": 1000000000000000019884624838656}'
    assert strict_json(text) == json.loads(text)
    assert strict_json(b"[" * 100 + b"]" * 100) == json.loads("[" * 100 + "]" * 100)


def test_names_that_are_not_utf8_can_be_stored_and_read_back(tmp_path: Path) -> None:
    name = os.fsdecode(b'r\xff\xc3\xa9"\\n')
    values = {"model": name, name: [f"caf\u00e9 {name}"]}
    write_json(tmp_path / "run.json", values)
    read = read_json(tmp_path / "run.json", dict)
    assert read == as_stored(values) == {"model": printable(name), printable(name): [f"caf\u00e9 {printable(name)}"]}
    assert printable(name) == 'r\\xff\u00e9"\\n'
