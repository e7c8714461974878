"""Reports of a pre-training run: log, loss curve with the unigram line, TensorBoard, messages, speed."""

from __future__ import annotations

import math
import shutil
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from bertkit.batch import Batch
from bertkit.config.bert_config import BertConfig
from bertkit.errors import require
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.system.console import say
from bertkit.training.trainer.batch_plan import Plan
from bertkit.training.trainer.loop_options import Record
from bertkit.training.trainer.run_folder import LOG, RunFolder, RunLog, read_log
from bertkit.visualize.pictures import pretrain_curve

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

#: Maximum seconds for :func:`matmul_peak`, except for its first three products.
MEASURE_SECONDS = 0.1
#: Maximum rows of the measured product.
MOST_ROWS = 4096
#: Maximum steps whose work is remembered until they are logged.
_REMEMBERED = 8


def training_flops(batch: Batch, shape: BertConfig, *, pairs: bool) -> float:
    """Floating-point operations of a forward and backward pass of a batch with ``logit_rows``.

    Counted are the matrix products that training needs, two operations per multiply-add, once forward and twice
    backward. For an encoder of L layers of width D and feed-forward width F, a sequence of s tokens with r predictions
    from a vocabulary of V costs forward::

        (L - 1) (8 s D^2 + 4 p D + 4 s D F)           layers: projections, attention to p pairs of tokens, feed-forward
        + 6 s D^2 + q (4 k D + 2 D^2 + 4 D F)         top layer, of which q = r + 1 rows are read, each with k keys
        + r (2 D E + 2 E V)                           masked-LM head on embeddings of width E
        + 2 D^2 + 4 D                                 pooler and next sentence, if trained (``pairs``)

    Without windows p = s^2 and k = s; with windows only the pairs in them count. A gated feed-forward has 6 D F. Where
    the embeddings are narrower than the encoder, their projection adds 2 s E D; DeBERTa's scores by distance add those
    of :func:`_distance_flops`. There is no padding, only predicted positions are projected to the vocabulary, and
    recomputation by gradient checkpointing is not counted.
    """
    assert batch.logit_rows is not None
    d, e, lengths, tokens = shape.hidden_size, shape.embedding_width, batch.layout.lengths, batch.layout.num_tokens
    feed_forward = (6 if shape.family.pre_norm else 4) * d * shape.intermediate_size
    windows = [shape.reach_of(kind) for kind in shape.layer_kinds]
    chosen = ChosenRows.first_and(batch.logit_rows, batch.layout)
    layers = float(sum(4 * d * sum(_pairs(s, half) for s in lengths) for half in windows[:-1]))
    layers += (shape.num_hidden_layers - 1) * tokens * (8 * d * d + feed_forward)
    keys = [s if windows[-1] is None else min(s, 2 * windows[-1] + 1) for s in lengths]
    pairs_read = sum(k * q for k, q in zip(keys, chosen.lengths, strict=True))
    layers += 6 * tokens * d * d + 4 * pairs_read * d + len(chosen.rows) * (2 * d * d + feed_forward)
    if shape.family.scores == "disentangled":
        layers += shape.num_hidden_layers * _distance_flops(lengths, shape)
    embedded = 2 * tokens * e * d if shape.has_projection else 0
    predictions = batch.logit_rows.numel() * (2 * d * e + 2 * e * shape.vocab_size)
    pooled = batch.layout.num_sequences * (2 * d * d + 4 * d) if pairs else 0
    return 3.0 * (embedded + layers + predictions + pooled)


def _pairs(size: int, half: int | None) -> int:
    """Pairs of query and key in a sequence, at most ``half`` tokens apart."""
    if half is None or size <= half + 1:
        return size * size
    return size * (2 * half + 1) - half * (half + 1)


def _distance_flops(lengths: Sequence[int], shape: BertConfig) -> float:
    """Forward, for each direction that a layer of DeBERTa scores: 2 D^2 for each row of the table of distances, and the
    products of the tokens with the rows that their sequence needs.
    """
    d, rows, kinds = shape.hidden_size, 2 * shape.distance_span, len(set(shape.pos_att_type or []))
    products = sum(s * min(2 * s - 1, rows) for s in lengths)
    return float(kinds * (2 * rows * d * d + 2 * products * d))


