"""Vectors of sequences: as numpy makes them."""

from __future__ import annotations

from ctypes import addressof
from itertools import pairwise

import numpy as np
import pytest

from bertkit.engine.backend import Pack
from bertkit.engine.native.library import NativeErrorText, NativeLibrary
from bertkit.engine.native.native_encoder import POOLING, pool
from native_helpers import random_rows

LENGTHS = (3, 1, 40, 2, 700)


@pytest.mark.parametrize("width", [1, 7, 384])
@pytest.mark.parametrize("mode", POOLING)
def test_each_mode(native: NativeLibrary, mode: str, width: int) -> None:
    rows, starts = random_rows(width, *LENGTHS)
    found = pool(native, rows, starts.tolist(), (mode,))  # type: ignore[arg-type]
    ids = np.zeros(len(rows), np.int64)
    theirs = Pack(ids, ids, LENGTHS).pool(rows, (mode,))  # type: ignore[arg-type]
    if mode == "weightedmean" or width == 1:  # a product of matrices there, and another order of the sum
        np.testing.assert_allclose(found, theirs, atol=1e-6)
    else:
        np.testing.assert_array_equal(found, theirs)
    for vector, (start, end) in zip(found, pairwise(starts), strict=True):
        part = rows[start:end].astype(np.float64)
        weights = np.arange(1, len(part) + 1) / np.arange(1, len(part) + 1).sum()
        expected = {
            "cls": part[0], "lasttoken": part[-1], "max": part.max(0), "mean": part.mean(0),
            "mean_sqrt_len_tokens": part.sum(0) / np.sqrt(len(part)), "weightedmean": weights @ part,
        }  # fmt: skip
        np.testing.assert_allclose(vector, expected[mode], atol=3e-6)


def test_several_modes_and_skipped_rows(native: NativeLibrary) -> None:
    rows, starts = random_rows(5, 3, 4)
    found = pool(native, rows, starts.tolist(), ("cls", "weightedmean"), skipped=2)
    np.testing.assert_array_equal(found[:, :5], rows[[2, 5]])
    np.testing.assert_allclose(found[:, 5:], [rows[2], (rows[5] * 3 + rows[6] * 4) / 7], atol=1e-6)


@pytest.mark.parametrize("mode", ["max", "mean", "weightedmean"])
def test_what_is_not_a_number_stays_in_its_sequence(native: NativeLibrary, mode: str) -> None:
    rows, starts = random_rows(4, 3, 3)
    rows[1, 2] = np.nan
    found = pool(native, rows, starts.tolist(), (mode,))  # type: ignore[arg-type]
    assert np.isnan(found).tolist() == [[False, False, True, False], [False] * 4]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({0: 0}, "mode is 0, expected 1 to 6"), ({0: 7}, "mode is 7"), ({1: 0}, "num_sequences is 0"),
        ({2: None}, "starts is NULL"), ({3: None}, "rows is NULL"), ({6: None}, "result is NULL"),
        ({4: 2}, "sequence 1 has 2 rows, and 2 are skipped"), ({4: -1}, "skipped is -1"), ({5: 0}, "width is 0"),
        ({2: np.array([0, 3, 3], np.int32)}, "sequence 1 has 0 rows"),
        ({2: np.array([0, 3, 1], np.int32)}, "starts[2]"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_named_and_the_result_stays(
    native: NativeLibrary, changed: dict[int, object], told: str
) -> None:
    rows, starts = random_rows(4, 3, 2)
    result, error = np.full((2, 4), 7.0, np.float32), NativeErrorText()
    given = {0: 4, 1: 2, 2: starts, 3: rows, 4: 0, 5: 4, 6: result, **changed}
    passed = [each.ctypes.data if isinstance(each, np.ndarray) else each for each in given.values()]
    assert native.functions.bertkit_pool(*passed, addressof(error)) != 0
    assert told in error.text.decode()
    assert (result == 7.0).all()
