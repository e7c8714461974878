"""The length of turns comes back when the last block ends, whichever that is."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from bertkit.system.short_turns import TURN_S, short_turns


@pytest.fixture(autouse=True)
def usual() -> Iterator[float]:
    found = sys.getswitchinterval()
    yield found
    sys.setswitchinterval(found)


def test_blocks_that_overlap(usual: float) -> None:
    first, second = ExitStack(), ExitStack()
    assert usual > 2 * TURN_S
    first.enter_context(short_turns())
    assert sys.getswitchinterval() == pytest.approx(TURN_S, rel=0.01)
    second.enter_context(short_turns())
    first.close()
    assert sys.getswitchinterval() == pytest.approx(TURN_S, rel=0.01)
    second.close()
    assert sys.getswitchinterval() == pytest.approx(usual)


def test_shorter_turns_and_errors() -> None:
    sys.setswitchinterval(TURN_S / 2)
    with pytest.raises(AttributeError), short_turns():
        sys.setswitchinterval(sys.getswitchinterval() + sys.no_such_name)
    with short_turns():
        assert sys.getswitchinterval() == pytest.approx(TURN_S / 2, rel=0.05)
    assert sys.getswitchinterval() == pytest.approx(TURN_S / 2, rel=0.05)
