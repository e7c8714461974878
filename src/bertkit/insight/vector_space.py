"""``bertkit.visualize.anisotropy``: how narrow the space of a model's vectors is, and what widens it.

Ethayarajh 2019 for layers; Mu and Viswanath 2018 ("all-but-the-top") and Su et al. 2021 (whitening) for what widens it.
Letters of the array shapes: N texts, D width of a vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np
import numpy.typing as npt

from bertkit.engine.backend import Network
from bertkit.errors import InputError, counted
from bertkit.insight.layer_vectors import (
    LayerReader,
    NoLayersError,
    ReadOptions,
    cut_notes,
    several,
    token_reader,
    vectors_of,
)
from bertkit.metrics.vector_similarity import unit_vectors
from bertkit.ragged import Floats
from bertkit.system.console import Progress, aligned
from bertkit.visualize.drawn import Drawn
from bertkit.visualize.figures import BLUE, COLORS, GREY, ORANGE, add_axes, empty_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Doubles = npt.NDArray[np.float64]
#: Most texts that are looked at, and the fewest.
POINTS, FEWEST = 2000, 8
#: Principal components that are listed for people; of so many numbers of a vector, one component is removed.
LISTED, ONE_OF = 5, 100


@dataclass(frozen=True, slots=True)
class LayerCosines:
    """Mean cosine of two random tokens of different texts, and of two texts, whose vectors are means of tokens."""

    layer: int
    tokens: float
    texts: float


@dataclass(frozen=True, slots=True)
class Space:
    """Vectors of texts, as they are or changed.

    mean_cosine: of all pairs. effective_dimension: the participation ratio of the variances ``v`` along the principal
        components, ``sum(v) ** 2 / sum(v ** 2)``: D if all are equal, 1 if there is one.
    shares: of the variance, of each principal component, the largest first.
    """

    name: str
    mean_cosine: float
    effective_dimension: float
    shares: list[float]


@dataclass(frozen=True)
class Anisotropy(Drawn):
    """How the vectors of N texts lie in their space.

    layers: none for a model that does not show them. fitted, measured: texts that mean and components were taken from,
        and the other ones, of which ``spaces`` tells. even: the effective dimension of as many random vectors that
        have no preferred direction.
    """

    title: ClassVar[str] = "How narrow the space of the vectors is"
    of: int
    source: str
    width: int
    fitted: int
    measured: int
    even: float
    layers: list[LayerCosines]
    spaces: list[Space]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        texts = {"texts": self.fitted + self.measured, "of": self.of, "fitted_on": self.fitted}
        facts = {
            "vectors": self.source,
            "measured_on": self.measured,
            "width": self.width,
            "even_effective_dimension": self.even,
        }
        parts = {"layers": [asdict(each) for each in self.layers], "spaces": [asdict(each) for each in self.spaces]}
        return {**texts, **facts, **parts, "notes": self.notes}

    def render(self) -> str:
        """A line for each kind of vectors, for people; shares of variance in percent."""
        head = (
            "vectors of texts",
            "mean cosine",
            "effective dimension",
            f"variance of the first {LISTED} components, %",
        )
        rows = [head] + [
            (
                each.name,
                f"{each.mean_cosine:.3f}",
                f"{each.effective_dimension:.1f}",
                " ".join(f"{100 * share:.1f}" for share in each.shares[:LISTED]),
            )
            for each in self.spaces
        ]
        even = f"{self.source}; {self.even:.1f} dimensions would be used if no direction was preferred"
        table = [("layer", "tokens", "texts")]
        table += [(str(each.layer), f"{each.tokens:.3f}", f"{each.texts:.3f}") for each in self.layers]
        layers = ["mean cosine of random pairs:", *aligned(table)] if self.layers else []
        return "\n".join([*aligned(rows), even, *layers, *(f"note: {note}" for note in self.notes)])

    def figure(self) -> Figure:
        """Mean cosines by layer, and the variance that the first components have together."""
        figure = empty_figure(9.0, 4.2)
        if self.layers:
            left = add_axes(figure, 1, 2, 1)
            numbers = [each.layer for each in self.layers]
            left.plot(numbers, [each.tokens for each in self.layers], color=BLUE, marker="o", label="tokens")
            left.plot(numbers, [each.texts for each in self.layers], color=ORANGE, marker="s", label="texts")
            left.axhline(0, color=GREY, linewidth=0.8)
            left.set_xticks(numbers[:: 1 + len(numbers) // 13])
            left.set_ylim(min(-0.05, *(min(each.tokens, each.texts) for each in self.layers)), 1.02)
            left.set_xlabel("layer (0: embeddings)")
            left.set_ylabel("mean cosine of random pairs")
            left.legend(frameon=False)
        right = add_axes(figure, 1, 2 if self.layers else 1, 2 if self.layers else 1)
        for each, color, style in zip(self.spaces, COLORS, ("-", "--", "-.", ":"), strict=False):
            name = f"{each.name}: cosine {each.mean_cosine:.2f}, dimension {each.effective_dimension:.0f}"
            shares = np.cumsum(each.shares)
            right.plot(np.arange(1, len(shares) + 1), shares, color=color, linestyle=style, label=name)
        right.set_xscale("log")
        right.set_ylim(0, 1.02)
        right.set_xlabel("principal components, the largest first")
        right.set_ylabel("their share of the variance")
        figure.legend(
            *right.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=9
        )
        return figure


def anisotropy(
    texts: Sequence[str],
    model: str | Path | Network,
    *,
    points: int = POINTS,
    seed: int = 0,
    **reading: Unpack[ReadOptions],
) -> Anisotropy:
    """How narrow the space of a model's vectors is: before and after whitening, and in each layer.

    Mean and principal components are taken from one half of the texts and told of the other, so that whitening is not
    judged by what it was made from.

    Args:
        texts: :data:`FEWEST` at least; hundreds tell more.
        model: as in :func:`bertkit.visualize.embeddings`.
        points: of more texts so many are sampled.
        seed: of the samples.
        **reading: see :class:`bertkit.insight.layer_vectors.ReadOptions`; ``layer`` is that of ``spaces``.

    Raises:
        InputError: too few texts, a single one in place of several, or texts that all have the same vector.
    """
    texts = several(texts)
    of = len(texts)
    if points < FEWEST or of < FEWEST:
        raise InputError(f"{FEWEST} texts are needed at least, got {min(of, points)}")
    generator = np.random.Generator(np.random.PCG64(seed))
    texts = [texts[row] for row in generator.permutation(of)[:points]]
    notes = [] if len(texts) == of else [f"{len(texts):,} of {of:,} texts were sampled (seed {seed})"]
    encoded = vectors_of(texts, model, **reading)
    notes += cut_notes(encoded.truncated)
    layers: list[LayerCosines] = []
    try:
        layers = _layers(token_reader(model, reading), texts, generator)
    except NoLayersError as error:
        notes.append(f"no layers: {error}")
    half = len(texts) // 2
    fitted, measured = (unit_vectors(part.astype(np.float64)) for part in np.split(encoded.vectors, [half]))
    width = measured.shape[1]
    if half <= 2 * width:
        notes.append(f"whitening is taken from {half:,} texts, which are few for {width} numbers")
    even = 1.0 / (1.0 / width + 1.0 / (len(measured) - 1))
    return Anisotropy(of, encoded.source, width, half, len(measured), even, layers, spaces_of(fitted, measured), notes)


def spaces_of(fitted_ND: npt.NDArray[Any], measured_ND: npt.NDArray[Any]) -> list[Space]:
    """Vectors as they are, and changed as other vectors of the kind say: three ways of widening their space."""
    mean_D = fitted_ND.mean(axis=0)
    _, scales, directions = np.linalg.svd(fitted_ND - mean_D, full_matrices=False)
    if scales[0] < 1e-6:
        raise InputError(f"the vectors of all {len(fitted_ND) + len(measured_ND):,} texts are the same")
    count = max(1, fitted_ND.shape[1] // ONE_OF)
    centred = measured_ND - mean_D
    top = directions[:count]
    used = scales > 1e-6 * scales[0]  # of fewer texts than numbers the others have no variance
    whitened = centred @ directions[used].T * (np.sqrt(len(fitted_ND)) / scales[used])
    removed = f"without the first {counted(count, 'component')}" if count > 1 else "without the first component"
    changed = {
        "as they are": measured_ND,
        "mean removed": centred,
        removed: centred - centred @ top.T @ top,
        "whitened": whitened,
    }
    return [_space(name, np.asarray(x, np.float64)) for name, x in changed.items()]


def _space(name: str, x_ND: Doubles) -> Space:
    variances = np.square(np.linalg.svd(x_ND - x_ND.mean(axis=0), compute_uv=False))
    total = variances.sum()
    if total <= 0:
        return Space(name, 1.0, 0.0, [])
    shares = variances / total
    return Space(name, mean_cosine(x_ND), float(1.0 / np.square(shares).sum()), shares.tolist())


def mean_cosine(x_ND: npt.NDArray[Any]) -> float:
    """Mean over all pairs of different vectors, two at least."""
    units = unit_vectors(np.asarray(x_ND, np.float64))
    total, own = np.square(units.sum(axis=0)).sum(), np.square(units).sum()
    return float((total - own) / (len(units) * (len(units) - 1)))


def _layers(reader: LayerReader, texts: Sequence[str], generator: np.random.Generator) -> list[LayerCosines]:
    """One token of each text stands for its tokens; texts without any but special tokens are left out."""
    rows = reader.encode(texts, truncation=True)
    special = reader.tokenizer.all_special_ids
    tokens, means = [], []
    with Progress(len(rows), label="layers", unit="texts") as bar:
        for ids, states_LSD in zip(rows, reader.states(rows, advance=bar.advance), strict=True):
            means.append(states_LSD.mean(axis=1))
            if len(own := np.flatnonzero(~np.isin(ids, special))):
                tokens.append(states_LSD[:, generator.choice(own)])
    if len(tokens) < 2:
        return []
    by_layer: list[list[Floats]] = [list(np.stack(each, axis=1)) for each in (tokens, means)]
    pairs = zip(*by_layer, strict=True)
    return [LayerCosines(layer, mean_cosine(some), mean_cosine(every)) for layer, (some, every) in enumerate(pairs)]
