"""Counters and histograms in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, UntypedMetricFamily

from bertkit.server.calls import Answer
from bertkit.server.failures import Cause
from bertkit.server.models import Models
from bertkit.server.operations.board import Board
from bertkit.server.watch import Watch

#: Seconds, each 1.5 times the one before, as text-embeddings-inference has them.
_SECONDS = tuple(1e-4 * 1.7**step for step in range(24))
#: Those of text-embeddings-inference under its own names, and its powers of 2.
_THEIR_SECONDS = tuple(1.5e-5 * 1.5**step for step in range(35))
_TOKENS, _TEXTS = (tuple(float(1 << step) for step in range(count)) for count in (18, 12))
#: Causes for which a request is refused before it is known what it asks of a model.
_BEFORE: frozenset[Cause] = frozenset(
    {
        "malformed",
        "body_too_large",
        "media_type",
        "unauthorized",
        "forbidden",
        "no_route",
        "method",
        "key_requests",
        "key_tokens",
    }
)
_PATHS = 200
#: Seconds between two times that a worker tells the others what it has counted.
EVERY = 1.0


class Metrics(Watch):
    """What happened so far; :meth:`text` is a page for Prometheus.

    ``te_...`` are the names of text-embeddings-inference, for boards and scalers that ask for them.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "bertkit_requests", "Requests by path and status.", ("path", "status"), registry=self.registry
        )
        self._duration = Histogram(
            "bertkit_request_duration_seconds", "From head to answer.", registry=self.registry, buckets=_SECONDS
        )
        phases = ("task", "phase")
        self._phases = Histogram(
            "bertkit_phase_seconds",
            "In the queue, in a batch, and of that in the encoder.",
            phases,
            registry=self.registry,
            buckets=_SECONDS,
        )
        self._tokens = Counter("bertkit_tokens", "Tokens that were computed.", ("model",), registry=self.registry)
        self._truncated = Counter("bertkit_truncated", "Texts that were cut.", ("model",), registry=self.registry)
        self._rejected = Counter(
            "bertkit_rejected", "Requests that were not answered, by cause.", ("cause",), registry=self.registry
        )
        self._batch_tokens = Histogram(
            "bertkit_batch_tokens", "Tokens of a batch.", registry=self.registry, buckets=_TOKENS
        )
        self._their_duration = Histogram(
            "te_request_duration", "Seconds of answered requests.", registry=self.registry, buckets=_THEIR_SECONDS
        )
        self._their_tokens = Histogram(
            "te_batch_next_tokens", "Tokens of a batch.", registry=self.registry, buckets=_TOKENS
        )
        self._their_size = Histogram("te_batch_next_size", "Texts of a batch.", registry=self.registry, buckets=_TEXTS)
        self.registry.register(_Counted(self._their_duration, self._rejected))
        self._known: set[str] = set()
        self._board: Board | None = None
        self._place = 0

    def share(self, board: Board, place: int) -> None:
        """Count for all workers, at a place of their board."""
        self._board, self._place = board, place

    def tell(self) -> None:
        """Say on the board what was counted so far."""
        if self._board is not None:
            self._board.write(self._place, self.registry.collect())

    def watch(self, models: Models) -> None:
        """Also report what the batchers of these models count."""
        self.registry.register(_Batchers(models))

    def request(self, path: str, status: int, seconds: float) -> None:
        """Count a request. Paths without a good answer so far are counted together: anybody can make them up."""
        if path not in self._known:
            if len(self._known) >= _PATHS or not 200 <= status < 300:
                path = "other"
            self._known.add(path)
        self._requests.labels(path, str(status)).inc()
        self._duration.observe(seconds)

    def batch(self, texts: int, tokens: int) -> None:
        """Count a batch."""
        self._batch_tokens.observe(tokens)
        self._their_tokens.observe(tokens)
        self._their_size.observe(texts)

    def rejected(self, cause: Cause) -> None:
        """Count a request that was not answered."""
        self._rejected.labels(cause).inc()

    def answer(self, task: str, answer: Answer) -> None:
        """Count an answer."""
        self._their_duration.observe(answer.times.total)
        self._phases.labels(task, "queue").observe(answer.times.queue)
        self._phases.labels(task, "compute").observe(answer.times.compute)
        if answer.times.encode:
            self._phases.labels(task, "encode").observe(answer.times.encode)
        self._tokens.labels(answer.model.name).inc(sum(answer.tokens))
        if cut := sum(answer.truncated):
            self._truncated.labels(answer.model.name).inc(cut)

    def text(self) -> bytes:
        """The page; of several workers the sums, of which those of others may be :data:`EVERY` seconds old."""
        if self._board is None:
            return generate_latest(self.registry)
        self.tell()
        return generate_latest(_Sums(self._board))


