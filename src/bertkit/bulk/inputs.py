"""Which files are read, and how: names, folders, patterns, and addresses of object stores."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from bertkit.errors import ConfigError, DataError, needs_bertkit
from bertkit.tasks.reading.lines import COMPRESSIONS, check_file
from bertkit.tasks.reading.splits import LOCK, kind_of
from bertkit.tasks.tokens.span_files import is_brat

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_ADDRESS = re.compile(r"[a-z][a-z0-9+]*://")


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file as it was when the work was planned. changed: its time of change, in nanoseconds, if that is known."""

    name: str
    size: int
    changed: int

    @classmethod
    def of(cls, name: str) -> InputFile:
        """The file as it is now; DataError if it is not there."""
        if is_remote(name):
            files, key = _file_system(name)
            info = files.get_file_info(key)
            if not info.is_file:
                raise DataError(f"{name} is not there, or is no file")
            return cls(name, int(info.size), int(info.mtime_ns or 0))
        with contextlib.suppress(OSError):
            found = os.stat(name)
            if stat.S_ISREG(found.st_mode):
                return cls(name, found.st_size, found.st_mtime_ns)
        path = Path(name)
        if not is_brat(path):
            check_file(path)
        stats = [part.stat() for part in path.iterdir() if part.is_file()]
        return cls(name, sum(each.st_size for each in stats), max(each.st_mtime_ns for each in stats))


def is_remote(name: str) -> bool:
    """Whether a name is an address such as ``s3://bucket/key``."""
    return _ADDRESS.match(name) is not None


def find_inputs(given: Sequence[str | Path]) -> list[str]:
    """The names of files, of those in folders (with names of tables or .txt) and of those that patterns match, sorted.

    Raises:
        DataError: a name or pattern without a file, or a file that is there twice.
    """
    found = [name for each in given for name in _named(str(each))]
    twice = next((name for name in found if found.count(name) > 1), None) if len(set(found)) < len(found) else None
    if twice is not None:
        raise DataError(f"{twice} is given twice; its rows would be there twice")
    return found


def _named(name: str) -> Iterable[str]:
    if is_remote(name):
        return _remote_files(name)
    path = Path(name)
    if path.is_dir() and not is_brat(path):
        return _in_folder(path)
    if not path.exists() and glob.has_magic(name):
        matches = sorted(match for match in glob.glob(name, recursive=True) if os.path.isfile(match))
        if not matches:
            raise DataError(f"no file matches {name!r}; put the pattern in quotes, and check the folder")
        return matches
    if not is_brat(path):
        check_file(path)
    return [name]


def _in_folder(folder: Path) -> list[str]:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    shown = [file for file in files if _is_shown(str(file.relative_to(folder)))]
    found = [str(file) for file in shown if _is_readable(file)]
    if not found:
        raise DataError(
            f"{folder} is not a file; give one of the files in it, or a folder of .parquet, .jsonl, .csv, .tsv or .xlsx"
            " files"
        )
    return found


def _is_shown(path: str) -> bool:
    """Whether no part of a path in a folder is hidden, as those are that others keep beside data."""
    return not any(part.startswith((".", "_")) for part in path.split("/"))


def _is_readable(file: Path) -> bool:
    return kind_of(file) is not None and not file.name.startswith(LOCK)


def _remote_files(name: str) -> list[str]:
    from pyarrow.fs import FileSelector, FileType

    files, path = _file_system(name)
    address = name.removesuffix("/").removesuffix(path.strip("/"))
    if files.get_file_info(path).type == FileType.Directory:
        listed = files.get_file_info(FileSelector(path, recursive=True))
        shown = [each for each in listed if each.is_file and _is_shown(each.path.removeprefix(path))]
        names = sorted(each.path for each in shown if _is_readable(Path(each.path)))
        if not names:
            raise DataError(f"{name} has no files that can be read")
        return [address + each.lstrip("/") for each in names]
    return [name]


def _file_system(name: str) -> tuple[FileSystem, str]:
    with needs_bertkit(f"{name}, an address,"):
        import pyarrow as pa
        from pyarrow.fs import FileSystem
    try:
        return cast("tuple[FileSystem, str]", FileSystem.from_uri(name))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise ConfigError(f"{name} cannot be read: {error}") from None


@contextmanager
def opened(name: str, here: Callable[[Path], BinaryIO]) -> Iterator[BinaryIO]:
    """The bytes of a file; of a remote one only those that are read are fetched, unless it is compressed.

    here: opens a file that is here, and decompresses it.
    """
    if is_remote(name) and Path(name).suffix.casefold() not in COMPRESSIONS:
        files, path = _file_system(name)
        with files.open_input_file(path) as remote:
            yield cast(BinaryIO, remote)
    else:
        with local_copy(name) as copy, here(copy) as stream:
            yield stream


@contextmanager
def local_copy(name: str) -> Iterator[Path]:
    """A path at which the file can be read: its own, or that of a copy of a remote one."""
    if not is_remote(name):
        yield Path(name)
        return
    files, path = _file_system(name)
    with tempfile.TemporaryDirectory(prefix="bertkit-") as folder:
        copy = Path(folder) / Path(path).name
        with files.open_input_stream(path, compression=None) as stream, copy.open("wb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)
        yield copy
