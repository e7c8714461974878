"""Zip archives: the checkpoint comes out flat; what is hostile is refused before a byte is written."""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bertkit.checkpoints.zip_archive import MAX_MEMBERS, unpack
from bertkit.errors import CheckpointError
from hostile_helpers import bounded

CONTENT = {"m/bert_model.ckpt.index": b"values", "m/vocab.txt": b"a\nb\n" * 300, "m/readme.md": b"no"}


def zipped(contents: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def member(name: str, content: bytes, *, mode: int) -> bytes:
    """An archive with one file of this kind."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        archive.writestr(info, content)
    return buffer.getvalue()


def unpacked(content: bytes, folder: Path) -> list[Path]:
    (folder / "a.zip").write_bytes(content)
    (folder / "out").mkdir()
    return unpack(folder / "a.zip", folder / "out")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_wanted_files_come_out_flat(method: int, tmp_path: Path) -> None:
    extra = {"__MACOSX/m/._vocab.txt": b"z", "m/.vocab.txt": b"z", "m/": b""}
    files = unpacked(zipped({**CONTENT, **extra}, method), tmp_path)
    assert [file.name for file in files] == ["bert_model.ckpt.index", "vocab.txt"]
    assert all(file.read_bytes() == CONTENT[f"m/{file.name}"] for file in files)
    assert len(list((tmp_path / "out").iterdir())) == 2


def test_a_list_in_zip64_is_read(tmp_path: Path) -> None:
    whole = zipped(CONTENT)
    end = len(whole) - 22
    count, length, at = struct.unpack("<H2L", whole[end + 10 : end + 20])
    files = unpacked(whole[:end] + end_64(count, length, at) + locator_64(end) + whole[end:], tmp_path)
    assert [file.name for file in files] == ["bert_model.ckpt.index", "vocab.txt"]


def bomb() -> bytes:
    """A file of 100 MB that shrinks to 100 kB, and says so."""
    return zipped({"m.ckpt.index": bytes(100_000_000)})


def patched(old: bytes, new: bytes, content: bytes) -> bytes:
    assert old in content
    return content.replace(old, new)


def lying_size(content: bytes) -> bytes:
    """The table of contents promises fewer bytes than come out."""
    at = content.index(b"PK\x01\x02")
    return content[: at + 24] + struct.pack("<I", 5) + content[at + 28 :]


def overlapping() -> bytes:
    """Two names for the same bytes, as bombs of several petabytes are made."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.index", b"abc" * 100)
        archive.writestr("b.index", b"abc" * 100)
        archive.filelist[1].header_offset = archive.filelist[0].header_offset
    return buffer.getvalue()


