"""How well models guess hidden words of held-out text, those that read both ways and those that read one way.

All guess the same words. One that reads both ways sees the text with 15 % of its words masked, as in training; one that
reads one way sees all words on its side and none on the other, as in training. Several models together multiply their
probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertkit.batch import Batch
from bertkit.data.examples.masking import MaskVocabulary
from bertkit.data.examples.pretrain_batches import NEIGHBOURS, ExamplePlan
from bertkit.data.store.token_store import TokenStore
from bertkit.model.models import BertForMaskedLM, BertForPreTraining
from bertkit.training.pretraining.objectives import Network
from bertkit.training.pretraining.pretrain_data import held_out_data, scored_batches
from bertkit.training.pretraining.pretrain_settings import PretrainConfig

#: Where the model that reads one way says what a word is.
_SHIFTS = {"left-to-right": NEIGHBOURS["next-word"], "right-to-left": NEIGHBOURS["previous-word"], "both": 0}


def hidden_word_scores(
    models: Sequence[Network], store: TokenStore, length: int, num_examples: int
) -> dict[str, NDArray[np.float64]]:
    """Share of the words that are guessed, and loss in nats: the sum over each of E examples, and the words of each."""
    vocabulary = MaskVocabulary.of_tokenizer(store.tokenizer())
    data: ExamplePlan = held_out_data(store, vocabulary, PretrainConfig(objective="mlm", max_seq_length=length))
    found: dict[str, list[float]] = {"accuracy": [], "loss": [], "words": []}
    for batch in scored_batches(data, num_examples):
        assert batch.logit_rows is not None
        labels_R = batch.targets["labels"][batch.logit_rows]
        with torch.inference_mode():
            log_probs_RV = torch.stack([_log_probabilities(model, batch).cpu() for model in models]).sum(0)
        log_probs_RV = log_probs_RV.log_softmax(dim=-1)
        right_R = (log_probs_RV.argmax(-1) == labels_R).double()
        loss_R = -log_probs_RV.gather(1, labels_R[:, None])[:, 0].double()
        owner_T = torch.arange(batch.layout.num_sequences).repeat_interleave(torch.tensor(batch.layout.lengths))
        owner_R = owner_T[batch.logit_rows]
        for name, values_R in (("accuracy", right_R), ("loss", loss_R), ("words", torch.ones_like(loss_R))):
            sums_B = torch.zeros(batch.layout.num_sequences, dtype=torch.float64).index_add(0, owner_R, values_R)
            found[name] += sums_B.tolist()
    return {name: np.array(values) for name, values in found.items()}


def _log_probabilities(model: Network, batch: Batch) -> Tensor:
    """Of every word at each hidden one, ``(R, V)``."""
    assert isinstance(model, BertForPreTraining | BertForMaskedLM)
    assert batch.logit_rows is not None
    labels_T, shift = batch.targets["labels"], _SHIFTS[model.config.attention_direction]
    seen = batch.input_ids if not shift else torch.where(labels_T == -100, batch.input_ids, labels_T)
    asked = replace(batch, input_ids=seen, targets={}, logit_rows=batch.logit_rows + shift)
    out = model.forward_packed(asked.to(model.device))
    logits = out.prediction_logits if isinstance(model, BertForPreTraining) else out.logits
    assert logits is not None
    return logits.float().log_softmax(dim=-1)
