"""The form of a name table: rules that say which tensors of a file make a tensor of ours, and what a class needs.

The tables themselves are in ``bertkit.checkpoints.names``. Imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from bertkit.config.bert_config import BertConfig


class Op(Enum):
    """How one tensor of ours is made of theirs."""

    COPY = "copy"  #: the same numbers under another name
    STACK = "stack"  #: several matrices, one below the other (axis 0)


@dataclass(frozen=True, slots=True)
class Rule:
    """One tensor of ours and where it comes from.

    ours: name in our model, ``{i}`` for the layer.
    theirs: names in the file, in the order of stacking; ``{i}`` for the layer, or for the group of layers where ``{j}``
        is the layer in its group.
    shape: sizes of each of *theirs*, as letters of :func:`sizes` or numbers, for example ``"V E"``.
    op: how theirs become ours.
    needs: property of the config that must hold for a model to have the tensor; empty: every model has it.
    """

    ours: str
    theirs: tuple[str, ...]
    shape: str
    op: Op = Op.COPY
    needs: str = ""

    def at(self, layer: int, group_size: int = 1) -> Rule:
        """The rule for one layer."""
        group, place = divmod(layer, group_size)
        return replace(
            self,
            ours=self.ours.replace("{i}", str(layer)),
            theirs=tuple(name.replace("{i}", str(group)).replace("{j}", str(place)) for name in self.theirs),
        )

    def their_shape(self, letters: Mapping[str, int]) -> tuple[int, ...]:
        """Shape each of theirs must have."""
        return tuple(letters[size] if size in letters else int(size) for size in self.shape.split())

    def our_shape(self, letters: Mapping[str, int]) -> tuple[int, ...]:
        """Shape of our tensor."""
        first, *rest = self.their_shape(letters)
        return (first * len(self.theirs), *rest)


def copied(ours: str, shape: str, theirs: str = "", *, needs: str = "") -> Rule:
    """One tensor, by default under the same name."""
    return Rule(ours, (theirs or ours,), shape, needs=needs)


def dense(ours: str, shape: str, theirs: str = "", *, needs: str = "") -> tuple[Rule, Rule]:
    """Weight and bias of a linear layer, by default under the same name."""
    return _pair(ours, (theirs or ours,), shape, Op.COPY, needs)


def norm(ours: str, theirs: str = "", shape: str = "D") -> tuple[Rule, Rule]:
    """Weight and bias of a LayerNorm."""
    return _pair(ours, (theirs or ours,), shape, Op.COPY)


def stacked(ours: str, shape: str, theirs: tuple[str, ...]) -> tuple[Rule, Rule]:
    """Weight and bias of a linear layer that is several of theirs, one below the other."""
    return _pair(ours, theirs, shape, Op.STACK)


def _pair(ours: str, theirs: tuple[str, ...], shape: str, op: Op, needs: str = "") -> tuple[Rule, Rule]:
    return (
        Rule(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), shape, op, needs),
        Rule(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs), shape.split()[0], op, needs),
    )


@dataclass(frozen=True, slots=True)
class ClassSpec:
    """Which parts of the table a model class has.

    name: of the class.
    heads: its own parts, in order; with none it is the bare encoder.
    pooler: whether it has the encoder's pooler; the bare encoder has one exactly when the file has.
    outputs: rows of its classifier; None means one for each label of the config.
    label_head: whether ``num_labels=`` asks for a new head.
    """

    name: str
    heads: tuple[str, ...] = ()
    pooler: bool = False
    outputs: int | None = None
    label_head: bool = False

    @property
    def base_prefix(self) -> str:
        """Attribute that holds the encoder; empty for the encoder itself."""
        return "bert" if self.heads else ""

    @property
    def parts(self) -> tuple[str, ...]:
        """All parts that a model of the class can have."""
        return ("encoder", *(("pooler",) if self.pooler else ()), *self.heads)


@dataclass(frozen=True, slots=True)
class NameTable:
    """All names of one family.

    prefix: what stands before the names of :attr:`prefixed` parts in a file saved from a model with a head.
    parts: rules by part. "encoder" is what every model has; each other part is there or not, as a whole. Two parts may
        share a name where different classes have different tensors under it.
    prefixed: the parts whose names carry the prefix.
    ignored: names of buffers that hold no weights; read past, never written.
    endings: old endings of names and what they are called today; read, never written.
    ties: (name, name of the tensor it always equals): a file may hold the first or not.
    classes: the classes that the family has, by name.
    """

    family: str
    prefix: str
    parts: Mapping[str, tuple[Rule, ...]]
    prefixed: frozenset[str]
    ignored: frozenset[str]
    endings: Mapping[str, str]
    ties: tuple[tuple[str, str], ...]
    classes: Mapping[str, ClassSpec]
    roots: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        rules = (rule for part in self.prefixed for rule in self.parts[part])
        roots = {name.partition(".")[0] + "." for rule in rules for name in rule.theirs}
        object.__setattr__(self, "roots", tuple(sorted(roots)))

    def canonical(self, name: str) -> str:
        """Name as the table has it: without the prefix, with today's ending."""
        bare = name.removeprefix(self.prefix)
        if bare.startswith(self.roots):
            name = bare
        for old, new in self.endings.items():
            if name.endswith(old):
                return name.removesuffix(old) + new
        return name

    def in_encoder(self, name: str) -> bool:
        """Whether a canonical name claims to belong to the encoder (pooler included), known to the table or not."""
        return name.startswith((*self.roots, self.prefix))

    def rules(self, part: str, shape: BertConfig) -> Iterator[Rule]:
        """Rules of a part that a model of this shape has, with the layer numbers filled in."""
        rules = [rule for rule in self.parts[part] if not rule.needs or getattr(shape, rule.needs)]
        yield from (rule for rule in rules if "{i}" not in rule.ours)
        for layer in range(shape.num_stored_layers):
            yield from (rule.at(layer, shape.inner_group_num or 1) for rule in rules if "{i}" in rule.ours)

    def part_of(self, name: str) -> str | None:
        """Part that a canonical name is of, whatever its layer; None: the table does not know it."""
        numbers = iter(("{i}", "{j}"))
        pattern = _NUMBER.sub(lambda found: next(numbers, found[0]), name)
        pattern = dict(self.ties).get(pattern, pattern)
        return next((part for part, rules in self.parts.items() if any(pattern in rule.theirs for rule in rules)), None)

    def written_prefix(self, part: str, base_prefix: str) -> str:
        """What stands before the names of ``part`` in a model whose encoder is the attribute ``base_prefix``."""
        return f"{base_prefix}." if base_prefix and part in self.prefixed else ""


_NUMBER = re.compile(r"(?<=\.)\d{1,6}(?=\.)")


def sizes(config: BertConfig, spec: ClassSpec) -> dict[str, int]:
    """What the letters of :attr:`Rule.shape` stand for.

    Words V, positions P, segments G; widths D of the encoder, E of the embeddings, F in the feed-forward; outputs C.
    """
    return {
        "V": config.vocab_size,
        "P": config.max_position_embeddings,
        "G": config.type_vocab_size,
        "D": config.hidden_size,
        "E": config.embedding_width,
        "F": config.intermediate_size,
        "C": config.num_labels if spec.outputs is None else spec.outputs,
    }


def layer_number(name: str) -> int | None:
    """Layer (ALBERT: group of layers) that a name speaks of, with or without prefix; or None."""
    found = re.match(r"(?:\w+\.)?(?:encoder\.layer|transformer\.layer|encoder\.albert_layer_groups)\.(\d{1,6})\.", name)
    return int(found[1]) if found else None
