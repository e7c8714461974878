"""Batches of denoising examples for BART and T5, made on demand: a pure function of (seed, epoch, number).

The examples are those of the objective ``mlm`` (:mod:`bertkit.data.examples.pairs`): stretches of a corpus, cut between
sentences where they can be. Here each becomes a source and a target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from typing import Self, Unpack

import numpy as np
import torch

from bertkit.batch import Batch, pack
from bertkit.data.examples.denoising import (
    PUBLISHED,
    Denoised,
    Denoising,
    DenoisingObjective,
    corrupt_spans,
    example_key,
    infill,
    spans_of,
)
from bertkit.data.examples.pairs import ExampleSpans, Rules, SentenceTokens
from bertkit.data.examples.pretrain_batches import ExamplePlan, PlanOptions
from bertkit.errors import ConfigError
from bertkit.ragged import Ints
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer

#: As PyTorch's cross-entropy has it.
NO_TARGET = -100


@dataclass(frozen=True, slots=True)
class DenoisingVocabulary:
    """What denoising needs of a tokenizer: special tokens around a text, the mask, sentinels in their order."""

    size: int
    before: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()
    mask_id: int | None = None
    sentinels: tuple[int, ...] = ()

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizer) -> Self:
        """Of a tokenizer of BART or T5, or of any other that has their tokens."""
        empty = tokenizer.encode_ragged([""])[0].tolist()
        first = [number for number in empty[:1] if number == tokenizer.cls_token_id]
        ids = tokenizer.vocab
        return cls(
            size=len(tokenizer),
            before=tuple(first),
            behind=tuple(empty[len(first) :]),
            mask_id=tokenizer.mask_token_id,
            sentinels=tuple(ids[name] for name in takewhile(ids.__contains__, map("<extra_id_{}>".format, count()))),
        )

    @property
    def ends(self) -> tuple[int, ...]:
        """The ids that are in targets and in no text."""
        return (*self.before, *self.behind, *self.sentinels)


@dataclass(frozen=True, slots=True)
class DenoisingRules:
    """How the examples are made; ``max_seq_length`` counts special tokens, ``permute_sentences`` is for infilling."""

    objective: DenoisingObjective = "span-corruption"
    max_seq_length: int = 512
    seed: int = 0
    how: Denoising | None = None
    permute_sentences: bool = True

    def __post_init__(self) -> None:
        if self.objective not in PUBLISHED:
            raise ConfigError(f"objective must be one of {', '.join(PUBLISHED)}, got {self.objective!r}")

    @property
    def noise(self) -> Denoising:
        """How much is replaced."""
        return self.how or PUBLISHED[self.objective]


class DenoisingData(ExamplePlan):
    """The batch plan of denoising: packed sources, whose ``labels`` ``(B, S)`` are the targets, filled up with -100."""

    def __init__(
        self,
        tokens: SentenceTokens,
        vocabulary: DenoisingVocabulary,
        rules: DenoisingRules,
        **options: Unpack[PlanOptions],
    ) -> None:
        _check(vocabulary, rules)
        self.denoising, self.special = rules, vocabulary
        stretches = Rules("mlm", rules.max_seq_length, short_seq_prob=0.0, seed=rules.seed)
        super().__init__(tokens, stretches, **options)

    def pack(self, numbers: Ints, chosen: ExampleSpans, epoch: int) -> Batch:
        made = [
            self.example(sentences, epoch, number)
            for sentences, number in zip(self._sentences_of(chosen), numbers.tolist(), strict=True)
        ]
        labels = [torch.from_numpy(self._around(each.target)) for each in made]
        padded_BS = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=NO_TARGET)
        return pack([self._around(each.source).tolist() for each in made]).with_target("labels", padded_BS)

    def example(self, sentences: Sequence[Ints], epoch: int, number: int) -> Denoised:
        """Source and target of an example, without the special tokens around them."""
        rules, key = self.denoising, example_key(self.denoising.seed, epoch, number)
        if rules.objective == "span-corruption":
            return corrupt_spans(np.concatenate(sentences), key, self.special.sentinels, rules.noise)
        assert self.special.mask_id is not None
        return infill(sentences, key, self.special.mask_id, rules.noise, permute=rules.permute_sentences)

    def _around(self, ids: Ints) -> Ints:
        return np.concatenate([self.special.before, ids, self.special.behind]).astype(np.int64)

    def _sentences_of(self, chosen: ExampleSpans) -> list[list[Ints]]:
        """The tokens of each example, sentence by sentence; the first and the last may be parts of one."""
        bounds = self._sentences.bounds
        found = []
        for start, size in zip(chosen.first_start.tolist(), chosen.first_length.tolist(), strict=True):
            first = int(np.searchsorted(bounds, start, side="right")) - 1
            last = int(np.searchsorted(bounds, start + size, side="left"))
            begin = start - int(bounds[first])
            ids = self.tokens.tokens(first, last)[begin : begin + size].astype(np.int64)
            self._check_ids(ids, self.special.size)
            cuts = np.asarray(bounds[first + 1 : last], np.int64) - start
            found.append([part for part in np.split(ids, cuts) if len(part)])
        return found


def _check(vocabulary: DenoisingVocabulary, rules: DenoisingRules) -> None:
    if rules.objective == "text-infilling":
        if vocabulary.mask_id is None:
            raise ConfigError("text-infilling needs a tokenizer with a mask token, as BART's")
        return
    if not vocabulary.sentinels:
        raise ConfigError(
            "span-corruption needs a tokenizer with sentinels (<extra_id_0> ...): prepare the corpus with that of a T5 "
            "(bertkit prepare CORPUS --tokenizer MODEL), or train a BART, which needs a mask only"
        )
    needed = spans_of(max(rules.max_seq_length, 2), rules.noise)[1]
    if needed > (given := len(vocabulary.sentinels)):
        raise ConfigError(
            f"max_seq_length={rules.max_seq_length} needs a sentinel for each of up to {needed} spans, and the "
            f"tokenizer has {given}: use shorter examples, or longer or fewer spans"
        )
