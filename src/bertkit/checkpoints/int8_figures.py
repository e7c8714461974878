"""What was measured of a model in 8 bits: its vectors, its scores, its speed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from bertkit.system.validated_settings import Field

Positive = Annotated[float, Field(gt=0.0)]
#: Points of the main metric that may be lost: in any case, and where the paired interval reaches 0, so that it may be
#: chance. Without the second limit a few rows would let any loss through.
MAX_LOSS, MAX_UNSURE_LOSS = 0.3, 2.0


@dataclass(frozen=True, slots=True)
class DevScores:
    """The main metric on labelled rows: of the original, in 8 bits, and a 95 % interval of the paired difference.

    point: one point of the metric: 0.01, or 1 for a metric that goes up to 100.
    """

    metric: str
    original: float
    quantized: float
    low: float
    high: float
    rows: Annotated[int, Field(ge=1)]
    point: Positive = 0.01

    @property
    def loss(self) -> float:
        """Points that were lost; negative if the score rose."""
        return round((self.original - self.quantized) / self.point, 6)

    def acceptable(self) -> bool:
        """Whether at most :data:`MAX_LOSS` is lost, or at most :data:`MAX_UNSURE_LOSS` that may be chance."""
        return self.loss <= (MAX_UNSURE_LOSS if self.high >= 0.0 else MAX_LOSS)

    @property
    def too_few(self) -> bool:
        """Whether a loss of :data:`MAX_LOSS` could not be told from chance.

        The interval is wider, or narrow only because hardly a row changed: what none of n rows shows is rarer than
        3 / n, with 95 % certainty.
        """
        return (self.high - self.low) / 2 > MAX_LOSS * self.point or 3 / self.rows > MAX_LOSS / 100

    def __str__(self) -> str:
        few = f"; {self.rows:,} rows are too few to show a loss of {MAX_LOSS} points" if self.too_few else ""
        return (
            f"{self.metric} {self.quantized:.4f}, original {self.original:.4f}, difference "
            f"{self.quantized - self.original:+.4f} (95 % interval {self.low:+.4f} to {self.high:+.4f}){few}"
        )


@dataclass(frozen=True, slots=True)
class Speed:
    """Seconds of the original and in 8 bits, medians: for one text of median length, and for many."""

    one_original: Positive
    one_quantized: Positive
    many_original: Positive
    many_quantized: Positive
    processor: str = ""

    @property
    def gains(self) -> tuple[float, float]:
        """How many times as fast: one text, many texts."""
        return self.one_original / self.one_quantized, self.many_original / self.many_quantized

    def acceptable(self) -> bool:
        """Whether many texts take less time than before, and one text no more."""
        one, many = self.gains
        return many > 1.0 and one > 0.95

    def __str__(self) -> str:
        one, many = self.gains
        where = f", on {self.processor}" if self.processor else ""
        times = f"{one:.2f} times as fast for one text ({self.one_quantized * 1e3:.2f} ms), {many:.2f} times for many"
        return times + where


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of the gate; ``closeness`` by the names of :class:`bertkit.engine.closeness.Closeness`."""

    closeness: dict[str, float]
    speed: Speed
    dev: DevScores | None = None

    def vectors(self) -> str:
        """How near the vectors are to those of the original."""
        return ", ".join(f"{name.replace('_', ' ')} {value:.5f}" for name, value in self.closeness.items())
