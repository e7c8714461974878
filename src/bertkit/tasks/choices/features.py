"""Questions with their choices as token ids: one sequence for each choice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from bertkit.errors import ConfigError, InputError
from bertkit.ragged import GroupSet, Ragged, boundaries_of, concatenate
from bertkit.tasks.choices.task import ChoiceExample
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer


def featurize_choices(
    examples: Sequence[ChoiceExample],
    tokenizer: PreTrainedTokenizer,
    max_length: int | None = None,
    *,
    labelled: bool = True,
) -> GroupSet:
    """Token ids of questions: one sequence, [CLS] context [SEP] choice [SEP], for each choice.

    Where a pair does not fit, its context is cut at the end and the choice stays whole, so that no choice is lost or
    becomes equal to another; only where a choice alone does not fit, the longer of the two is cut. Deviates from the
    original, which always cuts the longer one.
    """
    if not examples:
        raise InputError("there are no examples to encode")
    sizes = np.array([len(example.pairs) for example in examples], dtype=np.int64)
    if not sizes.all():
        raise InputError(f"question {int(np.argmin(sizes))} has no choices")
    first, second = zip(*chain.from_iterable(example.pairs for example in examples), strict=True)
    limit = tokenizer.model_max_length if max_length is None else max_length
    sequences = _pairs_that_fit(list(first), list(second), tokenizer, limit)
    known = [example.label for example in examples if example.label is not None] if labelled else []
    if known and len(known) != len(examples):
        raise InputError(f"{len(known):,} of {len(examples):,} examples have a label; all must, or none")
    return GroupSet.of(sequences, boundaries_of(sizes), np.asarray(known, dtype=np.int64) if known else None)


def _pairs_that_fit(first: list[str], second: list[str], tokenizer: PreTrainedTokenizer, limit: int) -> Ragged:
    """Pairs of texts, of which the first is cut where that is enough."""
    whole = tokenizer.encode_ragged(first, second)
    long = np.flatnonzero(whole.lengths > limit)
    if not len(long):
        return whole
    texts, choices = [first[row] for row in long], [second[row] for row in long]
    of_choice = tokenizer.encode_ragged(choices, add_special_tokens=False).num_tokens_before
    num_specials = tokenizer.template.num_special(paired=True)
    if limit <= num_specials:
        raise ConfigError(f"max_length={limit} leaves no room for text beside the {num_specials} special tokens")
    choice_fits = of_choice + num_specials < limit
    parts, order = [whole], np.arange(len(whole))
    for fits, truncation in ((True, "only_first"), (False, "longest_first")):
        places = np.flatnonzero(choice_fits == fits)
        if len(places):
            order[long[places]] = sum(map(len, parts)) + np.arange(len(places))
            chosen = [texts[place] for place in places], [choices[place] for place in places]
            parts.append(tokenizer.encode_ragged(*chosen, max_length=limit, truncation=truncation))
    return concatenate(parts).select(order)
