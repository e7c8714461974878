"""Running text for ``bertkit demo``: the prose in the sources of the standard library.

That is: docstrings, longer comments, and the chapters of the language reference that ``help()`` shows. Files are read
and parsed, never imported. A document is a class with its methods, the functions of a module, or a chapter. All
documents of a file are either training text or held out, and repeated paragraphs are kept once, so that no held-out
text is seen in training.
"""

from __future__ import annotations

import ast
import random
import re
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bertkit.errors import DataError

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


@dataclass(frozen=True, slots=True)
class Prose:
    """One document: its file, relative to the library, and its paragraphs, each on one line."""

    source: str
    paragraphs: tuple[str, ...]

    @property
    def num_words(self) -> int:
        """Number of words separated by spaces."""
        return sum(paragraph.count(" ") + 1 for paragraph in self.paragraphs)


def collect_prose(library: Path | None = None, *, most: int | None = None) -> list[Prose]:
    """All documents, in the order of the files' names.

    Args:
        library: folder of the standard library; None means this Python's.
        most: stop after this many.

    Raises:
        DataError: there are no source files to read (a frozen or stripped Python).
    """
    library = library or Path(sysconfig.get_paths()["stdlib"])
    documents = list(islice(_read_library(library), most))
    if len(documents) < MIN_DOCUMENTS:
        raise DataError(
            f"{library} holds too little documentation ({len(documents)} documents): this Python comes without the "
            "sources of its standard library. Use the other commands with text of your own"
        )
    return documents


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


def hold_out(documents: Iterable[Prose], *, share: float, seed: int) -> tuple[list[Prose], list[Prose]]:
    """Split into training and held-out documents, keeping files whole.

    Args:
        documents: what :func:`collect_prose` found.
        share: approximate share of held-out words.
        seed: fixes the choice.
    """
    documents = list(documents)
    words: dict[str, int] = {}
    for document in documents:
        words[document.source] = words.get(document.source, 0) + document.num_words
    sources = sorted(words)
    random.Random(seed).shuffle(sources)
    wanted, held = share * sum(words.values()), set()
    for source in sources:
        if words[source] <= wanted:  # skip files larger than what is still wanted
            held.add(source)
            wanted -= words[source]
    train = [document for document in documents if document.source not in held]
    return train, [document for document in documents if document.source in held]


def write_text(path: Path, documents: Iterable[Prose]) -> None:
    """Write one paragraph per line and a blank line between documents, as 'bertkit prepare' reads it."""
    text = "\n\n".join("\n".join(document.paragraphs) for document in documents)
    path.write_text(text + "\n", encoding="utf-8")


def _documents(path: Path, place: str) -> Iterator[tuple[str, list[str]]]:
    """Source and raw texts of each document in one file."""
    try:
        source = path.read_bytes()
        tree = ast.parse(source)
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
    yield place, list(_comments(source.decode("utf-8", "replace")))


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
    """Names and texts in the dictionary that the file consists of."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield str(key.value), value.value


def _comments(source: str) -> Iterator[str]:
    """Blocks of whole-line comments."""
    lines: list[str] = []
    for line in source.splitlines():
        text = line.strip()
        if text.startswith("#"):
            lines.append(text.lstrip("#").removeprefix(" "))
        elif lines:
            yield "\n".join(lines)
            lines = []
    if lines:
        yield "\n".join(lines)


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
