"""``logging`` of ``transformers``: how much is said on standard error. bertkit has notes and progress, or neither."""

from __future__ import annotations

import logging as _standard
import sys

from bertkit.system.console import set_quiet

CRITICAL, FATAL, ERROR = _standard.CRITICAL, _standard.FATAL, _standard.ERROR
WARNING, WARN, INFO, DEBUG = _standard.WARNING, _standard.WARNING, _standard.INFO, _standard.DEBUG
_level = INFO


def set_verbosity(verbosity: int) -> None:
    """Show notes and progress at ``INFO`` and below, and neither above it. Applies to the calling thread only."""
    global _level
    _level = verbosity
    set_quiet(verbosity > INFO)


def get_verbosity() -> int:
    """What was set, at first ``INFO``."""
    return _level


def set_verbosity_error() -> None:
    """No notes."""
    set_verbosity(ERROR)


def set_verbosity_warning() -> None:
    """No notes: there are no warnings beside them."""
    set_verbosity(WARNING)


def set_verbosity_info() -> None:
    """Notes and progress."""
    set_verbosity(INFO)


def set_verbosity_debug() -> None:
    """Notes and progress: there is nothing below them."""
    set_verbosity(DEBUG)


def disable_progress_bar() -> None:
    """No progress, and no notes."""
    set_quiet(True)


def enable_progress_bar() -> None:
    """Progress and notes."""
    set_quiet(False)


def get_logger(name: str | None = None) -> _standard.Logger:
    """The logger of that name of the standard library."""
    return _standard.getLogger(name)


logging = sys.modules[__name__]
