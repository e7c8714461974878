"""The file of labels given by hand: a line of JSON for each, on the disk before the next text is shown."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from bertkit.errors import DataError, ResourceError, did_you_mean
from bertkit.system.atomic_files import write_atomically
from bertkit.system.json_files import read_lines
from bertkit.system.untrusted_files import strict_json


class LabelFile:
    """A line for each label, as ``bertkit finetune csv`` reads them; ``given`` has them in their order."""

    def __init__(self, path: Path, labels: Sequence[str]) -> None:
        self.path, self.labels = path, tuple(labels)
        self.given: dict[str, str] = {}
        if not path.exists():
            return
        _end_last_line(path)
        for number, line in enumerate(read_lines(path), start=1):
            text, label = line.get("text"), line.get("label")
            if not isinstance(text, str) or not isinstance(label, str):
                raise DataError(f'{path}:{number}: expected {{"text": "...", "label": "..."}}, got {line!r:.80}')
            if label not in self.labels:
                raise DataError(
                    f"{path}:{number}: label {label!r} is none of {', '.join(self.labels)}"
                    f"{did_you_mean(label, self.labels)}; give --labels with all labels of the file"
                )
            self._give(text, label)

    def add(self, text: str, label: str) -> None:
        """Write one label, on the disk when this returns."""
        assert label in self.labels
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"text": text, "label": label}, ensure_ascii=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            why = f"{error.strerror or error}; all labels before are kept"
            raise ResourceError(f"cannot write {self.path}: {why}") from error
        self._give(text, label)

    def undo(self) -> None:
        """Remove the label given last, and all lines with its text; there must be one."""
        text, _ = self.given.popitem()
        lines = self.path.read_bytes().splitlines(keepends=True)
        write_atomically(self.path, b"".join(line for line in lines if json.loads(line).get("text") != text))

    def _give(self, text: str, label: str) -> None:
        self.given.pop(text, None)  # so that the text is the last one
        self.given[text] = label


def _end_last_line(path: Path) -> None:
    """Add the newline that the last line lacks, or drop a line that a killed process left incomplete."""
    content = path.read_bytes()
    *_, last = content.rpartition(b"\n")
    if not last:
        return
    try:
        strict_json(last)
    except ValueError:
        content = content.removesuffix(last)
    else:
        content += b"\n"
    write_atomically(path, content)
