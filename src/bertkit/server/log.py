"""All lines of a server's log are written here: as text, or with ``--log json`` as one JSON object a line."""

from __future__ import annotations

import contextlib
import json
import logging
import sys
import threading
import time
import traceback
from types import TracebackType
from typing import Any, Literal

from bertkit.server.settings import ServeSettings
from bertkit.system.console import say, set_sink

Level = Literal["info", "warning", "error"]


def write(settings: ServeSettings, level: Level, message: str, *, id: str | None = None, **facts: Any) -> None:
    """A line, or as text several. id: of the request that it is about; facts: further fields of JSON."""
    if settings.log == "json":
        put(json.dumps({"time": now(), "level": level, "id": id, "message": message.strip(), **facts}, default=str))
    else:
        say(message if id is None else f"{message} [{id}]")


def now() -> str:
    """The time as lines have it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def put(line: str) -> None:
    """A line as it is; a full disk stops no answer."""
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(line + "\n")


def fault(settings: ServeSettings, message: str, error: BaseException, *, id: str | None = None) -> None:
    """A fault of ours, with where it happened."""
    where = traced(error, texts=settings.log_texts)
    if settings.log == "json":
        write(settings, "error", message, id=id, traceback=where)
    else:
        write(settings, "error", message, id=id)
        say(where)


def traced(error: BaseException, *, texts: bool) -> str:
    """The traceback of an error and those behind it; messages, which may have texts of clients, with ``texts`` only."""
    if texts:
        return "".join(traceback.format_exception(error))
    parts: list[str] = []
    each: BaseException | None = error
    while each is not None:
        parts.append("".join(traceback.format_tb(each.__traceback__)) + type(each).__qualname__)
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return "\n".join([*reversed(parts), "(messages of errors may have texts of clients: --log-texts shows them)"])


def begin(settings: ServeSettings) -> None:
    """With ``--log json``: what else this process says, and what libraries log, becomes lines of JSON, too."""
    if settings.log != "json":
        return
    set_sink(lambda message: write(settings, "info", message))
    logging.captureWarnings(True)
    logging.basicConfig(handlers=[_Records(settings)], level=logging.WARNING, force=True)

    def unhandled(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        fault(settings, f"an unhandled {kind.__name__}", kind() if error is None else error)

    sys.excepthook = unhandled
    threading.excepthook = lambda found: unhandled(found.exc_type, found.exc_value, found.exc_traceback)


class _Records(logging.Handler):
    """Lines that libraries log."""

    def __init__(self, settings: ServeSettings) -> None:
        super().__init__()
        self._settings = settings

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        message = f"{record.name}: {record.getMessage()}"
        if error is not None:
            fault(self._settings, message, error)
        else:
            write(self._settings, "error" if record.levelno >= logging.ERROR else "warning", message)
