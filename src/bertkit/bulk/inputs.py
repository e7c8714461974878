"""Which files are read, and how: names, folders, patterns, and addresses of object stores.

An address is as ``pyarrow.fs.FileSystem.from_uri`` reads it: settings of the store may stand behind a ``?``, and those
that do not are taken from the environment and the files of the store's own tools.
"""

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

from bertkit.errors import BertkitError, ConfigError, DataError, needs_bertkit
from bertkit.tasks.reading.lines import COMPRESSIONS, check_file
from bertkit.tasks.reading.splits import LOCK, kind_of
from bertkit.tasks.tokens.span_files import is_brat

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

_ADDRESS = re.compile(r"[a-z][a-z0-9+]*://")
#: An address that was made a path, which keeps only one of its two slashes.
_AS_PATH = re.compile(r"(s3|gs|gcs|abfss?|hdfs):/(?!/)")
_WITH_SECRET = re.compile(r"[^/]+://[^/?]*:[^/?]*@")


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
            with _told(name):
                info = files.get_file_info(key)
            if not info.is_file:
                raise DataError(f"{name} is not there, or is no file")
            return cls.listed(name, info)
        with contextlib.suppress(OSError):
            found = os.stat(name)
            if stat.S_ISREG(found.st_mode):
                return cls(name, found.st_size, found.st_mtime_ns)
        path = Path(name)
        if not is_brat(path):
            check_file(path)
        stats = [part.stat() for part in path.iterdir() if part.is_file()]
        return cls(name, sum(each.st_size for each in stats), max(each.st_mtime_ns for each in stats))

    @classmethod
    def listed(cls, name: str, info: FileInfo) -> InputFile:
        """A remote file, its time in whole seconds: some stores give more digits in a listing than for one file."""
        return cls(name, int(info.size), int(info.mtime_ns or 0) // 1_000_000_000 * 1_000_000_000)


def is_remote(name: str) -> bool:
    """Whether a name is an address such as ``s3://bucket/key``."""
    return _ADDRESS.match(name) is not None


def plain_path(name: str) -> Path:
    """The path in a name, for its ending: of an address without what it says of its store."""
    return Path(name.partition("?")[0] if is_remote(name) else name)


def find_inputs(given: Sequence[str | Path]) -> list[InputFile]:
    """Files, those in folders (with names of tables or .txt) and those that patterns match, sorted; absolute paths.

    Raises:
        DataError: a name or pattern without a file, or a file that is there twice.
        ConfigError: an address that cannot be read, or with a password.
    """
    found = [file for each in given for file in _named(_AS_PATH.sub(r"\1://", str(each)))]
    names = [file.name for file in found]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise DataError(f"{twice} is given twice; its rows would be there twice")
    return found


def _named(name: str) -> Iterable[InputFile]:
    if is_remote(name):
        return _remote_files(name)
    return (InputFile.of(str(Path(found).absolute())) for found in _local_files(name))


def _local_files(name: str) -> Iterable[str]:
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
    found = _readable([file.relative_to(folder).as_posix() for file in files])
    if not found:
        raise DataError(
            f"{folder} is not a file; give one of the files in it, or a folder of .parquet, .jsonl, .csv, .tsv, .xlsx"
            " or .txt files"
        )
    return [str(folder / name) for name in found]


def _readable(names: Sequence[str]) -> list[str]:
    """Of the files in a folder the tables, or else the texts; not those that are hidden, or kept beside data."""
    shown = [name for name in names if not any(part.startswith((".", "_", LOCK)) for part in name.split("/"))]
    tables = [name for name in shown if kind_of(Path(name)) is not None]
    return tables or [name for name in shown if kind_of(Path(name), (".txt",)) is not None]


def _remote_files(name: str) -> list[InputFile]:
    """A listing has size and time of a thousand files, which one by one would be a request each."""
    if _WITH_SECRET.match(name):
        raise ConfigError(
            f"{name.partition(':')[0]}://...: an address with a password would stand in plans and messages; leave it "
            "to the environment, for example AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    plain, mark, store = name.partition("?")
    folder = re.split(r"[^/]*[*\[]", plain, maxsplit=1)[0]
    files, path = _file_system(folder + mark + store)
    if folder == plain:
        with _told(name):
            is_folder = files.get_file_info(path).type.name == "Directory"
        if not is_folder:
            return [InputFile.of(name)]
    from pyarrow.fs import FileSelector

    with _told(name):
        listed = [each for each in files.get_file_info(FileSelector(path, recursive=True)) if each.is_file]
    inside = {each.path.removeprefix(path).lstrip("/"): each for each in listed}
    matches = _pattern(plain.removeprefix(folder)).match
    found = sorted(filter(matches, inside)) if folder != plain else sorted(_readable(list(inside)))
    if not found:
        raise DataError(f"{name} has no files that can be read")
    start = folder.rstrip("/") + "/"
    return [InputFile.listed(f"{start}{each}{mark}{store}", inside[each]) for each in found]


def _pattern(path: str) -> re.Pattern[str]:
    """What :func:`glob.glob` would match, of paths in a store."""
    each = re.split(r"(\*\*/|\*\*|\*|\[[^]]+\])", path)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    return re.compile("".join(known.get(part) or _one_of(part) for part in each) + "$")


def _one_of(part: str) -> str:
    return part.replace("[!", "[^") if part.startswith("[") and part.endswith("]") else re.escape(part)


def _file_system(name: str) -> tuple[FileSystem, str]:
    with needs_bertkit(f"{name}, an address,"):
        from pyarrow.fs import FileSystem
    with _told(name):
        return cast("tuple[FileSystem, str]", FileSystem.from_uri(name))


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Errors of a store as one of ours."""
    import pyarrow as pa

    try:
        yield
    except BertkitError:  # of which some are ValueErrors as well
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        advice = ""
        if "ACCESS_DENIED" in str(error) or "403" in str(error) or "credentials" in str(error):
            advice = ". This machine, and each worker, needs the keys of the store: docs/how-to/object-stores.md"
        raise ConfigError(f"{name} cannot be read: {error}{advice}") from None


@contextmanager
def opened(name: str, here: Callable[[Path], BinaryIO]) -> Iterator[BinaryIO]:
    """The bytes of a file; of a remote one only those that are read are fetched, unless it is compressed.

    here: opens a file that is here, and decompresses it.
    """
    if is_remote(name) and plain_path(name).suffix.casefold() not in COMPRESSIONS:
        files, path = _file_system(name)
        with _told(name), files.open_input_file(path) as remote:
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
        with _told(name), files.open_input_stream(path, compression=None) as stream, copy.open("wb") as file:
            shutil.copyfileobj(stream, file, 1 << 20)
        yield copy
