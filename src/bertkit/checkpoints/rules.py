"""Building blocks of the tables in :mod:`bertkit.checkpoints.names`: rules for tensors, the parts of a class."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol


class ModelConfig(Protocol):
    """What loading and saving read of a config, of whatever architecture; rules name further properties."""

    @property
    def model_type(self) -> str: ...
    @property
    def num_labels(self) -> int: ...
    @property
    def architectures(self) -> list[str] | None: ...
    @property
    def differs_elsewhere(self) -> bool: ...
    def to_json_file(self, path: str | Path) -> None: ...


class Rule(NamedTuple):
    """One of our tensors and where it comes from.

    ours: name in our model, ``{i}`` for the layer.
    theirs: names in the file, stacked along axis 0; ``{i}`` is the layer, or its group if ``{j}`` is its place there.
    shape: sizes of each of *theirs*: letters of :func:`sizes` or numbers, for example ``"V E"``.
    needs: property of the config that a model with this tensor has; empty: every model has the tensor.
    first: number of the first layer that has it. stack: property of the config with the number of layers.
    """

    ours: str
    theirs: tuple[str, ...]
    shape: str
    needs: str = ""
    first: int = 0
    stack: str = "num_stored_layers"

    def at(self, layer: int, group_size: int = 1) -> Rule:
        """The rule for one layer."""
        group, place = divmod(layer, group_size)
        return self._replace(
            ours=self.ours.replace("{i}", str(layer)),
            theirs=tuple(name.replace("{i}", str(group)).replace("{j}", str(place)) for name in self.theirs),
        )

    def their_shape(self, letters: Mapping[str, int]) -> tuple[int, ...]:
        """Expected shape of each of theirs."""
        return tuple(letters[size] if size in letters else int(size) for size in self.shape.split())

    def our_shape(self, letters: Mapping[str, int]) -> tuple[int, ...]:
        first, *rest = self.their_shape(letters)
        return (first * len(self.theirs), *rest)


def copied(ours: str, shape: str, theirs: str = "", needs: str = "") -> Rule:
    """One tensor, by default under the same name."""
    return Rule(ours, (theirs or ours,), shape, needs)


def dense(ours: str, shape: str, *theirs: str, needs: str = "") -> tuple[Rule, Rule]:
    """Weight and bias of a linear layer, by default under the same name; several of theirs are stacked."""
    names = theirs or (ours,)
    return (
        Rule(f"{ours}.weight", tuple(f"{name}.weight" for name in names), shape, needs),
        Rule(f"{ours}.bias", tuple(f"{name}.bias" for name in names), shape.split()[0], needs),
    )


def norm(ours: str, theirs: str = "", shape: str = "D", needs: str = "") -> tuple[Rule, Rule]:
    """Weight and bias of a LayerNorm."""
    return dense(ours, shape, theirs or ours, needs=needs)


def weight_and(bias: str, ours: str, shape: str, theirs: str, first: int = 0) -> tuple[Rule, Rule]:
    """The weight of a linear layer or a LayerNorm, and its bias if the config's property of the name ``bias`` holds."""
    weight, with_bias = dense(ours, shape, theirs, needs=bias)
    return weight._replace(needs="", first=first), with_bias._replace(first=first)


class ClassSpec(NamedTuple):
    """Which parts of the table a model class has.

    heads: its own parts, in order; none for the bare encoder.
    pooler: whether it has the pooler of the encoder; the bare encoder has one if the file has.
    outputs: rows of its classifier; None means one for each label of the config.
    label_head: whether ``num_labels=`` asks for a new head.
    base: attribute that holds what the classes of a family share; None: that of the encoders.
    """

    name: str
    heads: tuple[str, ...] = ()
    pooler: bool = False
    outputs: int | None = None
    label_head: bool = False
    base: str | None = None

    @property
    def base_prefix(self) -> str:
        """Attribute that holds the encoder; empty for the encoder itself."""
        if self.base is not None:
            return self.base
        return "bert" if self.heads else ""

    @property
    def parts(self) -> tuple[str, ...]:
        """All parts that a model of the class can have."""
        return ("encoder", *(("pooler",) if self.pooler else ()), *self.heads)


