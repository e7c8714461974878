"""Sources and targets as token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertkit.errors import DataError, InputError
from bertkit.ragged import Flags, Ids, Ints, Ragged
from bertkit.tasks.seq2seq.task import Seq2SeqExample
from bertkit.tokenization.features import featurize_texts
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer


@dataclass(frozen=True, slots=True)
class TextPairs:
    """Sources as token ids, with their targets or without. The tokenizer turns what is generated into text."""

    sources: Ragged
    targets: Ragged | None
    tokenizer: PreTrainedTokenizer

    @property
    def ids(self) -> Ids:
        """Token ids of all sources and targets ``(T,)``."""
        return self.sources.ids if self.targets is None else np.concatenate([self.sources.ids, self.targets.ids])

    @property
    def lengths(self) -> Ints:
        """Tokens of each row, source and target together ``(R,)``."""
        return self.sources.lengths if self.targets is None else self.sources.lengths + self.targets.lengths

    @property
    def num_tokens_before(self) -> Ints:
        """Tokens of each source before truncation ``(R,)``."""
        return self.sources.num_tokens_before

    @property
    def truncated(self) -> Flags:
        """Which rows lost a part of their source or target ``(R,)``."""
        return self.sources.truncated if self.targets is None else self.sources.truncated | self.targets.truncated

    def __len__(self) -> int:
        return len(self.sources)


def featurize_seq2seq(
    examples: Sequence[Seq2SeqExample],
    prefix: str,
    tokenizer: PreTrainedTokenizer,
    *,
    max_length: int | None,
    max_target_length: int,
    labelled: bool,
) -> TextPairs:
    """Token ids of ``prefix`` and source, and of the target, each cut at its end; none may hold a special token."""
    sources = featurize_texts([prefix + example.text for example in examples], None, tokenizer, max_length=max_length)
    _check(sources, examples, "source", tokenizer)
    if not labelled:
        return TextPairs(sources, None, tokenizer)
    targets = [example.target for example in examples if example.target is not None]
    if len(targets) != len(examples):
        raise InputError(f"{len(targets):,} of {len(examples):,} examples have a target; all must")
    encoded = featurize_texts(targets, None, tokenizer, max_length=max_target_length)
    _check(encoded, examples, "target", tokenizer)
    return TextPairs(sources, encoded, tokenizer)


def _check(rows: Ragged, examples: Sequence[Seq2SeqExample], what: str, tokenizer: PreTrainedTokenizer) -> None:
    """Refuse special tokens in texts: one for the end would end what is learned there, a sentinel stand for a gap."""
    specials = [number for number in tokenizer.all_special_ids if number != tokenizer.unk_token_id]
    found = np.isin(rows.ids, specials)
    counts = np.add.reduceat(found, rows.boundaries[:-1])
    wrong = np.flatnonzero(counts > tokenizer.template.num_special(paired=False))
    if len(wrong):
        row = int(wrong[0])
        inside = rows[row][1:-1]
        token = tokenizer.convert_ids_to_tokens(int(inside[np.isin(inside, specials)][0]))
        raise DataError(
            f"{examples[row].where}: the {what} contains {token!r}, a special token of the model; remove it from the "
            f"text ({len(wrong):,} of {len(rows):,} rows are so)"
        )
