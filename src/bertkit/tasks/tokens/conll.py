"""CoNLL files: one word per line with its tag, a blank line after each sentence.

What is understood, whatever the file's name::

    -DOCSTART- -X- O O        begins a document; no sentence

    # id = 7                  a comment: where a sentence may begin, "# " and no tag at the end
    Ann     NNP  I-NP  B-PER  any number of columns, of which one holds words and one tags
    spoke   VBD  I-VP  O

Columns are separated by tabs where the first line of data has one, else by blanks. With tabs a word may hold blanks, or
be empty; a tab at the end of every line begins no column. A line of white space alone ends a sentence. Text is UTF-8,
with or without a byte order mark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bertkit.errors import ConfigError, DataError, counted, shorten
from bertkit.metrics.tags import Entity
from bertkit.tasks.reading.bad_rows import BadRows
from bertkit.tasks.reading.lines import Lines

#: What to do with a file of texts, where a file of words was expected that need not have tags.
RUNNING_TEXT = "Is this running text? bertkit tag --file reads one text per line"
_DOCUMENT = "-DOCSTART-"
_BLANKS = re.compile(r"[ \t]+")
_TAG = re.compile(r"O|[BIESLUMW]-\S.*")


@dataclass(frozen=True, slots=True)
class ConllColumns:
    """The columns of words and tags, counted from 1, or from the end with -1; ``delimiter`` None: see the module."""

    word: int = 1
    tag: int = -1
    delimiter: str | None = None
    encoding: str | None = None

    def __post_init__(self) -> None:
        if 0 in (self.word, self.tag):
            raise ConfigError("columns are counted from 1, or from the end with -1; there is no column 0")


@dataclass(slots=True)
class Sentence:
    """A sentence as the file has it, perhaps without tags, after so many ``-DOCSTART-`` lines.

    Of a file of running texts there is more: ``spacing`` before each word and behind the last, ``entities`` as they are
    marked, and the file itself, where a folder holds several.
    """

    words: list[str]
    tags: list[str]
    lines: list[int]
    document: int
    spacing: tuple[str, ...] = ()
    entities: tuple[Entity, ...] | None = None
    source: Path | None = None


def read_conll(path: Path, columns: ConllColumns, bad: BadRows, *, tagged: bool | None = True) -> Iterator[Sentence]:
    """The sentences of a file, as a stream; the whole sentence of a bad line is left out.

    ``tagged``: whether tags are required; None: a file with a single column has none.
    """
    lines = Lines(path, bad, columns.encoding)
    parser = _Parser(path, columns, bad, tagged)
    parser.ending = "\t" * _tabs_at_end(path, columns)
    for text in lines:
        if lines.damaged and lines.report_damage(lines.number, lines.number):
            parser.spoiled = True
        elif (sentence := parser.take(lines.number, text.rstrip("\r\n"))) is not None:
            yield sentence
    if (last := parser.finish()) is not None:
        yield last


def _tabs_at_end(path: Path, columns: ConllColumns) -> int:
    """Tabs that every line of data ends with, comments apart; what would be behind them is no column."""
    fewest = 0
    if columns.delimiter in (None, "\t"):
        for text in Lines(path, BadRows("skip"), columns.encoding):
            bare = text.rstrip("\r\n")
            if bare.strip() and not bare.startswith(("# ", _DOCUMENT)):
                tabs = len(bare) - len(bare.rstrip("\t"))
                fewest = min(fewest or tabs, tabs)
                if not fewest:
                    break
    return fewest


class _Parser:
    """Lines to sentences. ``spoiled``: the sentence at hand has a bad line. ``ending``: of lines, not looked at."""

    def __init__(self, path: Path, columns: ConllColumns, bad: BadRows, tagged: bool | None) -> None:
        self.spoiled, self.ending = False, ""
        self._path, self._columns, self._bad, self._tagged = path, columns, bad, tagged
        self._delimiter = columns.delimiter
        self._width, self._documents = 0, 0
        self._tags_seen: set[str] = set()
        self._sentence = Sentence([], [], [], 0)

    def take(self, line: int, text: str) -> Sentence | None:
        """The sentence that ends at this line, if one does."""
        if not text.strip():
            return self.finish()
        if text.startswith(_DOCUMENT):
            ended = self.finish()
            self._documents += 1
            self._sentence.document = self._documents
            return ended
        if text.startswith("# ") and not self._sentence.words and not self.spoiled:
            fields = self._fields(text)
            looks_tagged = fields[-1] in self._tags_seen or _TAG.fullmatch(fields[-1])
            if len(fields) < 2 or len(fields) != self._width > 0 or not looks_tagged:
                return None  # a comment
        self._add(line, text)
        return None

    def finish(self) -> Sentence | None:
        """The sentence at hand, if there is one and it is whole."""
        ended, spoiled = self._sentence, self.spoiled
        self._sentence, self.spoiled = Sentence([], [], [], self._documents), False
        return ended if ended.words and not spoiled else None

    def _fields(self, text: str) -> list[str]:
        text = text.removesuffix(self.ending)
        tabs = "\t" in text if self._delimiter is None else self._delimiter == "\t"
        if tabs:
            return text.split("\t")
        # Not str.split(): a no-break space or an ideographic one may well be a word.
        return _BLANKS.split(text.strip(" \t")) if self._delimiter in (None, " ") else text.split(self._delimiter)

    def _add(self, line: int, text: str) -> None:
        if not self._width:
            self._delimiter = self._delimiter or ("\t" if "\t" in text.removesuffix(self.ending) else " ")
            self._width = len(self._fields(text))
            self._check_width(line)
        fields = self._fields(text)
        if len(fields) != self._width:
            mark = "tabs" if self._delimiter == "\t" else "blanks" if self._delimiter == " " else repr(self._delimiter)
            self._report(
                line,
                "ragged line",
                f"the line has {counted(len(fields), 'column')}, the file began with {self._width} (separated by "
                f"{mark}): {shorten(fields, limit=6)}",
                "" if self._tagged else RUNNING_TEXT,
            )
            return
        if self._has_tags:
            tag = fields[self._place(self._columns.tag)].strip()
            if not tag:
                self._report(line, "missing tag", f"no tag in column {self._columns.tag} of {fields}")
                return
            self._sentence.tags.append(tag)
            self._tags_seen.add(tag)
        self._sentence.words.append(fields[self._place(self._columns.word)])
        self._sentence.lines.append(line)

    @property
    def _has_tags(self) -> bool:
        return self._width > 1 if self._tagged is None else self._tagged

    def _place(self, number: int) -> int:
        return number - 1 if number > 0 else number

    def _check_width(self, line: int) -> None:
        """Whether the columns asked for are there; the first line decides for the whole file."""
        wanted = {"word": self._columns.word, **({"tag": self._columns.tag} if self._has_tags else {})}
        for what, number in wanted.items():
            if abs(number) > self._width:
                raise DataError(
                    f"{self._path}:{line}: the file has {counted(self._width, 'column')}, so there is no column "
                    f"{number} for the {what}"
                )
        places = {self._place(number) % self._width for number in wanted.values()}
        if len(places) < len(wanted):
            why = "one column only, where a word and its tag are expected. Separate them with a tab or a blank"
            if self._width > 1:
                same = f"column {places.pop() + 1} of {self._width} is named for the word and for the tag"
                why = f"{same}; name two different ones (--word-column, --tag-column)"
            raise DataError(f"{self._path}:{line}: {why}")

    def _report(self, line: int, kind: str, message: str, advice: str = "") -> None:
        self._bad.report(self._path, line, kind, message, advice)
        self.spoiled = True
