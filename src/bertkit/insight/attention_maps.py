"""What each head of a layer attends to in one text or pair: ``bertkit.visualize.attention``.

Letters of the array shapes: L layers, N heads, S tokens, Q tokens that attend, K tokens that are attended to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np
import torch

from bertkit.batch import collate
from bertkit.engine.backend import Network
from bertkit.errors import InputError, TextError, did_you_mean
from bertkit.insight.attention_reader import AttentionReader, Layers, is_empty
from bertkit.ragged import Floats
from bertkit.system.console import aligned
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.visualize.attention_pictures import AttentionMap, attention_page, lines_figure, matrices_figure
from bertkit.visualize.drawn import Drawn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

View = Literal["heads", "lines", "average", "rollout"]
Part = Literal["encoder", "decoder", "cross"]
#: Links that are listed of a matrix, or of a token.
LISTED = 3


@dataclass(frozen=True, slots=True)
class _Side:
    """The tokens that attend, or are attended to, as a picture names them: one by one, or joined to words.

    names, texts: of each of them, its name and the text it comes from; None of a special token.
    places: of each token the number of its name.
    """

    names: tuple[str, ...]
    texts: tuple[int | None, ...]
    places: tuple[int, ...]


@dataclass(frozen=True)
class Attention(Drawn):
    """The attention of a model in one text or pair.

    maps: by name, ``encoder``, and of a pair that a BART or T5 reads and writes ``decoder`` and ``cross``.
    part, view, layer, head: what the picture shows; layers and heads count from 1, None stands for the mean.
    words: whether pieces are joined to words.
    """

    title: ClassVar[str] = "Attention"
    maps: Mapping[str, AttentionMap]
    part: Part
    view: View
    layer: int | None
    head: int | None
    words: bool = False

    @property
    def matrices(self) -> Floats:
        """What the picture shows, ``(n, Q, K)``: of ``heads`` one of each head, otherwise one."""
        shown = self.maps[self.part]
        if self.view == "rollout":
            assert shown.rollout is not None
            found = shown.rollout[self._top - 1][None]
        elif self.layer is None:
            found = shown.values.mean((0, 1), dtype=np.float64)[None]
        elif self.head is not None:
            found = shown.values[self.layer - 1, self.head - 1][None]
        elif self.view == "heads":
            found = shown.values[self.layer - 1]
        else:
            found = shown.values[self.layer - 1].mean(0, dtype=np.float64)[None]
        return np.asarray(found, np.float32)

    @property
    def _top(self) -> int:
        return self.layer or len(self.maps[self.part].values)

    @property
    def _titles(self) -> list[str]:
        """Of each matrix."""
        if self.view == "heads":
            return [f"head {number}" for number in range(1, self.maps[self.part].values.shape[1] + 1)]
        if self.view == "rollout":
            return [f"rollout from layer {self._top} to the input"]
        if self.layer is None:
            return ["mean of all layers and heads"]
        return [f"layer {self.layer}, " + ("mean of the heads" if self.head is None else f"head {self.head}")]

    def _facts(self, part: str) -> str:
        layers, heads, rows, columns = self.maps[part].values.shape
        what = "words and special tokens" if self.words else "tokens"
        sizes = f"{rows} {what}" if part != "cross" else f"{rows} {what} to {columns}"
        return f"attention{self._kind(part)}: {layers} layers of {heads} heads, {sizes}"

    def _kind(self, part: str) -> str:
        """Whose attention it is, where there are several."""
        return "" if len(self.maps) == 1 else " of decoder to input" if part == "cross" else f" of the {part}"

    def to_dict(self) -> dict[str, Any]:
        """The matrices of the picture, rounded to 6 places; ``maps`` has all layers."""
        shown, several = self.maps[self.part], self.view == "heads"
        matrices = self.matrices.astype(np.float64).round(6).tolist()
        return {
            "part": self.part,
            "view": self.view,
            "layer": self._top if self.view == "rollout" else self.layer,
            "num_layers": shown.values.shape[0],
            "num_heads": shown.values.shape[1],
            "rows": list(shown.rows),
            "columns": list(shown.columns),
            "row_texts": list(shown.row_texts),
            "column_texts": list(shown.column_texts),
            "matrices": [
                {"head": number if several else self.head, "weights": weights}
                for number, weights in enumerate(matrices, start=1)
            ],
        }

    def render(self) -> str:
        """Of each head its strongest links between words, or of each token what it attends to most."""
        shown = self.maps[self.part]
        if self.view == "heads":
            lines = [[title, self._links(matrix)] for title, matrix in zip(self._titles, self.matrices, strict=True)]
            heading = (
                f"{self._facts(self.part)}\nlayer {self.layer}, strongest links of each head between different words:"
            )
        else:
            (matrix,) = self.matrices
            lines = [[name, _strongest(row, shown.columns)] for name, row in zip(shown.rows, matrix, strict=True)]
            each = "word" if self.words else "token"
            heading = f"{self._facts(self.part)}\n{self._titles[0]}: what each {each} attends to most"
        return "\n".join([heading, *(f"  {line}" for line in aligned(lines))])

    def _links(self, matrix: Floats) -> str:
        shown = self.maps[self.part]
        links = np.array(matrix)
        links[[text is None for text in shown.row_texts]] = 0
        links[:, [text is None for text in shown.column_texts]] = 0
        if self.part != "cross":
            np.fill_diagonal(links, 0)
        best = np.argsort(-links, axis=None, kind="stable")[:LISTED]
        places = [np.unravel_index(at, links.shape) for at in best if links.flat[at] > 0]
        said = (f"{shown.rows[row]} → {shown.columns[column]} {links[row, column]:.2f}" for row, column in places)
        return ", ".join(said) or "none"

    def figure(self) -> Figure:
        shown = self.maps[self.part]
        if self.view == "lines":
            return lines_figure(self.matrices[0], self._titles[0], shown.rows, shown.columns)
        figure = matrices_figure(self.matrices, self._titles, shown.rows, shown.columns)
        if self.view == "heads":
            figure.suptitle(f"layer {self.layer}{self._kind(self.part)}", fontsize=10)
        return figure

    def page(self) -> str:
        begin = {"map": self.part, "view": self.view, "layer": self._top, "head": self.head, "all": self.layer is None}
        return attention_page(self.title, self.maps, begin, "; ".join(map(self._facts, self.maps)))


def attention(
    text: str,
    text_pair: str | None = None,
    *,
    model: str | Path | Network,
    tokenizer: str | Path | PreTrainedTokenizer | None = None,
    view: View = "heads",
    layer: int | None = None,
    head: int | None = None,
    part: Part | None = None,
    words: bool = False,
    truncation: bool = False,
    max_length: int | None = None,
    device: Any = None,
) -> Attention:
    """What each head of each layer attends to in a text or pair.

    The values are those of ``model(..., output_attentions=True)``. A BART or T5 reads the text, and of a pair writes
    the second text: then there is also the attention of its decoder, to what it has written (its input, so shifted
    right by one) and to what it reads.

    Args:
        text: with ``text_pair`` a pair.
        text_pair: see ``text``.
        model: folder, name on the Hub, run folder of ``bertkit finetune``, or a model object.
        tokenizer: needed for a model object.
        view: of the picture: ``"heads"``, a matrix for each head of a layer; ``"lines"``, lines between words, of one
            head or the mean of those of a layer; ``"average"``, the mean over the heads of a layer or of all;
            ``"rollout"``: from a layer through all below to the input (Abnar & Zuidema 2020).
        layer: from 1, or from -1 at the top; None: the top, of ``"average"`` all.
        head: from 1; of ``"lines"``.
        part: of a pair in a BART or T5: ``"encoder"``, ``"decoder"`` or ``"cross"``; None: ``"cross"``.
        words: join pieces to words: attention to a word is the sum over its pieces, that of a word their mean.
        truncation: True cuts a text that is too long; False refuses it.
        max_length: most tokens; None: 512, or what the model reads where that is less.
        device: see :func:`bertkit.pipeline`.

    Raises:
        InputError: an exported model; a layer, head or part that there is not; options that do not go together.
        TextError: an empty text, or one that is too long.
        ResourceError: attention that takes too much memory.
    """
    _check(view, head, part)
    if is_empty((text, text_pair)):
        raise TextError("the text is empty: there is nothing to attend to")
    reader = AttentionReader(model, tokenizer, device=device, max_length=max_length, writes=text_pair is not None)
    written = text_pair is not None and reader.decodes
    if part not in (None, "encoder") and not written:
        raise InputError(f"part={part!r} is for a pair, read and written by a BART or T5 with a decoder; leave it out")
    maps = (
        _maps_of_pair(reader, text, str(text_pair), words=words, truncation=truncation)
        if written
        else _maps(reader, text, text_pair, words=words, truncation=truncation)
    )
    chosen: Part = part or ("cross" if written and view != "rollout" else "encoder")
    if view == "rollout" and chosen != "encoder":
        raise InputError("rollout follows attention back to the input of an encoder; use part='encoder'")
    num_layers, num_heads = maps[chosen].values.shape[:2]
    if head is not None and not 1 <= head <= num_heads:
        raise InputError(f"the model has no head {head}: each layer has {num_heads}, counted from 1")
    if layer is not None and (layer == 0 or not -num_layers <= layer <= num_layers):
        raise InputError(f"the model has no layer {layer}: it has {num_layers}, counted from 1; -1 is the top")
    if layer is None:
        shown = None if view == "average" else num_layers
    else:
        shown = layer if layer > 0 else num_layers + 1 + layer
    return Attention(maps, chosen, view, shown, head, words)


def _check(view: str, head: int | None, part: str | None) -> None:
    for name, value, known in (("view", view, get_args(View)), ("part", part, (None, *get_args(Part)))):
        if value not in known:
            near = did_you_mean(str(value), map(str, known))
            raise InputError(f"{name} must be one of {', '.join(map(str, known))}, got {value!r}{near}")
    if head is not None and view != "lines":
        raise InputError(f"head={head} is for view='lines', one head; view={view!r} shows all of a layer")


def _maps(
    reader: AttentionReader, text: str, text_pair: str | None, *, words: bool, truncation: bool
) -> dict[str, AttentionMap]:
    rows = reader.encode([(text, text_pair)], truncation=truncation)
    side = _side(reader, text, text_pair, words=words)
    return {"encoder": _map_of(reader.of(collate(rows, [0])), side, side, rolls=True)}


def _maps_of_pair(
    reader: AttentionReader, text: str, target: str, *, words: bool, truncation: bool
) -> dict[str, AttentionMap]:
    rows = reader.encode([(text, None), (target, None)], truncation=truncation)
    ids, labels = (torch.from_numpy(rows[number].astype(np.int64)) for number in range(2))
    shifted, found = reader.of_pair(ids, labels)
    read, target_side = (_side(reader, each, None, words=words) for each in (text, target))
    start = reader.tokenizer.convert_ids_to_tokens(shifted[:1].tolist())
    written = _Side(  # behind the token that begins, and without the last one, which is special
        (*start, *target_side.names[:-1]),
        (None, *(None if each is None else 1 for each in target_side.texts[:-1])),
        (0, *(place + 1 for place in target_side.places[:-1])),
    )
    sides = {"encoder": (read, read), "decoder": (written, written), "cross": (written, read)}
    return {name: _map_of(found[name], *sides[name], rolls=name == "encoder") for name in sides}


def _side(reader: AttentionReader, text: str, text_pair: str | None, *, words: bool) -> _Side:
    """The tokens of what the reader encodes."""
    encoded = reader.tokenizer(text, text_pair, truncation=True, max_length=reader.max_length).encodings[0]
    sides, offsets = encoded.sequence_ids, encoded.offsets
    keys = [
        (side, word) if words and word is not None else at
        for at, (side, word) in enumerate(zip(sides, encoded.word_ids, strict=True))
    ]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    places = tuple(numbers[key] for key in keys)
    names, texts = [], []
    for number in range(len(numbers)):
        first = places.index(number)
        last = len(places) - 1 - places[::-1].index(number)
        token, side = encoded.tokens[first], sides[first]
        surface = "" if side is None else (text, text_pair or "")[side][offsets[first][0] : offsets[last][1]].strip()
        # \u0120 and \u2581 stand for spaces, and byte-level tokens for bytes: people read the text. One that is a token
        # by itself has in some tokenizers the place of the letter that follows.
        by_text = surface and (words or not (token.isascii() or token in "\u0120\u2581"))
        names.append(f"{'##' * (not words and token.startswith('##'))}{surface}" if by_text else token)
        texts.append(side)
    return _Side(tuple(names), tuple(texts), places)


def _map_of(layers: Layers, rows: _Side, columns: _Side, *, rolls: bool) -> AttentionMap:
    values = np.stack([one.float().cpu().numpy() for (one,) in layers])
    assert values.shape[2:] == (len(rows.places), len(columns.places))
    rolled = rollout(values) if rolls else None
    if len(rows.names) < len(rows.places) or len(columns.names) < len(columns.places):
        values = merge(values, rows.places, columns.places)
        rolled = None if rolled is None else merge(rolled, rows.places, columns.places)
    return AttentionMap(rows.names, columns.names, rows.texts, columns.texts, values, rolled)


def merge(values: Floats, rows: Sequence[int], columns: Sequence[int]) -> Floats:
    """Attention ``(..., Q, K)`` of pieces as that of words; ``rows`` and ``columns`` have the number of each's word."""
    from_QW, to_KW = (np.eye(max(places) + 1, dtype=np.float32)[list(places)] for places in (rows, columns))
    merged: Floats = (from_QW / from_QW.sum(0)).T @ values @ to_KW
    return merged


def rollout(values_LNSS: Floats) -> Floats:
    """From each layer back to the input, ``(L, S, S)``: products of half the mean of the heads and half the identity.

    Abnar & Zuidema 2020, section 3: the half is for the residual connection.
    """
    size = values_LNSS.shape[-1]
    rolled, before = np.empty((len(values_LNSS), size, size), np.float32), np.eye(size)
    for number, heads_NSS in enumerate(values_LNSS):
        before = (heads_NSS.mean(0, dtype=np.float64) + np.eye(size)) / 2 @ before
        rolled[number] = before / before.sum(-1, keepdims=True)
    return rolled


def _strongest(weights_K: Floats, names: Sequence[str]) -> str:
    best = np.argsort(-weights_K, kind="stable")[:LISTED]
    return ", ".join(f"{names[at]} {weights_K[at]:.2f}" for at in best)
