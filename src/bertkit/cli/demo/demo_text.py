"""Text for ``bertkit demo``, from the documentation of the standard library: running text, and labelled sentences.

Running text: docstrings, and the chapters of the language reference that ``help()`` shows. Files are read and parsed,
never imported. A document is a class with its methods, the functions of a module, or a chapter. Files are held out
whole, and repeated paragraphs are kept once, so that no held-out text is seen in training.

Labelled sentences: the labels are subjects. The names of a subject's modules are removed from its sentences, so that
no text gives away its label. Sentences that occur under two subjects are dropped. All sentences of one paragraph go to
one split.
"""

from __future__ import annotations

import ast
import csv
import random
import re
import sysconfig
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from bertkit.errors import DataError, counted

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
#: Sentences that every subject must have, and words that a sentence may have.
MIN_TEXTS, SENTENCE_WORDS = 50, range(6, 61)
#: Words of the shortest document: enough for two sentences.
MIN_WORDS = 30
#: With fewer documents, a Python has no sources to read.
MIN_DOCUMENTS = 200
#: Folders without prose about Python: tests, tables, third-party packages.
_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "encodings", "lib2to3"}
_CHAPTERS = "pydoc_data/topics.py"

_PARAGRAPH = re.compile(r"\n\s*\n")
_ROLE = re.compile(r":[\w:+-]+:`~?([^`<]*)[^`]*`")
_MARKUP = re.compile(r"``?|\*\*?(?=\w)|(?<=\w)\*\*?|(?<=\s)\"(?=[\w.]+\")|(?<=[\w.)])\"(?=\s|[,.;:)])")
_CODE = re.compile(r">>>|^\s*[@|+=]|::=|->|\w\(\)? ?=|[{}\\]|\S{40}", re.MULTILINE)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_SIGN = re.compile(r"[^\w ]|[\d_]")
_NUMBERED = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")


class Prose(NamedTuple):
    """One document: its file, relative to the library, and its paragraphs, each on one line."""

    source: str
    paragraphs: tuple[str, ...]

    @property
    def num_words(self) -> int:
        """Number of words separated by spaces."""
        return sum(paragraph.count(" ") + 1 for paragraph in self.paragraphs)


class Sentence(NamedTuple):
    """One labelled text. ``owner`` is the paragraph that it is from."""

    text: str
    label: str
    owner: str


def collect_prose(library: Path | None = None, *, most: int | None = None) -> list[Prose]:
    """The first documents of this Python's library, or that in a folder, in the order of its files; None means all."""
    library = library or Path(sysconfig.get_paths()["stdlib"])
    documents = list(islice(_read_library(library), most))
    if len(documents) < MIN_DOCUMENTS:
        raise DataError(
            f"{library} holds too little documentation ({counted(len(documents), 'document')}): this Python comes "
            "without the sources of its standard library. Use the other commands with text of your own"
        )
    return documents


def hold_out(documents: list[Prose], *, seed: int) -> tuple[list[Prose], list[Prose]]:
    """Training and held-out documents, the latter those of about a tenth of the files."""
    held_out = [zlib.crc32(f"{seed}/{document.source}".encode()) % 10 == 0 for document in documents]
    train = [document for document, held in zip(documents, held_out, strict=True) if not held]
    return train, [document for document, held in zip(documents, held_out, strict=True) if held]


def write_text(path: Path, documents: list[Prose]) -> None:
    """Write one paragraph per line and a blank line between documents, as 'bertkit prepare' reads it."""
    text = "\n\n".join("\n".join(document.paragraphs) for document in documents)
    path.write_text(text + "\n", encoding="utf-8")


