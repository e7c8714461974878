"""Where long inputs are cut: overlapping windows, or a beginning and an end. Imports no torch.

Letters of the array shapes: B inputs, W windows, N tokens of all inputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bertkit.ragged import Flags, Ids, Ints, Ragged, boundaries_of, rows_from_parts

#: Of the 510 word pieces of a text that fit between [CLS] and [SEP], how many :func:`head_and_tail` keeps from the
#: beginning; the other 382 come from the end (Sun et al. 2019, section 5.3.1). Other limits are split in proportion.
HEAD_OF_510 = 128


class Windows(NamedTuple):
    """W windows over B inputs, in the order of the inputs.

    owners: int64 ``(W,)``, the input that each window is of.
    starts: int64 ``(W,)``, the first token of the window, counted in its input.
    sizes: int64 ``(W,)``, its tokens.
    groups: int64 ``(B + 1,)``; input b owns the windows ``groups[b] : groups[b + 1]``, at least one.
    """

    owners: Ints
    starts: Ints
    sizes: Ints
    groups: Ints


@dataclass(frozen=True, slots=True)
class WindowRows:
    """Rows that are windows of longer inputs; a kind of task adds where each window is from.

    rows: token ids of the R rows, special tokens included.
    """

    rows: Ragged

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ids(self) -> Ids:
        """Token ids of all rows, int32 ``(T,)``."""
        return self.rows.ids

    @property
    def lengths(self) -> Ints:
        """Tokens of each row, int64 ``(R,)``."""
        return self.rows.lengths

    @property
    def num_tokens_before(self) -> Ints:
        """Tokens of each row if nothing had been cut off for good, int64 ``(R,)``."""
        return self.rows.num_tokens_before

    @property
    def truncated(self) -> Flags:
        """Rows of inputs that lost tokens for good, bool ``(R,)``; what another window holds is not lost."""
        return self.rows.truncated


def cut_windows(lengths: Ints, room: Ints | int, step: Ints | int, *, full_last: bool = False) -> Windows:
    """Cover every input with windows.

    Args:
        lengths: tokens of each input ``(B,)``; one of 0 tokens gets an empty window.
        room: tokens of a window, at least 1; one number, or one for each input.
        step: tokens from the start of one window to the start of the next; more than ``room`` counts as ``room``, so
            that no token is left out.
        full_last: the last window is moved back until it is full. Otherwise it is shorter, but has at least the tokens
            that two windows share.
    """
    rooms = np.broadcast_to(np.asarray(room, dtype=np.int64), lengths.shape)
    steps = np.minimum(step, rooms)
    counts = 1 + -(-np.maximum(lengths - rooms, 0) // steps)
    groups = boundaries_of(counts)
    owners = np.repeat(np.arange(len(lengths)), counts)
    starts = (np.arange(groups[-1]) - groups[owners]) * steps[owners]
    if full_last:
        starts = np.minimum(starts, np.maximum(lengths - rooms, 0)[owners])
    sizes = np.minimum(lengths[owners] - starts, rooms[owners])
    return Windows(owners, starts, sizes, groups)


def best_windows(windows: Windows, boundaries: Ints) -> Ints:
    """For each token the window that shows most of what surrounds it ("max context" of the original code's README).

    That is the window in which the token's smaller distance to an end is largest; of two equal ones the first. The
    windows are full ones (see :func:`cut_windows`); input b owns the tokens ``boundaries[b] : boundaries[b + 1]``.
    Returns window numbers, int64 ``(N,)``.
    """
    first = np.diff(windows.owners, prepend=-1) > 0
    before = np.concatenate([[0], windows.starts[:-1]])
    turns = (before + windows.starts + windows.sizes - 1) // 2  # the middle of what two windows share
    reads_from = boundaries[windows.owners] + np.where(first, 0, turns + 1)
    return np.searchsorted(reads_from, np.arange(boundaries[-1]), side="right") - 1


def head_and_tail(rows: Ragged, max_length: int) -> Ragged:
    """Rows over ``max_length`` tokens without their middle (Sun et al. 2019): 128 + 382 word pieces of 510.

    The rows are single texts with one special token at each end, which count; ``max_length`` is at least 3.
    """
    pieces = max_length - 2
    head = max(1, round(pieces * HEAD_OF_510 / 510))
    long = rows.lengths > max_length
    if not long.any():
        return rows
    first = np.where(long, 1 + head, rows.lengths)
    last = np.where(long, max_length - 1 - head, 0)
    begins, ends = rows.boundaries[:-1], rows.boundaries[1:]
    starts, sizes = np.stack([begins, ends - last], axis=1), np.stack([first, last], axis=1)
    return rows_from_parts(rows.ids, rows.token_type_ids, starts, sizes, rows.num_tokens_before)
