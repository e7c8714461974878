"""Rows put together from texts: a single one as among many, and both as a plain list would have them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.tokenization.templates import BERT, ROBERTA, Template, assemble

CLS, SEP = 101, 102
texts = st.lists(st.integers(0, 99), max_size=9)
#: For each row: its texts, and how many tokens each of them keeps of those that it has, in tenths.
singles = st.lists(st.tuples(st.tuples(texts), st.tuples(st.integers(0, 10))), min_size=1, max_size=4)
pairs = st.lists(
    st.tuples(st.tuples(texts, texts), st.tuples(st.integers(0, 10), st.integers(0, 10))), min_size=1, max_size=4
)
Rows = Sequence[tuple[Sequence[list[int]], Sequence[int]]]


def expected(
    row: Sequence[list[int]], kept: Sequence[int], template: Template, *, specials: bool, from_left: bool
) -> tuple[list[int], list[int], int, int]:
    """Ids, segments, tokens before truncation, and the place behind the first [SEP]."""
    cut = [text[len(text) - keep :] if from_left else text[:keep] for text, keep in zip(row, kept, strict=True)]
    ids = [CLS, *cut[0], SEP] if specials else list(cut[0])
    second, segments = len(ids), [0] * len(ids)
    if len(cut) > 1:
        more = [*[SEP] * (template.between - 1), *cut[1], SEP] if specials else cut[1]
        ids += more
        segments += [int(template.segments)] * len(more)
    added = template.num_special(len(cut) > 1) if specials else 0
    return ids, segments, sum(map(len, row)) + added, second


@pytest.mark.parametrize("template", [BERT, ROBERTA])
@given(rows=st.one_of(singles, pairs), specials=st.booleans(), from_left=st.booleans())
def test_a_row_alone_and_among_others(template: Template, rows: Rows, specials: bool, from_left: bool) -> None:
    for some in (rows, *([row] for row in rows)):
        bodies, kept = [], []
        for place in range(len(some[0][0])):
            parts = [row[place] for row, _ in some]
            lengths = np.array([len(part) for part in parts], np.int64)
            bodies.append((np.array([token for part in parts for token in part], np.int32), lengths))
            kept.append(lengths * np.array([tenths[place] for _, tenths in some]) // 10)
        found = assemble(bodies, kept, (CLS, SEP) if specials else None, template=template, from_left=from_left)
        assert found.ids.dtype == np.int32
        assert found.token_type_ids.dtype == np.int8
        assert found.boundaries.dtype == found.num_tokens_before.dtype == np.int64
        for number, (row, _) in enumerate(some):
            keep = [int(each[number]) for each in kept]
            ids, types, before, second = expected(row, keep, template, specials=specials, from_left=from_left)
            assert found[number].tolist() == ids
            assert found.types(number).tolist() == types
            assert found.num_tokens_before[number] == before
            if len(row) > 1:
                assert found.seconds is not None
                assert found.seconds[number] - found.boundaries[number] == second
