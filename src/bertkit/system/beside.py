"""A function that another thread runs while this one goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

ResultT = TypeVar("ResultT")


class Beside(threading.Thread, Generic[ResultT]):
    """Begins at once. What the function raises is raised by :meth:`result`; a process may end before it has ended."""

    def __init__(self, function: Callable[[], ResultT]) -> None:
        super().__init__(daemon=True)
        self._function = function
        self._found: ResultT
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._found = self._function()
        except BaseException as error:
            self._error = error

    def result(self) -> ResultT:
        """Wait for what the function returns."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._found
