"""Weights of the words of the vocabulary for a text, by a masked-LM head: SPLADE (Formal et al. 2021), and its penalty.

The logits of all tokens of a batch would take a hundred megabytes for a thousand tokens, so they are computed for a
block of tokens at a time and pooled at once.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bertkit.batch import Batch
from bertkit.model.models import BertForMaskedLM
from bertkit.model.output import ModelOutput

#: Tokens whose logits are in memory at once: 16 MB for a vocabulary of 30,000 words.
BLOCK = 128


def word_weights(model: BertForMaskedLM, batch: Batch, pooling: str = "max", logs: int = 1) -> Tensor:
    """The weight of each word of the vocabulary in each sequence, ``(B, V)``, most of them 0.

    ``log(1 + relu(logits))``, pooled over all tokens of a sequence, [CLS] and [SEP] included, as sentence-transformers
    does it: ``"max"`` (SPLADE v2, arXiv 2109.10086) or ``"sum"`` (SPLADE, arXiv 2107.05720). ``logs``: 2 applies the
    logarithm twice, as models of OpenSearch are trained (arXiv 2504.14839).
    """
    x_TD = model.bert.forward_packed(batch).last_hidden_state
    assert x_TD is not None
    bounds = batch.layout.spans()
    parts: list[list[Tensor]] = [[] for _ in bounds]
    row = 0
    for start in range(0, len(x_TD), BLOCK):
        logits = model._predict_words(ModelOutput(last_hidden_state=x_TD[start : start + BLOCK]))
        values = logits if pooling == "max" else _weights(logits, logs)
        end = start + len(values)
        while row < len(bounds) and bounds[row][0] < end:
            first, last = (min(max(bound, start), end) - start for bound in bounds[row])
            own = values[first:last]
            parts[row].append(own.amax(dim=0) if pooling == "max" else own.sum(dim=0))
            if bounds[row][1] > end:
                break  # it goes on in the next block
            row += 1
    stacked = [torch.stack(each) for each in parts]
    if pooling == "max":  # the logarithm grows with the logit, so that one of the highest is enough
        return _weights(torch.stack([each.amax(dim=0) for each in stacked]), logs)
    return torch.stack([each.sum(dim=0) for each in stacked])


def flops_loss(weights_BV: Tensor) -> Tensor:
    """``sum over words of (mean weight in the batch) ** 2``: the products that a search would take (Paria et al. 2020).

    Added to the loss, it makes weights that are rarely needed 0.
    """
    return weights_BV.abs().mean(dim=0).square().sum()


def _weights(logits: Tensor, logs: int) -> Tensor:
    found = logits.float().relu()
    for _ in range(logs):
        found = found.log1p()
    return found
