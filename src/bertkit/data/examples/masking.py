"""Masking for the masked language model, for a whole batch at once, drawn anew each epoch.

The masking of a row depends only on its tokens and its key, not on the other rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from bertkit.data.counter_random import UInt64, below, bits, uniform
from bertkit.data.examples.word_pieces import continuing
from bertkit.errors import ConfigError, DataError, did_you_mean
from bertkit.ragged import Flags, Ids, Ints
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: ``token``: single word pieces (BERT). ``whole-word``: all pieces of a word (BERT's later release). ``span``: spans of
#: words (SpanBERT, Joshi et al. 2019). Words are those of :mod:`bertkit.data.examples.word_pieces`.
Unit = Literal["token", "whole-word", "span"]

#: Words in a span: geometric with this parameter, truncated at the longest (SpanBERT, section 3.1); 3.8 on average.
SPAN_SUCCESS = 0.2
LONGEST_SPAN = 10

#: The draws of a position: order of tokens, what happens to one, which token replaces it, length of a span.
_ORDER, _ACTION, _REPLACEMENT, _SPAN, _NUM_DRAWS = range(5)
#: Bits of a draw that order the units of a row; the bits above are the number of the row.
_ORDER_BITS = 44


@dataclass(frozen=True, slots=True)
class Masking:
    """How much is masked, and how.

    rate: share of a row's tokens (special ones included, as in the original) that become targets; at least one does.
    max_predictions_per_seq: maximum targets of a row; None: no limit. The original has 20 at length 128, 76 at 512.
    mask_share, random_share: of the targets, those replaced by [MASK] and by a random token; the rest is unchanged.
    """

    unit: Unit = "token"
    rate: float = 0.15
    max_predictions_per_seq: int | None = None
    mask_share: float = 0.8
    random_share: float = 0.1

    def __post_init__(self) -> None:
        units = get_args(Unit)
        if self.unit not in units:
            raise ConfigError(
                f"masking unit must be one of {', '.join(units)}, got {self.unit!r}{did_you_mean(self.unit, units)}"
            )
        if not 0 < self.rate <= 1:
            raise ConfigError(f"masking rate must be over 0 and at most 1, got {self.rate}; the paper has 0.15")
        if self.max_predictions_per_seq is not None and self.max_predictions_per_seq < 1:
            raise ConfigError(f"max_predictions_per_seq must be at least 1, got {self.max_predictions_per_seq}")
        if min(self.mask_share, self.random_share) < 0 or self.mask_share + self.random_share > 1:
            raise ConfigError(
                f"mask_share={self.mask_share} and random_share={self.random_share} must be shares that add up to at "
                "most 1; the paper has 0.8 and 0.1"
            )


#: BERT's names of the tokens that begin a text, end a segment, hide a token, pad, and stand for what is unknown.
SPECIAL = ("[CLS]", "[SEP]", "[MASK]", "[PAD]", "[UNK]")
#: Tokens that no text has: places that published vocabularies keep free, and the names of single bytes.
_IN_NO_TEXT = re.compile(r"\[unused.*|<unused\d+>|.*NOTUSED|madeupword\d+|<0x[0-9A-F]{2}>", re.DOTALL)


@dataclass(frozen=True, slots=True, eq=False)
class MaskVocabulary:
    """What masking and assembly need to know about a vocabulary of V tokens.

    continues: bool ``(V,)``, pieces that continue a word; it says so only with ``knows_words``.
    replacements: int32, the ids that random replacements are drawn from.
    """

    cls_id: int
    sep_id: int
    mask_id: int
    continues: Flags
    replacements: Ids
    knows_words: bool = True

    @classmethod
    def of_tokenizer(cls, tokenizer: PreTrainedTokenizer) -> MaskVocabulary:
        """From a tokenizer, including its added tokens; a DataError if it lacks a token that masked words need."""
        given = {name: getattr(tokenizer, name) for name in ("cls_token", "sep_token", "mask_token")}
        if absent := [name for name, token in given.items() if token is None]:
            raise DataError(
                f"{tokenizer!r} has no {' and no '.join(absent)}, so it can make no examples with masked words; it is "
                "for text to text ('bertkit finetune text2text'). Prepare the corpus with the tokenizer of an encoder"
            )
        names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        made = cls.of(names, (*given.values(), tokenizer.pad_token, tokenizer.unk_token), tokenizer.all_special_tokens)
        continues = continuing(tokenizer)
        if continues is None:
            return replace(made, knows_words=False)
        return replace(made, continues=continues)

    @classmethod
    def of(
        cls, tokens: Iterable[str], special: Sequence[str] = SPECIAL, others: Collection[str] = ()
    ) -> MaskVocabulary:
        """From all V word pieces in the order of their ids, and the names of those in :data:`SPECIAL`, in its order.

        Random replacements are drawn from all tokens but special ones, among them ``others``, and those that no text
        has, such as ``[unusedN]``; the original draws from all.
        """
        names = list(tokens)
        ids = {name: number for number, name in enumerate(names)}
        never = {*special, *others}
        if absent := [name for name in special[:3] if name not in ids]:
            raise DataError(
                f"the vocabulary ({len(names):,} tokens) has no {', '.join(absent)}, which pre-training needs; "
                "make one with 'bertkit vocab', or add the tokens"
            )
        ordinary = [number for name, number in ids.items() if name not in never and not _IN_NO_TEXT.fullmatch(name)]
        if not ordinary:
            raise DataError(f"the vocabulary ({len(names):,} tokens) has special tokens only")
        return cls(
            cls_id=ids[special[0]],
            sep_id=ids[special[1]],
            mask_id=ids[special[2]],
            continues=np.array([name.startswith("##") for name in names], bool),
            replacements=np.array(ordinary, np.int32),
        )

    @property
    def size(self) -> int:
        """V."""
        return len(self.continues)

    def check(self, masking: Masking) -> None:
        """Raise a ConfigError if ``masking`` needs words and the vocabulary does not know where they begin."""
        if masking.unit != "token" and not self.knows_words:
            raise ConfigError(
                f"masking={masking.unit!r} needs to know where words begin, which this tokenizer's tokens do not "
                "show: its prefix for pieces that continue a word is empty. Use masking 'token'"
            )


@dataclass(frozen=True, slots=True)
class _Rows:
    """A flat batch of B rows and T tokens.

    key: of each token's row ``(T,)``. wanted: maximum targets of each row ``(B,)``. counter: number of each token's
    first draw, by its position in its row ``(T,)``.
    """

    ids: Ints
    special: Flags
    row: Ints
    key: UInt64
    counter: Ints
    wanted: Ints


def mask_rows(
    ids: Ints, boundaries: Ints, special: Flags, keys: UInt64, masking: Masking, vocabulary: MaskVocabulary
) -> tuple[Ints, Ints]:
    """Input ids and labels of concatenated rows, both int64 ``(T,)``; a label is the original token, or -100.

    Special tokens are never targets, and each of at most 2**20 rows begins with one. A row has at most
    ``max(1, round(rate * length))`` targets, or fewer if no whole word or span is short enough.
    """
    lengths = np.diff(boundaries)
    row = np.repeat(np.arange(len(lengths)), lengths)
    position = np.arange(len(ids)) - boundaries[row]
    most = np.iinfo(np.int64).max if masking.max_predictions_per_seq is None else masking.max_predictions_per_seq
    # Rounds half to even, like Python's round() in the original.
    wanted = np.minimum(np.maximum(np.rint(lengths * masking.rate).astype(np.int64), 1), most)
    batch = _Rows(ids, special, row, keys[row], position * _NUM_DRAWS, wanted)
    if masking.unit == "token":
        candidates = np.flatnonzero(~batch.special)
        order = _in_random_order(batch, candidates)
        row = batch.row[candidates[order]]
        counts = np.bincount(row, minlength=len(batch.wanted))
        rank = np.arange(len(row)) - (np.cumsum(counts) - counts)[row]
        targets = deciders = np.sort(candidates[order[rank < batch.wanted[row]]])
    else:
        targets, heads = _choose_words(batch, masking.unit, vocabulary)
        # The pieces of a word are replaced independently, as in the original; a span is treated as a whole.
        deciders = heads if masking.unit == "span" else targets
    labels = np.full(len(ids), -100, np.int64)
    labels[targets] = ids[targets]
    # Usually 80 % of the targets are masked, 10 % replaced, 10 % kept.
    inputs = ids.copy()
    action = uniform(batch.key[deciders], batch.counter[deciders] + _ACTION)
    masked = action < masking.mask_share
    replaced = ~masked & (action < masking.mask_share + masking.random_share)
    inputs[targets[masked]] = vocabulary.mask_id
    others = targets[replaced]
    choice = below(batch.key[others], batch.counter[others] + _REPLACEMENT, len(vocabulary.replacements))
    inputs[others] = vocabulary.replacements[choice]
    return inputs, labels


def _in_random_order(batch: _Rows, at: Ints) -> Ints:
    """Shuffle the tokens ``at`` within each row: indices into ``at``, those of row 0 first."""
    draw = bits(batch.key[at], batch.counter[at] + _ORDER) >> np.uint64(64 - _ORDER_BITS)
    # A fixed number of bits, so that the order within a row does not depend on its number.
    return np.argsort((batch.row[at].astype(np.uint64) << np.uint64(_ORDER_BITS)) | draw, kind="stable")


def _choose_words(batch: _Rows, unit: Unit, vocabulary: MaskVocabulary) -> tuple[Ints, Ints]:
    """Whole words in random order, each with the following ones of its span, as long as there is room.

    A word that no longer fits is skipped for a shorter one, as in the original. A span ends early at a [SEP], at a word
    already taken, and where the room ends. Returns the targets, ascending, and for each where its span begins.
    """
    candidates = np.flatnonzero(~batch.special)
    begins = batch.special[candidates - 1] | ~vocabulary.continues[batch.ids[candidates]]
    first = np.flatnonzero(begins)
    head = candidates[first]  # (W,): flat position of each word
    size = np.diff(np.append(first, len(candidates)))
    segment = np.cumsum(batch.special)[head]  # also differs between rows: each begins with a special token
    span = np.ones(len(head), np.int64)  # words in the span that each word would begin
    if unit == "span":
        chances = (1 - SPAN_SUCCESS) ** np.arange(LONGEST_SPAN)
        edges = np.cumsum(chances / chances.sum())[:-1]
        span += np.searchsorted(edges, uniform(batch.key[head], batch.counter[head] + _SPAN), side="right")
    order = _in_random_order(batch, head)
    counts = np.bincount(batch.row[head], minlength=len(batch.wanted))
    offsets = np.cumsum(counts) - counts
    room = batch.wanted.copy()
    owner = np.full(len(head), -1)  # the word whose span each word belongs to
    steps = np.arange(span.max(initial=1))
    active = np.arange(len(counts))
    # Each round looks at the next word of every row that still has room.
    for turn in range(counts.max(initial=0)):
        active = active[(counts[active] > turn) & (room[active] > 0)]
        if not len(active):
            break
        chosen = order[offsets[active] + turn]
        words = np.minimum(chosen[:, None] + steps, len(head) - 1)  # (rows, longest span)
        usable = (chosen[:, None] + steps < len(head)) & (steps < span[chosen][:, None])
        usable &= (segment[words] == segment[chosen][:, None]) & (owner[words] < 0)
        total = np.cumsum(size[words], axis=1)
        taken = np.logical_and.accumulate(usable & (total <= room[active][:, None]), axis=1)
        owner[words[taken]] = np.repeat(chosen, taken.sum(axis=1))
        room[active] -= np.where(taken, size[words], 0).sum(axis=1)
    owners = np.repeat(owner, size)
    return candidates[owners >= 0], head[owners[owners >= 0]]