def member_at(place: int) -> bytes:
    """An archive whose list says that its file is elsewhere."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a.index", b"abc")
        archive.filelist[0].header_offset = place
    return buffer.getvalue()


def end_64(count: int, length: int, at: int) -> bytes:
    return b"PK\x06\x06" + struct.pack("<Q2H2L4Q", 44, 45, 45, 0, 0, count, count, length, at)


def locator_64(at: int) -> bytes:
    return b"PK\x06\x07" + struct.pack("<LQL", 0, at, 1)


def long_list(*, honest: bool, comment: int = 0) -> bytes:
    """A list of 4.6 MB, after a record that says it has 46 bytes, which is found by who trusts the locator."""
    count = 100_000
    entries = (b"PK\x01\x02" + bytes(42)) * count
    content = end_64(1, 46, 56) + entries
    where = len(content) if honest else 0
    end = b"PK\x05\x06" + struct.pack("<4H2LH", 0, 0, 0, 0, 0, 0, comment) + bytes(comment)
    return content + end_64(count, len(entries), 56) + locator_64(where) + end


CASES: dict[str, tuple[Callable[[], bytes], str]] = {
    "nothing": (lambda: b"", "no table of contents"),
    "rubbish": (lambda: os.urandom(3000), "no table of contents"),
    "no files": (lambda: zipped({}), "contains no checkpoint, but no files"),
    "no checkpoint": (lambda: zipped({"readme.md": b""}), "contains no checkpoint, but 'readme.md'"),
    "a parent": (lambda: zipped({"../vocab.txt": b"x"}), r"'\.\./vocab\.txt' leads out"),
    "a parent inside": (lambda: zipped({"m/../../vocab.txt": b"x"}), "leads out"),
    "absolute": (lambda: zipped({"/tmp/vocab.txt": b"x"}), "leads out"),
    "a drive": (lambda: zipped({"C:/vocab.txt": b"x"}), "leads out"),
    "backslashes": (lambda: zipped({"..\\vocab.txt": b"x"}), "leads out"),
    "outside, but not wanted": (lambda: zipped({"../x": b"x", "vocab.txt": b"x"}), "leads out"),
    "a link": (lambda: member("vocab.txt", b"/etc/passwd", mode=stat.S_IFLNK | 0o777), "is a link or a device"),
    "a device": (lambda: member("vocab.txt", b"", mode=stat.S_IFCHR | 0o777), "is a link or a device"),
    "two of a name": (lambda: zipped({"a/vocab.txt": b"x", "b/vocab.txt": b"y"}), "contains 'a/vocab.txt' and"),
    "a bomb": (bomb, r"would grow from .* to 100,000,000 bytes"),
    "two in one place": (overlapping, "'b.index' overlaps 'a.index'"),
    "lzma": (lambda: zipped(CONTENT, zipfile.ZIP_LZMA), "packed by method 14"),
    "bzip2": (lambda: zipped(CONTENT, zipfile.ZIP_BZIP2), "packed by method 12"),
    "encrypted": (
        lambda: patched(b"PK\x01\x02\x14\x03\x14\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01", zipped(CONTENT)),
        "is encrypted",
    ),
    "fewer bytes than come out": (lambda: lying_size(zipped(CONTENT)), "not a whole zip archive"),
    "wrong checksum": (
        lambda: patched(b"values", b"vlaues", zipped(CONTENT, zipfile.ZIP_STORED)),
        "not a whole zip archive",
    ),
    "too many files": (lambda: zipped(dict.fromkeys(map(str, range(MAX_MEMBERS + 1)), b""), 0), "has 10,001 files"),
    "a huge table of contents": (
        lambda: (whole := zipped(CONTENT))[:-10] + struct.pack("<I", 1 << 31) + whole[-6:],
        "table of contents should have 2,147,483,648 bytes",
    ),
    "a huge list in ZIP64": (lambda: long_list(honest=True), "table of contents should have 4,600,000 bytes"),
    "a forged list in ZIP64": (lambda: long_list(honest=False), "table of contents is not where it should be"),
    "a huge list before the longest comment": (
        lambda: long_list(honest=True, comment=65_535),
        "table of contents should have 4,600,000 bytes",
    ),
    "far behind the end": (lambda: member_at(10**14), "'a.index' ends at byte 100,000,000,000,033, and it has"),
    "farther than a file can be": (lambda: member_at(1 << 62), "'a.index' ends at byte"),
    "cut off": (lambda: zipped(CONTENT)[:-30], "no table of contents"),
    "cut in front": (lambda: zipped(CONTENT)[40:], "not a whole zip archive"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_archive(case: str, tmp_path: Path) -> None:
    make, said = CASES[case]
    content = make()
    with bounded(case), pytest.raises(CheckpointError, match=said) as caught:
        unpacked(content, tmp_path)
    assert str(tmp_path / "a.zip") in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} == {"a.zip", "out"}


def test_every_shorter_archive_is_refused(tmp_path: Path) -> None:
    whole = zipped(CONTENT)
    (tmp_path / "out").mkdir()
    for length in range(0, len(whole), 11):
        (tmp_path / "a.zip").write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            unpack(tmp_path / "a.zip", tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())
