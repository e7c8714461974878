"""The battery of :func:`bertkit.tasks.check_task` for questions with choices, questions on a context, and tagged words.

The checks are those of texts in the words of each kind: labels round-trip, perfect predictions score 1.0, cutting into
windows or to a length never drops an answer silently, and files that are empty, damaged or wrong in one row are
refused by name and place.
"""

from __future__ import annotations

import json
import lzma
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from bertkit.errors import DataError
from bertkit.tasks.examples import SPLITS, Split
from bertkit.tasks.reading.bad_rows import BadRows
from bertkit.tasks.reading.lines import COMPRESSIONS, Lines
from bertkit.tasks.reading.splits import splits_of
from bertkit.tasks.registry import Task, task_from_dict, task_to_dict

#: Examples of a split that are cut to pieces, the longest tokens that they are cut to, and their common tokens.
CUT_EXAMPLES, CUT_LENGTH, CUT_OVERLAP = 200, 48, 8


class Battery(ABC):
    """The checks of one kind of task.

    Args:
        task: the task.
        folder: where its files are.
    """

    #: The kind's field of a run folder's JSON.
    form: ClassVar[str]

    def __init__(self, task: Any, folder: str | Path) -> None:
        self.task = task
        self.folder = folder

    def run(self) -> list[str]:
        """One line for each check that passed.

        Raises:
            AssertionError: a check failed.
            DataError: the data cannot be read at all.
        """
        passed = []
        for split in SPLITS:
            path = self.files().get(split)
            if path is None:
                continue
            rows = self.load(self.folder, split)
            for row in rows:
                self.check_row(row)
            passed.append(f"{split}: {len(rows):,} examples; labels round-trip")
            if self.is_labelled(rows[0]):
                for name, value in self.perfect(rows).items():
                    assert abs(value - 1.0) < 1e-9, f"{self.task.name}: {name} of perfect predictions is {value}"
                passed.append(f"{split}: perfect predictions score 1.0")
                self.check_cut(rows[:CUT_EXAMPLES])
                passed.append(f"{split}: cut to {CUT_LENGTH} tokens, no answer is lost silently")
            self._check_files(split, path)
            passed.append(f"{split}: empty and damaged files, and one bad row by its place, are refused")
        assert passed, f"{self.task.name}: no split in {self.folder}"
        again = task_from_dict(json.loads(json.dumps(task_to_dict(self.task))))
        assert again == self.task, f"{self.task.name}: differs after a round trip through JSON"
        return [*passed, "the task survives a round trip through JSON"]

    @abstractmethod
    def files(self) -> dict[Split, Path]:
        """The task's files."""

    @abstractmethod
    def load(self, data: str | Path, split: Split) -> Sequence[Any]:
        """The examples of one split."""

    @abstractmethod
    def is_labelled(self, row: Any) -> bool:
        """Whether the example has its answer."""

    @abstractmethod
    def check_row(self, row: Any) -> None:
        """Look at one example."""

    @abstractmethod
    def perfect(self, rows: Sequence[Any]) -> dict[str, float]:
        """Scores of the right answers."""

    @abstractmethod
    def check_cut(self, rows: Sequence[Any]) -> None:
        """Encode with little room, and see that what was lost is told."""

    @abstractmethod
    def spoil(self, lines: list[str], split: Split) -> tuple[list[str], str]:
        """The file's lines with one bad row, and what the message says of its place."""

    def _check_files(self, split: Split, path: Path) -> None:
        if ".parquet" in path.name:
            return
        lines = list(Lines(path, BadRows()))
        name = path.name
        for suffix in COMPRESSIONS:
            name = name.removesuffix(suffix)
        with tempfile.TemporaryDirectory() as folder:
            spoilt = Path(folder) / name
            spoilt.write_bytes(b"")
            self._refused(spoilt, split, str(spoilt))
            packed = spoilt.with_name(f"{name}.xz")
            packed.write_bytes(lzma.compress("".join(lines[:50]).encode())[:-20])
            self._refused(packed, split, str(packed))
            bad, place = self.spoil(lines, split)
            spoilt.write_text("".join(bad), encoding="utf-8", newline="")
            self._refused(spoilt, split, f"{spoilt}:{place}")
            spoilt.write_bytes(b"".join(["".join(lines[:2]).encode(), b"caf\xe9\n", "".join(lines[2:9]).encode()]))
            self._refused(spoilt, split, str(spoilt))

    def _refused(self, path: Path, split: Split, said: str) -> None:
        try:
            self.load(path, split)
        except DataError as error:
            told = str(error)
        else:
            told = "no error"
        assert said in told, f"{self.task.name}: a spoilt file gave {told!r}, expected an error that says {said!r}"


