"""Pre-training from the examples of the original code: made once, in memory, with fixed masks (protocol ``original``).

Devlin et al. 2019, appendix A.2, and ``create_pretraining_data.py`` of google-research/bert, whose algorithm
:mod:`bertkit.classic` has. With the same seed, vocabulary and text (one sentence a line, one file) the examples are
those that the original writes. They are kept as ids; nothing is padded.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertkit.batch import Batch, Layout, positions_of
from bertkit.classic import TokenizedDocument, TrainingInstance, instances_from_documents
from bertkit.console import say
from bertkit.data.store import TokenStore
from bertkit.errors import ConfigError
from bertkit.training.plan import epoch_order, split_by_budget
from bertkit.training.pretrain_settings import PretrainConfig

#: Most tokens of all copies together: about 4 GB of memory.
MOST_TOKENS = 500_000_000


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """N examples as flat arrays; example n has the tokens ``bounds[n] : bounds[n + 1]``, and so on.

    ids: int32 ``(T,)``, after masking, with [CLS] and [SEP].
    bounds: int64 ``(N + 1,)``.
    first_lengths: int32 ``(N,)``, tokens of segment 0: [CLS], A and [SEP].
    is_random_next: int8 ``(N,)``.
    positions, labels: int32 ``(P,)``, the places to predict within their example, and the ids that stood there.
    target_bounds: int64 ``(N + 1,)``.
    """

    ids: NDArray[np.int32]
    bounds: NDArray[np.int64]
    first_lengths: NDArray[np.int32]
    is_random_next: NDArray[np.int8]
    positions: NDArray[np.int32]
    labels: NDArray[np.int32]
    target_bounds: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.first_lengths)

    @classmethod
    def of(cls, instances: Iterable[TrainingInstance], vocab: Mapping[str, int]) -> Examples:
        """From the examples as tokens, in their order."""
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
        columns: list[Any] = [ids, bounds, first_lengths, is_random, positions, labels, target_bounds]
        return cls(*(np.array(column) for column in columns))


class OriginalPlan:
    """Every example once an epoch, in a new order each epoch: a :class:`~bertkit.training.plan.Plan`.

    Args:
        examples: made once.
        batch_size: examples in an optimizer step, over all ranks; the last step of an epoch has what is left.
        max_tokens: most tokens in one micro-batch.
        seed: fixes the order.
        rank, num_ranks: this process gets every ``num_ranks``-th example of a step, from the ``rank``-th.
    """

    unit = "tokens"

    def __init__(
        self, examples: Examples, *, batch_size: int, max_tokens: int, seed: int, rank: int = 0, num_ranks: int = 1
    ) -> None:
        self.examples = examples
        self.batch_size, self.max_tokens, self.seed = batch_size, max_tokens, seed
        self.rank, self.num_ranks = rank, num_ranks
        self.lengths: list[int] = np.diff(examples.bounds).tolist()
        self.steps_per_epoch = math.ceil(len(examples) / batch_size)
        self._order: tuple[int, NDArray[np.int64]] = (-1, np.zeros(0, np.int64))

    def rows(self, step: int) -> list[int]:
        epoch, at = divmod(step, self.steps_per_epoch)
        order = self._order  # read once: another thread may be in another epoch
        if order[0] != epoch:
            self._order = order = (epoch, epoch_order(len(self.examples), self.seed, epoch))
        chosen: list[int] = order[1][at * self.batch_size : (at + 1) * self.batch_size].tolist()
        return chosen

    def size(self, step: int) -> int:
        return sum(self.lengths[row] for row in self.rows(step))

    def micro_batches(self, step: int) -> list[Batch]:
        rows = sorted(self.rows(step), key=self.lengths.__getitem__)[self.rank :: self.num_ranks]
        return [self.batch(part) for part in split_by_budget(rows, self.lengths, self.max_tokens)] if rows else []

    def batch(self, rows: list[int]) -> Batch:
        """Examples packed, without padding."""
        all_of = self.examples
        lengths = tuple(self.lengths[row] for row in rows)
        starts = np.cumsum([0, *lengths])
        ids = np.concatenate([all_of.ids[all_of.bounds[row] : all_of.bounds[row + 1]] for row in rows])
        types, labels = np.zeros(len(ids), np.int64), np.full(len(ids), -100, np.int64)
        for start, end, row in zip(starts[:-1], starts[1:], rows, strict=True):
            types[start + all_of.first_lengths[row] : end] = 1
            targets = slice(all_of.target_bounds[row], all_of.target_bounds[row + 1])
            labels[start + all_of.positions[targets]] = all_of.labels[targets]
        return Batch(
            input_ids=torch.from_numpy(ids.astype(np.int64)),
            token_type_ids=torch.from_numpy(types),
            position_ids=positions_of(lengths),
            layout=Layout(lengths),
            targets={
                "labels": torch.from_numpy(labels),
                "next_sentence_label": torch.from_numpy(all_of.is_random_next[rows].astype(np.int64)),
            },
            logit_rows=torch.from_numpy(np.flatnonzero(labels != -100)),
        )


def original_plan(
    store: TokenStore,
    config: PretrainConfig,
    max_seq_length: int,
    max_predictions_per_seq: int | None,
    *,
    rank: int = 0,
    num_ranks: int = 1,
) -> OriginalPlan:
    """Make the examples, which takes the original's time: seconds for each million tokens and copy.

    Args:
        store: small enough for memory, ``config.dupe_factor`` times.
        config: seed, probabilities, copies, batches.
        max_seq_length: most tokens of an example.
        max_predictions_per_seq: most targets of one; None: ``masked_lm_prob`` of the longest, as the original's README
            advises (20 at length 128, 77 at 512).
        rank: number of this process.
        num_ranks: how many there are.

    Raises:
        ConfigError: the store is too large, or a setting is out of bounds.
    """
    num_tokens = store.manifest.counts.num_tokens
    if num_tokens * config.dupe_factor > MOST_TOKENS:
        raise ConfigError(
            f"protocol 'original' holds all examples in memory, as the original does: {num_tokens:,} tokens "
            f"{config.dupe_factor} times (dupe_factor) are more than {MOST_TOKENS:,}. Lower dupe_factor, or use "
            "protocol 'bertkit', which makes examples while training"
        )
    tokenizer = store.tokenizer()
    limit = max_predictions_per_seq or math.ceil(config.masked_lm_prob * max_seq_length)
    say(f"making examples of at most {max_seq_length} tokens as the original does, {config.dupe_factor} copies")
    rng = Random(config.seed)
    instances = instances_from_documents(
        _documents(store, tokenizer.convert_ids_to_tokens(range(len(tokenizer)))),
        list(tokenizer.vocab),
        max_seq_length,
        config.dupe_factor,
        config.short_seq_prob,
        config.masked_lm_prob,
        limit,
        rng,
        do_whole_word_mask=config.masking == "whole-word",
    )
    # The original's last shuffle is left out: each epoch has an order of its own.
    examples = Examples.of(instances, tokenizer.vocab)
    return OriginalPlan(
        examples,
        batch_size=config.batch_size,
        max_tokens=max(config.max_tokens, max_seq_length),
        seed=config.seed,
        rank=rank,
        num_ranks=num_ranks,
    )


def _documents(store: TokenStore, names: list[str]) -> list[TokenizedDocument]:
    """The corpus as tokens again: documents of sentences."""
    documents = []
    sentence_bounds, document_bounds = store.sentence_boundaries, store.document_boundaries
    for first, end in zip(document_bounds[:-1].tolist(), document_bounds[1:].tolist(), strict=True):
        tokens = [names[token] for token in store.tokens(first, end).tolist()]
        bounds = (sentence_bounds[first : end + 1] - sentence_bounds[first]).tolist()
        documents.append([tokens[a:b] for a, b in pairwise(bounds)])
    return documents
