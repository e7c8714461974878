"""Lines of a document to sentences."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import cast

#: Widths, in characters, at which people and mail programs break lines.
_WRAP_WIDTHS = range(40, 121)
#: Fewer lines than these can look wrapped by chance.
_MIN_WRAPPED_LINES = 4

#: A full stop that ends a sentence without a space after it: CJK, and the danda of Indic scripts.
_FULL_STOP = re.compile(r"(?<=[。！？｡।॥])(?![。！？｡।॥」』”’）\)])")
#: Without one of these inside, a line is one sentence, and the splitter need not be asked.
_MAY_END = re.compile(r"[.!?…。！？｡।॥]\S*\s*\S")


def keep_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Each line is a sentence: white space at its ends goes, blank lines go."""
    return tuple(stripped for line in lines if (stripped := line.strip()))


def split_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Split the lines of one document into sentences with ``nupunkt``.

    A line is a paragraph: sentences do not cross its end, for headings and list items often have no full stop. Lines
    of text that was broken at a fixed width are joined first (:func:`is_hard_wrapped`). A pure function of ``lines``,
    so that it may run in another process than the reading of files.

    Args:
        lines: in order, with or without white space at their ends.

    Returns:
        The sentences without white space at their ends; none is blank.
    """
    paragraphs = keep_lines(lines)
    if is_hard_wrapped(paragraphs):
        paragraphs = (" ".join(paragraphs),)
    return tuple(sentence for paragraph in paragraphs for sentence in _split(paragraph))


def forget_words() -> None:
    """Empty what the splitter remembers of words and their surroundings, where it has been used.

    It keeps the first 65,536 of both that it meets, some 40 MB, so memory would grow with the corpus for a while. One
    of the two it can empty itself; a version that keeps the other elsewhere keeps it, and nothing but memory depends
    on it.
    """
    nupunkt = sys.modules.get("nupunkt")
    if nupunkt is None:
        return
    nupunkt.load("default").clear_decision_cache()
    remembered = getattr(sys.modules.get("nupunkt.core.tokens"), "_derived_cache", None)
    if isinstance(remembered, dict):
        remembered.clear()


def is_hard_wrapped(lines: Sequence[str]) -> bool:
    """True if the lines are one paragraph that was broken at a fixed width.

    The test is what defines such text: at every line end, the first word of the next line would not have fitted. The
    width is that of the longest line. Lines that are sentences or paragraphs of their own all but never pass it.
    """
    if len(lines) < _MIN_WRAPPED_LINES:
        return False
    width = max(len(line) for line in lines)
    if width not in _WRAP_WIDTHS:
        return False
    return all(len(line) + 1 + len(following.split(None, 1)[0]) > width for line, following in pairwise(lines))


def _split(paragraph: str) -> list[str]:
    if not _MAY_END.search(paragraph):
        return [paragraph]
    splitter = _splitter()
    parts = _FULL_STOP.split(paragraph)
    sentences = (sentence.strip() for part in parts if part.strip() for sentence in splitter(part))
    return [sentence for sentence in sentences if sentence]


@cache
def _splitter() -> Callable[[str], list[str]]:
    # Imported at the first use: it loads its model, which corpora of one sentence a line need not pay.
    import nupunkt

    return cast(Callable[[str], list[str]], nupunkt.sent_tokenize)
