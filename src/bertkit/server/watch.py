"""What is told of what happens, for the metrics."""

from __future__ import annotations

from bertkit.server.calls import Answer
from bertkit.server.failures import Cause


class Watch:
    """By itself it notes nothing. Its methods are called by several threads."""

    def answer(self, task: str, answer: Answer) -> None:
        """A request was answered."""

    def batch(self, texts: int, tokens: int) -> None:
        """So many texts, of so many tokens in all, were computed together."""

    def rejected(self, cause: Cause) -> None:
        """A request, or a line of a bulk request, was not answered."""
