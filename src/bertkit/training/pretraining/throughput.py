"""Speed of a pre-training run as a share of what the device reaches in a plain matrix product.

Counted are the matrix products that training needs, two operations per multiply-add, once forward and twice backward.
For an encoder of L layers of width D and feed-forward width F, a sequence of s tokens with r predictions from a
vocabulary of V costs forward::

    (L - 1) (8 s D^2 + 4 s^2 D + 4 s D F)         layers: projections, attention, feed-forward
    + 6 s D^2 + q (4 s D + 2 D^2 + 4 D F)         top layer, of which q = r + 1 rows are read
    + r (2 D^2 + 2 D V)                           masked-LM head
    + 2 D^2 + 4 D                                 pooler and next sentence

There is no padding, only predicted positions are projected to the vocabulary, and recomputation by gradient
checkpointing is not counted.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from bertkit.batch import Batch
from bertkit.config.bert_config import BertConfig
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.training.trainer.batch_plan import Plan

#: Maximum seconds for :func:`matmul_peak`, except for its first three products.
MEASURE_SECONDS = 0.1
#: Maximum rows of the measured product.
MOST_ROWS = 4096
#: Maximum steps whose work is remembered until they are logged.
_REMEMBERED = 8


def training_flops(batch: Batch, shape: BertConfig, *, pairs: bool) -> float:
    """Floating-point operations of a forward and backward pass.

    Args:
        batch: with ``logit_rows``.
        shape: of the model.
        pairs: whether the next-sentence head is trained.
    """
    assert batch.logit_rows is not None
    d, f = shape.hidden_size, shape.intermediate_size
    tokens, squares = batch.layout.num_tokens, sum(length * length for length in batch.layout.lengths)
    layers = (shape.num_hidden_layers - 1) * (8 * tokens * d * d + 4 * squares * d + 4 * tokens * d * f)
    chosen = ChosenRows.first_and(batch.logit_rows, batch.layout)
    pairs_read = sum(s * q for s, q in zip(batch.layout.lengths, chosen.lengths, strict=True))
    layers += 6 * tokens * d * d + 4 * pairs_read * d + len(chosen.rows) * (2 * d * d + 4 * d * f)
    predictions = batch.logit_rows.numel() * (2 * d * d + 2 * d * shape.vocab_size)
    pooled = batch.layout.num_sequences * (2 * d * d + 4 * d) if pairs else 0
    return 3.0 * (layers + predictions + pooled)


def matmul_peak(shape: BertConfig, *, rows: int, device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations per second in the fastest of several matrix products of the model's size.

    Takes about a tenth of a second, and no random numbers.

    Args:
        shape: its feed-forward layer is measured, ``(rows, D) @ (D, F)``.
        rows: tokens in memory at once; at most 4,096 are used.
        device: where to measure.
        dtype: number format of the products.
    """
    rows, d, f = min(rows, MOST_ROWS), shape.hidden_size, shape.intermediate_size
    x = torch.linspace(-1, 1, rows * d, device=device).view(rows, d).to(dtype)
    y = torch.linspace(-1, 1, d * f, device=device).view(d, f).to(dtype)
    out = torch.empty(rows, f, device=device, dtype=dtype)
    repeats = 1 if device.type == "cpu" else 10
    began = time.perf_counter()
    times: list[float] = []
    while len(times) < 3 or time.perf_counter() - began < MEASURE_SECONDS:
        _wait(device)
        start = time.perf_counter()
        for _ in range(repeats):
            torch.mm(x, y, out=out)
        _wait(device)
        times.append((time.perf_counter() - start) / repeats)
    return 2.0 * rows * d * f / min(times)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@dataclass(frozen=True, slots=True)
class Speed:
    """What the steps of a run are compared with.

    peak: floating-point operations per second, from :func:`matmul_peak`.
    num_ranks: processes that share the tokens of a step.
    """

    peak: float
    num_ranks: int = 1


class MeasuredPlan:
    """A plan that counts the work of its batches.

    Args:
        plan: where the batches come from.
        shape: of the model.
        speed: what they are compared with.
    """

    def __init__(self, plan: Plan[Batch], shape: BertConfig, speed: Speed) -> None:
        self.plan, self.shape, self.speed = plan, shape, speed
        self.steps_per_epoch, self.unit = plan.steps_per_epoch, plan.unit
        self._flops_per_token: dict[int, float] = {}

    def rows(self, step: int) -> list[int]:
        return self.plan.rows(step)

    def size(self, step: int) -> int:
        return self.plan.size(step)

    def micro_batches(self, step: int) -> list[Batch]:
        batches = self.plan.micro_batches(step)
        if not batches:  # a rank without an example
            return batches
        tokens = sum(batch.layout.num_tokens for batch in batches)
        pairs = "next_sentence_label" in batches[0].targets
        self._flops_per_token[step] = sum(training_flops(b, self.shape, pairs=pairs) for b in batches) / tokens
        while len(self._flops_per_token) > _REMEMBERED:
            self._flops_per_token.pop(next(iter(self._flops_per_token)), None)
        return batches

    def with_share(self, record: dict[str, Any]) -> dict[str, Any]:
        """The log record of a step with ``peak_share``, its share of the peak."""
        work, rate = self._flops_per_token.pop(record["step"] - 1, None), record.get("tokens_per_s")
        if "event" in record or rate is None or work is None:
            return record
        flops_a_second = work * rate / self.speed.num_ranks
        return {**record, "peak_share": round(flops_a_second / self.speed.peak, 4)}
