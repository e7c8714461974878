"""The file of labels given by hand: a line of JSON for each, on the disk before the next text is shown."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from bertkit.errors import DataError, ResourceError, did_you_mean
from bertkit.system.atomic_files import write_atomically
from bertkit.system.json_files import read_lines


class LabelFile:
    """``{"text": ..., "label": ...}`` a line, which ``bertkit finetune csv --data FILE`` reads as it is.

    given: from a text to its label, in the order of labelling.

    Raises:
        DataError: a line of another kind, or with a label that is none of ``labels``.
    """

    def __init__(self, path: Path, labels: Sequence[str]) -> None:
        self.path, self.labels = path, tuple(labels)
        self.given: dict[str, str] = {}
        if not path.exists():
            return
        for number, line in enumerate(read_lines(path), start=1):
            text, label = line.get("text"), line.get("label")
            if not isinstance(text, str) or not isinstance(label, str):
                raise DataError(f'{path}:{number}: expected {{"text": "...", "label": "..."}}, got {line!r:.80}')
            if label not in self.labels:
                raise DataError(
                    f"{path}:{number}: label {label!r} is none of {', '.join(self.labels)}"
                    f"{did_you_mean(label, self.labels)}; give --labels with all labels of the file"
                )
            self.given[text] = label
        if not path.read_bytes().endswith(b"\n"):  # the process was killed in the middle of a line
            self._rewrite()

    def add(self, text: str, label: str) -> None:
        """Write one label, on the disk when this returns."""
        assert label in self.labels
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(_line(text, label))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            why = f"{error.strerror or error}; all labels before are kept"
            raise ResourceError(f"cannot write {self.path}: {why}") from error
        self.given[text] = label

    def undo(self) -> str | None:
        """Take the last label back; returns its text, None where there is no label."""
        if not self.given:
            return None
        text, _ = self.given.popitem()
        self._rewrite()
        return text

    def _rewrite(self) -> None:
        write_atomically(self.path, "".join(_line(*each) for each in self.given.items()))


def _line(text: str, label: str) -> str:
    return json.dumps({"text": text, "label": label}, ensure_ascii=False) + "\n"