class ChoiceBattery(Battery):
    """Multiple choice."""

    form = "choice"

    def files(self) -> dict[Split, Path]:
        return splits_of(self.task, self.folder)

    def load(self, data: str | Path, split: Split) -> Sequence[Any]:
        from bertkit.tasks.choices.reading import load_choices

        return load_choices(self.task, data, split)

    def is_labelled(self, row: Any) -> bool:
        return row.label is not None

    def check_row(self, row: Any) -> None:
        assert row.context.strip(), f"{row.where}: empty context"
        assert all(choice.strip() for choice in row.choices), f"{row.where}: empty choice"
        assert row.label is None or 0 <= row.label < len(row.choices), f"{row.where}: label {row.label}"

    def perfect(self, rows: Sequence[Any]) -> dict[str, float]:
        from bertkit.metrics.scores import METRICS

        right = [row.label for row in rows]
        return {name: METRICS[name](right, right) for name in self.task.metrics}

    def check_cut(self, rows: Sequence[Any]) -> None:
        from bertkit.tasks.choices.features import featurize_choices

        tokenizer = _tokenizer(text for row in rows for pair in row.pairs for text in pair)
        found, whole = (featurize_choices(rows, tokenizer, length) for length in (CUT_LENGTH, 1 << 20))
        for number, row in enumerate(rows):
            own, uncut = (
                [features.sequences[place].tolist() for place in features.sequences_of([number])]
                for features in (found, whole)
            )
            assert (own != uncut) == bool(found.truncated[number]), f"{row.where}: cut, and not told"

    def spoil(self, lines: list[str], split: Split) -> tuple[list[str], str]:
        number = 2 if len(lines) > 2 else len(lines)
        return [*lines[: number - 1], "{\n" if lines[0].startswith("{") else "x\n", *lines[number:]], f"{number}: "


class SpanBattery(Battery):
    """Question answering."""

    form = "span"

    def files(self) -> dict[Split, Path]:
        from bertkit.tasks.spans.reading import question_rules

        return splits_of(self.task, self.folder, question_rules(self.task))

    def load(self, data: str | Path, split: Split) -> Sequence[Any]:
        from bertkit.tasks.spans.reading import load_questions, read_questions

        path = Path(data)
        return read_questions(self.task, path, split) if path.is_file() else load_questions(self.task, data, split)

    def is_labelled(self, row: Any) -> bool:
        return row.answers is not None

    def check_row(self, row: Any) -> None:
        for answer in row.answers or ():
            found = row.context[answer.start : answer.end]
            assert found == answer.text, f"{row.where}: the context has {found!r}, the answer is {answer.text!r}"

    def perfect(self, rows: Sequence[Any]) -> dict[str, float]:
        from bertkit.tasks.spans.task import score_answers

        return score_answers(self.task, rows, [row.label or "" for row in rows]).scores

    def check_cut(self, rows: Sequence[Any]) -> None:
        from bertkit.tasks.spans.features import SpanSettings, featurize_spans

        tokenizer = _tokenizer(text for row in rows for text in (row.question, row.context))
        settings = SpanSettings(max_length=CUT_LENGTH, doc_stride=CUT_OVERLAP, max_query_length=12)
        found = featurize_spans(rows, tokenizer, settings, labelled=True)
        assert found.ends is not None
        for number, row in enumerate(rows):
            held = bool((found.ends[found.first_rows[number] : found.first_rows[number + 1]] > 0).any())
            assert held or not row.answers or number in found.lost, f"{row.where}: the answer is lost, and not told"

    def spoil(self, lines: list[str], split: Split) -> tuple[list[str], str]:
        from bertkit.tasks.reading.splits import kind_of
        from bertkit.tasks.spans.reading import SUFFIXES

        if kind_of(self.files()[split], SUFFIXES) != ".json":
            number = next(number for number, line in enumerate(lines, start=1) if line.strip())
            row = {**json.loads(lines[number - 1]), "question": ""}
            return [*lines[: number - 1], json.dumps(row) + "\n", *lines[number:]], f"{number}: "
        document = json.loads("".join(lines))
        question = document["data"][0]["paragraphs"][0]["qas"][0]
        question["question"] = ""
        return [json.dumps(document)], "1: "


