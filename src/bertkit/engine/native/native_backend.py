"""A checkpoint as the back-end of the engine, computed by the C library alone: no torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from threading import local
from typing import Any

import numpy as np

from bertkit.config.any_config import read_any_config
from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import config_path
from bertkit.config.sentence_config import PoolingMode
from bertkit.engine.backend import Network, Pack, Precision, Values, Wanted, WordPooling, check_options
from bertkit.engine.native.library import native_library, why_not
from bertkit.engine.native.native_encoder import pool
from bertkit.engine.native.packed_model import (
    WEIGHT_TYPES,
    PackedEmbeddings,
    PackedEncoder,
    check_bf16,
    check_int8,
    first_tokens,
)
from bertkit.engine.rows import MAX_TOKENS_PER_BATCH, threads_for
from bertkit.errors import ConfigError, InputError
from bertkit.ragged import Floats, Ids, Ints, outside_table
from bertkit.system.console import say
from bertkit.system.device import is_cpu
from bertkit.system.fork_locks import ForkSafeLock
from bertkit.system.processor import find_processor
from bertkit.weights.checkpoint_weights import ModelWeights, why_not_computed
from bertkit.weights.encoder_weights import normalized
from bertkit.weights.head_weights import Dense, HeadWeights, words_of
from bertkit.weights.parts import ACTIVATIONS, WeightType

#: Tokens whose scores of all words are in memory at once: 16 MB for a vocabulary of 30,000 words.
_BLOCK = 128
#: By table, the field of the config that says how many rows it has.
_FIELDS = {
    "input_ids": "vocab_size",
    "position_ids": "max_position_embeddings",
    "token_type_ids": "type_vocab_size",
}


class NativeBackend:
    """Embeddings, layers and head of a checkpoint, packed for this processor when it is loaded.

    precision, threads: as in :meth:`bertkit.engine.inference_engine.InferenceEngine.of`; threads None: as many as torch
        uses where it is imported, as OMP_NUM_THREADS says, or as there are cores.
    beside: further classifiers on the same encoder, for :meth:`say`: name -> checkpoint and class of its model.
    in_memory: nothing of a float checkpoint stays mapped.
    """

    place = "cpu"
    dtype = "float32"
    max_tokens = MAX_TOKENS_PER_BATCH
    packs_ahead = 0

    def __init__(
        self,
        path: Path,
        model_class: str,
        precision: Precision,
        threads: int | None,
        beside: Mapping[str, tuple[Path, str]] | None = None,
        *,
        in_memory: bool = False,
    ) -> None:
        check_options(precision, threads)
        self.path, self.model_class, self.precision, self.threads = path, model_class, precision, threads
        self.beside, self.in_memory = beside or {}, in_memory
        library = native_library()
        if library is None:
            raise ConfigError(f"the compiled encoder is not available: {why_not()}")
        weights = ModelWeights.from_checkpoint(path, model_class, in_memory=in_memory)
        self._library = library
        check_int8(precision, in_bytes=weights.facts is not None)
        check_bf16(precision, library)
        self.config: BertConfig = weights.config
        self.weight_type = _weight_type(weights, precision)
        self._now = local()
        self._lock = ForkSafeLock()
        self._head = weights.head
        projection = weights.encoder.projection("float32")
        self._projects = projection is not None
        own = (*(() if projection is None else (projection,)), *(layer.matrix for layer in _layers_of(weights)))
        read = partial(ModelWeights.from_checkpoint, in_memory=in_memory)
        others = {name: read(*place) for name, place in self.beside.items()}
        #: Of the models of the heads beside the encoder.
        self.configs = {name: each.config for name, each in others.items()}
        self._heads = {name: each.head for name, each in others.items() if each.head is not None}
        added = (*own, *(layer.matrix for each in others.values() for layer in _layers_of(each)))
        self._num_own = len(own)
        self._embeddings = PackedEmbeddings(weights.encoder, library)
        #: The same in float32, kept until the first rows have shown that the faster arithmetic is close enough.
        self._exact: PackedEncoder | None = None
        if precision in ("fp16", "bf16"):
            exact = weights.encoder._replace(read_once=False)
            self._exact = PackedEncoder(exact, library, "float32", threads=self._all_threads)
        self._encoder = PackedEncoder(weights.encoder, library, self.weight_type, added, self._all_threads)
        self._refused: str | None = None
        if weights.facts is not None:
            from bertkit.checkpoints.int8_folder import slow_here

            if slow := slow_here(weights.facts, library):
                say(slow)

    def __getstate__(self) -> dict[str, Any]:
        """What it was made of, for copies and other processes, which load it anew."""
        names = ("path", "model_class", "precision", "threads", "beside", "in_memory")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def model(self) -> Network:
        """There is none: where one is asked for, the engine switches to torch's back-end."""
        raise AssertionError("the C library has no model object")

    def compute(self, pack: Pack, wanted: Wanted) -> Values:
        assert not wanted.layers, "only the top layer is available"
        x_TD = self._embedded(pack)
        if self._exact is not None:
            self._judge(x_TD, pack)
        if wanted.outputs == ("last_hidden_state",):
            return {"last_hidden_state": self._vectors(x_TD, pack, wanted)}
        head = self._head
        assert head is not None, "an encoder without a pooler has vectors of tokens only"
        if wanted.words is not None:
            return {"word_weights": self._word_weights(head, self._hidden(x_TD, pack), pack, wanted.words)}
        found = self._through(head, self._read(head, x_TD, pack, wanted.only_at), int(self._projects))
        if head.words is not None:
            return {head.outputs[0]: words_of(found, head.words)}
        if len(head.outputs) > 1:
            return {name: found[:, head.outputs.index(name)] for name in wanted.outputs}
        return {head.outputs[0]: found}

    def _embedded(self, pack: Pack) -> Floats:
        """What the layers read, ``(T, D)``; InputError for a number that is not in its table, or a row without any."""
        if 0 in pack.lengths:
            raise InputError(f"row {pack.lengths.index(0)} of a batch of {len(pack.lengths)} has no tokens")
        x_TE = self._embeddings.compute(pack.ids, pack.positions, pack.token_type_ids)
        if x_TE is None:
            outside = self._embeddings.outside(pack)
            assert outside is not None
            name, wrong = outside
            raise outside_table(name, _FIELDS[name], wrong, self._embeddings.sizes[name])
        return self._encoder.native.multiply(0, x_TE) if self._projects else x_TE

    def _hidden(self, x_TD: Floats, pack: Pack, chosen: tuple[Ids, Ids] | tuple[None, None] = (None, None)) -> Floats:
        """The top layer at all rows, or at those chosen."""
        return self._encoder.compute(x_TD, pack.boundaries, *chosen, threads=self._threads_now())

    def _vectors(self, x_TD: Floats, pack: Pack, wanted: Wanted) -> Floats:
        if wanted.first_token:
            return self._hidden(x_TD, pack, first_tokens(pack))
        hidden_TD = self._hidden(x_TD, pack)
        return hidden_TD if wanted.pooling is None else self._pool(hidden_TD, pack, wanted.pooling, wanted.skipped)

    def _pool(self, hidden_TD: Floats, pack: Pack, modes: Sequence[PoolingMode], skipped: int = 0) -> Floats:
        return pool(self._library, hidden_TD, pack.boundaries, modes, skipped)

    def _read(self, head: HeadWeights, x_TD: Floats, pack: Pack, only_at: int | None) -> Floats:
        """What a head reads: vectors of tokens, all or those with an id, or a vector of each row."""
        if head.reads == "first":
            return self._hidden(x_TD, pack, first_tokens(pack))
        if head.reads != "tokens":
            return self._pool(self._hidden(x_TD, pack), pack, (head.reads,))
        if only_at is None:
            return self._hidden(x_TD, pack)
        rows = np.flatnonzero(pack.ids == only_at).astype(np.int32)
        starts = np.searchsorted(rows, pack.boundaries).astype(np.int32)
        return self._hidden(x_TD, pack, (rows, starts))

    def _through(self, head: HeadWeights, x: Floats, first: int) -> Floats:
        """The layers of a head, one after another; ``first``: the number of its first matrix among those added."""
        for number, layer in enumerate(head.layers, start=first):
            x = self._layer(layer, number, x)
        return x

    def _layer(self, layer: Dense, number: int, x: Floats) -> Floats:
        own = layer.activation if layer.activation in ACTIVATIONS else None
        found = self._encoder.native.multiply(number, x, own)
        if layer.activation == "tanh":
            np.tanh(found, out=found)
        return found if layer.norm is None else normalized(found, layer.norm, self.config.layer_norm_eps)

    def say(self, hidden_TD: Floats, pack: Pack) -> dict[str, Values]:
        """What the heads beside the encoder say of its vectors: a row of each text, or of each of its tokens."""
        found: dict[str, Values] = {}
        first = self._num_own
        for name, head in self._heads.items():
            x = hidden_TD
            if head.reads != "tokens":
                x = self._pool(hidden_TD, pack, ("cls" if head.reads == "first" else head.reads,))
            said = self._through(head, x, first)
            several = {field: said[:, column] for column, field in enumerate(head.outputs)}
            found[name] = several if len(several) > 1 else {head.outputs[0]: said}
            first += len(head.layers)
        return found

    def _word_weights(self, head: HeadWeights, x_TD: Floats, pack: Pack, how: WordPooling) -> Floats:
        """The weight of each word in each row, ``(B, V)``; see :func:`bertkit.model.word_weights.word_weights`."""
        assert head.words is not None
        found_BV = np.zeros((len(pack.lengths), len(head.words.table)), np.float32)
        combine = np.maximum if how.pooling == "max" else np.add
        for start in range(0, len(x_TD), _BLOCK):
            values = words_of(self._through(head, x_TD[start : start + _BLOCK], int(self._projects)), head.words)
            np.maximum(values, 0, out=values)
            if how.pooling == "sum":
                _logarithms(values, how.logs)
            for found_V, (first, end) in zip(found_BV, pack.spans(), strict=True):
                own = values[max(first - start, 0) : max(end - start, 0)]
                if len(own):
                    combine(found_V, combine.reduce(own, axis=0), out=found_V)
        if how.pooling == "max":  # the logarithm grows with the logit, so that one of the highest is enough
            _logarithms(found_BV, how.logs)
        return found_BV

    def _judge(self, x_TD: Floats, pack: Pack) -> None:
        """Refuse (ConfigError) a precision that changes the vectors of the first rows too much."""
        from bertkit.engine.closeness import check_precision

        with self._lock:
            exact = self._exact
            if self._refused is not None:
                raise ConfigError(self._refused)
            if exact is None:
                return  # judged by another thread
            fast, slow = (pack.pool(each.compute(x_TD, pack.boundaries), ("mean",)) for each in (self._encoder, exact))
            try:
                check_precision(fast, slow, self.precision)
            except ConfigError as error:
                self._refused = str(error)
                raise
            self._exact = None

    def num_threads(self, lengths: Ints) -> int:
        """As many as there are, if each has far more to do than the longest row."""
        return threads_for(lengths, self._all_threads)

    @property
    def _all_threads(self) -> int:
        """As many as one call may use."""
        return self.threads or _usual_threads()

    def in_thread(self, alone: bool) -> AbstractContextManager[None]:
        """Keeps the computation to the calling thread, or to the number that was asked for."""
        self._now.threads = self._all_threads if alone else 1
        return nullcontext()

    def _threads_now(self) -> int:
        return getattr(self._now, "threads", 1)

    def encoder(self) -> NativeBackend:
        """The same weights without the head."""
        if self.model_class == "BertModel":
            return self
        made = object.__new__(NativeBackend)
        vars(made).update({**vars(self), "model_class": "BertModel", "_head": None})
        return made


def why_not_native(path: Path, model_class: str, device: Any = None) -> str | None:
    """Why the C library does not compute a checkpoint as a class of ours, on a device; None: it does."""
    if not is_cpu(device):
        return f"it computes on the CPU, not on {device}"
    config = read_any_config(config_path(path))
    if not isinstance(config, BertConfig):
        return "it is an encoder-decoder"
    return why_not_computed(config, model_class) or why_not()


def _layers_of(weights: ModelWeights) -> tuple[Dense, ...]:
    return () if weights.head is None else weights.head.layers


def _weight_type(weights: ModelWeights, precision: Precision) -> WeightType:
    """With "auto" all 32 bits where the layers may stay in half of the processor's cache: fewer are slower there."""
    small = weights.encoder.nbytes <= (find_processor().cache or 0) // 2
    return "float32" if precision == "auto" and weights.facts is None and small else WEIGHT_TYPES[precision]


def _usual_threads() -> int:
    if (torch := sys.modules.get("torch")) is not None:
        return int(torch.get_num_threads())
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isascii() and given.isdecimal() and int(given) > 0 else find_processor().cores


def _logarithms(values: Floats, number: int) -> None:
    for _ in range(number):
        np.log1p(values, out=values)
