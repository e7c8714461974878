"""Sequences of different lengths side by side in flat tensors; :mod:`bertkit.layout` says where each lies.

Axes, in the order of the suffix letters used in this package::

    B sequences   S longest sequence   T all tokens of the batch, flat   D model width   N heads   H width of one head

Inside the encoder every tensor is ``(T, ...)``: no padding exists there. A padded ``(B, S)`` batch is packed on entry
(:func:`pack_padded`) and unpacked on exit (:class:`Padding`), so both ways in share all code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertkit.errors import InputError
from bertkit.layout import Fill as Fill
from bertkit.layout import Layout as Layout
from bertkit.ragged import GroupSet, Labels, Ragged, gather
from bertkit.system.device import runs_ahead


@dataclass(frozen=True, slots=True)
class Batch:
    """Packed model input.

    input_ids, token_type_ids, position_ids: int64 ``(T,)``.
    layout: where the sequences lie.
    targets: what a head's loss compares with, by the keyword the head's ``forward`` has for it: ``labels``
        ``(B,)`` or ``(B, num_labels)`` for a sequence head, ``(T,)`` for a token head (-100 = not a target),
        ``start_positions`` and ``end_positions`` ``(B,)``, ``next_sentence_label`` ``(B,)``. Beside ``labels`` of a
        sequence head, ``row_weights`` ``(B,)``: what each counts in the loss.
    logit_rows: int64 ``(R,)``, the flat rows where a masked-LM head computes logits; None means all T.
    inputs_embeds: float ``(T, D)`` in place of the word embeddings of ``input_ids``; rarely needed.
    """

    input_ids: Tensor
    token_type_ids: Tensor
    position_ids: Tensor
    layout: Layout
    targets: Mapping[str, Tensor] = field(default_factory=dict)
    logit_rows: Tensor | None = None
    inputs_embeds: Tensor | None = None

    def with_target(self, name: str, target: Tensor) -> Batch:
        """The same batch with one more target."""
        return replace(self, targets={**self.targets, name: target})

    def select(self, numbers: Sequence[int]) -> Batch:
        """Some sequences in this order; of a batch without targets."""
        assert not self.targets
        lengths = np.array(self.layout.lengths)[list(numbers)]
        rows = torch.from_numpy(gather(np.array(self.layout.boundaries)[list(numbers)], lengths))
        rows = rows.to(self.input_ids.device)
        return Batch(
            input_ids=self.input_ids[rows],
            token_type_ids=self.token_type_ids[rows],
            position_ids=self.position_ids[rows],
            layout=Layout(tuple(lengths.tolist())),
        )

    def to(self, device: torch.device | str) -> Batch:
        """The same batch on ``device``; the host does not wait for a GPU to have it."""
        offsets, place = self.layout.offsets, torch.device(device)
        return replace(
            self,
            input_ids=sent(self.input_ids, place),
            token_type_ids=sent(self.token_type_ids, place),
            position_ids=sent(self.position_ids, place),
            layout=self.layout if offsets is None else replace(self.layout, offsets=sent(offsets, place)),
            targets={name: sent(target, place) for name, target in self.targets.items()},
            logit_rows=None if self.logit_rows is None else sent(self.logit_rows, place),
            inputs_embeds=None if self.inputs_embeds is None else sent(self.inputs_embeds, place),
        )


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on ``device``. It goes to a GPU from pinned memory, and the host does not wait for the copy."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=runs_ahead(device))


def pack(
    sequences: Sequence[Sequence[int]],
    token_type_ids: Sequence[Sequence[int]] | None = None,
    targets: Mapping[str, Tensor] | None = None,
) -> Batch:
    """Put sequences of token ids one after another, without padding; positions count from 0 in each.

    Args:
        sequences: B sequences of token ids, special tokens included (lists or 1-D integer arrays).
        token_type_ids: the segment of each token, same lengths; None means segment 0 throughout.
        targets: see :class:`Batch`.

    Raises:
        InputError: no sequence at all, an empty sequence, segments of another number or length than the sequences.
    """
    lengths = tuple(len(ids) for ids in sequences)
    _check_lengths(lengths, "sequence {row} has no token at all")
    input_ids = torch.cat([torch.as_tensor(ids, dtype=torch.int64) for ids in sequences])
    if token_type_ids is None:
        segments = torch.zeros_like(input_ids)
    else:
        if len(sequences) != len(token_type_ids):
            raise InputError(f"{len(sequences)} sequences but token_type_ids of {len(token_type_ids)}")
        for row, (ids, types) in enumerate(zip(sequences, token_type_ids, strict=True)):
            if len(ids) != len(types):
                raise InputError(f"sequence {row} has {len(ids)} token ids but {len(types)} token_type_ids")
        segments = torch.cat([torch.as_tensor(types, dtype=torch.int64) for types in token_type_ids])
    return Batch(input_ids, segments, positions_of(lengths), Layout(lengths), dict(targets or {}))


def collate(
    rows: Ragged,
    numbers: npt.ArrayLike,
    targets: Mapping[str, Labels | None] | None = None,
    token_targets: Mapping[str, Labels | None] | None = None,
) -> Batch:
    """A packed batch of the rows ``numbers``, in this order.

    ``targets`` (see :class:`Batch`) have one value for each of ``rows``, ``token_targets`` one for each token of them.

    Raises:
        InputError: no rows, or a target that is None: the rows were encoded without labels.
    """
    chosen = np.asarray(numbers, dtype=np.int64)
    if chosen.size == 0:
        raise InputError("the batch is empty: give at least one row")
    starts = rows.boundaries[chosen]
    lengths = rows.boundaries[chosen + 1] - starts
    tokens = gather(starts, lengths)
    found = {}
    for places, given in ((chosen, targets), (tokens, token_targets)):
        for name, values in (given or {}).items():
            if values is None:
                raise InputError(f"these rows have no {name}: encode them with labels, or collate them for prediction")
            found[name] = torch.from_numpy(values[places])
    return Batch(
        input_ids=torch.from_numpy(rows.ids[tokens].astype(np.int64)),
        token_type_ids=torch.from_numpy(rows.token_type_ids[tokens].astype(np.int64)),
        position_ids=torch.from_numpy(tokens - np.repeat(starts, lengths)),
        layout=Layout(tuple(lengths.tolist())),
        targets=found,
    )


def collate_groups(
    groups: GroupSet, numbers: npt.ArrayLike, *, labelled: bool = False, label_each: bool = False
) -> Batch:
    """A packed batch of all sequences of the rows ``numbers``, in this order.

    Args:
        groups: where they come from.
        numbers: of the rows.
        labelled: whether ``targets["labels"]`` has the labels of the rows, one per row.
        label_each: one a sequence instead: that of its row.

    Raises:
        InputError: no rows, or ``labelled`` for rows without labels.
    """
    chosen = np.asarray(numbers, dtype=np.int64)
    batch = collate(groups.sequences, groups.sequences_of(chosen))
    if not labelled:
        return batch
    if groups.labels is None:
        raise InputError("these rows have no labels: encode them with labels, or collate them for prediction")
    labels = torch.from_numpy(groups.labels[chosen])
    if label_each:
        labels = labels.repeat_interleave(torch.from_numpy(groups.sizes[chosen]), dim=0)
    return batch.with_target("labels", labels)


def positions_of(lengths: Sequence[int]) -> Tensor:
    """``0 1 2 0 1 0 1 2 3 ...``: position of each token in its own sequence, int64 ``(T,)``."""
    lengths_B = torch.tensor(lengths, dtype=torch.int64)
    starts_B = lengths_B.cumsum(0) - lengths_B
    return torch.arange(int(lengths_B.sum())) - starts_B.repeat_interleave(lengths_B)


def split_by_budget(
    rows: Sequence[int], lengths: Sequence[int] | Mapping[int, int], max_tokens: int, *, even: bool = True
) -> list[list[int]]:
    """Cut ``rows`` into runs of at most ``max_tokens`` (or of one row): the micro-batches of a step.

    ``lengths`` has the tokens of each row by its number. Runs are about equally heavy if ``even``; otherwise each is as
    full as can be, and the last has what is left.
    """
    total = sum(lengths[row] for row in rows)
    share = total / math.ceil(total / max_tokens) if total else 0.0
    parts: list[list[int]] = []
    weight = 0
    for row in rows:
        if not parts or (even and weight >= share) or weight + lengths[row] > max_tokens:
            parts.append([])
            weight = 0
        parts[-1].append(row)
        weight += lengths[row]
    return parts


def _check_lengths(lengths: Sequence[int], told: str) -> None:
    """Refuse a batch without sequences, or with an empty one: ``told`` with its number as ``row``."""
    if not lengths:
        raise InputError("the batch is empty: give at least one sequence")
    if 0 in lengths:
        raise InputError(told.format(row=list(lengths).index(0)))


@dataclass(frozen=True, slots=True)
class Padding:
    """How a padded ``(B, S)`` batch was packed, to bring results back.

    rows: flat index ``b * S + s`` of each real token, int64 ``(T,)``; None when every position is real.
    shape: ``(B, S)``.
    """

    rows: Tensor | None
    shape: tuple[int, int]

    def pack(self, x: Tensor) -> Tensor:
        """``(B, S, ...)`` to ``(T, ...)``: drop the padding."""
        flat: Tensor = x.flatten(0, 1)
        return flat if self.rows is None else flat.index_select(0, self.rows)

    def unpack(self, x: Tensor, fill: float = 0.0) -> Tensor:
        """``(T, ...)`` to ``(B, S, ...)`` with ``fill`` at padded positions."""
        flat: Tensor = x
        if self.rows is not None:
            flat = x.new_full((self.shape[0] * self.shape[1], *x.shape[1:]), fill).index_copy(0, self.rows, x)
        return flat.view(*self.shape, *x.shape[1:])

    def unpack_places(self, x: Tensor) -> Tensor:
        """Logits of places, ``(T,)`` to ``(B, S)``: at padded positions the smallest value, so that none is chosen."""
        return self.unpack(x, torch.finfo(x.dtype).min)

    def unpack_attention(self, probs: Sequence[Tensor]) -> Tensor:
        """B tensors ``(N, s, s)`` to one ``(B, N, S, S)`` with zeros in padded rows and columns."""
        num_sequences, width = self.shape
        out = probs[0].new_zeros((num_sequences, probs[0].shape[0], width, width))
        for b, (probs_Nss, own) in enumerate(zip(probs, self._columns(probs), strict=True)):
            out[b, :, own[:, None], own[None, :]] = probs_Nss
        return out

    def unpack_keys(self, probs: Sequence[Tensor]) -> Tensor:
        """B tensors ``(N, q, s)`` of queries that are not packed to one ``(B, N, q, S)`` with zeros at padded keys."""
        out = probs[0].new_zeros((len(probs), *probs[0].shape[:2], self.shape[1]))
        for b, (probs_Nqs, own) in enumerate(zip(probs, self._columns(probs), strict=True)):
            out[b, :, :, own] = probs_Nqs
        return out

    def _columns(self, probs: Sequence[Tensor]) -> Sequence[Tensor]:
        """The columns of the real tokens of each sequence, B of int64 ``(s,)``; ``probs`` end in one for each key."""
        device, width = probs[0].device, self.shape[1]
        rows = torch.arange(self.shape[0] * width, device=device) if self.rows is None else self.rows
        columns: Sequence[Tensor] = (rows % width).split([each.shape[-1] for each in probs])
        return columns


def pack_padded(
    input_ids: Tensor,
    attention_mask: Tensor | None = None,
    token_type_ids: Tensor | None = None,
    position_ids: Tensor | None = None,
    inputs_embeds: Tensor | None = None,
    *,
    longest_with_gaps: int | None = None,
) -> tuple[Batch, Padding]:
    """Turn the padded tensors that users of other libraries pass into a packed batch.

    Args:
        input_ids: integers ``(B, S)``.
        attention_mask: ``(B, S)``, 1 or True at real tokens; None means all are real. Padding may stand anywhere, but
            see ``longest_with_gaps``.
        token_type_ids: ``(B, S)`` or ``(1, S)``; None means segment 0.
        position_ids: ``(B, S)`` or ``(1, S)``; None means the column number, padded columns counted.
        inputs_embeds: float ``(B, S, D)``.
        longest_with_gaps: columns of the longest row that may have padding between its tokens; None: any row may.

    Raises:
        InputError: a tensor of another shape or type, an empty batch, a row without a real token or with a gap.
    """
    if input_ids.ndim != 2:
        raise InputError(f"input_ids must have shape (batch, sequence), got {tuple(input_ids.shape)}")
    if input_ids.is_floating_point() or input_ids.is_complex():
        raise InputError(f"input_ids must be integers, got {input_ids.dtype}")
    shape = (input_ids.shape[0], input_ids.shape[1])
    if 0 in shape:
        raise InputError(f"the batch is empty: input_ids has shape {shape}")
    mask = _like(attention_mask, shape, "attention_mask")
    rows: Tensor | None = None
    lengths = (shape[1],) * shape[0]
    if mask is not None:
        mask = mask.to(torch.bool)
        lengths = tuple(mask.sum(dim=1).tolist())
        if sum(lengths) != input_ids.numel():
            rows = mask.flatten().nonzero().squeeze(1)
            if longest_with_gaps is not None:
                _check_gaps(mask, longest_with_gaps)
    _check_lengths(lengths, "row {row} has no token at all: its attention_mask is all 0")
    padding = Padding(rows, shape)
    if inputs_embeds is not None and inputs_embeds.shape[:2] != shape:
        raise InputError(
            f"inputs_embeds must have the shape of input_ids {shape} and a width, got {tuple(inputs_embeds.shape)}"
        )
    segments = _like(token_type_ids, shape, "token_type_ids")
    positions = _like(position_ids, shape, "position_ids")
    if positions is None:
        positions = torch.arange(shape[1], device=input_ids.device).expand(shape)
    batch = Batch(
        input_ids=padding.pack(input_ids).long(),
        token_type_ids=padding.pack(segments if segments is not None else torch.zeros_like(input_ids)).long(),
        position_ids=padding.pack(positions).long(),
        layout=Layout(lengths),
        inputs_embeds=None if inputs_embeds is None else padding.pack(inputs_embeds),
    )
    return batch, padding


def padded_positions(
    ids: Tensor, mask: Tensor | None, given: Tensor | None, first_position: int, pad_token_id: int | None
) -> Tensor | None:
    """Positions ``(B, S)`` counted from 0, as a batch has them; None where they are the column numbers.

    ``given`` are rows of the position table. ``pad_token_id``: None for vectors in place of ids.
    """
    if given is not None:
        return given - first_position
    if not first_position or pad_token_id is None:
        if mask is None:
            return None
        columns_S = torch.arange(ids.shape[-1], device=mask.device)
        return (columns_S - (mask != 0).long().argmax(dim=-1, keepdim=True)).clamp(min=0)
    real = ids != pad_token_id
    return real.cumsum(-1) * real - 1


def _check_gaps(mask_BS: Tensor, longest: int) -> None:
    """Refuse padding between two tokens of a row of more columns than ``longest``: tokens alone count as distance."""
    after_BS = mask_BS.int().cumsum(dim=1)
    gap_BS = ~mask_BS & (after_BS > 0) & (after_BS < after_BS[:, -1:])
    extent_B = (after_BS > 0).sum(dim=1) - (after_BS == after_BS[:, -1:]).sum(dim=1) + 1
    wrong = (gap_BS & (extent_B > longest)[:, None]).nonzero()
    if len(wrong):
        row, column = wrong[0].tolist()
        raise InputError(
            f"attention_mask has a gap: column {column} of row {row} is 0 between real tokens. This model's attention "
            "depends on the distance of two tokens, which a gap would change: remove it, so that padding stands only "
            "before or behind a text"
        )


def _like(x: Tensor | None, shape: tuple[int, int], name: str) -> Tensor | None:
    if x is None:
        return None
    if x.ndim != 2 or x.shape[1] != shape[1] or x.shape[0] not in (1, shape[0]):
        raise InputError(f"{name} must have the shape of input_ids {shape}, got {tuple(x.shape)}")
    return x.expand(shape)