class TokenBattery(Battery):
    """Tagged words."""

    form = "token"

    def files(self) -> dict[Split, Path]:
        from bertkit.tasks.tokens.reading import tagged_files

        return dict(tagged_files(self.folder))

    def load(self, data: str | Path, split: Split) -> Sequence[Any]:
        from bertkit.tasks.tokens.reading import load_tagged

        return load_tagged(self.task, data, split)

    def is_labelled(self, row: Any) -> bool:
        return row.entities is not None

    def check_row(self, row: Any) -> None:
        assert row.words, f"{row.where}: no words"
        assert [row.text[start:end] for start, end in row.spans] == list(row.words), f"{row.where}: words move"
        if row.entities is None:
            return
        names = self.task.labels
        assert [names[number] for number in self.task.numbers_of(row.tags)] == row.tags, f"{row.where}: {row.tags}"

    def perfect(self, rows: Sequence[Any]) -> dict[str, float]:
        from bertkit.tasks.tokens.task import score_tags

        right = [row.tags for row in rows]
        return score_tags(self.task, right, right)

    def check_cut(self, rows: Sequence[Any]) -> None:
        from bertkit.tasks.tokens.features import windows_of_words

        tokenizer = _tokenizer(row.text for row in rows)
        found = windows_of_words(
            [row.text for row in rows],
            [row.spans for row in rows],
            tokenizer,
            max_length=CUT_LENGTH,
            overlap=CUT_OVERLAP,
            labels=[self.task.numbers_of(row.tags) for row in rows],
        )
        assert found.labels is not None
        assert found.first_pieces is not None
        read = int((found.first_pieces >= 0).sum())
        labelled = int((found.labels >= 0).sum())
        words = sum(len(row.words) for row in rows)
        assert labelled <= read <= words, f"{labelled} labels for {read} of {words} words"
        assert labelled >= 0.99 * read, f"only {labelled} of {read} words that the model reads have their label"

    def spoil(self, lines: list[str], split: Split) -> tuple[list[str], str]:
        number = next(n for n, line in enumerate(lines, start=1) if n > 2 and len(line.split()) > 1)
        return [*lines[: number - 1], lines[number - 1].split()[0] + "\n", *lines[number:]], f"{number}: "


BATTERIES: dict[str, type[Battery]] = {battery.form: battery for battery in (ChoiceBattery, SpanBattery, TokenBattery)}


def check_other(task: Task, folder: str | Path) -> list[str]:
    """The battery of a task that is not of texts and labels; see :func:`bertkit.tasks.check_task`."""
    return BATTERIES[task.form](task, folder).run()


def _tokenizer(texts: Iterable[str]) -> Any:
    """One that knows each character of the texts, so that words are many tokens long."""
    from bertkit.tokenization import BertTokenizer

    characters = sorted({character for text in texts for character in text.lower() if not character.isspace()})
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *(f"##{character}" for character in characters)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.txt"
        path.write_text("\n".join(names) + "\n", encoding="utf-8")
        return BertTokenizer(vocab_file=path, model_max_length=1 << 20)
