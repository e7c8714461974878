"""Runs a model that generates text on rows of token ids: in batches of similar length, without padding of the input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional as F

from bertkit.batch import Batch, collate
from bertkit.config.encoder_decoder_config import EncoderDecoderConfig
from bertkit.config.generation_settings import GenerationSettings
from bertkit.engine.rows import pack_by_length
from bertkit.model.seq2seq.conditional_generation import NO_TARGET, ConditionalGeneration
from bertkit.ragged import Ragged

#: Most input tokens in a batch, counted once per beam.
MAX_TOKENS = 8192
#: Most tokens of inputs and targets in a batch that is judged: each target has a row of logits, of all words.
MAX_JUDGED = 2048


class TextGenerator:
    """A BART or T5 that generates or judges text, in float32 or whatever its weights are in."""

    def __init__(self, model: ConditionalGeneration) -> None:
        self.model = model

    @property
    def config(self) -> EncoderDecoderConfig:
        """Shape of the model."""
        return self.model.config

    @property
    def device(self) -> str:
        """Where the weights are."""
        return str(self.model.model.shared.weight.device)

    def generate(
        self,
        rows: Ragged,
        settings: GenerationSettings,
        *,
        seed: int | None = None,
        num_words: int | None = None,
        advance: Callable[[int], None] = lambda count: None,
    ) -> list[list[list[int]]]:
        """The ``num_return_sequences`` texts of each row, in the order of the rows, as ids with special tokens."""
        each, given = settings.num_return_sequences, settings.model_dump()
        found: dict[int, list[list[int]]] = {}
        for numbers in pack_by_length(rows.lengths, max(MAX_TOKENS // max(settings.num_beams, each), 1)):
            out = self.model.generate_rows(rows.select(np.array(numbers)), seed=seed, num_words=num_words, **given)
            for place, number in enumerate(numbers):
                found[number] = out[place * each : (place + 1) * each]
            advance(len(numbers))
        return [found[number] for number in range(len(rows))]

    def losses(self, rows: Ragged, targets: Ragged) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """The cross-entropy of each row's target, summed over its tokens, and the number of these: ``(R,)`` each."""
        total = np.zeros(len(rows))
        for numbers in pack_by_length(rows.lengths + targets.lengths, MAX_JUDGED):
            batch = pairs_batch(rows, targets, numbers).to(self.device)
            labels_BS = batch.targets["labels"]
            with self.model.evaluating():
                cache = self.model.model.remember(batch)
                logits_BSV = self.model.predict(self.model.decode(self.model.shift_right(labels_BS), cache))
                loss_BS = F.cross_entropy(
                    logits_BSV.transpose(1, 2), labels_BS, ignore_index=NO_TARGET, reduction="none"
                )
            total[numbers] = loss_BS.sum(dim=1).double().cpu().numpy()
        return total, targets.lengths


def pairs_batch(rows: Ragged, targets: Ragged, numbers: Any) -> Batch:
    """A packed batch of some rows, whose ``labels`` ``(B, S)`` are their targets, with -100 behind the shorter ones."""
    chosen = [torch.from_numpy(targets[number].astype(np.int64)) for number in numbers]
    labels_BS = torch.nn.utils.rnn.pad_sequence(chosen, batch_first=True, padding_value=NO_TARGET)
    return collate(rows, numbers).with_target("labels", labels_BS)
