"""What a benchmark found: figures of every mode, the quality of its answers, tables, and advice."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from bertkit.benchmark.runtimes import REFERENCE, Mode
from bertkit.benchmark.sample_texts import SampleTexts
from bertkit.ragged import Floats
from bertkit.system.console import aligned
from bertkit.system.interrupts import Interrupted
from bertkit.system.processor import Processor
from bertkit.system.untrusted_files import Json

#: Precision -> the least cosine to the fp32 answers, as a mean and at the first percentile.
GATES = {"auto": (0.99999, 0.99999), "fp32": (0.99999, 0.99999), "bf16": (0.998, 0.995), "int8": (0.998, 0.995)}
#: Precisions with the answers of fp32.
EXACT = ("auto", "fp32")
#: Of a pass over all texts; bertkit sorts them itself.
ORDERS = ("arrival", "sorted")
#: A mode is worth other numbers than fp32 from this share of its time on.
WORTH = 0.95


@dataclass(frozen=True, slots=True)
class Quality:
    """How near a mode's answers are to bertkit's in fp32.

    cosine_mean, cosine_p1: of the texts' vectors, mean and first percentile. difference: the largest of any hidden
    state.
    """

    cosine_mean: float
    cosine_p1: float
    difference: float

    @classmethod
    def of(cls, found: tuple[Floats, Floats], reference: tuple[Floats, Floats]) -> Quality:
        """Compare hidden states ``(T, D)`` and vectors ``(B, D)``; what is not finite is as far as can be."""
        (hidden, vectors), (right_hidden, right_vectors) = found, reference
        a, b = vectors.astype(np.float64), right_vectors.astype(np.float64)
        norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
        cosines = np.nan_to_num((a * b).sum(axis=1) / np.maximum(norms, 1e-30), nan=-1.0)
        difference = float(np.nan_to_num(np.abs(hidden - right_hidden), nan=np.inf).max())
        return cls(float(cosines.mean()), float(np.percentile(cosines, 1)), difference)

    def to_dict(self) -> dict[str, float | None]:
        """Plain data for JSON, which has no infinity."""
        return {name: value if np.isfinite(value) else None for name, value in asdict(self).items()}

    def passes(self, precision: str) -> bool:
        """Whether the answers are near enough for this precision; see :data:`GATES`."""
        mean, p1 = GATES[precision]
        return self.cosine_mean >= mean and self.cosine_p1 >= p1


@dataclass(slots=True)
class System:
    """What is known of one mode.

    figures: name to the value of each round, seconds or bytes. error: why it was left out.
    """

    figures: dict[str, list[float]] = field(default_factory=dict)
    quality: Quality | None = None
    error: str | None = None

    def note(self, figure: str, value: float) -> None:
        """Add the value of a round."""
        self.figures.setdefault(figure, []).append(value)

    def median(self, figure: str) -> float | None:
        """Of the rounds so far; None without one."""
        values = self.figures.get(figure)
        return statistics.median(values) if values else None

    def cell(self, figure: str, scale: float = 1.0, digits: int = 2) -> str:
        """Median and range for a table: ``2.24 (1.86-2.28)``."""
        values = [scale * value for value in self.figures.get(figure, ())]
        if not values:
            return "-"
        return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


@dataclass(slots=True)
class BenchmarkReport:
    """A benchmark.

    texts: of the passes. absent: peers that are not installed. lengths: tokens of the single texts.
    systems: what is known of each mode, bertkit's fp32 first. interrupted: the signal that ended it early, if one did.
    """

    model: str
    processor: Processor
    threads: int
    texts: SampleTexts
    versions: Mapping[str, str]
    absent: Sequence[str]
    lengths: Sequence[int]
    systems: dict[Mode, System]
    interrupted: Interrupted | None = None

    def passes(self, mode: Mode) -> bool:
        """Whether a mode was measured, and its answers are near enough."""
        quality = self.systems[mode].quality
        return quality is not None and quality.passes(mode.precision) and bool(self.systems[mode].figures)

    def single_figures(self) -> list[str]:
        """Names of the figures of single texts."""
        return [f"single_{length}" for length in self.lengths]

    def pass_seconds(self, mode: Mode) -> float | None:
        """Of a pass over all texts: bertkit's in order of arrival, the peers' in the order that suits them best."""
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
        """For each mode that was measured its times as shares of the reference's, for a picture."""
        times = {
            str(mode): [*map(system.median, self.single_figures()), self.pass_seconds(mode)]
            for mode, system in self.systems.items()
        }
        whole = {name: [each for each in values if each is not None] for name, values in times.items()}
        whole = {name: values for name, values in whole.items() if len(values) == len(self.bar_groups())}
        base = whole.get(str(REFERENCE))
        return (
            {}
            if base is None
            else {
                name: [value / one for value, one in zip(values, base, strict=True)] for name, values in whole.items()
            }
        )

    def best_mode(self, precisions: Sequence[str] = tuple(GATES)) -> Mode:
        """The mode of bertkit that this machine should use; fp32 unless another is faster by more than noise."""
        best, least = REFERENCE, WORTH
        for mode in self.systems:
            if mode == REFERENCE or not mode.is_ours or mode.precision not in precisions or not self.passes(mode):
                continue
            shares = self.relative(mode, REFERENCE)
            if shares is not None and statistics.geometric_mean(shares) < least:
                best, least = mode, statistics.geometric_mean(shares)
        return best

    def to_dict(self) -> dict[str, Json]:
        """Plain data for JSON."""
        return {
            "model": self.model,
            "processor": self.processor.to_dict(),
            "threads": self.threads,
            "texts": self.texts.describe(),
            "num_texts": len(self.texts.rows),
            "num_tokens": int(self.texts.rows.lengths.sum()),
            "versions": dict(self.versions),
            "not_installed": list(self.absent),
            "systems": {str(mode): self._system_dict(mode) for mode in self.systems},
            "use": self.best_mode().precision,
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
            f"{self.model} on {self.processor}, {self.threads} threads",
            "versions: " + ", ".join(f"{name} {version}" for name, version in self.versions.items()),
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
                "memory, and cosine to bertkit's fp32 answers",
                ("peak MB", "mean", "1st percentile", ""),
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

    def _shown(self) -> list[tuple[Mode, System]]:
        return [(mode, system) for mode, system in self.systems.items() if system.error is None]

    def _rows(self, head: Sequence[str], cells: Callable[[Mode, System], Sequence[str]]) -> list[list[str]]:
        """A table with a row for each mode that was not left out."""
        shown = [(mode, system) for mode, system in self.systems.items() if system.error is None]
        return [["", *head], *([str(mode), *cells(mode, system)] for mode, system in shown)]

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
        return [
            "-" if memory is None else f"{memory / 1e6:,.0f}",
            *(("-", "-") if quality is None else (f"{quality.cosine_mean:.5f}", f"{quality.cosine_p1:.5f}")),
            "" if quality is None or quality.passes(mode.precision) else "NOT NEAR ENOUGH",
        ]

    def advice(self) -> str:
        """Which mode this machine should use, and why; empty before anything was measured."""
        if self.relative(REFERENCE, REFERENCE) is None:
            return ""
        return " ".join([*self._own_advice(), *self._peer_advice()])

    def _own_advice(self) -> list[str]:
        best = self.best_mode()
        told = []
        if best == REFERENCE:
            told.append("Use precision fp32 on this machine: no other mode of bertkit is faster with answers as near.")
        for mode in self.systems:
            shares = self.relative(mode, REFERENCE) if mode.is_ours and mode != REFERENCE else None
            if shares is None:
                continue
            took = f"takes {shares[0]:.2f} of fp32's time for single texts and {shares[1]:.2f} for all texts"
            if mode == best:
                told.insert(0, f"Use precision {mode.precision} on this machine: it {took}.")
            elif not self.passes(mode):
                told.append(f"Do not use {mode.precision}: it {took}, but its answers are not near enough.")
            else:
                told.append(f"Precision {mode.precision} {took}.")
        return told

    def _peer_advice(self) -> list[str]:
        """The fastest peers whose answers are near enough: with those of fp32, and with any."""
        told: dict[tuple[Mode, ...], str] = {}
        for which, precisions in (("with answers as in fp32", EXACT), ("of any precision", tuple(GATES))):
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
    """Tokens a second for a table, as :meth:`System.cell`."""
    if not seconds:
        return "-"
    low, middle, high = (tokens / value for value in (max(seconds), statistics.median(seconds), min(seconds)))
    return f"{middle:,.0f} ({low:,.0f}-{high:,.0f})"
