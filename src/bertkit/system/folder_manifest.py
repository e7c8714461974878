"""The manifest of a folder that bertkit makes: a JSON file with the version of its format, checked field by field."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from bertkit.errors import DataError
from bertkit.system.typed_values import WrongValueError, typed
from bertkit.system.validated_settings import Settings

ManifestT = TypeVar("ManifestT", bound=Settings)


@dataclass(frozen=True)
class FolderKind(Generic[ManifestT]):
    """A kind of folder, in the words of its error messages; ``version`` is the only one that is read."""

    manifest: type[ManifestT]
    name: str
    version: int
    called: str
    command: str
    again: str

    def read(self, folder: Path) -> ManifestT:
        """The manifest of ``folder``; anything else is a DataError."""
        path, made = folder / self.name, f"made with: {self.command}"
        try:
            values = json.loads(path.read_bytes())
        except NotADirectoryError:
            raise DataError(f"{folder} is a file; {self.called} is a folder, {made}") from None
        except FileNotFoundError:
            what = f"has no {self.name}" if folder.is_dir() else "is not there"
            raise DataError(f"{folder} {what}; {self.called} is {made}") from None
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path} cannot be read as JSON: {error}; {self.again}") from None
        version = values.get("format_version") if isinstance(values, dict) else None
        if version != self.version:
            raise DataError(f"{path} has format version {version!r}, this bertkit reads {self.version}; {self.again}")
        try:
            return typed(values, self.manifest)
        except WrongValueError as error:
            raise DataError(f"{path} is damaged: {str(error)[:300]}") from None