@dataclass(frozen=True, slots=True)
class NameTable:
    """All names of one family.

    prefix: precedes the names of the :attr:`prefixed` parts in files saved from a model with a head.
    parts: rules by part. Every model has the "encoder"; every other part is either complete or absent. Two parts may
        share a name if different classes have different tensors under it.
    ties: (name, name of the tensor it always equals); the first may be absent from a file.
    aliases: beginnings of names in some files, and what they are in the others; read, never written.
    tied_parts: the part that a copy of ``ties`` belongs to; usually that of the head that predicts words.
    sizes: the meaning of the letters of :attr:`Rule.shape` for a config and a class.
    zeros: tensors that are zero where a file has neither them nor another head; zero also in a new head.
    ignored: tensors that change nothing, such as buffers without weights; skipped when reading, never written.
    """

    family: str
    prefix: str
    parts: Mapping[str, tuple[Rule, ...]]
    ties: tuple[tuple[str, str], ...]
    classes: Mapping[str, ClassSpec]
    aliases: Mapping[str, str] = field(default_factory=dict)
    prefixed: tuple[str, ...] = ("encoder", "pooler")
    tied_parts: Mapping[str, str] = field(default_factory=dict)
    sizes: Callable[[Any, ClassSpec], dict[str, int]] = field(default_factory=lambda: sizes)
    zeros: frozenset[str] = frozenset()
    ignored: frozenset[str] = frozenset({"embeddings.position_ids", "embeddings.token_type_ids"})
    roots: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        names = (name for part in self.prefixed for rule in self.parts.get(part, ()) for name in rule.theirs)
        object.__setattr__(self, "roots", tuple(sorted({name.partition(".")[0] + "." for name in names})))

    def canonical(self, name: str) -> str:
        """The name used in the table: without the prefix, with the current ending."""
        bare = name.removeprefix(self.prefix)
        bare = bare if bare.startswith(self.roots) else name
        for old, new in self.aliases.items():
            if bare.startswith(old):
                bare = new + bare.removeprefix(old)
        return with_current_ending(bare)

    def rules(self, part: str, shape: ModelConfig) -> Iterator[Rule]:
        """The rules of a part for a model of this shape, with layer numbers filled in."""
        rules = [rule for rule in self.parts[part] if not rule.needs or getattr(shape, rule.needs)]
        yield from (rule for rule in rules if "{i}" not in rule.ours)
        group_size = getattr(shape, "inner_group_num", None) or 1
        for stack in dict.fromkeys(rule.stack for rule in rules):
            in_layers = [rule for rule in rules if "{i}" in rule.ours and rule.stack == stack]
            for layer in range(getattr(shape, stack) if in_layers else 0):
                yield from (rule.at(layer, group_size) for rule in in_layers if layer >= rule.first)

    def part_of(self, name: str) -> str | None:
        """The part of a canonical name, whatever its layer; None if the table does not know it."""
        return next(iter(self.parts_of(name)), None)

    def parts_of(self, name: str) -> list[str]:
        """All parts that have this name; empty if the table does not know it."""
        numbers = iter(("{i}", "{j}"))
        pattern = _NUMBER.sub(lambda found: next(numbers, found[0]), name)
        names = (pattern, dict(self.ties).get(pattern, pattern))
        return [
            part for name in names for part, rules in self.parts.items() if any(name in rule.theirs for rule in rules)
        ]

    def names(self, spec: ClassSpec, config: ModelConfig) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Of each tensor that a model of a class may have: its part, our name, and the names in its file."""
        for part in spec.parts:
            prefix = self.written_prefix(part, spec.base_prefix)
            for rule in self.rules(part, config):
                names = tuple((self.prefix if prefix else "") + name for name in rule.theirs)
                yield part, prefix + rule.ours, names

    def written_prefix(self, part: str, base_prefix: str) -> str:
        """The prefix of the names of ``part`` in a model whose encoder is the attribute ``base_prefix``."""
        return f"{base_prefix}." if base_prefix and part in self.prefixed else ""


_NUMBER = re.compile(r"(?<=\.)\d{1,6}(?=\.)")
#: Endings of names in old files; read, never written.
_OLD_ENDINGS = {".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"}


def with_current_ending(name: str) -> str:
    """``gamma`` and ``beta`` of old files as ``weight`` and ``bias``."""
    for old, new in _OLD_ENDINGS.items():
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def sizes(config: Any, spec: ClassSpec) -> dict[str, int]:
    """The meaning of the letters of :attr:`Rule.shape` in encoders; ``config`` is a BertConfig.

    Words V, positions P, segments G, distances R, heads N; widths D of the encoder, E of the embeddings, F in the
    feed-forward, U of its gated input; outputs C.
    """
    return {
        "V": config.vocab_size,
        "P": config.max_position_embeddings,
        "G": config.type_vocab_size,
        "D": config.hidden_size,
        "E": config.embedding_width,
        "R": 2 * config.distance_span,
        "N": config.num_attention_heads,
        "3D": 3 * config.hidden_size,
        "F": config.intermediate_size,
        "U": 2 * config.intermediate_size,
        "C": config.num_labels if spec.outputs is None else spec.outputs,
    }


def layer_number(name: str) -> int | None:
    """The layer (ALBERT: group of layers) in a name, with or without prefix; None if there is none."""
    found = re.match(
        r"(?:\w+\.)?(?:(?:en|de)coder\.(?:layers?|block)|transformer\.layer|encoder\.albert_layer_groups|layers)\."
        r"(\d{1,6})\.",
        name,
    )
    return int(found[1]) if found else None