def matmul_peak(shape: BertConfig, *, rows: int, device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations per second in the fastest of several products of the size of the feed-forward layer.

    ``rows`` are the tokens in memory at once. Takes about a tenth of a second, and no random numbers.
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


class MeasuredPlan:
    """A plan that counts the work of its batches and compares it with ``peak``, from :func:`matmul_peak`."""

    def __init__(self, plan: Plan[Batch], shape: BertConfig, peak: float, num_ranks: int = 1) -> None:
        self.plan, self.shape, self.peak, self.num_ranks = plan, shape, peak, num_ranks
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

    def with_share(self, record: Record) -> Record:
        """The log record of a step with ``peak_share``, its share of the peak."""
        work, rate = self._flops_per_token.pop(record["step"] - 1, None), record.get("tokens_per_s")
        if "event" in record or rate is None or work is None:
            return record
        return {**record, "peak_share": round(work * rate / self.num_ranks / self.peak, 4)}


CURVE, TENSORBOARD = "loss.png", "tensorboard"
#: Minimum seconds between two drawings of the curve.
CURVE_EVERY_S = 30.0
#: Number of last steps that the speed is computed from.
_TIMED_STEPS = 200
#: Maximum steps, and maximum evaluations, in a curve; of a longer run it has every second, fourth ... one.
CURVE_POINTS = 8192


class Points:
    """A bounded number of records, evenly spaced from the first one on."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._stride = 1
        self._count = 0

    def add(self, record: Record) -> None:
        """Add the next record."""
        if self._count % self._stride == 0:
            if len(self.records) == CURVE_POINTS:
                del self.records[1::2]
                self._stride *= 2
            if self._count % self._stride == 0:
                self.records.append(record)
        self._count += 1


class Report:
    """Everything that is written during a run. ``log.jsonl`` is the source; the rest is derived from it.

    A log that cannot be written ends the run; a curve or TensorBoard files that cannot be written do not, after a
    message. ``floor`` is :func:`~bertkit.training.pretraining.word_statistics.unigram_entropy` of the training text.
    """

    def __init__(self, run: RunFolder, floor: float, *, curve: bool, tensorboard: bool) -> None:
        self.folder, self.floor, self.curve = run.path, floor, curve
        self.log = RunLog(run.path / LOG, run.how_to_resume)
        self._steps, self._evaluations = Points(), Points()
        self._timed: deque[Record] = deque(maxlen=_TIMED_STEPS)
        self._drawn_at = time.monotonic()
        self.tensorboard = tensorboard
        if tensorboard:
            require("tensorboard", extra="tensorboard", needed_for="writing TensorBoard files")
        self._writer: SummaryWriter | None = None

    def begin(self, step: int, evaluated_step: int) -> None:
        """Drop what will be repeated: steps after ``step``, evaluations after ``evaluated_step``."""
        self.log.drop_after(step, evaluated_step)
        if self.tensorboard:
            self._or_without_board(self._open_board)
        for record in read_log(self.folder / LOG) if (self.folder / LOG).exists() else ():
            self._take(record)

    def __call__(self, record: Record) -> None:
        """Report one record of the training loop."""
        self.log(record)
        self._take(record)
        if record.get("event") == "epoch":
            scores = [
                f"{name.removeprefix('dev_').replace('_', ' ')} {value:.3f}"
                for name, value in record.items()
                if name.startswith("dev_") and value is not None
            ]
            if scores:
                say(f"step {record['step']:,}: held-out {', '.join(scores)} (unigram entropy {self.floor:.3f})")
            if time.monotonic() - self._drawn_at >= CURVE_EVERY_S:
                self.draw()

    def close(self) -> None:
        """Close the files, and draw the curve once more."""
        self.log.close()
        if self._writer is not None:
            self._or_without_board(self._writer.close)
        self.draw()

    def draw(self) -> None:
        """Draw ``loss.png``."""
        if not self.curve or not self._steps.records:
            return
        try:
            records = [*self._steps.records, self._timed[-1], *self._evaluations.records]
            pretrain_curve(records, self.folder / CURVE, unigram_entropy=self.floor)
        except Exception as error:  # of matplotlib, fonts or the disk: a picture is not worth a run
            say(f"no {CURVE}: {error}")
            self.curve = False
        self._drawn_at = time.monotonic()

    def speed(self) -> dict[str, float]:
        """Medians of ``tokens_per_s`` and ``peak_share`` over the last steps."""
        found = {}
        for name in ("tokens_per_s", "peak_share"):
            values = [record[name] for record in self._timed if name in record]
            if values:
                found[name] = float(statistics.median(values))
        return found

    def _open_board(self) -> None:
        from torch.utils.tensorboard import SummaryWriter

        shutil.rmtree(self.folder / TENSORBOARD, ignore_errors=True)
        self._writer = SummaryWriter(str(self.folder / TENSORBOARD))

    def _take(self, record: Record) -> None:
        if record.get("event") == "epoch":
            self._evaluations.add(record)
        else:
            self._steps.add(record)
            self._timed.append(record)
        if self._writer is not None:
            self._or_without_board(lambda: self._write_scalars(record))

    def _or_without_board(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            say(f"{self.folder / TENSORBOARD} cannot be written: {error.strerror or error}; continuing without it")
            self._writer = None

    def _write_scalars(self, record: Record) -> None:
        place = "held-out" if record.get("event") == "epoch" else "training"
        assert self._writer is not None
        for name, value in record.items():
            if name in ("step", "event") or not isinstance(value, int | float) or not math.isfinite(value):
                continue
            self._writer.add_scalar(f"{place}/{name.removeprefix('dev_')}", value, record["step"])
