"""Pre-training examples: the rules in plain Python beside the vectorised index, and what must always hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertkit.data.counter_random import below, bits, stream, uniform
from bertkit.data.examples import pairs
from bertkit.data.examples.pairs import ExampleSpans, Rules, Sentences
from bertkit.data.examples.pretrain_batches import build_index
from bertkit.errors import ConfigError, DataError
from pretrain_helpers import ToyTokens, random_tokens

OBJECTIVES = ("mlm+nsp", "mlm", "mlm+sop")
Example = tuple[int, ...]

# ------------------------------------------------------------------------------------------------- draws


def test_bits_are_splitmix64() -> None:
    """The first numbers from seed 0 and seed 1234567, as published with the reference implementation."""
    assert [hex(x) for x in bits(0, np.arange(1, 4))] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]
    assert bits(1234567, np.arange(1, 3)).tolist() == [6457827717110365317, 3203168211198807973]


def test_draws_are_uniform_and_streams_unrelated() -> None:
    at = np.arange(100_000)
    first, second = uniform(stream(1, "a"), at), uniform(stream(1, "a", 1), at)
    for draws in (first, second, uniform(stream(2, "a"), at), uniform(bits(stream(1, "b"), at), np.zeros(1))):
        counts = np.histogram(draws, bins=100, range=(0, 1))[0]
        assert ((counts - 1000) ** 2 / 1000).sum() < 161  # chi-squared, 99 degrees of freedom, p = 0.0001
        assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.0125  # 4 standard errors
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.0125
    counts = np.bincount(below(stream(1, "c"), at, 7), minlength=7)
    assert len(counts) == 7
    assert ((counts - 1e5 / 7) ** 2 / (1e5 / 7)).sum() < 28  # 6 degrees of freedom, p = 0.0001


def test_draws_need_no_neighbours_and_take_any_seed() -> None:
    key = stream(-3, "x", 2**70)
    at = np.array([5, 0, 2**62])
    assert bits(key, at).tolist() == [int(bits(key, np.array([one]))[0]) for one in at]
    assert below(key, at, np.array([1, 2, 3]))[0] == 0


# ------------------------------------------------------------------------------------- the rules, in plain Python


class Reference:
    """The rules of :mod:`bertkit.data.examples.pairs` for one chunk at a time, on lists."""

    def __init__(self, tokens: ToyTokens, max_seq_length: int, short: float, seed: int, epoch: int) -> None:
        self.documents: list[list[tuple[int, int]]] = []
        bounds = tokens.sentence_boundaries.tolist()
        for first, end in zip(tokens.document_boundaries[:-1], tokens.document_boundaries[1:], strict=True):
            self.documents.append([(bounds[s], bounds[s + 1]) for s in range(first, end)])
        self.max_seq_length, self.short, self.seed, self.epoch = max_seq_length, short, seed, epoch

    def chance(self, name: str, place: int) -> float:
        return float(uniform(stream(self.seed, name, self.epoch), np.array([place]))[0])

    def number(self, name: str, place: int, bound: int) -> int:
        return int(below(stream(self.seed, name, self.epoch), np.array([place]), bound)[0])

    def target(self, place: int, room: int) -> int:
        return 2 + self.number("target", place, room - 1) if self.chance("short", place) < self.short else room

    def place(self, own: int, sentence: int) -> int:
        return sentence + sum(len(document) for document in self.documents[:own])

    def pairs(self, objective: str) -> list[Example]:
        room = self.max_seq_length - 3
        out = []
        for own, document in enumerate(self.documents):
            i = 0
            while i < len(document):
                place = self.place(own, i)
                target = self.target(place, room)
                j = i
                while j < len(document) and (j == i or document[j - 1][1] - document[i][0] < target):
                    j += 1
                split = i + 1 + (self.number("split", place, j - i - 1) if j - i > 1 else 0)
                if objective == "mlm+nsp" and (j - i == 1 or self.chance("random", place) < 0.5):
                    other = self.number("other", place, len(self.documents) - 1)
                    elsewhere = self.documents[other + (other >= own)]
                    k = self.number("begin", place, len(elsewhere))
                    stop = k
                    missing = target - (document[split - 1][1] - document[i][0])
                    while stop < len(elsewhere) and (stop == k or elsewhere[stop - 1][1] - elsewhere[k][0] < missing):
                        stop += 1
                    first, second = (document[i][0], document[split - 1][1]), (elsewhere[k][0], elsewhere[stop - 1][1])
                    out.append((document[i][0], *self.cut(first, second, room), 1))
                    i = split
                    continue
                start, end = document[i][0], document[j - 1][1]
                middle = document[split - 1][1] if j - i > 1 else 0
                if j - i == 1 and objective == "mlm+sop":
                    i = j
                    if end - start == 1:
                        continue
                    middle = start + 1 + self.number("inside", place, end - start - 1)
                i = j
                swapped = objective == "mlm+sop" and self.chance("swap", place) < 0.5
                a, b = (start, middle), (middle, end)
                out.append((start, *(self.cut(b, a, room) if swapped else self.cut(a, b, room)), int(swapped)))
        return out

    @staticmethod
    def cut(a: tuple[int, int], b: tuple[int, int], room: int) -> tuple[tuple[int, int], tuple[int, int]]:
        while a[1] - a[0] + b[1] - b[0] > room:
            if a[1] - a[0] > b[1] - b[0]:
                a = (a[0] + 1, a[1])
            else:
                b = (b[0], b[1] - 1)
        return a, b

    def full_sentences(self) -> list[Example]:
        room = self.max_seq_length - 2
        out = []
        spans = [(*span, own) for own, document in enumerate(self.documents) for span in document]
        i, at = 0, 0
        while i < len(spans):
            target = self.target(at, room)
            j, used, end = i, 0, at
            while j < len(spans):
                more = spans[j][1] - end + (spans[j][2] - spans[j - 1][2] if j > i else 0)
                if used + more > target:
                    break
                used, end, j = used + more, spans[j][1], j + 1
            if j == i:
                end = at + target
            out.append((at, (at, end), (end, end), 0))
            i, at = j, end
        return out

    def examples(self, objective: str) -> list[Any]:
        """``(span of A, span of B, label)`` in their shuffled order."""
        made = self.full_sentences() if objective == "mlm" else self.pairs(objective)
        key = stream(self.seed, "shuffle", self.epoch)
        return [example[1:] for example in sorted(made, key=lambda x: int(bits(key, np.array([x[0]]))[0]))]


def spans(index: ExampleSpans) -> list[Any]:
    """The index as the reference writes it."""
    columns = index.first_start, index.first_length, index.second_start, index.second_length, index.label
    return [
        ((a, a + na), (b, b + nb), label)
        for a, na, b, nb, label in zip(*(column.tolist() for column in columns), strict=True)
    ]


def make(tokens: ToyTokens, **settings: Any) -> ExampleSpans:
    """All examples of an epoch, in their order."""
    index = build_index(Sentences.of(tokens), Rules(**{"max_seq_length": 32, **settings}))
    return index.take(np.arange(len(index)))


corpora = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=3, max_size=8)


@pytest.mark.slow
@given(corpora, st.sampled_from(OBJECTIVES), st.integers(5, 60), st.sampled_from([0.0, 0.3, 1.0]), st.integers(0, 99))
def test_index_is_what_the_plain_rules_give(
    documents: list[list[int]], objective: str, max_seq_length: int, short: float, seed: int
) -> None:
    tokens = ToyTokens.of(documents)
    expected = Reference(tokens, max_seq_length, short, seed, 2).examples(objective)
    if not expected:
        return
    index = make(tokens, objective=objective, max_seq_length=max_seq_length, short_seq_prob=short, seed=seed, epoch=2)
    assert spans(index) == expected
    assert index.lengths.max() <= max_seq_length


# ---------------------------------------------------------------------------------------------- what must always hold


@pytest.mark.parametrize("seed", range(3))
def test_next_sentence_labels_are_right(seed: int) -> None:
    tokens = random_tokens(seed, 300)
    index = make(tokens, max_seq_length=64, seed=seed)
    assert {0, 1} == set(index.label.tolist())
    assert (index.first_length > 0).all()
    assert (index.second_length > 0).all()
    for a, b, label in spans(index):
        first, second = tokens.document_at(a[0]), tokens.document_at(b[0])
        assert tokens.document_at(a[1] - 1) == first
        assert tokens.document_at(b[1] - 1) == second
        if label:
            assert first != second
        else:
            assert first == second
            assert a[1] == b[0], "a true pair must be contiguous, also after it was cut"


def test_proportions_are_those_asked_for() -> None:
    # Sentences of one token: a chunk has its target length unless its document ends.
    tokens = ToyTokens.of([[1] * 2000] * 40)
    index = make(tokens, max_seq_length=64, short_seq_prob=0.25, seed=5)
    share = 4 * (0.25 / len(index)) ** 0.5
    assert index.label.mean() == pytest.approx(0.5, abs=share)
    short = (index.lengths < 64).mean()
    assert short == pytest.approx(0.25 * 59 / 60, abs=share)  # one target in 60 is drawn at its maximum
    swapped = make(tokens, objective="mlm+sop", max_seq_length=64, seed=5)
    assert swapped.label.mean() == pytest.approx(0.5, abs=4 * (0.25 / len(swapped)) ** 0.5)


def test_random_second_segments_are_from_every_other_document_alike() -> None:
    tokens = ToyTokens.of([[1] * 4000, *[[3] * 50] * 10])
    index = make(tokens, max_seq_length=16, seed=1)
    long = [(a, b) for a, b, label in spans(index) if label and tokens.document_at(a[0]) == 0]
    counts = np.bincount([tokens.document_at(b[0]) for _, b in long], minlength=11)
    assert counts[0] == 0
    expected = len(long) / 10
    assert ((counts[1:] - expected) ** 2 / expected).sum() < 34  # chi-squared, 9 degrees of freedom, p = 0.0001


@pytest.mark.parametrize("objective", ["mlm+nsp", "mlm+sop"])
def test_every_sentence_is_used_once(objective: str) -> None:
    """Nothing is cut where all sentences have one token, so A and true B must tile the corpus."""
    random = np.random.default_rng(0)
    tokens = ToyTokens.of([[1] * int(n) for n in random.integers(2, 60, 200)] + [[1] * 3 * pairs.LANE])
    index = make(tokens, objective=objective, seed=3)
    used = np.zeros(tokens.num_tokens, int)
    for a, b, label in spans(index):
        used[slice(*a)] += 1
        if objective == "mlm+sop" or not label:
            used[slice(*b)] += 1
    assert used.max() == 1
    if objective == "mlm+nsp":
        assert used.min() == 1
    else:  # a last chunk of one token cannot be halved
        assert used.mean() > 0.98


def test_unused_sentences_go_back_after_a_random_pair() -> None:
    """Control: without putting them back, a good part of the corpus would never be seen."""
    tokens = ToyTokens.of([[1] * 500] * 20)
    sentences = Sentences.of(tokens)
    rules = Rules(max_seq_length=32, short_seq_prob=0.0)
    index = build_index(sentences, rules)
    start = np.sort(index.places).astype(np.int64)  # a token is a sentence here
    chunks = pairs._chunks(sentences, rules, start, start // 500 * 500 + 500)
    real = np.where(chunks.is_random, chunks.split, chunks.stop) - chunks.start
    assert real.sum() == tokens.num_tokens
    assert (chunks.stop - chunks.start).sum() > 1.2 * tokens.num_tokens


@pytest.mark.slow
@given(corpora, st.integers(4, 50), st.sampled_from([0.0, 0.5]))
def test_full_sentences_lose_no_token(documents: list[list[int]], max_seq_length: int, short: float) -> None:
    tokens = ToyTokens.of(documents)
    index = make(tokens, objective="mlm", max_seq_length=max_seq_length, short_seq_prob=short)
    assert sorted(span for a, _, _ in spans(index) for span in range(*a)) == list(range(tokens.num_tokens))
    assert index.lengths.max() <= max_seq_length


def test_where_a_swapped_pair_is_cut_says_nothing_about_it() -> None:
    """Only outer ends of the example are cut, those of a swapped one as often as the others."""
    random = np.random.default_rng(4)
    tokens = ToyTokens.of([[int(n) for n in random.integers(3, 12, 60)] for _ in range(200)])
    index = make(tokens, objective="mlm+sop", max_seq_length=48, short_seq_prob=0.0)
    ends = {*tokens.sentence_boundaries.tolist()}
    shares: dict[int, list[bool]] = {0: [], 1: []}
    for a, b, label in spans(index):
        assert tokens.document_at(a[0]) == tokens.document_at(b[0])
        assert (b[1] <= a[0]) if label else (a[1] == b[0])
        if not ends & {*range(min(a[0], b[0]) + 1, max(a[1], b[1]))}:
            continue  # one sentence, split inside
        assert {a[1], b[0]} <= ends
        shares[label].append(a[0] in ends)
    in_order, swapped = (float(np.mean(shares[label])) for label in (0, 1))
    assert 0.05 < in_order < 0.95, "the control: some segments are cut in front, not all"
    assert abs(in_order - swapped) < 4 * (0.5 / min(map(len, shares.values()))) ** 0.5


def test_epochs_and_seeds_differ_and_repeat() -> None:
    tokens = random_tokens(6, 50)
    first = spans(make(tokens, seed=1, epoch=0))
    assert first == spans(make(tokens, seed=1, epoch=0))
    others = [spans(make(tokens, seed=1, epoch=1)), spans(make(tokens, seed=2, epoch=0))]
    for other in others:
        assert other != first
        assert len(set(other) & set(first)) < len(first) / 2


# --------------------------------------------------------------------------------------------------------- errors


def test_wrong_settings_say_what_to_do() -> None:
    tokens = random_tokens(0, 5)
    with pytest.raises(ConfigError, match=r"objective must be one of mlm\+nsp.*did you mean 'mlm\+sop'"):
        make(tokens, objective="mlm+sopp")
    with pytest.raises(ConfigError, match=r"max_seq_length=4 is too small.*at least 5"):
        make(tokens, max_seq_length=4)
    with pytest.raises(ConfigError, match=r"short_seq_prob must be from 0 to 1, got 1\.5"):
        make(tokens, short_seq_prob=1.5)


def test_stores_that_are_too_small() -> None:
    with pytest.raises(DataError, match="no token at all"):
        make(ToyTokens.of([]))
    with pytest.raises(DataError, match=r"at least 2 documents with text.*blank lines"):
        make(ToyTokens.of([[5, 5]]))
    assert len(make(ToyTokens.of([[5, 5]]), objective="mlm")) == 1
    with pytest.raises(DataError, match=r"too small for one example of objective 'mlm\+sop'"):
        make(ToyTokens.of([[1], [1]]), objective="mlm+sop")
