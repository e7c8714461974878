"""Labelled text that every Python has: sentences of the standard library's documentation, labelled by subject.

The files are read and parsed, never imported. The names of a subject's modules are taken out of its sentences, so that
no text says its own label; sentences that occur under two subjects are dropped; all sentences of one function or class
go to the same split.
"""

from __future__ import annotations

import ast
import csv
import random
import re
import sysconfig
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bertkit.errors import DataError

#: Subject -> modules and packages of the standard library (those that are absent from a Python are left out).
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
MIN_WORDS, MAX_WORDS = 6, 60
MIN_TEXTS = 50

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_PARAGRAPH = re.compile(r"\n\s*\n")
#: Examples, signatures, tables and field lists are not prose.
_NOT_PROSE = re.compile(r">>>|^\s*[:@|+=*-]|\(\.\.\.\)|->|::\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sentence:
    """One labelled text. ``owner`` is the module and object whose documentation it is from."""

    text: str
    label: str
    owner: str


def collect(library: Path | None = None) -> list[Sentence]:
    """All usable sentences, sorted by label, owner and place.

    Args:
        library: folder of the standard library; None means this Python's.

    Raises:
        DataError: there are no source files to read (a frozen or stripped Python).
    """
    library = library or Path(sysconfig.get_paths()["stdlib"])
    found: dict[str, list[Sentence]] = {}
    for label, modules in SUBJECTS.items():
        hidden = re.compile(rf"\b_*({'|'.join(_words_to_hide(label, modules))})s?\b", re.IGNORECASE)
        for module in modules:
            for path in _sources(library, module):
                name = path.relative_to(library).with_suffix("").as_posix().replace("/", ".")
                for sentence in _sentences(path, name, label, hidden):
                    found.setdefault(sentence.text.casefold(), []).append(sentence)
    kept = [same[0] for same in found.values() if len({sentence.label for sentence in same}) == 1]
    if len({sentence.label for sentence in kept}) < len(SUBJECTS) or len(kept) < MIN_TEXTS * len(SUBJECTS):
        raise DataError(
            f"{library} holds too little documentation ({len(kept)} sentences): this Python comes without the sources "
            "of its standard library. Use 'bertkit finetune csv' with a file of your own"
        )
    return kept


def split(
    sentences: list[Sentence], *, texts: int, dev_share: float, seed: int
) -> tuple[list[Sentence], list[Sentence]]:
    """A balanced sample cut into train and dev so that no object's documentation is in both.

    Args:
        sentences: what :func:`collect` found.
        texts: most sentences altogether, the same number of each label where there are enough.
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
    """Columns ``text``, ``label`` and ``source`` (where the sentence is from)."""
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["text", "label", "source"])
        rows.writerows([sentence.text, sentence.label, sentence.owner] for sentence in sentences)


def _words_to_hide(label: str, modules: tuple[str, ...]) -> list[str]:
    names = {module.strip("_") for module in modules} | set(label.split())
    names |= {name.rstrip("s") for name in names} | {name.removeprefix("py") for name in names}
    return sorted((re.escape(name) for name in names if len(name) > 1), key=len, reverse=True)


def _sources(library: Path, module: str) -> Iterator[Path]:
    if (library / f"{module}.py").is_file():
        yield library / f"{module}.py"
    elif (library / module).is_dir():
        paths = sorted((library / module).rglob("*.py"))
        yield from (path for path in paths if not {"test", "tests"} & set(path.relative_to(library).parts))


def _sentences(path: Path, name: str, label: str, hidden: re.Pattern[str]) -> Iterator[Sentence]:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # one odd file of somebody's Python is no reason to stop
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        documentation = ast.get_docstring(node)
        owner = name if isinstance(node, ast.Module) else f"{name}:{node.name}"
        for text in _prose(documentation or ""):
            words = hidden.sub(" ", text).split()
            if MIN_WORDS <= len(words) <= MAX_WORDS:
                yield Sentence(" ".join(words), label, owner)


def _prose(documentation: str) -> Iterator[str]:
    for paragraph in _PARAGRAPH.split(documentation):
        if not _NOT_PROSE.search(paragraph):
            yield from _SENTENCE_END.split(" ".join(paragraph.split()))