def collect_sentences(library: Path | None = None) -> list[Sentence]:
    """All usable sentences of this Python's library, or that in a folder, in the order of its files."""
    subjects = {module: label for label, modules in SUBJECTS.items() for module in modules}
    hidden = {label: _names_of(label, modules) for label, modules in SUBJECTS.items()}
    found: dict[str, list[Sentence]] = defaultdict(list)
    for number, document in enumerate(collect_prose(library)):
        label = subjects.get(re.split(r"[/.]", document.source)[0])
        if label is None:
            continue
        for place, paragraph in enumerate(document.paragraphs):
            for text in _SENTENCE_END.split(paragraph):
                words = hidden[label].sub(" ", text).split()
                if len(words) in SENTENCE_WORDS:
                    sentence = Sentence(" ".join(words), label, f"{document.source}#{number}.{place}")
                    found[sentence.text.casefold()].append(sentence)
    kept = [same[0] for same in found.values() if len({sentence.label for sentence in same}) == 1]
    if len({sentence.label for sentence in kept}) < len(SUBJECTS) or len(kept) < MIN_TEXTS * len(SUBJECTS):
        raise DataError(
            f"the documentation of this Python's standard library is too short ({len(kept)} sentences); use "
            "'bertkit finetune csv' with a file of your own"
        )
    return kept


def split_sentences(sentences: list[Sentence], *, texts: int, seed: int) -> tuple[list[Sentence], list[Sentence]]:
    """Train and dev: so many sentences in all, as many of each label; about a quarter of the paragraphs are dev."""
    shuffled = random.Random(seed).sample(sentences, len(sentences))
    taken: Counter[str] = Counter()
    train: list[Sentence] = []
    dev: list[Sentence] = []
    for sentence in shuffled:
        if taken[sentence.label] < texts // len(SUBJECTS):
            taken[sentence.label] += 1
            (train if zlib.crc32(f"{seed}/{sentence.owner}".encode()) % 4 else dev).append(sentence)
    return train, dev


def write_csv(path: Path, sentences: list[Sentence]) -> None:
    """Columns ``text``, ``label`` and ``source`` (the paragraph)."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label", "source"), *sentences])


def _names_of(label: str, modules: tuple[str, ...]) -> re.Pattern[str]:
    names = {module.strip("_") for module in modules} | set(label.split())
    names |= {name.rstrip("s") for name in names} | {name.removeprefix("py") for name in names}
    longest_first = sorted((re.escape(name) for name in names if len(name) > 1), key=len, reverse=True)
    return re.compile(rf"\b_*({'|'.join(longest_first)})s?\b", re.IGNORECASE)


def _read_library(library: Path) -> Iterator[Prose]:
    seen: set[str] = set()
    for path in sorted(library.rglob("*.py")):
        place = path.relative_to(library)
        if _LEFT_OUT & set(place.parts[:-1]):
            continue
        for source, texts in _documents(path, place.as_posix()):
            document = Prose(source, tuple(new for text in texts for new in _prose(text, seen)))
            if document.num_words >= MIN_WORDS:
                yield document


def _documents(path: Path, place: str) -> Iterator[tuple[str, list[str]]]:
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # one odd file is no reason to stop
    if place == _CHAPTERS:
        for name, text in _chapters(tree):
            yield f"{place}:{name}", [text]
        return
    owners: dict[str, list[str]] = {"": []}
    _gather(tree, "", owners)
    for texts in owners.values():
        yield place, texts


def _gather(node: ast.AST, owner: str, owners: dict[str, list[str]]) -> None:
    """Collect the docstrings below ``node``, in order, by their class (``""``: none)."""
    if isinstance(node, _DOCUMENTED) and (text := ast.get_docstring(node)):
        owners[owner].append(text)
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            name = f"{owner}.{child.name}"
            owners.setdefault(name, [])
            _gather(child, name, owners)
        elif isinstance(child, ast.stmt | ast.ExceptHandler):
            _gather(child, owner, owners)


def _chapters(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield str(key.value), value.value


def _prose(text: str, seen: set[str]) -> Iterator[str]:
    """Paragraphs of sentences, each on one line, without mark-up and without those in ``seen``."""
    for paragraph in _PARAGRAPH.split(text):
        if _CODE.search(paragraph):
            continue
        plain = _NUMBERED.sub("", " ".join(_MARKUP.sub("", _ROLE.sub(r"\1", paragraph)).split()))
        if plain.count(" ") < 5 or plain[-1] not in ".!?:)" or len(_SIGN.findall(plain)) > 0.1 * len(plain):
            continue
        if plain.casefold() not in seen:
            seen.add(plain.casefold())
            yield plain
