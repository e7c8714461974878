"""What is measured: token ids of texts, of given lengths or as they come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log, sqrt
from pathlib import Path
from statistics import NormalDist

import numpy as np

from bertkit.config.bert_config import BertConfig
from bertkit.errors import DataError, counted
from bertkit.ragged import Ids, Ints, Ragged, boundaries_of
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: Tokens of the single texts that every model is measured with.
SINGLE_LENGTHS = (16, 128, 512)
#: The built-in lengths: log-normal, as in a mix of tweets, reviews and questions; tokens, special ones included.
MEDIAN_LENGTH, MEAN_LENGTH, SHORTEST, LONGEST = 24, 33, 4, 239
#: Texts of a pass: enough for a second of work on two cores, by the matrices of MiniLM-L6.
MOST_TEXTS, FEWEST_TEXTS, SIZE_OF_MOST = 512, 96, 6 * (4 * 384 * 384 + 2 * 384 * 1536)
#: Origin of texts that nobody wrote, on which int8 cannot be judged.
RANDOM = "built-in lengths, random tokens"
#: Texts that are measured one by one.
NUM_SINGLES = 64


@dataclass(frozen=True, slots=True)
class SampleTexts:
    """Texts as ids, in order of arrival. origin: what they are, in words."""

    rows: Ragged
    origin: str

    def describe(self) -> str:
        """Their number and lengths in a line."""
        lengths = self.rows.lengths
        p95 = np.percentile(lengths, 95)
        return (
            f"{counted(len(self.rows), 'text')}, {lengths.sum():,} tokens (mean {lengths.mean():.0f}, median "
            f"{np.median(lengths):.0f}, 95th percentile {p95:.0f}, longest {lengths.max()}); {self.origin}"
        )


def num_texts_for(config: BertConfig) -> int:
    """Texts of a pass: fewer for a larger encoder."""
    width = config.hidden_size
    size = config.num_hidden_layers * (4 * width * width + 2 * width * config.intermediate_size)
    return int(np.clip(MOST_TEXTS * SIZE_OF_MOST / size, FEWEST_TEXTS, MOST_TEXTS))


def read_sample(texts: Sequence[str], tokenizer: PreTrainedTokenizer, count: int, limit: int, seed: int) -> SampleTexts:
    """At most ``count`` of a user's texts, drawn by ``seed`` and kept in their order, cut to ``limit`` tokens."""
    if not texts:
        raise DataError("there is no text to measure with; give a file with one text per line")
    chosen = np.sort(np.random.default_rng(seed).permutation(len(texts))[:count])
    rows = tokenizer.encode_ragged([texts[number] for number in chosen], max_length=limit)
    origin = "given" if len(texts) <= count else f"drawn from the {len(texts):,} given"
    return SampleTexts(rows, f"{origin}, {int(rows.truncated.sum()):,} truncated")


def make_sample(tokenizer: PreTrainedTokenizer, count: int, limit: int, seed: int) -> SampleTexts:
    """``count`` texts with the built-in lengths, and random tokens of the vocabulary."""
    rows = random_rows(builtin_lengths(count, limit, seed), tokenizer, seed)
    return SampleTexts(rows, RANDOM)


def builtin_lengths(count: int, limit: int, seed: int) -> Ints:
    """Lengths at equal steps of the distribution, at most ``limit``, in random order ``(count,)``."""
    spread = sqrt(2 * log(MEAN_LENGTH / MEDIAN_LENGTH))
    steps = [NormalDist().inv_cdf((number + 0.5) / count) for number in range(count)]
    lengths = np.round([MEDIAN_LENGTH * exp(spread * step) for step in steps]).astype(np.int64)
    return np.random.default_rng(seed).permutation(lengths.clip(SHORTEST, min(LONGEST, limit)))


def random_rows(lengths: Ints | Sequence[int], tokenizer: PreTrainedTokenizer, seed: int) -> Ragged:
    """Rows of these lengths, each at least 2: the first and last token as for any text, random ones between."""
    sizes = np.asarray(lengths, dtype=np.int64)
    boundaries = boundaries_of(sizes)
    ordinary = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
    ids: Ids = np.random.default_rng(seed).choice(ordinary, int(boundaries[-1])).astype(np.int32)
    first, last = tokenizer.encode_ragged([""]).ids[[0, -1]]
    ids[boundaries[:-1]], ids[boundaries[1:] - 1] = first, last
    return Ragged(ids, boundaries, np.zeros(len(ids), np.int8), sizes)


def save_rows(rows: Ragged, path: Path) -> Path:
    """Write rows as the processes read them."""
    np.savez(path, ids=rows.ids, segments=rows.token_type_ids, boundaries=rows.boundaries)
    return path
