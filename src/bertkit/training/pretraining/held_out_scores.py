"""Scores of a model on held-out text during pre-training: the four metrics of the original code."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from torch import Tensor

from bertkit.batch import Batch
from bertkit.data.examples.pretrain_batches import PretrainData
from bertkit.model.models import BertForPreTraining
from bertkit.training.trainer.loop import Evaluate


def scored_batches(data: PretrainData, num_examples: int) -> Iterator[Batch]:
    """The first ``num_examples`` held-out examples, always the same; all of them if there are fewer.

    The last step is not cut, so there may be a few more.
    """
    for step in range(min(data.steps_per_epoch, math.ceil(num_examples / data.batch_size))):
        yield from data.micro_batches(step)


def held_out_scores(network: BertForPreTraining, data: PretrainData, num_examples: int) -> Evaluate:
    """An evaluation for the training loop: masked-LM and next-sentence loss (nats) and accuracy.

    Args:
        network: the model; the loop has it in eval mode, without gradients, when it asks for the scores.
        data: held-out examples.
        num_examples: how many to score, see :func:`scored_batches`.
    """

    def evaluate(check: Callable[[], None]) -> dict[str, float]:
        totals: dict[str, float] = {}
        for batch in scored_batches(data, num_examples):
            check()
            for name, value in _counts(network, batch.to(network.device)).items():
                totals[name] = totals.get(name, 0.0) + value
        return {
            f"{term}_{metric}": totals[f"{term}_{metric}"] / totals[f"{term}_targets"]
            for term in ("masked_lm", "next_sentence")
            for metric in ("loss", "accuracy")
            if f"{term}_targets" in totals
        }

    return evaluate


def _counts(network: BertForPreTraining, batch: Batch) -> dict[str, float]:
    """Numerators and denominators of the metrics, summed over one batch."""
    out = network.forward_packed(batch)
    assert out.loss_terms is not None
    assert batch.logit_rows is not None
    compared: dict[str, tuple[Tensor | None, Tensor]] = {
        "masked_lm": (out.prediction_logits, batch.targets["labels"][batch.logit_rows]),
    }
    if "next_sentence" in out.loss_terms:
        compared["next_sentence"] = (out.seq_relationship_logits, batch.targets["next_sentence_label"])
    counts = {}
    for term, (logits, labels) in compared.items():
        assert logits is not None
        counts[f"{term}_loss"] = float(out.loss_terms[term].total)
        counts[f"{term}_accuracy"] = float((logits.argmax(-1) == labels).sum())
        counts[f"{term}_targets"] = float(labels.numel())
    return counts
