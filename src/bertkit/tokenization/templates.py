"""Where special tokens stand, and how texts that are too long are cut."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bertkit.errors import InputError
from bertkit.ragged import Ids, Ints, Ragged, boundaries_of, gather

#: Files say 1e30 for "no limit", which numpy cannot hold.
_LARGEST = int(np.iinfo(np.int64).max)
STRATEGIES = ("longest_first", "only_first", "only_second")


class Template(NamedTuple):
    """Where special tokens stand: ``[CLS] A [SEP]``, and ``[CLS] A [SEP] B [SEP]`` for pairs.

    between: how many [SEP] stand between the texts of a pair. segments: whether the second has token type 1.
    begins, ends: whether a row has a first and a last special token.
    shown: whether a file gives the second text of a pair token type 1 although its models read no segments: a call of
        the tokenizer returns it then, and rows for models have none.
    """

    between: int = 1
    segments: bool = True
    begins: bool = True
    ends: bool = True
    shown: bool = False

    def num_special(self, paired: bool) -> int:
        """Special tokens that a row gets."""
        return self.begins + self.ends + (self.between if paired else 0)


#: Devlin et al. 2019, section 3; ALBERT, DeBERTa, DistilBERT, ELECTRA and ModernBERT as well.
BERT = Template()
#: ``<s> A </s></s> B </s>``, one segment: Liu et al. 2019, as their code has it; BART, CamemBERT, MPNet and XLM-R as
#: well.
ROBERTA = Template(between=2, segments=False)
#: ``<bos> A <eos>`` and ``<bos> A <eos> B <eos>``, one segment: mmBERT (Marone et al. 2025), by its published files.
MMBERT = Template(segments=False)
#: ``A </s>`` and ``A </s> B </s>``: Raffel et al. 2020.
T5 = Template(segments=False, begins=False)
#: ``A``, and ``A B`` for pairs: what word vectors are looked up for.
BARE = Template(between=0, segments=False, begins=False, ends=False)


def kept_lengths(
    first: Ints, second: Ints | None, max_length: int, num_special: int, strategy: str
) -> tuple[Ints, Ints | None]:
    """How many tokens each text keeps so that no row has more than ``max_length``, special tokens included.

    The strategy ``"longest_first"`` cuts the longer text of a pair until both are equal, then both.
    """
    if strategy not in STRATEGIES:
        raise InputError(f"truncation must be True, False or one of {', '.join(STRATEGIES)}, got {strategy!r}")
    budget = min(max_length - num_special, _LARGEST)
    if budget < 0:
        raise InputError(f"max_length={max_length} leaves no room: {num_special} special tokens are added to each row")
    if second is None:
        if strategy == "only_second":
            raise InputError("truncation='only_second' needs a second text; use 'only_first' or 'longest_first'")
        return np.minimum(first, budget), None
    if strategy == "longest_first":
        shorter = np.minimum(first, second)
        short = np.minimum(shorter, budget // 2)
        long = np.where(2 * shorter > budget, budget - budget // 2, budget - shorter)
        fits = first + second <= budget
        return (
            np.where(fits, first, np.where(first > second, long, short)),
            np.where(fits, second, np.where(first > second, short, long)),
        )
    cut, whole = (first, second) if strategy == "only_first" else (second, first)
    kept = np.minimum(cut, budget - whole)
    if (kept < np.minimum(cut, 1)).any():
        row = int(np.argmax(kept < np.minimum(cut, 1)))
        raise InputError(
            f"text {row}: truncation={strategy!r} cannot reach max_length={max_length}, for the other text of the pair "
            f"has {int(whole[row])} tokens and {num_special} special tokens are added; use 'longest_first'"
        )
    return (kept, whole) if strategy == "only_first" else (whole, kept)


def assemble(
    bodies: list[tuple[Ids, Ints]],
    kept: list[Ints],
    specials: tuple[int, int] | None,
    *,
    template: Template = BERT,
    from_left: bool = False,
) -> Ragged:
    """Cut texts, put special tokens around them, pairs side by side.

    ``bodies`` has the ids of all first texts in a row, and how many each has; then those of the second texts of pairs.
    ``kept`` says for each of them how many tokens each text keeps; ``specials`` are the ids of [CLS] and [SEP].
    """
    num_texts, num_bodies = len(kept[0]), len(bodies)
    specials = specials if template.ends else None
    if num_texts == 1:
        return _one_row(bodies, [int(keep[0]) for keep in kept], specials, template, from_left=from_left)
    lengths = np.stack([lengths for _, lengths in bodies], axis=1)  # (B, bodies)
    keep = np.stack(kept, axis=1)
    shifts = np.cumsum([0, *(len(ids) for ids, _ in bodies[:-1])])
    starts = np.cumsum(lengths, axis=0) - lengths + shifts
    ids = np.concatenate([ids for ids, _ in bodies])
    if num_bodies > 1 or (keep != lengths).any():
        ids = ids[gather((starts + (lengths - keep) * from_left).ravel(), keep.ravel())]
    before = lengths.sum(axis=1)
    sizes = keep
    if specials is not None:
        sizes = keep + 1
        sizes[:, 0] += template.begins
        sizes[:, 1:] += template.between - 1
        before = before + template.num_special(num_bodies > 1)
    boundaries = boundaries_of(sizes.sum(axis=1))
    ends = np.cumsum(sizes.ravel()).reshape(num_texts, num_bodies)
    if specials is not None:
        room = np.ones(int(boundaries[-1]), bool)
        if template.begins:
            room[boundaries[:-1]] = False
        room[ends - 1] = False
        for more in range(template.between - 1 if num_bodies > 1 else 0):
            room[ends[:, 0] + more] = False
        whole = np.full(len(room), specials[1], np.int32)
        if template.begins:
            whole[boundaries[:-1]] = specials[0]
        whole[room] = ids
        ids = whole
    types = np.zeros(len(ids), np.int8)
    if num_bodies == 1:
        return Ragged(ids, boundaries, types, before)
    if template.segments:
        types[gather(ends[:, 0], sizes[:, 1])] = 1
    return Ragged(ids, boundaries, types, before, ends[:, 0])


def _one_row(
    bodies: list[tuple[Ids, Ints]],
    kept: list[int],
    specials: tuple[int, int] | None,
    template: Template,
    *,
    from_left: bool,
) -> Ragged:
    """The same for a single text or pair, for which somebody may be waiting: in a fifth of the time."""
    parts = [ids[len(ids) - keep :] if from_left else ids[:keep] for (ids, _), keep in zip(bodies, kept, strict=True)]
    paired = len(parts) > 1
    begins = between = num_special = 0
    if specials is not None:
        begins, between, num_special = template.begins, template.between, template.num_special(paired)
    before = sum(len(ids) for ids, _ in bodies) + num_special
    cls, sep = specials or (0, 0)
    ids = np.empty(sum(kept) + num_special, np.int32)
    ids.fill(sep)
    ids[:begins] = cls
    second = begins + kept[0] + (specials is not None)
    start = begins
    for part in parts:
        ids[start : start + len(part)] = part
        start += len(part) + between
    types = np.zeros(len(ids), np.int8)
    if paired and template.segments:
        types[second:] = 1
    boundaries = np.array([0, len(ids)])
    return Ragged(ids, boundaries, types, np.array([before]), np.array([second]) if paired else None)
