"""``bertkit.visualize.tokens``: a map of the pieces of a few texts, each where it stands in its text.

Letters of the array shapes: T pieces, D width.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np

from bertkit.engine.backend import Network
from bertkit.errors import InputError, counted
from bertkit.insight.layer_vectors import LayerReader, ReadOptions, cut_notes, token_reader
from bertkit.insight.projection import Method, Projection, check_method, project
from bertkit.metrics.vector_similarity import unit_vectors
from bertkit.ragged import Floats, Ints, Ragged
from bertkit.visualize.drawn import Drawn
from bertkit.visualize.point_map import PointMap, groups_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Most pieces that are drawn.
MOST_PIECES = 2000


@dataclass(frozen=True, slots=True)
class Piece:
    """text, position: the number of its text, and its own in it, special tokens included; both from 0."""

    piece: str
    text: int
    position: int


@dataclass(frozen=True, slots=True)
class PieceCosines:
    """Mean cosine of pieces in different texts: of the same piece, and of different ones; None where there are none."""

    same: float | None
    different: float | None


@dataclass(frozen=True)
class TokenMap(Drawn):
    """T pieces in a plane. repeated: rows of pieces that are the same, in two texts or more."""

    title: ClassVar[str] = "A map of word pieces"
    texts: list[str]
    layer: int
    pieces: list[Piece]
    repeated: list[list[int]]
    projection: Projection
    cosines: PieceCosines
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Everything; a point has its place, its piece, and where that stands."""
        points = [
            {"x": x, "y": y, "piece": each.piece, "text": each.text, "position": each.position}
            for each, (x, y) in zip(self.pieces, self.projection.places.tolist(), strict=True)
        ]
        return {
            "texts": self.texts,
            "layer": self.layer,
            **self.projection.to_dict(),
            "cosine_same_piece": self.cosines.same,
            "cosine_different_pieces": self.cosines.different,
            "notes": self.notes,
            "points": points,
        }

    def render(self) -> str:
        lines = [self._amount(), self.projection.render(), self._cosines()]
        return "\n".join([*filter(None, lines), *(f"note: {note}" for note in self.notes)])

    def figure(self) -> Figure:
        return self._map().figure()

    def page(self) -> str:
        return self._map().page(self.title, "pieces")

    def _amount(self) -> str:
        return f"{counted(len(self.pieces), 'piece')} of {counted(len(self.texts), 'text')} in layer {self.layer}"

    def _cosines(self) -> str:
        if self.cosines.same is None or self.cosines.different is None:
            return ""
        return (
            f"mean cosine of the same piece in two texts {self.cosines.same:.3f}, "
            f"of different pieces {self.cosines.different:.3f}"
        )

    def _map(self) -> PointMap:
        shown = [" ".join(text.split()) for text in self.texts]
        labels: list[str | None] = [f"{each.text + 1}. {shown[each.text]}" for each in self.pieces]
        texts = [f"token {each.position} of: {shown[each.text]}" for each in self.pieces]
        remarks = [*filter(None, (self._amount(), self._cosines()))]
        groups, names = groups_of(labels, by_size=False), [each.piece for each in self.pieces]
        return PointMap(self.projection.places, texts, groups, self.projection.axes, remarks, names, self.repeated)


def tokens(
    texts: Iterable[str],
    model: str | Path | Network,
    *,
    method: Method = "pca",
    perplexity: float | None = None,
    special: bool = False,
    seed: int = 0,
    **reading: Unpack[ReadOptions],
) -> TokenMap:
    """A map of the word pieces of a few texts as a layer sees them: the same piece has another place in each text.

    Args:
        texts: one or several, with three pieces at least. Of more than :data:`MOST_PIECES` pieces the first ones are
            drawn.
        model: folder, name on the Hub, run folder, or a model object of an encoder.
        method: see :func:`bertkit.insight.projection.project`.
        perplexity: of t-SNE, see there.
        seed: of the method.
        special: draw special tokens such as [CLS], too.
        **reading: see :class:`bertkit.insight.layer_vectors.ReadOptions`; ``layer`` None is the top. There is no
            ``pooling``.

    Raises:
        InputError: too few pieces, or a model that does not show its layers.
    """
    check_method(method, perplexity)
    if "pooling" in reading:
        raise InputError("pieces have vectors of their own, so pooling would have no effect; leave it out")
    texts = [texts] if isinstance(texts, str) else list(texts)
    if not texts:
        raise InputError("there are no texts to draw")
    layer = reading.get("layer")
    reader = token_reader(model, reading)
    number = reader.layer(-1 if layer is None else layer)
    rows = reader.encode(texts, truncation=True)
    left_out = [] if special else reader.tokenizer.all_special_ids
    kept = np.flatnonzero(~np.isin(rows.ids, left_out))
    notes = []
    if len(kept) > MOST_PIECES:
        notes.append(f"the first {MOST_PIECES:,} of {len(kept):,} pieces are drawn")
    chosen = kept[:MOST_PIECES]
    vectors = _states(reader, rows, number, chosen)
    projection = project(vectors, method, perplexity=perplexity, seed=seed, what="piece")
    owners = np.searchsorted(rows.boundaries, chosen, side="right") - 1
    ids = rows.ids[chosen]
    pieces = [
        Piece(name_of(reader, token), owner, position)
        for token, owner, position in zip(
            ids.tolist(), owners.tolist(), (chosen - rows.boundaries[owners]).tolist(), strict=True
        )
    ]
    same = [np.flatnonzero(ids == token) for token in dict.fromkeys(ids.tolist())]
    repeated = [each.tolist() for each in same if len(set(owners[each].tolist())) > 1]
    cosines = _cosines(unit_vectors(vectors), ids.astype(np.int64), owners)
    return TokenMap(
        texts, number, pieces, repeated, projection, cosines, [*notes, *cut_notes(rows.truncated), *projection.notes]
    )


def name_of(reader: LayerReader, token: int) -> str:
    """A piece as people read it, without the marks of blanks that some vocabularies have; a blank alone is seen."""
    name: str = reader.tokenizer.decode([token]).strip()
    return name or "\N{OPEN BOX}"


def _states(reader: LayerReader, rows: Ragged, layer: int, chosen: Ints) -> Floats:
    """The vectors of some tokens, in order ``(T, D)``; texts after the last one of them are not computed."""
    last = 0 if not len(chosen) else int(np.searchsorted(rows.boundaries, chosen[-1], side="right"))
    needed = rows.select(np.arange(max(1, last)))
    return np.concatenate([states[0] for states in reader.states(needed, [layer])])[chosen]


def _cosines(units_TD: Floats, ids_T: Ints, owners_T: Ints) -> PieceCosines:
    products = units_TD @ units_TD.T
    apart = owners_T[:, None] != owners_T
    equal = ids_T[:, None] == ids_T
    same, different = (products[apart & chosen] for chosen in (equal, ~equal))
    return PieceCosines(*(float(values.mean()) if len(values) else None for values in (same, different)))
