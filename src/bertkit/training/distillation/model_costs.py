"""What a model costs: numbers of weights, operations and milliseconds a text."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from bertkit.config.any_config import AnyConfig
from bertkit.config.bert_config import BertConfig
from bertkit.training.pretraining.operations import encoder_flops

#: Texts that are measured, one at a time, in so many turns; in each after some that are not.
MEASURED, TURNS, WARM_UP = 50, 5, 3


@dataclass(frozen=True, slots=True)
class Costs:
    """What a model costs on a machine: millions of operations of its encoder for a text, and median milliseconds."""

    parameters: int
    megaflops: float | None
    milliseconds: float


def costs_table(costs: Mapping[str, Costs]) -> list[tuple[str, ...]]:
    """Costs of models side by side."""
    flops = ("" if each.megaflops is None else f"{each.megaflops:,.1f}" for each in costs.values())
    return [
        ("costs", *costs),
        ("million weights", *(f"{each.parameters / 1e6:,.2f}" for each in costs.values())),
        ("MFLOP a text", *flops),
        ("ms a text", *(f"{each.milliseconds:.2f}" for each in costs.values())),
    ]


@dataclass(frozen=True, slots=True)
class Measurable:
    """A model and examples to measure it with.

    lengths: tokens of the rows of each example. run: computes the example with that number. whole: all rows of the top
    layer are read, not those of [CLS] alone.
    """

    shape: AnyConfig
    parameters: int
    lengths: Sequence[Sequence[int]]
    run: Callable[[int], object]
    whole: bool

    def megaflops(self) -> float | None:
        """See :class:`Costs`."""
        if not isinstance(self.shape, BertConfig):
            return None
        rows = list(chain.from_iterable(self.lengths))
        flops = encoder_flops(self.shape, rows, rows if self.whole else [1] * len(rows))
        return flops / len(self.lengths) / 1e6


def costs_of(models: Mapping[str, Measurable]) -> dict[str, Costs]:
    """Measure models in turns, so that other work on the machine slows all of them alike."""
    times: dict[str, list[float]] = {name: [] for name in models}
    for turn in range(TURNS):
        for name, model in models.items():
            numbers = range(min(MEASURED, len(model.lengths)))[turn::TURNS]
            taken = [_seconds(model.run, number) for number in [*numbers[:WARM_UP], *numbers]]
            times[name] += taken[len(numbers[:WARM_UP]) :]
    return {
        name: Costs(model.parameters, model.megaflops(), 1000 * statistics.median(times[name]))
        for name, model in models.items()
    }


def _seconds(run: Callable[[int], object], number: int) -> float:
    began = time.perf_counter()
    run(number)
    return time.perf_counter() - began
