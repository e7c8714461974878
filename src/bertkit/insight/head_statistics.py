"""What every head of a model attends to, over many texts: ``bertkit.visualize.heads`` (Clark et al. 2019).

Letters of the array shapes: L layers, N heads, S tokens of a text, M masks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from unicodedata import category

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertkit.batch import collate
from bertkit.engine.backend import Network
from bertkit.errors import InputError, TextError, counted
from bertkit.inference.pipeline_base import shown
from bertkit.inference.pipeline_inputs import Item, read_request
from bertkit.insight.attention_reader import AttentionReader, is_empty
from bertkit.ragged import Ragged
from bertkit.system.console import aligned
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.visualize.drawn import Drawn
from bertkit.visualize.head_pictures import heads_figure, heads_page

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Texts that are read where nothing else is asked for, texts that are tokenized at once, and bytes of attention that
#: are computed at once.
MOST_TEXTS, WINDOW, BYTES_AT_ONCE = 1000, 64, 128 << 20
#: Heads that are listed of a statistic.
LISTED = 3
#: Statistics that are shares of the attention, by the masks that :meth:`_Masks.of` makes, in their order.
SHARES = ("next", "previous", "itself", "cls", "sep", "same", "punctuation")


@dataclass(frozen=True)
class HeadStatistics(Drawn):
    """What each head attends to: the mean over all tokens of all texts, special tokens included.

    values: by name, ``(L, N)``: the share of attention to the ``next`` and ``previous`` token, to the token ``itself``,
        to ``cls`` (the special token that begins a text) and ``sep`` (those that end one), to other places of the
        ``same`` piece, and to ``punctuation``; the mean ``distance`` in tokens; the ``entropy`` in nats, and
        ``relative_entropy``: as a share of that of attention to all tokens of the text alike.
    num_texts, num_tokens: that were read. num_truncated: texts that were cut. num_empty: texts that were left out.
    has_more: there were more texts than were to be read.
    special: the tokens of ``cls`` and ``sep``; ``values`` lacks what the tokenizer lacks, as T5's the first.
    """

    title: ClassVar[str] = "What heads attend to"
    values: Mapping[str, npt.NDArray[np.float64]]
    num_texts: int
    num_tokens: int
    num_truncated: int
    num_empty: int
    has_more: bool
    special: Mapping[str, str]

    @property
    def names(self) -> dict[str, str]:
        """Of each statistic, for people."""
        said = {
            "next": "next token",
            "previous": "previous token",
            "itself": "the token itself",
            **self.special,
            "same": "same piece elsewhere",
            "punctuation": "punctuation",
            "distance": "distance (tokens)",
            "entropy": "entropy (nats)",
            "relative_entropy": "entropy / uniform",
        }
        return {name: said[name] for name in self.values}

    @property
    def _facts(self) -> str:
        layers, heads = self.values["entropy"].shape
        texts = counted(self.num_texts, "text")
        notes = [
            f"{layers} layers of {heads} heads",
            f"{'the first ' * self.has_more}{texts}",
            f"{self.num_tokens:,} tokens",
        ]
        if self.num_truncated:
            notes.append(f"{counted(self.num_truncated, 'text')} truncated")
        if self.num_empty:
            notes.append(f"{counted(self.num_empty, 'empty text')} left out")
        return ", ".join(notes)

    def _rows(self) -> list[dict[str, int | float]]:
        layers, heads = self.values["entropy"].shape
        return [
            {
                "layer": layer + 1,
                "head": head + 1,
                **{name: float(each[layer, head]) for name, each in self.values.items()},
            }
            for layer in range(layers)
            for head in range(heads)
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            "num_texts": self.num_texts,
            "num_tokens": self.num_tokens,
            "num_truncated": self.num_truncated,
            "num_empty": self.num_empty,
            "has_more": self.has_more,
            "heads": self._rows(),
        }

    def render(self) -> str:
        """Of each statistic its mean over the heads, and the heads that have most of it."""
        lines = [["", "mean", "most (layer-head)"]]
        for name, title in self.names.items():
            each = self.values[name]
            best = np.argsort(-each, axis=None, kind="stable")[:LISTED]
            places = [np.unravel_index(at, each.shape) for at in best]
            said = ", ".join(f"{row + 1}-{head + 1} {each[row, head]:.2f}" for row, head in places)
            lines.append([title, f"{each.mean():.2f}", said])
        return "\n".join([self._facts, *aligned(lines)])

    def figure(self) -> Figure:
        return heads_figure({title: self.values[name] for name, title in self.names.items()}, self._facts)

    def page(self) -> str:
        return heads_page(self.title, self.names, self._rows(), self._facts)


def heads(
    texts: Iterable[Item],
    *,
    model: str | Path | Network,
    tokenizer: str | Path | PreTrainedTokenizer | None = None,
    max_texts: int = MOST_TEXTS,
    truncation: bool = False,
    max_length: int | None = None,
    device: Any = None,
    progress: bool | None = None,
) -> HeadStatistics:
    """What every head attends to over texts or pairs, at most ``max_texts`` of them; no attention is kept.

    Of a BART or T5 the encoder is measured. Other arguments and errors are those of
    :func:`bertkit.visualize.attention`; a text that is empty is counted and left out.

    Raises:
        InputError: ``max_texts`` below 1.
        TextError: no text that is not empty; one that is too long without ``truncation``.
    """
    if max_texts < 1:
        raise InputError(f"max_texts must be from 1, got {max_texts}")
    reader = AttentionReader(model, tokenizer, device=device, max_length=max_length)
    masks = _Masks(reader.tokenizer)
    items = read_request([texts] if isinstance(texts, str) else texts, tuple_is_pair=False).items
    sums = np.zeros((reader.num_layers, reader.num_heads, len(SHARES) + 2))
    num_texts = num_tokens = num_truncated = num_empty = 0
    uniform = 0.0
    with shown(max_texts, "attention", progress) as advance:
        first = 0
        while window := list(islice(items, min(WINDOW, max_texts - first))):
            rows = reader.encode(window, truncation=truncation, first=first)
            filled = [number for number, text in enumerate(window) if not is_empty(text)]
            num_empty += len(window) - len(filled)
            if filled:
                rows = rows.select(filled)
                for part in _parts(rows, reader):
                    sums += _sums(reader, rows, part, masks)
                lengths = rows.lengths
                num_texts, num_tokens = num_texts + len(rows), num_tokens + int(lengths.sum())
                num_truncated += int(rows.truncated.sum())
                uniform += float((lengths * np.log(lengths)).sum())
            first += len(window)
            advance(len(window))
    has_more = first == max_texts and next(items, None) is not None
    if not num_texts:
        raise TextError("there is no text, or all of them are empty: there is nothing to attend to")
    means = dict(zip((*SHARES, "distance", "entropy"), np.moveaxis(sums / num_tokens, -1, 0), strict=True))
    means["relative_entropy"] = means["entropy"] * num_tokens / uniform if uniform else np.zeros_like(means["entropy"])
    special = {name: reader.tokenizer.convert_ids_to_tokens(number) for name, number in masks.ends.items()}
    means = {name: values for name, values in means.items() if name not in ("cls", "sep") or name in special}
    return HeadStatistics(means, num_texts, num_tokens, num_truncated, num_empty, has_more, special)


def _parts(rows: Ragged, reader: AttentionReader) -> Iterator[list[int]]:
    """The numbers of rows that are computed together: as many as memory is meant to hold the attention of, or one."""
    sizes = (4 * reader.num_layers * reader.num_heads * rows.lengths**2).tolist()
    part: list[int] = []
    total = 0
    for number, size in enumerate(sizes):
        if part and total + size > BYTES_AT_ONCE:
            yield part
            part, total = [], 0
        part.append(number)
        total += size
    yield part


def _sums(reader: AttentionReader, rows: Ragged, numbers: Sequence[int], masks: _Masks) -> npt.NDArray[np.float64]:
    """Sums over the tokens of some rows, ``(L, N, M + 1)``: attention under each mask, and the entropy."""
    layers = reader.of(collate(rows, numbers))
    total = np.zeros((len(layers), reader.num_heads, len(SHARES) + 2))
    for place, number in enumerate(numbers):
        probs_LNSS = torch.stack([layer[place] for layer in layers]).float()
        masks_MSS = masks.of(rows[number].tolist()).to(probs_LNSS.device)
        found = probs_LNSS.flatten(2) @ masks_MSS.flatten(1).T
        entropy = torch.special.entr(probs_LNSS).sum((-2, -1))
        total += torch.cat([found, entropy[..., None]], dim=-1).double().cpu().numpy()
    return total


class _Masks:
    """Which tokens of a text are next to each other, special, the same, punctuation; and how far apart they are."""

    def __init__(self, tokenizer: PreTrainedTokenizer) -> None:
        self._tokenizer = tokenizer
        self._special = torch.tensor(tokenizer.all_special_ids)
        #: The special tokens at the ends of a text, without those that a tokenizer lacks, as T5's the first.
        self.ends: dict[str, int] = {}
        named = (("cls", tokenizer.cls_token_id), ("sep", tokenizer.sep_token_id), ("sep", tokenizer.eos_token_id))
        for name, number in named:
            if number is not None:
                self.ends.setdefault(name, number)
        self._punctuation: dict[int, bool] = {}

    def of(self, ids: Sequence[int]) -> Tensor:
        """For the tokens of a text ``(M, S, S)``: those of :data:`SHARES`, then the distance."""
        size = len(ids)
        ids_S, places_S = torch.tensor(ids), torch.arange(size)
        ahead_SS = places_S[None] - places_S[:, None]
        begins_S = (ids_S == self.ends.get("cls", -1)) & (places_S == 0)
        ends_S = (ids_S == self.ends.get("sep", -1)) & ~begins_S
        same_SS = (ids_S[None] == ids_S[:, None]) & (ahead_SS != 0) & ~torch.isin(ids_S, self._special)
        marks_S = torch.tensor([self._is_punctuation(number) for number in ids])
        columns = (each_S.expand(size, size) for each_S in (begins_S, ends_S))
        flags = [ahead_SS == 1, ahead_SS == -1, ahead_SS == 0, *columns, same_SS, marks_S.expand(size, size)]
        return torch.stack([*flags, ahead_SS.abs()]).float()

    def _is_punctuation(self, number: int) -> bool:
        """Whether a piece has signs of punctuation alone (Unicode categories P)."""
        if number not in self._punctuation:
            piece = "" if number in self._special else self._tokenizer.decode([number]).strip().removeprefix("##")
            self._punctuation[number] = bool(piece) and all(category(sign).startswith("P") for sign in piece)
        return self._punctuation[number]
