"""What a model costs: numbers of weights, operations and milliseconds a text."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import chain

from bertkit.config.any_config import AnyConfig
from bertkit.config.bert_config import BertConfig
from bertkit.system.untrusted_files import Json
from bertkit.training.pretraining.operations import encoder_flops

#: Texts that are measured, one at a time, after some that are not.
MEASURED, WARM_UP = 50, 5


@dataclass(frozen=True, slots=True)
class Costs:
    """What a model costs on a machine.

    parameters: all of them. megaflops: operations of the encoder for a text, in millions, on average; None for an
    encoder-decoder. milliseconds: median for a text by itself.
    """

    parameters: int
    megaflops: float | None
    milliseconds: float

    def to_dict(self) -> dict[str, Json]:
        """Plain data."""
        return asdict(self)

    def cells(self) -> tuple[str, str, str]:
        """For a table with the columns of :data:`HEADINGS`."""
        flops = "" if self.megaflops is None else f"{self.megaflops:,.1f}"
        return f"{self.parameters / 1e6:,.2f}", flops, f"{self.milliseconds:.2f}"


HEADINGS = ("million weights", "MFLOP a text", "ms a text")


def costs_of(
    shape: AnyConfig, parameters: int, lengths: Sequence[Sequence[int]], run: Callable[[int], object], *, whole: bool
) -> Costs:
    """Measure a model on examples with so many tokens.

    Args:
        shape: of the model.
        parameters: how many it has.
        lengths: tokens of the rows of each example.
        run: computes the example with that number.
        whole: all rows of the top layer are read, not those of [CLS] alone.
    """
    times = []
    for number in [*range(min(WARM_UP, len(lengths))), *range(min(MEASURED, len(lengths)))]:
        began = time.perf_counter()
        run(number)
        times.append(time.perf_counter() - began)
    flops = None
    if isinstance(shape, BertConfig):
        rows = list(chain.from_iterable(lengths))
        flops = encoder_flops(shape, rows, rows if whole else [1] * len(rows)) / len(lengths) / 1e6
    return Costs(parameters, flops, 1000 * statistics.median(times[-min(MEASURED, len(lengths)) :]))
