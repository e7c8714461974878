"""Reports that a notebook shows as a terminal does."""

from __future__ import annotations

import html
from abc import abstractmethod
from typing import NoReturn

from bertkit.habit_table import no_attribute


class Rendered:
    """The base of results with a :meth:`render` for people."""

    __slots__ = ()

    @abstractmethod
    def render(self) -> str:
        """A few lines a person can read."""

    def __getattr__(self, name: str) -> NoReturn:
        raise no_attribute(self, "result.", name)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.render())}</pre>"
