"""Denoising pre-training of encoder-decoders: a corrupted text as source, the original as target.

T5 replaces each span by a sentinel and generates the missing spans (Raffel et al. 2020, section 3.1.4). BART replaces
each span by one mask, permutes the sentences and generates the whole text (Lewis et al. 2019, section 2.2). An example
is a pure function of its tokens and its key; the key, of seed, epoch and index. Ids are without special tokens at the
beginning and end: the caller adds those.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from math import exp
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bertkit.data.counter_random import bits, stream, uniform
from bertkit.errors import ConfigError, InputError
from bertkit.ragged import Flags, Ids, Ints, gather

#: The draws of an example: span lengths, span positions, lengths of the gaps, order of the sentences.
_LENGTHS, _PLACES, _BETWEEN, _SENTENCES = range(4)


@dataclass(frozen=True, slots=True)
class Denoising:
    """How large a share of the tokens is replaced, and how many tokens a span has on average."""

    rate: float
    mean_span: float

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise ConfigError(f"rate must be between 0 and 1, got {self.rate}; T5 has 0.15, BART 0.3")
        if not 1 <= self.mean_span <= 100:
            raise ConfigError(f"mean_span must be from 1 to 100 tokens, got {self.mean_span}; both papers have 3")


#: As published.
SPAN_CORRUPTION, TEXT_INFILLING = Denoising(0.15, 3.0), Denoising(0.3, 3.0)
#: ``span-corruption``: T5's. ``text-infilling``: BART's, with permuted sentences.
DenoisingObjective = Literal["span-corruption", "text-infilling"]
PUBLISHED: dict[str, Denoising] = {"span-corruption": SPAN_CORRUPTION, "text-infilling": TEXT_INFILLING}


@dataclass(frozen=True, slots=True, eq=False)
class Denoised:
    """An example, int64: what the encoder reads, and what the decoder learns to generate."""

    source: Ints
    target: Ints


def example_key(seed: int, epoch: int, index: int) -> int:
    """The key of an example."""
    return stream(seed, "denoising", epoch, index)


def corrupt_spans(ids: Ids | Ints, key: int, sentinels: Sequence[int], how: Denoising = SPAN_CORRUPTION) -> Denoised:
    """Span corruption, as in T5.

    N = ``round(rate * length)`` tokens, at least one but not all, are replaced, in ``round(N / mean_span)`` spans, at
    least one; every division into spans is equally likely. In ``source`` a sentinel stands for each span, in order; in
    ``target`` each sentinel is followed by the tokens it replaced. As in the authors' code, the first token is always
    kept and the last one always replaced, and ``target`` has no final sentinel, unlike figure 2 of the paper. A text of
    one token is kept, and its ``target`` is the first sentinel alone.
    """
    text = _checked(ids)
    if len(text) == 1:
        return Denoised(text, np.array(sentinels[:1], np.int64))
    num_noise, num_spans = spans_of(len(text), how)
    if num_spans > len(sentinels):
        raise InputError(
            f"{len(text)} tokens have {num_spans} spans to replace, and there are {len(sentinels)} sentinels: divide "
            "the text, or choose a lower rate or longer spans"
        )
    noise = _divided(num_noise, num_spans, _draw(key, _LENGTHS))
    kept = _divided(len(text) - num_noise, num_spans, _draw(key, _BETWEEN))
    starts = np.cumsum(kept) + np.cumsum(noise) - noise
    marks = np.array(sentinels[:num_spans], np.int64)
    replaced = _inside(starts, noise, len(text))
    return Denoised(_marked(text, ~replaced, starts, marks), _marked(text, replaced, starts, marks))


def spans_of(length: int, how: Denoising = SPAN_CORRUPTION) -> tuple[int, int]:
    """How many of ``length`` tokens, at least 2, span corruption replaces, and in how many spans."""
    num_noise = min(max(round(how.rate * length), 1), length - 1)
    return num_noise, min(max(round(num_noise / how.mean_span), 1), length - num_noise)


def infill(
    sentences: Sequence[Ids | Ints], key: int, mask_id: int, how: Denoising = TEXT_INFILLING, *, permute: bool = True
) -> Denoised:
    """Text infilling and sentence permutation, as in BART.

    Span lengths are drawn from a Poisson distribution until they add up to ``round(rate * length)`` tokens; the last
    one is shortened to fit. A span of length 0 inserts a mask; of these only so many are kept that ``source`` is not
    longer than ``target``, which makes a difference for a handful of tokens only. Every placement of the spans is
    equally likely, and two spans may be adjacent. Deviates from the authors' code, whose spans consist of whole words;
    the paper speaks of tokens.
    """
    parts = [np.asarray(sentence, np.int64) for sentence in sentences]
    target = _checked(np.concatenate([np.empty(0, np.int64), *parts]))
    text = target
    if permute:
        order = np.argsort(uniform(_draw(key, _SENTENCES), np.arange(len(parts))))
        text = np.concatenate([parts[place] for place in order])
    lengths = _poisson_spans(max(round(how.rate * len(text)), 1), how.mean_span, _draw(key, _LENGTHS))
    # Kept tokens and spans in one row; which of its places are spans?
    num_places = len(text) - int(lengths.sum()) + len(lengths)
    places = np.sort(_chosen(num_places, len(lengths), _draw(key, _PLACES)))
    starts = places - np.arange(len(lengths)) + np.cumsum(lengths) - lengths
    return Denoised(_marked(text, ~_inside(starts, lengths, len(text)), starts, mask_id), target)


def _inside(starts: Ints, lengths: Ints, size: int) -> Flags:
    inside = np.zeros(size, bool)
    inside[gather(starts, lengths)] = True
    return inside


def _marked(text: Ints, kept: Flags, starts: Ints, marks: int | Ints) -> Ints:
    return np.insert(text, starts, marks)[np.insert(kept, starts, True)]


def _checked(ids: Ids | Ints) -> Ints:
    if not len(ids):
        raise InputError("the text has no tokens, so there is nothing to replace")
    return np.asarray(ids, np.int64)


def _draw(key: int, which: int) -> int:
    return int(bits(key, np.array([which]))[0])


def _chosen(num: int, count: int, key: int) -> Ints:
    """``count`` distinct numbers below ``num``; every choice is equally likely."""
    return np.argsort(uniform(key, np.arange(num)))[:count]


def _divided(total: int, count: int, key: int) -> Ints:
    """``count`` positive integers that add up to ``total``; every such sequence is equally likely."""
    cuts = np.sort(_chosen(total - 1, count - 1, key)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def _poisson_spans(total: int, mean: float, key: int) -> Ints:
    """At most ``total`` lengths that add up to it: the last one is shortened, the first of length 0 are left out."""
    shares = _poisson_shares(mean)
    drawn: list[NDArray[np.int64]] = []
    reached = done = 0
    while reached < total:
        numbers = np.arange(done, done + max(16, 2 * total))
        drawn.append(np.searchsorted(shares, uniform(key, numbers), side="right"))
        done, reached = done + len(numbers), reached + int(drawn[-1].sum())
    lengths = np.concatenate(drawn)
    sums = np.cumsum(lengths)
    lengths = lengths[: int(np.searchsorted(sums, total)) + 1].copy()
    lengths[-1] -= lengths.sum() - total
    return np.delete(lengths, np.flatnonzero(lengths == 0)[: max(len(lengths) - total, 0)])


@cache
def _poisson_shares(mean: float) -> NDArray[np.float64]:
    """The cumulative distribution function at 0, 1, ... up to the limit of double precision."""
    shares, chance, number = [exp(-mean)], exp(-mean), 0
    while chance > 1e-18 or number < mean:
        number += 1
        chance *= mean / number
        shares.append(shares[-1] + chance)
    return np.array(shares)
