"""Pre-training on the examples of the original code, made once, in memory, with fixed masks (protocol ``original``).

Devlin et al. 2019, appendix A.2. With the same seed, vocabulary and text (one sentence per line, one file) the examples
are those that ``create_pretraining_data.py`` of google-research/bert writes; see
:mod:`bertkit.data.examples.original_instances`. They are kept as ids; nothing is padded.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import overload

import numpy as np
from numpy.typing import NDArray

from bertkit.batch import Batch
from bertkit.data.examples.masking import SPECIAL
from bertkit.data.examples.original_instances import (
    InstanceSettings,
    Sentence,
    TokenizedDocument,
    TrainingInstance,
    instances_from_documents,
)
from bertkit.data.examples.pretrain_batches import packed_examples
from bertkit.data.store.token_store import TokenStore
from bertkit.errors import ConfigError
from bertkit.ragged import boundaries_of
from bertkit.system.console import say
from bertkit.tokenization.bert_tokenizer import BertTokenizer
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.training.pretraining.pretrain_settings import Phase, PretrainConfig
from bertkit.training.trainer.batch_plan import EpochPlan

#: Maximum tokens of all copies, over both lengths and all processes of a machine: 6 bytes each, 3 GB of memory.
MOST_TOKENS = 500_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """N examples as flat arrays; example n has the tokens ``bounds[n] : bounds[n + 1]``.

    ids: int32 ``(T,)``, after masking, with [CLS] and [SEP].
    bounds, target_bounds: int64 ``(N + 1,)``.
    first_lengths: int32 ``(N,)``, tokens of segment 0: [CLS], A and [SEP].
    is_random_next: int8 ``(N,)``.
    positions, labels: int32 ``(P,)``, the masked positions within their example, and the original ids.
    """

    ids: NDArray[np.int32]
    bounds: NDArray[np.int64]
    first_lengths: NDArray[np.int32]
    is_random_next: NDArray[np.int8]
    positions: NDArray[np.int32]
    labels: NDArray[np.int32]
    target_bounds: NDArray[np.int64]

    @classmethod
    def of(cls, instances: Iterable[TrainingInstance], vocab: Mapping[str, int]) -> Examples:
        """From the examples as tokens."""
        ids, positions, labels = array("i"), array("i"), array("i")
        first_lengths, is_random, bounds, target_bounds = array("i"), array("b"), array("q", [0]), array("q", [0])
        for one in instances:
            ids.extend([vocab[token] for token in one.tokens])
            positions.extend(one.masked_lm_positions)
            labels.extend([vocab[token] for token in one.masked_lm_labels])
            first_lengths.append(len(one.segment_ids) - sum(one.segment_ids))
            is_random.append(one.is_random_next)
            bounds.append(len(ids))
            target_bounds.append(len(positions))
        columns = [ids, bounds, first_lengths, is_random, positions, labels, target_bounds]
        return cls(*(np.frombuffer(column, column.typecode) if column else np.array(column) for column in columns))

    def batch(self, rows: list[int]) -> Batch:
        """The examples with the given numbers, packed."""
        ids = np.concatenate([self.ids[self.bounds[row] : self.bounds[row + 1]] for row in rows])
        lengths = self.bounds[np.array(rows) + 1] - self.bounds[rows]
        types, labels = np.zeros(len(ids), np.int64), np.full(len(ids), -100, np.int64)
        for row, (start, end) in zip(rows, pairwise(boundaries_of(lengths)), strict=True):
            types[start + self.first_lengths[row] : end] = 1
            targets = slice(self.target_bounds[row], self.target_bounds[row + 1])
            labels[start + self.positions[targets]] = self.labels[targets]
        return packed_examples(ids.astype(np.int64), types, labels, lengths, self.is_random_next[rows])


def original_plan(
    store: TokenStore, config: PretrainConfig, phase: Phase, *, rank: int = 0, num_ranks: int = 1
) -> EpochPlan[Batch]:
    """Make the examples, which takes as long as in the original: seconds per million tokens and copy.

    ``phase.max_predictions`` None means ``masked_lm_prob`` of the maximum length, as the original's README advises.
    """
    _check_size(store, config, num_ranks)
    tokenizer, max_seq_length = store.tokenizer(), phase.max_seq_length
    _check_tokens(tokenizer)
    limit = phase.max_predictions or math.ceil(config.masked_lm_prob * max_seq_length)
    say(f"making examples of at most {max_seq_length} tokens as the original does, {config.dupe_factor} copies")
    settings = InstanceSettings(
        max_seq_length=max_seq_length,
        dupe_factor=config.dupe_factor,
        short_seq_prob=config.short_seq_prob,
        masked_lm_prob=config.masked_lm_prob,
        max_predictions_per_seq=limit,
        do_whole_word_mask=config.masking == "whole-word",
    )
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    instances = instances_from_documents(_documents(store, names), list(tokenizer.vocab), settings, Random(config.seed))
    # Without the original's last shuffle, because each epoch is shuffled anew.
    examples = Examples.of(instances, tokenizer.vocab)
    return EpochPlan(
        np.diff(examples.bounds).tolist(),
        examples.batch,
        step_size=phase.batch_size,
        max_tokens=max(config.max_tokens, max_seq_length),
        seed=config.seed,
        rank=rank,
        num_ranks=num_ranks,
    )


def _check_size(store: TokenStore, config: PretrainConfig, num_ranks: int) -> None:
    """Every process of a machine has its own examples for each length."""
    here = min(num_ranks, int(os.environ.get("LOCAL_WORLD_SIZE", num_ranks)))  # set by torchrun
    num_tokens, num_lengths = store.manifest.counts.num_tokens, len(config.phases)
    if num_tokens * config.dupe_factor * num_lengths * here <= MOST_TOKENS:
        return
    times = [f"{config.dupe_factor} times (dupe_factor)"]
    times += [f"for {num_lengths} lengths (short_seq_length)"] * (num_lengths > 1)
    times += [f"in {here} processes"] * (here > 1)
    raise ConfigError(
        f"protocol 'original' keeps all examples in memory, like the original: {num_tokens:,} tokens "
        f"{', '.join(times)} are more than {MOST_TOKENS:,}. Lower dupe_factor, or use protocol 'bertkit', which makes "
        "examples while training"
    )


def _check_tokens(tokenizer: PreTrainedTokenizer) -> None:
    """Refuse other tokens than BERT's: the original code has their names built in, and the ``##`` of word pieces."""
    own = tokenizer.cls_token, tokenizer.sep_token, tokenizer.mask_token
    if not isinstance(tokenizer, BertTokenizer) or own != SPECIAL[:3]:
        raise ConfigError(
            f"protocol 'original' makes examples of BERT's word pieces with {', '.join(SPECIAL[:3])}, and the token "
            f"store was made with {tokenizer!r}; use protocol 'bertkit'"
        )


def _documents(store: TokenStore, names: Sequence[str]) -> list[TokenizedDocument]:
    return [StoredDocument(store, names, first, end) for first, end in pairwise(store.document_boundaries.tolist())]


@dataclass(frozen=True, slots=True, eq=False)
class StoredDocument(Sequence[Sentence]):
    """Sentences ``first : end`` of a store, converted to tokens on demand."""

    store: TokenStore
    names: Sequence[str]
    first: int
    end: int

    def __len__(self) -> int:
        return self.end - self.first

    @overload
    def __getitem__(self, which: int) -> Sentence: ...
    @overload
    def __getitem__(self, which: slice) -> StoredDocument: ...
    def __getitem__(self, which: int | slice) -> Sentence | StoredDocument:
        chosen = range(self.first, self.end)[which]
        if isinstance(chosen, range):
            assert chosen.step == 1, "sentences in their order"
            return StoredDocument(self.store, self.names, chosen.start, chosen.stop)
        return [self.names[token] for token in self.store.tokens(chosen, chosen + 1).tolist()]
