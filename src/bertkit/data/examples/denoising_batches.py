"""Batches of denoising examples for BART and T5, made on demand: a pure function of (seed, epoch, number).

The examples are those of the objective ``mlm`` (:mod:`bertkit.data.examples.pairs`): stretches of a corpus, cut between
sentences where they can be. Here each becomes a source and a target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, Unpack

import numpy as np
import torch

from bertkit.batch import Batch, pack
from bertkit.data.examples.denoising import (
    SPAN_CORRUPTION,
    TEXT_INFILLING,
    Denoised,
    Denoising,
    corrupt_spans,
    example_key,
    infill,
)
from bertkit.data.examples.pairs import ExampleSpans, Rules, SentenceTokens
from bertkit.data.examples.pretrain_batches import ExamplePlan, PlanOptions
from bertkit.errors import ConfigError
from bertkit.ragged import Ints
from bertkit.tokenization import PreTrainedTokenizer
from bertkit.tokenization.unigram_tokenizers import T5Tokenizer

DenoisingObjective = Literal["span_corruption", "text_infilling"]
_PUBLISHED: dict[str, Denoising] = {"span_corruption": SPAN_CORRUPTION, "text_infilling": TEXT_INFILLING}
#: As PyTorch's cross-entropy has it.
NO_TARGET = -100


@dataclass(frozen=True, slots=True)
class DenoisingVocabulary:
    """What denoising needs of a tokenizer.

    before, behind: ids of the special tokens around a text. size: of the vocabulary.
    mask_id: of text infilling; sentinels: of span corruption, ``<extra_id_0>`` first.
    """

    size: int
    before: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()
    mask_id: int | None = None
    sentinels: tuple[int, ...] = ()

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizer) -> Self:
        """Of a tokenizer of BART or T5."""
        empty = tokenizer.encode_ragged([""])[0].tolist()
        first = [number for number in empty[:1] if number == tokenizer.cls_token_id]
        sentinels = tokenizer.get_sentinel_token_ids() if isinstance(tokenizer, T5Tokenizer) else []
        return cls(
            size=len(tokenizer),
            before=tuple(first),
            behind=tuple(empty[len(first) :]),
            mask_id=tokenizer.mask_token_id,
            sentinels=tuple(sentinels),
        )


@dataclass(frozen=True, slots=True)
class DenoisingRules:
    """How the examples are made.

    objective: ``span_corruption`` as T5, ``text_infilling`` with permuted sentences as BART.
    max_seq_length: most tokens of a text before it is corrupted, special ones included.
    how: rate and mean length of the spans; None: as published. permute_sentences: of text infilling.
    """

    objective: DenoisingObjective = "span_corruption"
    max_seq_length: int = 512
    seed: int = 0
    how: Denoising | None = None
    permute_sentences: bool = True

    def __post_init__(self) -> None:
        if self.objective not in _PUBLISHED:
            raise ConfigError(f"objective must be one of {', '.join(_PUBLISHED)}, got {self.objective!r}")


class DenoisingData(ExamplePlan):
    """The batch plan of denoising: packed sources, whose ``labels`` ``(B, S)`` are the targets, filled up with -100.

    Arguments and the rest are those of :class:`~bertkit.data.examples.pretrain_batches.ExamplePlan`.

    Raises:
        ConfigError: a tokenizer without a mask or sentinels, which the objective needs.
    """

    def __init__(
        self,
        tokens: SentenceTokens,
        vocabulary: DenoisingVocabulary,
        rules: DenoisingRules,
        **options: Unpack[PlanOptions],
    ) -> None:
        if rules.objective == "text_infilling" and vocabulary.mask_id is None:
            raise ConfigError("text_infilling needs a tokenizer with a mask token, as BART's")
        if rules.objective == "span_corruption" and not vocabulary.sentinels:
            raise ConfigError("span_corruption needs a tokenizer with sentinels (<extra_id_0> ...), as T5's")
        self.denoising, self.special = rules, vocabulary
        stretches = Rules("mlm", rules.max_seq_length, short_seq_prob=0.0, seed=rules.seed)
        super().__init__(tokens, stretches, **options)

    def pack(self, numbers: Ints, chosen: ExampleSpans, epoch: int) -> Batch:
        """The examples of an epoch with the given numbers, whose spans are ``chosen``, independent of each other."""
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
        how = rules.how or _PUBLISHED[rules.objective]
        if rules.objective == "span_corruption":
            return corrupt_spans(np.concatenate(sentences), key, self.special.sentinels, how)
        assert self.special.mask_id is not None
        return infill(sentences, key, self.special.mask_id, how, permute=rules.permute_sentences)

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
