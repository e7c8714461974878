"""Questions with their choices as token ids: one sequence for each choice. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Protocol

import numpy as np

from bertkit.errors import ConfigError, InputError
from bertkit.ragged import GroupSet, Ints, Ragged, boundaries_of, concatenate
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer


class QuestionExample(Protocol):
    """What :func:`featurize_choices` reads of an example; :class:`bertkit.tasks.choices.task.ChoiceExample` is one."""

    @property
    def pairs(self) -> Sequence[tuple[str, str]]:
        """The two texts of each choice."""

    @property
    def label(self) -> int | None:
        """Number of the right choice, or None."""


def featurize_choices(
    examples: Sequence[QuestionExample],
    tokenizer: PreTrainedTokenizer,
    max_length: int | None = None,
    *,
    labelled: bool = True,
) -> GroupSet:
    """Token ids of questions: one sequence, [CLS] context [SEP] choice [SEP], for each choice.

    Where a pair does not fit, its context is cut at the end and the choice stays whole, so that no choice is lost or
    becomes equal to another; only where a choice alone does not fit, the longer of the two is cut. Deviates from the
    original, which always cuts the longer one.

    Args:
        examples: see :class:`bertkit.tasks.choices.task.ChoiceExample`.
        tokenizer: of the model.
        max_length: most tokens of a sequence, special tokens included; None: the tokenizer's ``model_max_length``.
        labelled: keep the labels, which all examples must then have, or none.

    Raises:
        InputError: no examples, a question without choices, labels on some only.
        ConfigError: a ``max_length`` that leaves no room.
    """
    if not examples:
        raise InputError("no examples to turn into features")
    sizes = np.array([len(example.pairs) for example in examples], dtype=np.int64)
    if not sizes.all():
        raise InputError(f"question {int(np.argmin(sizes))} has no choices")
    first, second = zip(*chain.from_iterable(example.pairs for example in examples), strict=True)
    limit = tokenizer.model_max_length if max_length is None else max_length
    sequences = _pairs_that_fit(list(first), list(second), tokenizer, limit)
    groups = boundaries_of(sizes)
    return GroupSet(
        sequences,
        groups,
        np.add.reduceat(sequences.num_tokens_before, groups[:-1]),
        np.logical_or.reduceat(sequences.truncated, groups[:-1]),
        _labels_of([example.label for example in examples]) if labelled else None,
    )


def _pairs_that_fit(first: list[str], second: list[str], tokenizer: PreTrainedTokenizer, limit: int) -> Ragged:
    """Pairs of texts, of which the first is cut where that is enough."""
    whole = tokenizer.encode_ragged(first, second)
    long = np.flatnonzero(whole.lengths > limit)
    if not len(long):
        return whole
    texts, choices = [first[row] for row in long], [second[row] for row in long]
    of_first = tokenizer.encode_ragged(texts, add_special_tokens=False).num_tokens_before
    of_choice = tokenizer.encode_ragged(choices, add_special_tokens=False).num_tokens_before
    num_specials = int(whole.num_tokens_before[long[0]] - of_first[0] - of_choice[0])
    if limit <= num_specials:
        raise ConfigError(f"max_length={limit} leaves no room beside {num_specials} special tokens")
    choice_fits = of_choice + num_specials < limit
    parts, order = [whole], np.arange(len(whole))
    for fits, truncation in ((True, "only_first"), (False, "longest_first")):
        places = np.flatnonzero(choice_fits == fits)
        if len(places):
            order[long[places]] = sum(map(len, parts)) + np.arange(len(places))
            chosen = [texts[place] for place in places], [choices[place] for place in places]
            parts.append(tokenizer.encode_ragged(*chosen, max_length=limit, truncation=truncation))
    return concatenate(parts).select(order)


def _labels_of(labels: Sequence[int | None]) -> Ints | None:
    known = [label for label in labels if label is not None]
    if known and len(known) != len(labels):
        raise InputError(f"{len(known):,} of {len(labels):,} examples have a label; all must, or none")
    return np.asarray(known, dtype=np.int64) if known else None
