"""What a benchmark found: figures of every mode, the quality of its answers, tables, and advice."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from bertkit.benchmark.runtimes import DEFAULT, INT8, PRECISIONS, REFERENCE, Mode
from bertkit.benchmark.sample_texts import RANDOM, SampleTexts
from bertkit.engine.closeness import NEAR_ENOUGH, Closeness, closeness
from bertkit.ragged import Floats
from bertkit.system.console import aligned
from bertkit.system.interrupts import Interrupted
from bertkit.system.processor import Processor
from bertkit.system.rendered import Rendered
from bertkit.system.untrusted_files import Json

#: Least closeness of the modes that promise the answers of fp32.
AS_FP32 = Closeness(cosine_mean=0.99999, cosine_p1=0.99999, near_neighbour=0.97)
#: Precisions with the answers of fp32.
EXACT = ("auto", "fp32")
#: Orders of the texts in a pass; bertkit gets the first only, and sorts them itself.
ORDERS = ("arrival", "sorted")
#: Another mode is preferred to the default if it takes less than this share of its time.
WORTH = 0.95


@dataclass(frozen=True, slots=True)
class Quality:
    """How near a mode's answers are to bertkit's in fp32: the texts' vectors, and the largest of any hidden state."""

    closeness: Closeness
    difference: float

    @classmethod
    def of(cls, found: tuple[Floats, Floats], reference: tuple[Floats, Floats]) -> Quality:
        """Compare hidden states ``(T, D)`` and vectors ``(B, D)``; what is not finite passes no gate."""
        (hidden, vectors), (right_hidden, right_vectors) = found, reference
        return cls(closeness(vectors, right_vectors), float(np.abs(hidden - right_hidden).max()))

    def to_dict(self) -> dict[str, float | None]:
        """Plain data for JSON, which has neither infinity nor NaN."""
        values = {**asdict(self.closeness), "difference": self.difference}
        return {name: value if np.isfinite(value) else None for name, value in values.items()}

    def passes(self, precision: str) -> bool:
        """Whether the answers are near enough for this precision."""
        return self.closeness.within(AS_FP32 if precision in EXACT else NEAR_ENOUGH)


@dataclass(slots=True)
class System:
    """What is known of one mode: seconds of each round by name, once the peak ``memory``, why it was left out."""

    figures: dict[str, list[float]] = field(default_factory=dict)
    quality: Quality | None = None
    error: str | None = None

    def note(self, figure: str, value: float) -> None:
        """Add the value of a round."""
        self.figures.setdefault(figure, []).append(value)

    def median(self, figure: str) -> float | None:
        """The median of the rounds so far; None before the first."""
        values = self.figures.get(figure)
        return statistics.median(values) if values else None

    def cell(self, figure: str, scale: float = 1.0) -> str:
        """Median and range for a table: ``2.24 (1.86-2.28)``."""
        values = [scale * value for value in self.figures.get(figure, ())]
        if not values:
            return "-"
        return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


