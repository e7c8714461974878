"""Durations as people write them."""

from __future__ import annotations

import pytest

from bertkit.cli.amounts import seconds_of
from bertkit.errors import ConfigError


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("90", 90), ("90s", 90), ("20m", 1200), ("1h30m", 5400), ("1h 30m 15s", 5415), ("1.5h", 5400), ("0.5", 0.5),
        (" 2H ", 7200), ("1h30", 3630),
    ],
)  # fmt: skip
def test_durations(written: str, seconds: float) -> None:
    assert seconds_of(written) == seconds


@pytest.mark.parametrize("written", ["", "  ", "m", "20 min", "1d", "-5m", "30m1h", "nan", "inf", "1e3", "٣m "])
def test_what_is_no_duration(written: str) -> None:
    with pytest.raises(ConfigError, match="20m"):
        seconds_of(written)


@pytest.mark.parametrize("written", ["0", "0h0m", "0.0s"])
def test_no_time_at_all(written: str) -> None:
    with pytest.raises(ConfigError, match="above 0 seconds"):
        seconds_of(written)
