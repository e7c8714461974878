"""Texts that are damaged for T5 and BART: what was there can be told, and the proportions are the published ones."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.data.examples.denoising import Denoising, corrupt_spans, example_key, infill
from bertkit.errors import ConfigError, InputError
from bertkit.ragged import Ints

#: Descending, as in T5's vocabulary.
SENTINELS = range(32_099, 31_999, -1)
MASK = 50_264
RATES = st.builds(Denoising, st.floats(0.01, 0.99), st.floats(1, 12))


def restored(source: Sequence[int], target: Sequence[int]) -> list[int]:
    """The text: what follows each sentinel in the target in its place in the source."""
    spans: dict[int, list[int]] = {}
    for token in target:
        if token in SENTINELS:
            spans[token] = span = []
        else:
            span.append(token)
    return [token for part in source for token in spans.get(part, [part])]


def filled(source: Sequence[int], text: Sequence[int]) -> bool:
    """Whether the text is the source with some tokens, or none, in place of each mask."""
    parts: list[list[int]] = [[]]
    for token in source:
        if token == MASK:
            parts.append([])
        else:
            parts[-1].append(token)
    rest = list(text)
    if rest[: len(parts[0])] != parts[0] or (parts[-1] and rest[-len(parts[-1]) :] != parts[-1]):
        return False
    place = 0
    for part in parts:  # tokens of the text are distinct
        if part:
            if part[0] not in rest[place:]:
                return False
            place = rest.index(part[0], place)
            if rest[place : place + len(part)] != part:
                return False
            place += len(part)
    return len(parts) > 1 or rest == parts[0]


@given(st.integers(2, 300), st.integers(0, 2**40), RATES)
def test_t5_loses_nothing(length: int, seed: int, how: Denoising) -> None:
    text = np.arange(length)
    num_noise = min(max(round(how.rate * length), 1), length - 1)
    num_spans = min(max(round(num_noise / how.mean_span), 1), length - num_noise)
    if num_spans > len(SENTINELS):
        with pytest.raises(InputError, match=f"{num_spans} spans to replace, and there are 100 sentinels"):
            corrupt_spans(text, example_key(seed, 0, 0), SENTINELS, how)
        return
    found = corrupt_spans(text, example_key(seed, 0, 0), SENTINELS, how)
    source, target = found.source.tolist(), found.target.tolist()
    assert restored(source, target) == text.tolist()
    assert [token for token in source if token in SENTINELS] == list(SENTINELS[:num_spans])
    assert [token for token in target if token in SENTINELS] == list(SENTINELS[:num_spans])
    assert len(target) == num_noise + num_spans
    assert max(len(source), len(target)) <= length
    assert source[0] == 0
    assert source[-1] == SENTINELS[num_spans - 1]
    assert not any(a in SENTINELS and b in SENTINELS for a, b in itertools.pairwise(source))
    assert not any(a in SENTINELS and b in SENTINELS for a, b in itertools.pairwise(target))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(0, 2**40), RATES)
def test_bart_loses_nothing(sizes: list[int], seed: int, how: Denoising) -> None:
    bounds = np.cumsum([0, *sizes])
    sentences: list[Ints] = [np.arange(a, b) for a, b in itertools.pairwise(bounds)]
    text = list(range(bounds[-1]))
    for permute in (False, True):
        found = infill(sentences, example_key(seed, 1, 2), MASK, how, permute=permute)
        assert found.target.tolist() == text
        assert len(found.source) <= len(text)  # so no source is longer than the model reads
        kept = [token for token in found.source.tolist() if token != MASK]
        assert len(text) - len(kept) == max(round(how.rate * len(text)), 1)
        if not permute:
            assert kept == sorted(kept)
            assert filled(found.source.tolist(), text)
        else:  # a sentence stays together and in order
            numbers = np.searchsorted(bounds, kept, side="right")
            assert len(np.flatnonzero(np.diff(numbers))) == max(len(set(numbers.tolist())) - 1, 0)
            assert all((np.diff(np.array(kept)[numbers == number]) > 0).all() for number in set(numbers.tolist()))


@pytest.mark.slow
def test_proportions_of_t5() -> None:
    """15 % of the tokens in spans of 3 on average; all divisions of 3 spans are equally likely."""
    lengths: list[int] = []
    for index in range(400):
        target = corrupt_spans(np.arange(512), example_key(0, 0, index), SENTINELS).target
        marks = np.flatnonzero(target > 1000)
        lengths += (np.diff([*marks, len(target)]) - 1).tolist()
    assert sum(lengths) / (400 * 512) == pytest.approx(0.15, abs=0.001)
    assert np.mean(lengths) == pytest.approx(3.0, abs=0.05)
    seen: Counter[tuple[int, ...]] = Counter()
    for index in range(2000):  # 6 tokens in 3 spans: 10 divisions
        how = Denoising(0.3, 2.0)
        found = corrupt_spans(np.arange(20), example_key(1, 0, index), SENTINELS, how).target
        marks = np.flatnonzero(found > 1000)
        seen[tuple((np.diff([*marks, len(found)]) - 1).tolist())] += 1
    assert len(seen) == 10
    chi_squared = sum((count - 200) ** 2 / 200 for count in seen.values())
    assert chi_squared < 27.9  # 9 degrees of freedom, p = .001


def test_proportions_of_bart() -> None:
    """30 % of the tokens; spans as Poisson's distribution with mean 3 says, those of no tokens included."""
    lengths: Counter[int] = Counter()
    masks = 0
    for index in range(300):
        text = np.arange(1000)
        source = infill([text], example_key(0, 0, index), MASK, permute=False).source
        kept = source[source != MASK]
        assert len(kept) == 700
        masks += int((source == MASK).sum())
        inside = np.flatnonzero(source == MASK)
        for place in inside[(inside > 0) & (inside < len(source) - 1)]:
            if source[place - 1] != MASK and source[place + 1] != MASK:  # alone, so that its length can be told
                lengths[int(source[place + 1] - source[place - 1] - 1)] += 1
    assert masks / 300 == pytest.approx(100, abs=2)  # 300 tokens in spans of 3
    total = lengths.total()
    for length in range(8):
        share = math.exp(-3) * 3**length / math.factorial(length)
        assert lengths[length] / total == pytest.approx(share, abs=0.01)