@dataclass(slots=True)
class BenchmarkReport(Rendered):
    """A benchmark.

    absent: peers, or their int8 alone, that lack packages. systems: the modes, bertkit's fp32 first.
    """

    model: str
    int8: str | None
    processor: Processor
    encoder: str
    threads: int
    texts: SampleTexts
    versions: Mapping[str, Mapping[str, str]]
    absent: Sequence[str]
    lengths: Sequence[int]
    systems: dict[Mode, System]
    interrupted: Interrupted | None = None

    def passes(self, mode: Mode) -> bool:
        """Whether a mode was measured and not left out, and its answers are near enough."""
        system = self.systems[mode]
        near = system.quality is not None and system.quality.passes(mode.precision)
        return near and system.error is None and bool(system.figures)

    def single_figures(self) -> list[str]:
        """Names of the figures of single texts."""
        return [f"single_{length}" for length in self.lengths]

    def pass_seconds(self, mode: Mode) -> float | None:
        """Seconds of a pass over all texts: bertkit's in order of arrival, the peers' in the faster order."""
        found = [self.systems[mode].median(f"pass_{order}") for order in ORDERS]
        return min((seconds for seconds in found if seconds is not None), default=None)

    def relative(self, mode: Mode, base: Mode) -> tuple[float, float] | None:
        """A mode's time as a share of another's, for single texts (geometric mean over lengths) and for a pass."""
        ours, others = self.systems[mode], self.systems[base]
        ratios = [
            a / b
            for name in self.single_figures()
            if (a := ours.median(name)) is not None and (b := others.median(name)) is not None
        ]
        seconds, base_seconds = self.pass_seconds(mode), self.pass_seconds(base)
        if not ratios or seconds is None or base_seconds is None:
            return None
        return statistics.geometric_mean(ratios), seconds / base_seconds

    def bar_groups(self) -> list[str]:
        """What the values of :meth:`bars` are of."""
        return [*(f"1 x {length} tokens" for length in self.lengths), "all texts"]

    def bars(self) -> dict[str, list[float]]:
        """For each mode that was measured, its times as shares of the reference's, for a picture."""
        times = {
            str(mode): [*map(system.median, self.single_figures()), self.pass_seconds(mode)]
            for mode, system in self.shown()
        }
        whole = {name: [each for each in values if each is not None] for name, values in times.items()}
        whole = {name: values for name, values in whole.items() if len(values) == len(self.bar_groups())}
        if (base := whole.get(str(REFERENCE))) is None:
            return {}
        return {name: [value / one for value, one in zip(values, base, strict=True)] for name, values in whole.items()}

    def best_mode(self, precisions: Sequence[str] = PRECISIONS) -> Mode:
        """The mode of bertkit to use here: the default, unless another is faster by more than noise."""
        best = base = self.base_mode()
        least = WORTH
        for mode in self.systems:
            if mode == base or not mode.is_ours or mode.precision not in precisions or not self.passes(mode):
                continue
            shares = self.relative(mode, base)
            if shares is not None and statistics.geometric_mean(shares) < least:
                best, least = mode, statistics.geometric_mean(shares)
        return best

    def base_mode(self) -> Mode:
        """What others must beat: the default, if it was measured and its answers are near enough."""
        return DEFAULT if DEFAULT in self.systems and self.passes(DEFAULT) else REFERENCE

    def to_dict(self) -> dict[str, Json]:
        """Plain data for JSON."""
        return {
            "model": self.model,
            "int8": self.int8,
            "processor": self.processor.to_dict(),
            "compiled_encoder": self.encoder,
            "threads": self.threads,
            "texts": self.texts.describe(),
            "num_texts": len(self.texts.rows),
            "num_tokens": int(self.texts.rows.lengths.sum()),
            "versions": {who: dict(found) for who, found in self.versions.items()},
            "not_installed": list(self.absent),
            "systems": {str(mode): self._system_dict(mode) for mode in self.systems},
            "use": self.best_mode().precision if self.is_measured() else None,
            "advice": self.advice(),
            "complete": self.interrupted is None,
        }

    def _system_dict(self, mode: Mode) -> dict[str, Json]:
        system = self.systems[mode]
        return {
            "passes": self.passes(mode),
            "error": system.error,
            "quality": None if system.quality is None else system.quality.to_dict(),
            "figures": {
                name: {"median": statistics.median(values), "rounds": list(values)}
                for name, values in system.figures.items()
            },
        }

    def render(self) -> str:
        """The report as text."""
        lines = [
            f"{self.model} on {self.processor}, {self.threads} threads; compiled encoder: {self.encoder}",
            *(f"{who}: {', '.join(map(' '.join, found.items()))}" for who, found in self.versions.items() if found),
            f"texts: {self.texts.describe()}",
            "medians of the rounds, with the lowest and the highest",
        ]
        for title, head, cells in (
            ("one text, milliseconds", [f"{length} tokens" for length in self.lengths], self._single_cells),
            (
                "one of the texts, milliseconds, and a new process to its first answer",
                ("median", "95th percentile", "first answer, s"),
                self._own_cells,
            ),
            (
                "all texts, tokens per second; peers in padded batches of 32",
                ("as they arrive", "sorted by length", "texts/s"),
                self._pass_cells,
            ),
            (
                "memory, and answers beside bertkit's fp32: cosine, and nearest neighbour",
                ("peak MB", "mean", "1st percentile", "same neighbour", ""),
                self._other_cells,
            ),
        ):
            lines += ["", title, *(f"  {line}" for line in aligned(self._rows(head, cells)))]
        lines += [
            "",
            *(f"{mode} was left out: {system.error}" for mode, system in self.systems.items() if system.error),
        ]
        lines += [f"not installed: {', '.join(self.absent)} (pip install 'bertkit[bench]')"] if self.absent else []
        lines += ["interrupted: what was measured until then"] if self.interrupted else []
        return "\n".join([*lines, self.advice()])

    def shown(self) -> list[tuple[Mode, System]]:
        """The modes that were not left out."""
        return [(mode, system) for mode, system in self.systems.items() if system.error is None]

    def _rows(self, head: Sequence[str], cells: Callable[[Mode, System], Sequence[str]]) -> list[list[str]]:
        return [["", *head], *([str(mode), *cells(mode, system)] for mode, system in self.shown())]

    def _single_cells(self, mode: Mode, system: System) -> list[str]:
        return [system.cell(name, 1000) for name in self.single_figures()]

    def _own_cells(self, mode: Mode, system: System) -> list[str]:
        return [system.cell("single_own", 1000), system.cell("single_own_p95", 1000), system.cell("cold_start")]

    def _pass_cells(self, mode: Mode, system: System) -> list[str]:
        tokens, best = int(self.texts.rows.lengths.sum()), self.pass_seconds(mode)
        arrival, by_length = (_speed(tokens, system.figures.get(f"pass_{order}", ())) for order in ORDERS)
        texts = "-" if best is None else f"{len(self.texts.rows) / best:,.0f}"
        return [arrival, "the same" if mode.is_ours else by_length, texts]

    def _other_cells(self, mode: Mode, system: System) -> list[str]:
        memory, quality = system.median("memory"), system.quality
        peak = "-" if memory is None else f"{memory / 1e6:,.0f}"
        if quality is None:
            return [peak, "-", "-", "-", ""]
        near = quality.closeness
        found = [f"{near.cosine_mean:.5f}", f"{near.cosine_p1:.5f}", f"{near.near_neighbour:.1%}"]
        return [peak, *found, "" if quality.passes(mode.precision) else "NOT NEAR ENOUGH"]

    def is_measured(self) -> bool:
        """Whether the reference was measured at least once, without which nothing follows."""
        return self.relative(REFERENCE, REFERENCE) is not None

    def advice(self) -> str:
        """Which mode this machine should use, and why."""
        if not self.is_measured():
            return "Too little was measured for any advice."
        return " ".join([*self._own_advice(), *self._peer_advice()])

    def _own_advice(self) -> list[str]:
        """The mode to use and the reason, then the times of all modes but the reference."""
        best, base = self.best_mode(), self.base_mode()
        ours = [mode for mode, _ in self.shown() if mode.is_ours]
        shares = {mode: found for mode in ours if mode != REFERENCE and (found := self.relative(mode, REFERENCE))}
        if best != base:
            reason = f"it is faster than {base.precision}, and its answers are near enough"
        elif shares.keys() - {base} or base != REFERENCE:
            reason = f"no other takes less than {WORTH:.0%} of its time with answers that are near enough"
        else:
            reason = "no other was measured"
        name = f"{best.precision} on this machine" + (f" ({self.int8})" if best == INT8 and self.int8 else "")
        told = [f"Use precision {name}{', the default' if best == DEFAULT else ''}: {reason}."]
        for mode, (single, whole) in shares.items():
            took = f"takes {single:.2f} of fp32's time for single texts and {whole:.2f} for all texts"
            far = "" if self.passes(mode) else ", but its answers are not near enough"
            if far and mode == INT8 and self.texts.origin == RANDOM:
                far += " on random tokens; judge it with real texts (--texts)"
            told.append(f"Precision {mode.precision} {took}{far}.")
        return told

    def _peer_advice(self) -> list[str]:
        """The fastest peers whose answers are near enough: with those of fp32, and with any."""
        told: dict[tuple[Mode, ...], str] = {}
        for which, precisions in (("with answers as in fp32", EXACT), ("of any precision", PRECISIONS)):
            base = self.best_mode(precisions)
            peers = [mode for mode in self.systems if not mode.is_ours and mode.precision in precisions]
            shares = {mode: found for mode in peers if self.passes(mode) and (found := self.relative(mode, base))}
            if not shares:
                continue
            single, whole = (min(shares, key=lambda mode, place=place: shares[mode][place]) for place in (0, 1))  # type: ignore[misc]
            told.setdefault(
                (base, single, whole),
                f"The fastest peers {which}, beside {base}: {single} takes {shares[single][0]:.2f} of its time for "
                f"single texts, {whole} {shares[whole][1]:.2f} for all texts.",
            )
        return list(told.values())


def _speed(tokens: int, seconds: Sequence[float]) -> str:
    if not seconds:
        return "-"
    low, middle, high = (tokens / value for value in (max(seconds), statistics.median(seconds), min(seconds)))
    return f"{middle:,.0f} ({low:,.0f}-{high:,.0f})"
