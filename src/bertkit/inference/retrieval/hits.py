"""What a search finds."""

from __future__ import annotations

from typing import NamedTuple, NoReturn

from bertkit.habit_table import no_attribute


class Hits(list["Hit"]):
    """The texts that were found for a query, the nearest first; a notebook shows a table."""

    def __getattr__(self, name: str) -> NoReturn:
        raise no_attribute(self, "hits.", name)

    def _repr_html_(self) -> str:
        from bertkit.visualize.html_text import table

        rows = [hit.to_dict() for hit in self]
        names = list(dict.fromkeys(["score", "id", "text", "source", *(name for row in rows for name in row)]))
        return table(names, [tuple(row.get(name, "") for name in names) for row in rows])


class Hit(NamedTuple):
    """A text that was found.

    score: a cosine or dot product; by words that of BM25; by both see :mod:`bertkit.metrics.fusion`.
    more: of a passage of a document its ``heading``, the characters ``start`` and ``end`` of the document's text, and
        the ``page``; of a row of a table the columns that are shown.
    """

    id: str
    text: str
    source: str
    score: float
    more: dict[str, str | int] | None = None

    def to_dict(self) -> dict[str, str | int | float]:
        """All of it on one level."""
        return {**(self.more or {}), "id": self.id, "text": self.text, "source": self.source, "score": self.score}