class _Sums(CollectorRegistry):
    """What all workers have counted, as a registry."""

    def __init__(self, board: Board) -> None:
        super().__init__()
        self._board = board

    def collect(self) -> Iterator[Metric]:
        yield from self._board.metrics()


class _Counted:
    """Counts that text-embeddings-inference has under names without ``_total``, of what is counted already."""

    def __init__(self, answered: Histogram, rejected: Counter) -> None:
        self._answered, self._rejected = answered, rejected

    def collect(self) -> Iterator[Metric]:
        good = sum(value for name, _, value in _samples(self._answered.collect()) if name.endswith("_count"))
        bad = sum(
            value
            for name, labels, value in _samples(self._rejected.collect())
            if name.endswith("_total") and labels["cause"] not in _BEFORE
        )
        yield UntypedMetricFamily("te_request_count", "Requests to models, answered or not.", good + bad)
        yield UntypedMetricFamily("te_request_success", "Requests to models that were answered.", good)


def _samples(metrics: Iterable[Metric]) -> Iterator[tuple[str, dict[str, str], float]]:
    for metric in metrics:
        for sample in metric.samples:
            yield sample.name, sample.labels, sample.value


class _Batchers:
    """What is read from the batchers when somebody asks."""

    def __init__(self, models: Models) -> None:
        self._models = models

    def collect(self) -> Iterator[Metric]:
        tokens = GaugeMetricFamily("bertkit_queue_tokens", "Tokens that wait, about.", labels=["model"])
        requests = GaugeMetricFamily("bertkit_queue_requests", "Requests that wait.", labels=["model"])
        rate = GaugeMetricFamily("bertkit_tokens_per_second", "Of the last batches.", labels=["model"])
        counts = {
            name: CounterMetricFamily(f"bertkit_batcher_{name}", text, labels=["model"])
            for name, text in (
                ("batches", "Batches that were computed."),
                ("requests", "Requests that were answered."),
                ("dropped", "Requests whose clients had gone before they were computed."),
                ("expired", "Requests whose deadline was over before they were computed."),
                ("failed", "Requests that could not be answered."),
            )
        }
        hits = CounterMetricFamily("bertkit_cache_hits", "Answers from the cache.", labels=["model"])
        misses = CounterMetricFamily("bertkit_cache_misses", "Requests that it did not know.", labels=["model"])
        size = GaugeMetricFamily("bertkit_cache_bytes", "What it holds.", labels=["model"])
        texts = 0
        for slot in self._models.slots.values():
            if (batcher := slot.batcher) is None:
                continue
            labels = [slot.name]
            tokens.add_metric(labels, batcher.queue.tokens)
            requests.add_metric(labels, len(batcher.queue))
            rate.add_metric(labels, batcher.queue.rate)
            for name, family in counts.items():
                family.add_metric(labels, getattr(batcher.counts, name))
            texts += batcher.texts_waiting()
            if (cache := batcher.cache) is not None:
                hits.add_metric(labels, cache.hits)
                misses.add_metric(labels, cache.misses)
                size.add_metric(labels, cache.num_bytes)
        queue = GaugeMetricFamily("te_queue_size", "Texts that wait.", texts)
        yield from (tokens, requests, rate, *counts.values(), hits, misses, size, queue)
