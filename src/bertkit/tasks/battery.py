"""A battery that every task has to pass, in the manner of scikit-learn's ``check_estimator``.

Labels round-trip, perfect predictions score 1.0, cutting input never loses an answer silently, and files that are
empty, damaged or wrong in one row are refused by name and place. What differs between kinds of tasks is in their
``battery.py``.
"""

from __future__ import annotations

import json
import lzma
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from bertkit.errors import DataError
from bertkit.tasks.examples import SPLITS, Located, Split
from bertkit.tasks.reading.bad_rows import BadRows
from bertkit.tasks.reading.lines import COMPRESSIONS, Lines
from bertkit.tasks.reading.splits import kind_of
from bertkit.tasks.registry import Task, load_class, task_from_dict, task_to_dict
from bertkit.tokenization.bert_tokenizer import BertTokenizer
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: Examples of a split that are cut to pieces, the longest tokens that they are cut to, and their common tokens.
CUT_EXAMPLES, CUT_LENGTH, CUT_OVERLAP = 200, 48, 8

#: How spoilt copies are written: a byte order mark takes precedence over the encoding of the task's own files.
MARKED = "utf-8-sig"

TaskT = TypeVar("TaskT", bound=Task)
RowT = TypeVar("RowT", bound=Located)


def check_task(task: Task, folder: str | Path) -> list[str]:
    """Run the battery on a task and its real data.

    Args:
        task: the task, of any kind.
        folder: where its files are.

    Returns:
        One line for each check that passed.

    Raises:
        AssertionError: a check failed; the task is wrong.
        DataError: the data cannot be read at all.
    """
    battery: Battery[Task, Located] = load_class(task.form, "battery")(task, folder)
    return battery.run()


class Battery(ABC, Generic[TaskT, RowT]):
    """The checks of one kind of task, whose files are in ``folder``."""

    #: Reported once :meth:`check_rows` and :meth:`check_cut` have passed.
    rows_passed: ClassVar[str] = "examples; labels round-trip"
    cut_passed: ClassVar[str] = ""

    def __init__(self, task: TaskT, folder: str | Path) -> None:
        self.task = task
        self.folder = folder
        self.workflow = load_class(task.form, "workflow")(task)

    def run(self) -> list[str]:
        """As :func:`check_task`."""
        passed = []
        files: Mapping[Split, Path] = self.workflow.splits(self.folder)
        for split in (split for split in SPLITS if split in files):
            rows = self.load(self.folder, split)
            self.check_rows(rows, split)
            passed.append(f"{split}: {len(rows):,} {self.rows_passed}")
            if self.workflow.has_labels(rows):
                for name, value in self.perfect(rows).items():
                    assert abs(value - 1.0) < 1e-9, f"{self.task.name}: {name} of perfect predictions is {value}"
                passed.append(f"{split}: perfect predictions score 1.0")
                if self.cut_passed:
                    self.check_cut(rows[:CUT_EXAMPLES])
                    passed.append(f"{split}: {self.cut_passed}")
            if kind_of(files[split]) not in (".parquet", ".xlsx"):
                self._check_files(split, files[split], rows[0])
                passed.append(f"{split}: empty and damaged files, and bad rows by their place, are refused")
        assert passed, f"{self.task.name}: no split in {self.folder}"
        passed += self.check_more()
        again = task_from_dict(json.loads(json.dumps(task_to_dict(self.task))))
        assert again == self.task, f"{self.task.name}: differs after a round trip through JSON"
        return [*passed, "the task survives a round trip through JSON"]

    def load(self, data: str | Path, split: Split) -> Sequence[RowT]:
        """The examples of one split."""
        rows: Sequence[RowT] = self.workflow.read(data, split)
        return rows

    @abstractmethod
    def check_rows(self, rows: Sequence[RowT], split: Split) -> None:
        """Look at every example of a split."""

    @abstractmethod
    def perfect(self, rows: Sequence[RowT]) -> dict[str, float]:
        """Scores of the right answers."""

    def check_cut(self, rows: Sequence[RowT]) -> None:
        """Encode with a small ``max_length`` and check that every loss is reported."""
        return

    def spoil(self, lines: list[str], path: Path, first: RowT) -> Iterator[tuple[list[str], str]]:
        """The file's lines with one bad row, and what the message says of its place; ``first`` is its first example."""
        number, kind = first.row, kind_of(path)
        own, more = lines[number - 1], "\tx\n" if kind == ".tsv" else ",x\n"
        bad = "{\n" if kind in (".jsonl", ".ndjson") else own.rstrip("\r\n") + more
        for line in (bad, "caf\udce9" + own, "\0" + own):
            yield [*lines[: number - 1], line, *lines[number : number + 2]], f"{number}: "

    def check_more(self) -> list[str]:
        """Further checks of the task itself; a line for each that passed."""
        return []

    def _check_files(self, split: Split, path: Path, first: RowT) -> None:
        encoding = getattr(getattr(self.task, "columns", None), "encoding", None)
        lines, name = list(Lines(path, BadRows(), encoding)), path.name
        for suffix in COMPRESSIONS:
            name = name.removesuffix(suffix)
        with tempfile.TemporaryDirectory() as folder:
            spoilt = Path(folder) / name
            spoilt.write_bytes(b"")
            self._refused(spoilt, split, str(spoilt))
            packed = spoilt.with_name(f"{name}.xz")
            packed.write_bytes(lzma.compress("".join(lines[:50]).encode(MARKED))[:-20])
            self._refused(packed, split, str(packed))
            array = kind_of(path) == ".json" and "".join(lines).lstrip().startswith("[")
            for bad, place in _spoil_array(lines, first.row) if array else self.spoil(lines, path, first):
                spoilt.write_text("".join(bad), encoding=MARKED, errors="surrogateescape", newline="")
                self._refused(spoilt, split, f"{spoilt}:{place}")

    def _refused(self, path: Path, split: Split, said: str) -> None:
        try:
            self.load(path, split)
        except DataError as error:
            got = str(error)
        else:
            got = "no error"
        assert said in got, f"{self.task.name}: a spoilt file gave {got!r}, expected an error that says {said!r}"


def _spoil_array(lines: Sequence[str], number: int) -> Iterator[tuple[list[str], str]]:
    """An array of JSON objects with a record that is none, and with a wrong byte; as :meth:`Battery.spoil`."""
    records = json.loads("".join(lines))
    yield [json.dumps([*records[: number - 1], "x", *records[number:]])], f" object {number}: "
    yield ["caf\udce9\n", *lines[:9]], "1: "


def character_tokenizer(texts: Iterable[str]) -> PreTrainedTokenizer:
    """A tokenizer that knows each character of the texts, so that words are many tokens long."""
    characters = sorted({character for text in texts for character in text.lower() if not character.isspace()})
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *(f"##{character}" for character in characters)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.txt"
        path.write_text("\n".join(names) + "\n", encoding="utf-8")
        return BertTokenizer(vocab_file=path, model_max_length=1 << 20)
