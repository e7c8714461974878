"""Tokens that are found in a text before anything else is done to it, and never split: special and added ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from bertkit.tokenization.vocabulary import AddedToken

#: What counts as white space everywhere but in BERT: the property White_Space of Unicode.
SPACE = "\t\n\x0b\x0c\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"

_leading_space = re.compile(f"[{SPACE}]*")

#: ``text[start:end]``, and the token it is; None for text between such tokens, which is never empty.
Segment = tuple[int, int, AddedToken | None]


class WholeTokens:
    """Cuts texts at the tokens that are never split; of two that match at the same place the longer one wins.

    Tokens that are to be found in the normalized text are looked for after the others, as the ``tokenizers`` package
    does; where text is not normalized at all that is the whole difference.

    Args:
        tokens: those to find; :attr:`AddedToken.single_word` is not looked at.
    """

    def __init__(self, tokens: Iterable[AddedToken]) -> None:
        self._tokens = {token.content: token for token in tokens}
        rounds = [[token for token in self._tokens.values() if token.normalized == late] for late in (False, True)]
        self._rounds = [_pattern(some) for some in rounds if some]
        # Most texts have no "<" (or "[") at all, which is quicker to see than that no token matches.
        starts = {content[0] for content in self._tokens}
        self._sign = starts.pop() if len(starts) == 1 else ""

    def may_be_in(self, text: str) -> bool:
        """Whether it is worth while to look; quick."""
        return self._sign in text and any(pattern.search(text) for pattern in self._rounds)

    def split(self, text: str) -> list[Segment]:
        """The text as segments."""
        segments: list[Segment] = [(0, len(text), None)] if text else []
        for pattern in self._rounds:
            found: list[Segment] = []
            for start, end, token in segments:
                found += self._find(pattern, text, start, end) if token is None else [(start, end, token)]
            segments = found
        return segments

    def _find(self, pattern: re.Pattern[str], text: str, done: int, stop: int) -> Iterator[Segment]:
        for match in pattern.finditer(text, done, stop):
            token = self._tokens[match[0]]
            start, end = match.span()
            if token.lstrip:
                start = done + len(text[done:start].rstrip(SPACE))
            if token.rstrip and (space := _leading_space.match(text, end, stop)):
                end = space.end()
            if done < start:
                yield done, start, None
            yield max(start, done), end, token
            done = end
        if done < stop:
            yield done, stop, None


def _pattern(tokens: Iterable[AddedToken]) -> re.Pattern[str]:
    longest_first = sorted((token.content for token in tokens), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)))
