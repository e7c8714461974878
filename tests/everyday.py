"""Which cases of a parametrized test ``make test`` runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def some(every: Iterable[Any], kept: Collection[Any]) -> list[Any]:
    """All cases; those that are not in ``kept`` are for the campaign. A tuple has the values of several arguments."""
    given = [(each, each if isinstance(each, tuple) else (each,)) for each in every]
    return [pytest.param(*values, marks=[] if each in kept else pytest.mark.campaign) for each, values in given]
