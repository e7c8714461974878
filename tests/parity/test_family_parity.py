"""Every family and head against ``transformers``: outputs, losses, gradients, padded, packed, in C, and saved again."""

from __future__ import annotations

from pathlib import Path

import pytest

from everyday import some
from family_helpers import CASES, EDGES, SHAPES, odd
from family_measures import CONTROLS, measure, wider_window
from parity_measures import LIMIT

#: Of each kind of model one head, another one for the next: the other heads are for the campaign.
HEADS = {shape: [head for other, head in CASES if other == shape] for shape in SHAPES}
ALWAYS = {(shape, heads[number % len(heads)]) for number, (shape, heads) in enumerate(HEADS.items())}


@pytest.mark.parametrize(("shape", "head"), some(CASES, ALWAYS))
def test_family(shape: str, head: str, tmp_path: Path) -> None:
    found = measure(shape, head, tmp_path)
    assert found.good, found


@pytest.mark.parametrize("shape", some(SHAPES, {"bert", "modernbert"}))
def test_odd_sizes(shape: str, tmp_path: Path) -> None:
    """One token, and the edges of ModernBERT's window; `benchmarks/families.py` has every head, and longer texts."""
    lengths = (*EDGES, 1) if SHAPES[shape][0] == "modernbert" else (130, 127, 1)
    found = measure(shape, "BertForMaskedLM", tmp_path, batches=((1,), lengths), **odd(shape))
    assert found.good, found


@pytest.mark.parametrize("control", some(CONTROLS, [*CONTROLS][::4]))
def test_the_comparison_can_fail(control: str, tmp_path: Path) -> None:
    assert CONTROLS[control](tmp_path) > 100 * LIMIT


def test_a_window_that_is_too_wide_is_no_other_where_it_holds_the_text(tmp_path: Path) -> None:
    assert wider_window(tmp_path, length=65) <= LIMIT
