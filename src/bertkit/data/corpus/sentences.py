"""Split the lines of a document into sentences."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise
from typing import cast

#: Widths in characters at which people and mail programs wrap lines.
_WRAP_WIDTHS = range(40, 121)
#: Fewer lines may look wrapped by chance.
_MIN_WRAPPED_LINES = 4

#: Full stops that end a sentence without a following space: CJK, and the danda of Indic scripts.
_FULL_STOP = re.compile(r"(?<=[。！？｡।॥])(?![。！？｡।॥」』”’）\)])")
#: A line without one of these is a single sentence; the splitter is not called.
_MAY_END = re.compile(r"[.!?…。！？｡।॥]\S*\s*\S")


def keep_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Each line as a sentence, stripped; blank lines are dropped."""
    return tuple(stripped for line in lines if (stripped := line.strip()))


def split_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Split the lines of one document into sentences with ``nupunkt``: a pure function of ``lines``.

    A line is a paragraph, and sentences never cross its end, since headings and list items often lack a full stop.
    Lines wrapped at a fixed width (:func:`is_hard_wrapped`) are joined first.

    Returns:
        The sentences, stripped; none is blank.
    """
    paragraphs = keep_lines(lines)
    if is_hard_wrapped(paragraphs):
        paragraphs = (" ".join(paragraphs),)
    return tuple(sentence for paragraph in paragraphs for sentence in _split(paragraph))


def forget_words() -> None:
    """Clear the splitter's caches of words and contexts, if it has been used.

    Each grows to 65,536 entries, 40 MB together. One has no public way to clear it; if another version of ``nupunkt``
    keeps it elsewhere, it simply stays.
    """
    nupunkt = sys.modules.get("nupunkt")
    if nupunkt is None:
        return
    nupunkt.load("default").clear_decision_cache()
    remembered = getattr(sys.modules.get("nupunkt.core.tokens"), "_derived_cache", None)
    if isinstance(remembered, dict):
        remembered.clear()


def is_hard_wrapped(lines: Sequence[str]) -> bool:
    """Whether the lines are one paragraph wrapped at a fixed width.

    By the definition of wrapping: at no line end would the first word of the next line have fitted within the longest
    line. Independent sentences or paragraphs practically never pass.
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
    # Imported on first use, because it loads a model that corpora with one sentence per line do not need.
    import nupunkt

    return cast(Callable[[str], list[str]], nupunkt.sent_tokenize)
