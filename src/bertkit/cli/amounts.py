"""Amounts of memory and durations, as they are typed on a command line."""

from __future__ import annotations

import re

from bertkit.errors import ConfigError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", re.IGNORECASE | re.ASCII)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


def bytes_of(amount: str) -> int:
    """``500MB``, ``4GB``, ``1.5 GiB`` or a number of bytes; K, M, G, T count in powers of 1,024."""
    found = _SIZE.fullmatch(amount.strip())
    if found is None:
        raise ConfigError(f"{amount!r} is not an amount of memory; write for example 500MB or 4GB")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def seconds_of(duration: str) -> float:
    """``90``, ``90s``, ``20m``, ``1h30m``, ``1.5h`` or ``1h 30m 15s``; a number without unit is seconds."""
    found = _DURATION.fullmatch("".join(duration.split()))
    if found is None or not any(found.groups()):
        raise ConfigError(f"{duration!r} is not a duration; write for example 90, 90s, 20m or 1h30m")
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    total = 3600 * hours + 60 * minutes + seconds
    if total <= 0:
        raise ConfigError(f"a duration must be above 0 seconds, got {duration!r}")
    return total
