"""The work of a training step, counted in operations, and how much of what the machine can do that is."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from bertkit.batch import Batch
from bertkit.config.any_config import AnyConfig
from bertkit.config.bert_config import BertConfig
from bertkit.config.encoder_decoder_config import EncoderDecoderConfig
from bertkit.config.tower import Tower
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.training.trainer.batch_plan import Plan
from bertkit.training.trainer.loop_options import Record

#: Maximum seconds for :func:`matmul_peak`, except for its first three products.
MEASURE_SECONDS = 0.1
#: Maximum rows of the measured product.
MOST_ROWS = 4096
#: Maximum steps whose work is remembered until they are logged.
_REMEMBERED = 256


def training_flops(batch: Batch, shape: AnyConfig) -> float:
    """Floating-point operations of a forward and backward pass of a batch.

    Counted are the matrix products that training needs, two operations per multiply-add, once forward and twice
    backward; not padding, of which only targets have some, nor recomputation by gradient checkpointing.
    """
    forward = _masked_lm_flops(batch, shape) if isinstance(shape, BertConfig) else _writing_flops(batch, shape)
    return 3.0 * forward


def _writing_flops(batch: Batch, shape: EncoderDecoderConfig) -> float:
    """Forward, of an encoder-decoder.

    With layers of width D, attention heads of width A together and feed-forward width F, a source of s tokens and a
    target of t from a vocabulary of V cost::

        8 s D A + 4 s^2 A + 4 s D F                                 each layer of the encoder
        12 t D A + 4 s D A + 2 t (t + 1) A + 4 s t A + 4 t D F      each layer of the decoder
        2 t D V                                                     output

    The decoder projects its tokens for both attentions and the source for one, and compares each token with those up to
    it and with the source. A gated feed-forward has 6 D F.
    """
    encoder, decoder = shape.tower(decoder=False), shape.tower(decoder=True)
    targets = (batch.targets["labels"] != -100).sum(dim=1).tolist()
    total = 0.0
    for s, t in zip(batch.layout.lengths, targets, strict=True):
        total += encoder.layers * (s * _row_flops(encoder, projections=4) + 4 * s * s * _heads(encoder))
        compared = 2 * t * (t + 1) + 4 * s * t
        remembered = 4 * s * decoder.width
        total += decoder.layers * (t * _row_flops(decoder, projections=6) + (compared + remembered) * _heads(decoder))
        total += 2 * t * shape.d_model * shape.vocab_size
    return total


def _heads(tower: Tower) -> int:
    return tower.heads * tower.head_width


def _row_flops(tower: Tower, projections: int) -> int:
    """What a layer does with a token by itself: projections between its width and the heads', and the feed-forward."""
    feed_forward = (6 if tower.gated else 4) * tower.width * tower.inner_width
    return 2 * projections * tower.width * _heads(tower) + feed_forward


def _masked_lm_flops(batch: Batch, shape: BertConfig) -> float:
    """Forward, of an encoder and a batch with ``logit_rows``.

    With L layers of width D and feed-forward width F, a sequence of s tokens with r predictions from a vocabulary of V
    costs::

        (L - 1) (8 s D^2 + 4 p D + 4 s D F)           layers: projections, attention to p pairs of tokens, feed-forward
        + 6 s D^2 + q (4 k D + 2 D^2 + 4 D F)         top layer, of which q = r + 1 rows are read, each with k keys
        + r (2 D E + 2 E V)                           masked-LM head on embeddings of width E
        + 2 D^2 + 4 D                                 pooler and next sentence, if trained

    Without windows p = s^2 and k = s; with windows only the pairs in them count. A gated feed-forward has 6 D F. Where
    the embeddings are narrower than the encoder, their projection adds 2 s E D; DeBERTa's scores by distance add those
    of :func:`_distance_flops`. Only predicted positions are projected to the vocabulary.
    """
    assert batch.logit_rows is not None
    d, e = shape.hidden_size, shape.embedding_width
    chosen = ChosenRows.first_and(batch.logit_rows, batch.layout)
    predictions = batch.logit_rows.numel() * (2 * d * e + 2 * e * shape.vocab_size)
    pairs = batch.layout.num_sequences if "next_sentence_label" in batch.targets else 0
    return encoder_flops(shape, batch.layout.lengths, chosen.lengths) + predictions + pairs * (2 * d * d + 4 * d)


def encoder_flops(shape: BertConfig, lengths: Sequence[int], read: Sequence[int]) -> float:
    """Forward, of an encoder alone; of each sequence's tokens so many are ``read`` of the top layer."""
    d, e, tokens, chosen = shape.hidden_size, shape.embedding_width, sum(lengths), sum(read)
    feed_forward = (6 if shape.family.pre_norm else 4) * d * shape.intermediate_size
    windows = [shape.reach_of(kind) for kind in shape.layer_kinds]
    layers = float(sum(4 * d * sum(_pairs(s, half) for s in lengths) for half in windows[:-1]))
    layers += (shape.num_hidden_layers - 1) * tokens * (8 * d * d + feed_forward)
    keys = [s if windows[-1] is None else min(s, 2 * windows[-1] + 1) for s in lengths]
    pairs_read = sum(k * q for k, q in zip(keys, read, strict=True))
    layers += 6 * tokens * d * d + 4 * pairs_read * d + chosen * (2 * d * d + feed_forward)
    if shape.family.scores == "disentangled":
        layers += shape.num_hidden_layers * _distance_flops(lengths, shape)
    return layers + (2 * tokens * e * d if shape.has_projection else 0)


def _pairs(size: int, half: int | None) -> int:
    """Pairs of query and key in a sequence, at most ``half`` tokens apart."""
    if half is None or size <= half + 1:
        return size * size
    return size * (2 * half + 1) - half * (half + 1)


def _distance_flops(lengths: Sequence[int], shape: BertConfig) -> float:
    """Forward, for each direction that DeBERTa scores: the table of distances, and the products with its rows."""
    d, rows, kinds = shape.hidden_size, 2 * shape.distance_span, len(set(shape.pos_att_type or []))
    products = sum(s * min(2 * s - 1, rows) for s in lengths)
    return float(kinds * (2 * rows * d * d + 2 * products * d))


def matmul_peak(shape: AnyConfig, *, rows: int, device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations per second in the fastest of several products of the size of the feed-forward layer."""
    f = shape.intermediate_size if isinstance(shape, BertConfig) else shape.tower(decoder=False).inner_width
    rows, d = min(rows, MOST_ROWS), shape.hidden_size
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


class MeasuredPlan:
    """A plan that counts the work of its batches and compares it with ``peak``, from :func:`matmul_peak`."""

    def __init__(self, plan: Plan[Batch], shape: AnyConfig, peak: float) -> None:
        self.plan, self.shape, self.peak = plan, shape, peak
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
        # Of this rank, by tokens of all ranks, as those of the log are.
        self._flops_per_token[step] = sum(training_flops(batch, self.shape) for batch in batches) / self.size(step)
        while len(self._flops_per_token) > _REMEMBERED:
            self._flops_per_token.pop(next(iter(self._flops_per_token)), None)
        return batches

    @property
    def max_tokens(self) -> int | None:
        return self.plan.max_tokens

    def halve(self) -> int | None:
        return self.plan.halve()

    def with_share(self, record: Record) -> Record:
        """The log record of a step with ``peak_share``, its share of the peak."""
        work, rate = self._flops_per_token.pop(record["step"] - 1, None), record.get("tokens_per_s")
        if "event" in record or rate is None or work is None:
            return record
        return {**record, "peak_share": round(work * rate / self.peak, 4)}
