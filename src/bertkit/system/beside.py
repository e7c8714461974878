"""A function that another thread runs while this one goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

ResultT = TypeVar("ResultT")


class Beside(threading.Thread, Generic[ResultT]):
    """Begins at once; the process may end before it has ended.

    function: gets a function that says whether its result is no longer wanted, so that it may stop. What it raises is
        raised by :meth:`result`.
    """

    def __init__(self, function: Callable[[Callable[[], bool]], ResultT]) -> None:
        super().__init__(daemon=True)
        self._function, self._is_left = function, False
        self._found: ResultT
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._found = self._function(lambda: self._is_left)
        except BaseException as error:
            self._error = error

    def result(self) -> ResultT:
        """Wait for what the function returns."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._found

    def leave(self) -> None:
        """Wait for its end, not for its result."""
        self._is_left = True
        self.join()
