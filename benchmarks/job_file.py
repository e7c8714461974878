"""What a process of a benchmark is asked to do, as a file of JSON that another Python can read."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class JobFile:
    """A job; its fields are those of a subclass."""

    def write(self, path: Path) -> Path:
        """As JSON."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        return path

    @classmethod
    def read(cls, path: str) -> Self:
        """What :meth:`write` has written."""
        return cls(**json.loads(Path(path).read_text(encoding="utf-8")))
