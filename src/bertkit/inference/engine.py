"""From a stream of texts to one result a text, in order, with no padding anywhere.

Texts are drawn in windows. A window is tokenised in one call, its texts are sorted by length (longest first), laid one
after another in one flat array, and cut into batches of about :data:`MAX_TOKENS_PER_BATCH` tokens. Results go back to
the order in which the texts came. Sorting costs nothing here and gives attention sequences of equal length; a batch of
about a thousand tokens stays in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from bertkit.batch import Batch, Layout
from bertkit.errors import InputError, ResourceError
from bertkit.inference.inputs import Text

#: Tokens computed at once. A longer single text is a batch of its own.
MAX_TOKENS_PER_BATCH = 1024
#: Texts tokenised and sorted together. The first window of a lazy stream is small, so that its first results come soon.
WINDOW_TEXTS = 2048
FIRST_WINDOW_TEXTS = 64

R = TypeVar("R")
#: Runs the model on one packed batch: B results, one a sequence, in the order of the batch.
Compute = Callable[[Batch], Sequence[R]]


class RaggedIds(Protocol):
    """What the tokenizer returns for many texts: flat ids and where each text begins."""

    ids: NDArray[np.int32]
    boundaries: NDArray[np.int64]
    token_type_ids: NDArray[np.int8]
    num_tokens_before: NDArray[np.int64]


class RaggedEncoder(Protocol):
    """The part of a tokenizer that the engine needs."""

    def encode_ragged(
        self, texts: Sequence[str], text_pairs: Sequence[str] | None = None, *, max_length: int | None = None
    ) -> RaggedIds: ...


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


@dataclass(frozen=True, slots=True)
class Window:
    """Some texts tokenised, in the order of the stream: flat arrays as in ``Ragged``."""

    ids: NDArray[np.int32]
    token_type_ids: NDArray[np.int8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    num_tokens_before: NDArray[np.int64]


def run(
    texts: Iterator[Text],
    tokenizer: RaggedEncoder,
    compute: Compute[R],
    *,
    limit: int,
    truncate: bool,
    device: torch.device,
    lazy: bool,
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
        advance: told the number of texts after each batch.

    Raises:
        InputError: an input of more than ``limit`` tokens, unless ``truncate``.
        ResourceError: the device has no memory for one batch.
    """
    size = FIRST_WINDOW_TEXTS if lazy else WINDOW_TEXTS
    first_index = 0
    while drawn := list(islice(texts, size)):
        window = _tokenise(drawn, tokenizer, limit if truncate else None)
        if not truncate:
            _check_lengths(window.lengths, limit, first_index)
        values = _run_window(window, compute, device, advance)
        for row, (text, value) in enumerate(zip(drawn, values, strict=True)):
            num_tokens = int(window.lengths[row])
            yield Done(first_index + row, text, value, num_tokens, bool(window.num_tokens_before[row] > num_tokens))
        first_index += len(drawn)
        size = min(2 * size, WINDOW_TEXTS)


def cut_batches(lengths: NDArray[np.int64], max_tokens: int) -> Iterator[tuple[int, int]]:
    """Ranges ``(first, last)`` of consecutive sequences with at most ``max_tokens`` together, or one that has more."""
    ends = np.cumsum(lengths)
    first = 0
    while first < len(lengths):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + max_tokens, side="right")))
        yield first, last
        first = last


def _tokenise(texts: Sequence[Text], tokenizer: RaggedEncoder, max_length: int | None) -> Window:
    pairs = [text.pair for text in texts]
    if all(pair is None for pair in pairs):
        return _window(tokenizer.encode_ragged([text.text for text in texts], max_length=max_length))
    if None not in pairs:
        seconds = [pair for pair in pairs if pair is not None]
        return _window(tokenizer.encode_ragged([text.text for text in texts], seconds, max_length=max_length))
    # Singles and pairs mixed: two calls, and the rows are put back into the order of the stream.
    singles = [row for row, pair in enumerate(pairs) if pair is None]
    doubles = [row for row, pair in enumerate(pairs) if pair is not None]
    one = _tokenise([texts[row] for row in singles], tokenizer, max_length)
    two = _tokenise([texts[row] for row in doubles], tokenizer, max_length)
    back = np.argsort(np.array(singles + doubles))
    return Window(
        ids=np.concatenate([one.ids, two.ids]),
        token_type_ids=np.concatenate([one.token_type_ids, two.token_type_ids]),
        starts=np.concatenate([one.starts, two.starts + len(one.ids)])[back],
        lengths=np.concatenate([one.lengths, two.lengths])[back],
        num_tokens_before=np.concatenate([one.num_tokens_before, two.num_tokens_before])[back],
    )


def _window(ragged: RaggedIds) -> Window:
    return Window(
        ids=ragged.ids,
        token_type_ids=ragged.token_type_ids,
        starts=ragged.boundaries[:-1],
        lengths=np.diff(ragged.boundaries),
        num_tokens_before=ragged.num_tokens_before,
    )


def _check_lengths(lengths: NDArray[np.int64], limit: int, first_index: int) -> None:
    too_long = np.flatnonzero(lengths > limit)
    if len(too_long):
        row = int(too_long[0])
        others = f" ({len(too_long) - 1:,} more in this window are too long)" if len(too_long) > 1 else ""
        raise InputError(
            f"text {first_index + row} (counted from 0) has {lengths[row]:,} tokens, special tokens included; the "
            f"limit is {limit:,}{others}. Shorten it, or pass truncation=True (on the command line: --truncate) to read "
            "only its beginning"
        )


def _run_window(
    window: Window, compute: Compute[R], device: torch.device, advance: Callable[[int], None] | None
) -> list[R]:
    order = np.argsort(-window.lengths, kind="stable")
    lengths = window.lengths[order]
    ends = np.cumsum(lengths)
    # Row of the window's flat array for each row of the sorted one; the position inside its text comes on the way.
    positions = np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)
    rows = np.repeat(window.starts[order], lengths) + positions
    ids = torch.from_numpy(window.ids[rows].astype(np.int64))
    types = torch.from_numpy(window.token_type_ids[rows].astype(np.int64))
    places = torch.from_numpy(positions.astype(np.int64, copy=False))
    values: list[R | None] = [None] * len(order)
    for first, last in cut_batches(lengths, MAX_TOKENS_PER_BATCH):
        tokens = slice(int(ends[first] - lengths[first]), int(ends[last - 1]))
        layout = Layout(tuple(lengths[first:last].tolist()))
        batch = Batch(ids[tokens], types[tokens], places[tokens], layout)
        results = _compute(compute, batch if device.type == "cpu" else batch.to(device))
        for row, value in zip(order[first:last].tolist(), results, strict=True):
            values[row] = value
        if advance is not None:
            advance(last - first)
    return values  # type: ignore[return-value]  # every row was in exactly one batch


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

