"""From a stream of texts to one result a text, in order, with no padding anywhere.

Texts are drawn in windows. A window is tokenised in one call, its texts are sorted by length (longest first) and packed
into batches of about :data:`MAX_TOKENS_PER_BATCH` tokens. Results go back to the order in which the texts came. Sorting
costs nothing here and gives attention sequences of equal length; a batch of about a thousand tokens stays in the
processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

import numpy as np
import torch

from bertkit.batch import Batch
from bertkit.errors import InputError, ResourceError
from bertkit.inference.pipeline_inputs import Text
from bertkit.tasks.text.features import (
    FeatureSet,
    TextEncoder,
    Truncation,
    collate,
    featurize_texts,
    token_budget_batches,
)

#: Tokens computed at once on a CPU and on other devices. A longer single text is a batch of its own.
MAX_TOKENS_PER_BATCH = 1024
MAX_TOKENS_PER_DEVICE_BATCH = 32_768
#: Texts, and characters, tokenised and sorted together. The first window of a lazy stream is small, so that its first
#: results come soon.
WINDOW_TEXTS = 2048
WINDOW_CHARACTERS = 8_000_000
FIRST_WINDOW_TEXTS = 64

R = TypeVar("R")
#: Runs the model on one packed batch: B results, one a sequence, in the order of the batch.
Compute = Callable[[Batch], Sequence[R]]


@dataclass(frozen=True, slots=True)
class Done(Generic[R]):
    """One text and what the model said about it.

    index: number of the text in the stream, from 0.
    num_tokens: word pieces the model read, special tokens included.
    truncated: whether the text had more.
    """

    index: int
    text: Text
    value: R
    num_tokens: int
    truncated: bool


def run(
    texts: Iterator[Text],
    tokenizer: TextEncoder,
    compute: Compute[R],
    *,
    limit: int,
    truncate: bool,
    device: torch.device,
    lazy: bool,
    cut: Truncation = "longest_first",
    advance: Callable[[int], None] | None = None,
) -> Iterator[Done[R]]:
    """Yield one :class:`Done` for each text, in order; memory is bounded by one window.

    Args:
        texts: drawn one window at a time.
        tokenizer: gives ids for many texts at once.
        compute: the model, see :data:`Compute`; called in inference mode.
        limit: most tokens of one input, special tokens included.
        truncate: cut longer inputs to ``limit`` instead of refusing them.
        device: where batches go.
        lazy: begin with a small window and double it, for a caller who waits for the first result.
        cut: how longer inputs are cut, see :func:`bertkit.tasks.text.features.featurize_texts`.
        advance: told the number of texts after each batch.

    Raises:
        InputError: an input of more than ``limit`` tokens, unless ``truncate``.
        ResourceError: the device has no memory for one batch.
    """
    first_index = 0
    for drawn in draw_windows(texts, lazy=lazy):
        features = _features(drawn, tokenizer, limit, cut)
        if not truncate:
            _check_lengths(features, limit, first_index)
        values = run_window(features, compute, device, advance)
        rows = zip(drawn, values, features.lengths.tolist(), features.truncated.tolist(), strict=True)
        for index, (text, value, num_tokens, truncated) in enumerate(rows, start=first_index):
            yield Done(index, text, value, num_tokens, truncated)
        first_index += len(drawn)


def draw_windows(texts: Iterator[Text], *, lazy: bool) -> Iterator[list[Text]]:
    """Texts by windows, drawn as they are needed; with ``lazy`` the first is small and the next ones double."""
    size = FIRST_WINDOW_TEXTS if lazy else WINDOW_TEXTS
    while drawn := list(_draw(texts, size)):
        yield drawn
        size = min(2 * size, WINDOW_TEXTS)


def _draw(texts: Iterator[Text], size: int) -> Iterator[Text]:
    characters = 0
    for text in islice(texts, size):
        yield text
        characters += len(text.text) + len(text.pair or "")
        if characters >= WINDOW_CHARACTERS:
            return


def _features(texts: Sequence[Text], tokenizer: TextEncoder, limit: int, cut: Truncation) -> FeatureSet:
    pairs = [text.pair for text in texts if text.pair is not None]
    if len(pairs) in (0, len(texts)):
        singles = [text.text for text in texts]
        return featurize_texts(singles, pairs or None, tokenizer, max_length=limit, truncation=cut)
    # Single texts and pairs mixed: two sets laid end to end, and the rows brought back into the order of the stream.
    alone = [row for row, text in enumerate(texts) if text.pair is None]
    doubles = [row for row, text in enumerate(texts) if text.pair is not None]
    one, two = (_features([texts[row] for row in rows], tokenizer, limit, cut) for rows in (alone, doubles))
    joined = FeatureSet(
        np.concatenate([one.input_ids, two.input_ids]),
        np.concatenate([one.token_type_ids, two.token_type_ids]),
        np.concatenate([one.boundaries, two.boundaries[1:] + one.boundaries[-1]]),
        np.concatenate([one.num_tokens, two.num_tokens]),
    )
    return joined.select(np.argsort(alone + doubles))


def _check_lengths(features: FeatureSet, limit: int, first_index: int) -> None:
    too_long = np.flatnonzero(features.truncated)
    if len(too_long):
        row = int(too_long[0])
        others = f" (and {len(too_long) - 1:,} more texts near it are too long)" if len(too_long) > 1 else ""
        raise InputError(
            f"text {first_index + row} (counted from 0) has {features.num_tokens[row]:,} tokens, special tokens "
            f"included; the limit is {limit:,}{others}. Shorten it, or pass truncation=True (on the command line: "
            "--truncate) to read only its beginning"
        )


def run_window(
    features: FeatureSet, compute: Compute[R], device: torch.device, advance: Callable[[int], None] | None
) -> list[R]:
    """One result a row, in the order of the rows.

    Args:
        features: rows that are sorted by length and packed together.
        compute: the model, see :data:`Compute`; called in inference mode.
        device: where batches go.
        advance: told the number of rows after each batch; may be None.

    Raises:
        ResourceError: the device has no memory for one batch.
    """
    lengths = features.lengths
    budget = MAX_TOKENS_PER_BATCH if device.type == "cpu" else MAX_TOKENS_PER_DEVICE_BATCH
    budget = max(budget, int(lengths.max()))
    values: list[R | None] = [None] * len(features)
    batches = list(token_budget_batches(lengths, max_tokens=budget, window=len(features)))
    for rows, results in zip(batches, _results(batches, features, compute, device), strict=True):
        for row, value in zip(rows, results, strict=True):
            values[row] = value
        if advance is not None:
            advance(len(rows))
    return values  # type: ignore[return-value]  # every row was in exactly one batch


def _results(
    batches: Sequence[Sequence[int]], features: FeatureSet, compute: Compute[R], device: torch.device
) -> Iterator[Sequence[R]]:
    """What the model says about each batch, in order.

    On a CPU with several threads each thread works on a batch of its own, because threads that share one batch wait for
    each other after every operation of every layer; measured a tenth faster with two threads. The last few batches of a
    window leave some threads idle, so a small window is computed in the usual way.
    """

    def result(rows: Sequence[int]) -> Sequence[R]:
        batch = collate(features, rows)
        return _compute(compute, batch if device.type == "cpu" else batch.to(device))

    num_threads = torch.get_num_threads()
    if device.type != "cpu" or num_threads == 1 or len(batches) < 4 * num_threads:
        yield from map(result, batches)
        return
    pool = ThreadPoolExecutor(num_threads, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield from pool.map(result, batches)
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(num_threads)  # the workers' setting is also the default of threads that start later


def _compute(compute: Compute[R], batch: Batch) -> Sequence[R]:
    try:
        with torch.inference_mode():
            return compute(batch)
    except torch.OutOfMemoryError as error:
        raise ResourceError(
            f"no memory on {batch.input_ids.device} for a batch of {batch.layout.num_tokens:,} tokens in "
            f"{batch.layout.num_sequences} sequences: {str(error).splitlines()[0]}. Use truncation=True with a smaller "
            "max_length, or device='cpu'"
        ) from None
