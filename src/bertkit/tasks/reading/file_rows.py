"""A row of a file of texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from bertkit.system.untrusted_files import Json

#: Of each column of a table a value of each type that it holds, as far as that is known.
Samples = Mapping[str, Mapping[type, Json]]


class FileRow(NamedTuple):
    """A row of a file; ``columns`` has all of its values, ``line`` is counted as by ``Table.rows``.

    fault: why it has no text that can be read; empty if it has one.
    """

    text: str
    pair: str | None
    columns: dict[str, Any]
    line: int
    fault: str = ""

    @property
    def asked(self) -> str | tuple[str, str]:
        """What a model reads: the text, or both texts."""
        return self.text if self.pair is None else (self.text, self.pair)
