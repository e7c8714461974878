"""What the engine and its back-ends say to each other: rows that are computed together, and what is wanted of them.

Letters of the array shapes: T tokens of a pack, B rows, R tokens that were chosen, D width of the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate, pairwise
from typing import Literal, NamedTuple, Protocol, get_args

import numpy as np

from bertkit.config.any_config import AnyConfig
from bertkit.config.sentence_config import PoolingMode
from bertkit.errors import ConfigError
from bertkit.ragged import Floats, Ints, Ragged, gather

Precision = Literal["auto", "fp32", "fp16", "bf16", "int8"]
#: Outputs of a pack by name: ``(T, ...)`` of tokens, ``(B, ...)`` of rows.
Values = Mapping[str, Floats]
#: Called between the packs of a long computation; may raise to stop it.
Check = Callable[[], None]


class Network(Protocol):
    """A model object of :mod:`bertkit.model`, for modules that do without torch."""

    @property
    def config(self) -> AnyConfig:
        """Its shape."""


class Pack(NamedTuple):
    """Rows that are computed together: end to end, without padding; ids and segments are int64 ``(T,)``."""

    ids: Ints
    token_type_ids: Ints
    lengths: tuple[int, ...]

    @classmethod
    def of(cls, rows: Ragged, numbers: Sequence[int] | None = None) -> Pack:
        """The rows with these numbers, in this order; None: all of them, as they are."""
        if numbers is None:
            ids, types, lengths = rows.ids, rows.token_type_ids, rows.lengths
        else:
            starts = rows.boundaries[numbers]
            lengths = rows.boundaries[1:][numbers] - starts
            tokens = gather(starts, lengths)
            ids, types = rows.ids[tokens], rows.token_type_ids[tokens]
        return cls(ids.astype(np.int64), types.astype(np.int64), tuple(lengths.tolist()))

    @property
    def boundaries(self) -> tuple[int, ...]:
        """``(0, l0, l0 + l1, ..., T)``: B + 1 Python ints."""
        return (0, *accumulate(self.lengths))

    def spans(self) -> list[tuple[int, int]]:
        """``(start, end)`` of each row's tokens."""
        return list(pairwise(self.boundaries))

    @property
    def positions(self) -> Ints:
        """Position of each token in its own row, int64 ``(T,)``."""
        places = np.arange(len(self.ids))
        return places if len(self.lengths) == 1 else places - np.repeat(self.boundaries[:-1], self.lengths)

    def split(self, values_T: Floats) -> list[Floats]:
        """What is known of each token, row by row: B views."""
        return [values_T[start:end] for start, end in self.spans()]

    def pool(self, x_TD: Floats, modes: Sequence[PoolingMode], skipped: int = 0) -> Floats:
        """One vector of each row, ``(B, D * modes)``: :func:`bertkit.model.pooling.pool_sentences` without torch."""
        found = [self._pooled(x_TD, mode, skipped) for mode in modes]
        return found[0] if len(found) == 1 else np.concatenate(found, axis=1)

    def _pooled(self, x_TD: Floats, mode: PoolingMode, skipped: int) -> Floats:
        if mode in ("cls", "lasttoken"):
            return x_TD[[start + skipped if mode == "cls" else end - 1 for start, end in self.spans()]]
        found_BD = np.empty((len(self.lengths), x_TD.shape[1]), np.float32)
        for found_D, (start, end) in zip(found_BD, self.spans(), strict=True):  # reduceat takes three times as long
            size = end - start - skipped
            if mode == "weightedmean":
                weights_S = np.arange(1 + skipped, 1 + end - start, dtype=np.float32)
                np.matmul(weights_S / weights_S.sum(), x_TD[start + skipped : end], out=found_D)
                continue
            reduce = np.maximum.reduce if mode == "max" else np.add.reduce
            reduce(x_TD[start + skipped : end], axis=0, out=found_D)
            if mode != "max":
                found_D /= size if mode == "mean" else math.sqrt(size)
        return found_BD


class WordPooling(NamedTuple):
    """How the logits of tokens become weights of words, see :func:`bertkit.model.word_weights.word_weights`."""

    pooling: Literal["max", "sum"] = "max"
    logs: int = 1


class Wanted(NamedTuple):
    """What to compute for each row. A back-end computes no more than that where it can.

    outputs: names as in :class:`bertkit.model.output.ModelOutput`: ``logits``, ``last_hidden_state`` ...
    pooling: a vector for each row, ``(B, D * modes)``, in place of ``last_hidden_state`` of each token. The back-end
        does it, so that a GPU hands over no more.
    skipped: first tokens of each row that are not pooled; every row has more.
    only_at: outputs of tokens at the tokens with this id only (the mask), ``(R, ...)`` in their order.
    words: a weight of every word of the vocabulary for each row, ``word_weights`` ``(B, V)``, in place of the logits of
        each token, which are never all in memory.
    num_words: tokens of the tokenizer; the table of words may have more rows, whose columns the engine leaves out.
    layers: of ``hidden_states``, these, side by side: ``(T, layers * D)``, or ``(B, modes * layers * D)`` with pooling.
        0 is the embeddings. Only an encoder that is a torch model has them.
    """

    outputs: tuple[str, ...]
    pooling: tuple[PoolingMode, ...] | None = None
    skipped: int = 0
    only_at: int | None = None
    words: WordPooling | None = None
    num_words: int | None = None
    layers: tuple[int, ...] = ()

    @property
    def first_token(self) -> bool:
        """Whether the vectors of the first tokens are all that is wanted."""
        return self.pooling == ("cls",) and not self.skipped


#: Of the heads that give one row of numbers for each row, or for each token.
LOGITS = Wanted(("logits",))
#: Of question answering: how well each token begins the answer, and ends it.
SPAN_LOGITS = Wanted(("start_logits", "end_logits"))


class Backend(Protocol):
    """What computes packs: a torch model, or an exported graph on another runtime."""

    @property
    def config(self) -> AnyConfig:
        """Shape and labels of the model."""

    @property
    def model_class(self) -> str:
        """Name of the model's class."""

    @property
    def model(self) -> Network:
        """The model object; InputError where there is none."""

    @property
    def place(self) -> object:
        """Where it computes: a ``torch.device``, or a name such as ``"cpu"``."""

    @property
    def dtype(self) -> str:
        """Type of the weights, for messages."""

    @property
    def max_tokens(self) -> int:
        """Most tokens of a pack; a single row that is longer is a pack of its own."""

    @property
    def packs_ahead(self) -> int:
        """How many packs may be begun before the outputs of the first are read; 0 where they are there at once."""

    def compute(self, pack: Pack, wanted: Wanted) -> Values:
        """The wanted outputs, float32; several threads may call at once."""

    def num_threads(self, lengths: Ints) -> int:
        """How many threads should compute rows of these lengths, each packs of its own; 1: the caller's thread."""

    def in_thread(self, alone: bool) -> AbstractContextManager[None]:
        """Held around :meth:`compute` in a thread that is ``alone``, or one of several."""

    def encoder(self) -> Backend:
        """The same without the head: a back-end that gives ``last_hidden_state``."""


def check_options(precision: str, threads: int | None) -> None:
    """Refuse (ConfigError) a precision that there is not, and a number of threads that is none."""
    if precision not in get_args(Precision):
        raise ConfigError(f"precision must be one of {', '.join(get_args(Precision))}, got {precision!r}")
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise ConfigError(f"threads must be a whole number from 1, or None for as many as there are, got {threads!r}")
