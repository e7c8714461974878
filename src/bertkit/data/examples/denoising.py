"""What encoder-decoders are pre-trained on: a damaged text, and what it was.

T5 replaces spans by sentinels and writes what stood there (Raffel et al. 2020, section 3.1.4); BART replaces spans by a
mask each, puts the sentences in another order and writes the whole text (Lewis et al. 2019, section 2.2). Every
example is a pure function of its tokens and its key, and the key of seed, epoch and number of the example. Ids are
those of running text: the tokens that begin and end what a model reads are added by the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

import numpy as np
from numpy.typing import NDArray

from bertkit.data.counter_random import bits, stream, uniform
from bertkit.errors import ConfigError, InputError
from bertkit.ragged import Ids, Ints

#: The draws of an example: lengths of spans, their places, lengths of what is between, order of the sentences.
_LENGTHS, _PLACES, _BETWEEN, _SENTENCES = range(4)


@dataclass(frozen=True, slots=True)
class Denoising:
    """How much of a text is replaced, and in how long spans.

    rate: share of the tokens. mean_span: tokens of a span on average.
    """

    rate: float
    mean_span: float

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise ConfigError(f"rate must be between 0 and 1, got {self.rate}; T5 has 0.15, BART 0.3")
        if not 1 <= self.mean_span <= 100:
            raise ConfigError(f"mean_span must be from 1 to 100 tokens, got {self.mean_span}; both papers have 3")


#: As published.
SPAN_CORRUPTION, TEXT_INFILLING = Denoising(0.15, 3.0), Denoising(0.3, 3.0)


@dataclass(frozen=True, slots=True, eq=False)
class Denoised:
    """An example: ``source`` is read, ``target`` is written; both int64."""

    source: Ints
    target: Ints


def example_key(seed: int, epoch: int, index: int) -> int:
    """The key of an example."""
    return stream(seed, "denoising", epoch, index)


def corrupt_spans(ids: Ids | Ints, key: int, sentinels: Sequence[int], how: Denoising = SPAN_CORRUPTION) -> Denoised:
    """T5's example of a text.

    ``round(rate * length)`` tokens, at least one and not all, in ``round(that / mean_span)`` spans, at least one; all
    ways to divide them are equally likely. In ``source`` a sentinel stands for each span, in order; in ``target`` each
    sentinel is followed by what it stands for. As in the authors' code, a text begins with a token that stays and ends
    with a span, so no sentinel follows the last one; figure 2 of the paper shows one. One token alone stays, with
    nothing to write but the first sentinel.

    Args:
        ids: tokens of the text, at least one.
        key: see :func:`example_key`.
        sentinels: ids of ``<extra_id_0>``, ``<extra_id_1>`` ...
        how: rate and length of spans.

    Raises:
        InputError: no tokens, or more spans than sentinels.
    """
    text = _checked(ids)
    if len(text) == 1:
        return Denoised(text, np.array(sentinels[:1], np.int64))
    num_noise = min(max(round(how.rate * len(text)), 1), len(text) - 1)
    num_spans = min(max(round(num_noise / how.mean_span), 1), len(text) - num_noise)
    if num_spans > len(sentinels):
        raise InputError(
            f"{len(text)} tokens have {num_spans} spans to replace, and there are {len(sentinels)} sentinels: divide "
            "the text, or choose a lower rate or longer spans"
        )
    noise = _divided(num_noise, num_spans, _draw(key, _LENGTHS))
    kept = _divided(len(text) - num_noise, num_spans, _draw(key, _BETWEEN))
    starts = np.cumsum(kept) + np.cumsum(noise) - noise
    marks = np.array(sentinels[:num_spans], np.int64)
    is_noise = np.repeat(np.tile([False, True], num_spans), np.stack([kept, noise], axis=1).ravel())
    source = np.insert(text, starts, marks)[np.insert(~is_noise, starts, True)]
    target = np.insert(text, starts, marks)[np.insert(is_noise, starts, True)]
    return Denoised(source, target)


def infill(
    sentences: Sequence[Ids | Ints], key: int, mask_id: int, how: Denoising = TEXT_INFILLING, *, permute: bool = True
) -> Denoised:
    """BART's example of a document: its sentences in another order, spans replaced by one mask each; and the document.

    Lengths of spans are drawn from a Poisson distribution until they have ``round(rate * length)`` tokens together; the
    last is cut to fit. A span of no tokens is a mask that is inserted. All ways to place the spans are equally likely,
    one right behind the other included. Deviates from the authors' code, whose spans begin and end with words; the
    paper speaks of tokens.

    Args:
        sentences: tokens of each sentence, at least one token in all.
        key: see :func:`example_key`.
        mask_id: id of the mask.
        how: rate and length of spans.
        permute: whether the sentences change places.

    Raises:
        InputError: no tokens.
    """
    parts = [np.asarray(sentence, np.int64) for sentence in sentences]
    target = _checked(np.concatenate([np.empty(0, np.int64), *parts]))
    text = target
    if permute:
        order = np.argsort(uniform(_draw(key, _SENTENCES), np.arange(len(parts))))
        text = np.concatenate([parts[place] for place in order])
    lengths = _poisson_spans(max(round(how.rate * len(text)), 1), how.mean_span, _draw(key, _LENGTHS))
    # What stays and the spans in a row: which of these places are spans.
    num_places = len(text) - int(lengths.sum()) + len(lengths)
    places = np.sort(_chosen(num_places, len(lengths), _draw(key, _PLACES)))
    starts = places - np.arange(len(lengths)) + np.cumsum(lengths) - lengths
    stays = np.ones(len(text), bool)
    for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
        stays[start : start + length] = False
    source = np.insert(text, starts, mask_id)[np.insert(stays, starts, True)]
    return Denoised(source, target)


def _checked(ids: Ids | Ints) -> Ints:
    if not len(ids):
        raise InputError("the text has no tokens, so there is nothing to replace")
    return np.asarray(ids, np.int64)


def _draw(key: int, which: int) -> int:
    """The key of one of the draws."""
    return int(bits(key, np.array([which]))[0])


def _chosen(num: int, count: int, key: int) -> Ints:
    """``count`` of the numbers below ``num``, all choices equally likely."""
    return np.argsort(uniform(key, np.arange(num)))[:count]


def _divided(total: int, count: int, key: int) -> Ints:
    """``count`` whole numbers from 1 that add up to ``total``, all such rows equally likely."""
    cuts = np.sort(_chosen(total - 1, count - 1, key)) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def _poisson_spans(total: int, mean: float, key: int) -> Ints:
    """Lengths drawn from a Poisson distribution that add up to ``total``; the last is cut."""
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
    return lengths


def _poisson_shares(mean: float) -> NDArray[np.float64]:
    """The distribution function at 0, 1, ... as far as double precision tells them apart."""
    shares, chance, number = [exp(-mean)], exp(-mean), 0
    while chance > 1e-18 or number < mean:
        number += 1
        chance *= mean / number
        shares.append(shares[-1] + chance)
    return np.array(shares)