@pytest.mark.slow
def test_sentences_in_any_order() -> None:
    """All six orders of three sentences, equally often."""
    seen: Counter[tuple[int, ...]] = Counter()
    for index in range(1200):
        sentences = [np.full(20, number) for number in range(3)]
        source = infill(sentences, example_key(3, 0, index), MASK).source
        order = dict.fromkeys(token for token in source.tolist() if token != MASK)
        if len(order) == 3:
            seen[tuple(order)] += 1
    assert len(seen) == 6
    mean = seen.total() / 6
    assert sum((count - mean) ** 2 / mean for count in seen.values()) < 20.5  # 5 degrees of freedom, p = .001


def test_examples_depend_on_seed_epoch_and_index_only() -> None:
    text = np.arange(200)
    keys = [example_key(*place) for place in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))]
    first = [corrupt_spans(text, key, SENTINELS).source.tolist() for key in keys]
    again = [corrupt_spans(text.astype(np.int32), key, SENTINELS).source.tolist() for key in reversed(keys)][::-1]
    assert first == again
    assert len({tuple(row) for row in first}) == 4
    assert len({tuple(infill([text], key, MASK).source.tolist()) for key in keys}) == 4


def test_the_shortest_texts() -> None:
    one = corrupt_spans(np.array([7]), 1, SENTINELS)
    assert (one.source.tolist(), one.target.tolist()) == ([7], [32_099])
    two = corrupt_spans(np.array([7, 8]), 1, SENTINELS)
    assert (two.source.tolist(), two.target.tolist()) == ([7, 32_099], [32_099, 8])
    masked = infill([np.array([7])], 1, MASK)
    assert masked.source.tolist()[-1] == MASK or masked.source.tolist()[0] == MASK
    assert masked.target.tolist() == [7]
    for nothing in ([], [np.empty(0, np.int64)]):
        with pytest.raises(InputError, match="no tokens"):
            infill(nothing, 1, MASK)
    with pytest.raises(InputError, match="no tokens"):
        corrupt_spans(np.empty(0, np.int64), 1, SENTINELS)


@pytest.mark.parametrize(("rate", "mean"), [(0.0, 3.0), (1.0, 3.0), (0.15, 0.5), (float("nan"), 3.0), (0.15, 101.0)])
def test_settings_are_checked(rate: float, mean: float) -> None:
    with pytest.raises(ConfigError, match="must be"):
        Denoising(rate, mean)
