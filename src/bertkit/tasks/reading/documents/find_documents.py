"""The documents in folders, and those that match patterns; what is passed over is counted."""

from __future__ import annotations

import fnmatch
import glob
import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bertkit.errors import DataError, counted
from bertkit.tasks.reading.documents.read_document import ENDINGS


@dataclass(slots=True)
class Found:
    """files: the documents, in order of their names. passed: how many others there are, by why."""

    files: list[Path] = field(default_factory=list)
    passed: Counter[str] = field(default_factory=Counter)

    def passed_over(self) -> str:
        """In words; empty if nothing was."""
        return ", ".join(f"{count:,} {why}" for why, count in sorted(self.passed.items()))


def find_documents(arguments: Sequence[str], known: Collection[str] = ()) -> Found:
    """All documents that the arguments name, each once. DataError where one of them names none, now or among ``known``.

    Hidden files and folders, links to folders and files with other endings are passed over.
    """
    found = Found()
    seen: set[str] = set()
    for argument in arguments:
        is_named = any(lies_in(name, argument) for name in known)
        for path in _candidates(argument, found.passed):
            where = os.path.normpath(path)
            if path.suffix.lower() not in ENDINGS:
                found.passed[f"with other endings ({path.suffix.lower() or 'none'})"] += 1
                continue
            is_named = True
            if where not in seen:
                seen.add(where)
                found.files.append(path)
        if not is_named:
            others = f"; passed over: {found.passed_over()}" if found.passed else ""
            is_there = glob.has_magic(argument) or Path(argument).exists()
            what = "names no documents" if is_there else "does not exist, and names no documents"
            raise DataError(f"{argument} {what} ({', '.join(ENDINGS)}){others}")
    return found


def _candidates(argument: str, passed: Counter[str]) -> Iterator[Path]:
    path = Path(argument)
    if path.is_dir():
        yield from _in_folder(path, passed)
    elif path.exists():
        yield path
    elif glob.has_magic(argument):
        parts = path.parts
        fixed = next(place for place, part in enumerate(parts) if glob.has_magic(part))
        start = Path(*parts[:fixed])
        for match in sorted(start.glob(str(Path(*parts[fixed:])))):  # unlike glob.glob it enters no links
            if any(part.startswith(".") for part in match.relative_to(start).parts):
                passed["hidden"] += 1
            elif match.is_dir():
                passed["folders that a pattern matches"] += 1
            else:
                yield match


def _in_folder(folder: Path, passed: Counter[str]) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename} cannot be read: {error.strerror}") from None

    for here, folders, files in os.walk(folder, onerror=refuse):
        kept = []
        for name in sorted(folders):
            if name.startswith("."):
                passed["hidden"] += 1
            elif Path(here, name).is_symlink():  # it may lead back to where it stands
                passed["links to folders"] += 1
            else:
                kept.append(name)
        folders[:] = kept
        for name in sorted(files):
            if name.startswith("."):
                passed["hidden"] += 1
            elif name.startswith("~$"):
                passed["open in Word (~$)"] += 1
            else:
                yield Path(here, name)


def lies_in(source: str, argument: str) -> bool:
    """Whether a file that is no longer there would be one of those that an argument names."""
    where = Path(os.path.normpath(argument)).as_posix()
    if glob.has_magic(argument) and not Path(argument).exists():
        return fnmatch.fnmatchcase(source, where)
    if where == ".":
        return not source.startswith(("/", ".."))
    return source == where or source.startswith(f"{where}/")


def how_many(found: Found) -> str:
    """Documents, and what was passed over, in words."""
    others = found.passed_over()
    return counted(len(found.files), "document") + (f"; passed over: {others}" if others else "")
