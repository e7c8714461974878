"""Labelled sentences from the documentation of the standard library; the labels are subjects.

The names of a subject's modules are removed from its sentences, so that no text gives away its label. Sentences that
occur under two subjects are dropped. All sentences of one paragraph go to one split.
"""

from __future__ import annotations

import csv
import random
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from bertkit.cli.demo.demo_prose import collect_prose
from bertkit.errors import DataError

#: Subject -> modules and packages of the standard library; those that a Python lacks are skipped.
SUBJECTS: dict[str, tuple[str, ...]] = {
    "concurrency": ("asyncio", "concurrent", "multiprocessing", "threading", "queue", "selectors", "subprocess"),
    "files": ("pathlib", "shutil", "tempfile", "zipfile", "tarfile", "glob", "gzip", "posixpath", "_pyio", "os"),
    "mail": ("email", "mailbox", "smtplib", "imaplib", "poplib"),
    "markup": ("xml", "html", "plistlib"),
    "network": ("urllib", "http", "socket", "socketserver", "ftplib", "xmlrpc", "ssl", "ipaddress"),
    "numbers": ("_pydecimal", "fractions", "statistics", "random", "numbers", "colorsys"),
    "program code": ("ast", "inspect", "dis", "tokenize", "importlib", "typing", "pydoc", "dataclasses", "types"),
    "testing": ("unittest", "doctest"),
}
#: Words of the shortest and of the longest sentence; sentences that every subject must have.
MIN_WORDS, MAX_WORDS, MIN_TEXTS = 6, 60, 50

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Sentence:
    """One labelled text. ``owner`` is the paragraph that it is from."""

    text: str
    label: str
    owner: str


def collect(library: Path | None = None) -> list[Sentence]:
    """All usable sentences, in the order of the library's files.

    Args:
        library: folder of the standard library; None means this Python's.

    Raises:
        DataError: there are no source files to read (a frozen or stripped Python).
    """
    subjects = {module: label for label, modules in SUBJECTS.items() for module in modules}
    hidden = {label: _names_of(label, modules) for label, modules in SUBJECTS.items()}
    found: dict[str, list[Sentence]] = {}
    for number, document in enumerate(collect_prose(library)):
        label = subjects.get(re.split(r"[/.]", document.source)[0])
        if label is None:
            continue
        for place, paragraph in enumerate(document.paragraphs):
            for text in _SENTENCE_END.split(paragraph):
                words = hidden[label].sub(" ", text).split()
                if MIN_WORDS <= len(words) <= MAX_WORDS:
                    sentence = Sentence(" ".join(words), label, f"{document.source}#{number}.{place}")
                    found.setdefault(sentence.text.casefold(), []).append(sentence)
    kept = [same[0] for same in found.values() if len({sentence.label for sentence in same}) == 1]
    if len({sentence.label for sentence in kept}) < len(SUBJECTS) or len(kept) < MIN_TEXTS * len(SUBJECTS):
        raise DataError(
            f"the documentation of this Python's standard library is too short ({len(kept)} sentences); use "
            "'bertkit finetune csv' with a file of your own"
        )
    return kept


def split(
    sentences: list[Sentence], *, texts: int, dev_share: float, seed: int
) -> tuple[list[Sentence], list[Sentence]]:
    """A balanced sample, cut into train and dev so that no paragraph is in both.

    Args:
        sentences: what :func:`collect` found.
        texts: maximum number of sentences, the same for each label if there are enough.
        dev_share: share of each label that goes to dev.
        seed: fixes the sample and the cut.
    """
    by_label: dict[str, dict[str, list[Sentence]]] = defaultdict(lambda: defaultdict(list))
    for sentence in sentences:
        by_label[sentence.label][sentence.owner].append(sentence)
    train: list[Sentence] = []
    dev: list[Sentence] = []
    for label in sorted(by_label):
        owners = sorted(by_label[label])
        random.Random(f"{seed}/{label}").shuffle(owners)
        chosen = [sentence for owner in owners for sentence in by_label[label][owner]][: texts // len(by_label)]
        dev_owners = {sentence.owner for sentence in chosen[: round(len(chosen) * dev_share)]}
        dev += [sentence for sentence in chosen if sentence.owner in dev_owners]
        train += [sentence for sentence in chosen if sentence.owner not in dev_owners]
    random.Random(seed).shuffle(train)
    return train, dev


def write_csv(path: Path, sentences: list[Sentence]) -> None:
    """Columns ``text``, ``label`` and ``source`` (the paragraph)."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label", "source"])
        rows.writerows([sentence.text, sentence.label, sentence.owner] for sentence in sentences)


def _names_of(label: str, modules: tuple[str, ...]) -> re.Pattern[str]:
    """Matches the label and the names of its modules, longest first."""
    names = {module.strip("_") for module in modules} | set(label.split())
    names |= {name.rstrip("s") for name in names} | {name.removeprefix("py") for name in names}
    longest_first = sorted((re.escape(name) for name in names if len(name) > 1), key=len, reverse=True)
    return re.compile(rf"\b_*({'|'.join(longest_first)})s?\b", re.IGNORECASE)
