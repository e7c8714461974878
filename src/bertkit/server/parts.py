"""A call on its way, in parts of a few items each: a large request is no single batch, and others get their turn."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from bertkit.server.calls import Answer, Call, Task
from bertkit.server.items import num_rows
from bertkit.server.open_model import Results
from bertkit.server.queue import Entry

#: Tasks of which an item has texts that are computed one by one with another text, and the name of those texts.
_SPREAD: Mapping[Task, str] = {"rerank": "documents", "similarity": "sentences"}
#: Where a message names the item that is wrong, and perhaps which of its documents.
_NAMED = re.compile(r"\b((?:text|question|query) )(\d+)((?: with its document )(\d+))?")


@dataclass(frozen=True, slots=True)
class Piece:
    """An item of a call, or some of its documents: those from ``first`` on of the item with this ``number``."""

    item: Any
    number: int
    first: int
    tokens: int


@dataclass(slots=True, eq=False)
class Work:
    """A call on its way.

    digest: of the call, for a cache; None: the answer is not kept.
    characters: of its texts.
    render: makes what the client gets; called in the worker's thread.
    spend: told how many tokens were computed for it, part by part, whether it is answered or not.
    waiter: who waits for the outcome.
    span: of the request, for a trace.
    entries: its parts in the queue. missing: how many of them are not computed yet.
    over: its outcome is known.
    compute, encode: seconds of its batches so far.
    """

    call: Call
    digest: bytes | None
    characters: int
    render: Callable[[Answer], Any]
    waiter: Any
    span: Any = None
    entries: list[Entry[Part]] = field(default_factory=list)
    missing: int = 0
    over: bool = False
    compute: float = 0.0
    encode: float = 0.0
    spend: Callable[[int], None] = lambda tokens: None

    def end(self) -> None:
        """Its outcome is known: nothing more of it is computed."""
        self.over = True
        self.drop()

    def drop(self) -> None:
        """Nobody waits for it: what of it still waits is not computed."""
        for entry in self.entries:
            entry.gone = True


@dataclass(slots=True, eq=False)
class Part:
    """Some pieces of a call, which are computed together. read: characters that are, about."""

    work: Work
    pieces: Sequence[Piece]
    read: int
    results: Results | None = None

    @property
    def items(self) -> list[Any]:
        """What the model is asked."""
        return [piece.item for piece in self.pieces]

    @property
    def rows(self) -> int:
        """How many texts that is: of a query one for each document."""
        call = self.work.call
        return sum(num_rows(piece.item, call.task, call.options) for piece in self.pieces)

    def renumbered(self, message: str) -> str:
        """A message about an item of this part, with the number that the item has in the whole call."""

        def of_call(found: re.Match[str]) -> str:
            number = int(found[2])
            if self.work.call.task == "similarity":  # the source is text 0, and its sentences follow
                return f"{found[1]}{number + self.pieces[0].first if number else 0}"
            if number >= len(self.pieces):
                return found[0]
            piece = self.pieces[number]
            document = "" if found[3] is None else f" with its document {int(found[4]) + piece.first}"
            return f"{found[1]}{piece.number}{document}"

        whole = self.pieces[0].number == self.pieces[0].first == 0
        return message if whole else _NAMED.sub(of_call, message, count=1)


def cut(call: Call, tokens_of: Callable[[Any], int], most: int, batch: int) -> list[list[Piece]]:
    """The items of a call in their order, in parts of at most so many tokens, or of one item.

    What fits into a ``batch`` is one part: cut, equal requests that come together would all end last. An item is whole,
    except that a query, or a source of similarity, may have its documents in several parts.
    """
    whole = [Piece(item, number, 0, tokens_of(item)) for number, item in enumerate(call.items)]
    if sum(piece.tokens for piece in whole) <= batch:
        return [whole]
    parts: list[list[Piece]] = []
    room = 0
    for piece in _pieces(whole, _SPREAD.get(call.task), tokens_of, most):
        if not parts or piece.tokens > room:
            parts.append([])
            room = most
        parts[-1].append(piece)
        room -= piece.tokens
    return parts


def _pieces(whole: Sequence[Piece], name: str | None, tokens_of: Callable[[Any], int], most: int) -> Iterator[Piece]:
    """Split items of more than ``most`` tokens by the texts in their field ``name``; other items stay whole."""
    for piece in whole:
        if name is None or piece.tokens <= most:
            yield piece
            continue
        item, number, first, used = piece.item, piece.number, 0, 0
        for place, text in enumerate(item[name]):
            size = tokens_of({**item, name: [text]})
            if used and used + size > most:
                yield Piece({**item, name: item[name][first:place]}, number, first, used)
                first, used = place, 0
            used += size
        yield Piece({**item, name: item[name][first:]}, number, first, used)


def joined(work: Work) -> Results:
    """The results of a call from those of its parts."""
    parts = [entry.payload for entry in work.entries]
    found = [part.results for part in parts if part.results is not None]
    encoding = sum(each.encoding for each in found)
    values = [value for each in found for value in each.values]
    tokens = [count for each in found for count in each.tokens]
    truncated = [cut for each in found for cut in each.truncated]
    pieces = [piece for part in parts for piece in part.pieces]
    if len(pieces) == len(work.call.items):
        return Results(values, tokens, truncated, encoding)
    shared = [count for each in found for count in each.shared] or [0] * len(pieces)
    whole = Results([], [], [], encoding)
    for _, places in groupby(range(len(pieces)), lambda place: pieces[place].number):
        own = list(places)
        if work.call.task == "rerank":
            hits = [{**hit, "index": hit["index"] + pieces[place].first} for place in own for hit in values[place]]
            best = sorted(hits, key=lambda hit: (-hit["score"], hit["index"]))
            whole.values.append(best[: work.call.options.get("top_k")])
        else:
            whole.values.append([number for place in own for number in values[place]])
        whole.tokens.append(sum(tokens[place] for place in own) - sum(shared[place] for place in own[1:]))
        whole.truncated.append(any(truncated[place] for place in own))
    return whole
