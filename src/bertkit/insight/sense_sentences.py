"""Sentences with a word of several senses: those that come with bertkit, or a file of one's own."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from bertkit.config.file_columns import Columns
from bertkit.errors import ConfigError, DataError, did_you_mean
from bertkit.system.paths import user_path
from bertkit.tasks.examples import place_of
from bertkit.tasks.reading.text_rows import read_texts

#: Most sentences of a file.
MOST_SENTENCES = 20_000


@dataclass(frozen=True, slots=True)
class SenseSentence:
    """A sentence, the sense that its word has, and where the word is: characters ``start : end``."""

    word: str
    sense: str
    sentence: str
    start: int
    end: int
    source: str


def read_sense_sentences(file: str | Path | None = None, words: list[str] | None = None) -> list[SenseSentence]:
    """The sentences of a file with the columns word, sense and sentence; None: 21 English words that come along.

    words: only these, in this order; None: all, in the order of the file.

    Raises:
        DataError: a column that is missing or a sentence without its word, with file and line; a word with one sense,
            a sense with one sentence, too many sentences or none.
        ConfigError: one of ``words`` that is not in the file.
    """
    if file is None:
        with as_file(files("bertkit.insight").joinpath("data", "senses.tsv")) as own:
            found = _read(own)
    else:
        found = _read(user_path(file))
    known = list(dict.fromkeys(each.word for each in found))
    for word in words or ():
        if word not in known:
            raise ConfigError(
                f"no sentences for the word {word!r}{did_you_mean(word, known)}; there are {', '.join(known)}"
            )
    if words:
        found = [each for word in dict.fromkeys(words) for each in found if each.word == word]
    for word in words or known:
        senses = Counter(each.sense for each in found if each.word == word)
        if len(senses) < 2:
            raise DataError(f"{file or 'the list'}: the word {word!r} has one sense, {next(iter(senses))!r}; give two")
        if few := [sense for sense, count in senses.items() if count < 2]:
            raise DataError(
                f"{file or 'the list'}: {word!r} in the sense {few[0]!r} has one sentence; give two or more"
            )
    return found


def _read(file: Path) -> list[SenseSentence]:
    _, rows = read_texts(file, Columns(text=("sentence",)))
    found = []
    for row in rows:
        where = place_of(str(file), row.line)
        word, sense = row.columns.get("word"), row.columns.get("sense")
        if not isinstance(word, str) or not isinstance(sense, str) or not word.strip() or not sense.strip():
            raise DataError(
                f"{where}: expected the columns word, sense and sentence, got word={word!r:.40} and sense={sense!r:.40}"
            )
        at = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", row.text, re.IGNORECASE)
        if at is None:
            raise DataError(f"{where}: the word {word!r} is not in the sentence {row.text!r:.80}, in this form")
        found.append(SenseSentence(word, sense, row.text, *at.span(), where))
        if len(found) > MOST_SENTENCES:
            raise DataError(f"{where}: more than {MOST_SENTENCES:,} sentences; give fewer")
    if not found:
        raise DataError(f"{file} has no sentences")
    return found
