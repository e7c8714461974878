"""Every family and head against ``transformers``: outputs, losses, gradients, padded and packed, and saved again."""

from __future__ import annotations

from pathlib import Path

import pytest

from family_helpers import CASES, measure

#: Observed: below 3e-6.
LIMIT = 1e-5


@pytest.mark.parametrize(("shape", "head"), CASES)
def test_family(shape: str, head: str, tmp_path: Path) -> None:
    found = measure(shape, head, tmp_path)
    assert found.worst <= LIMIT, found
    assert found.round_trip
