"""Our tensor names beside the names in published files: one table a family, read in both directions.

A line says: this tensor of ours is those tensors of theirs, each of that shape. Names carry no ``bert.`` prefix here
(files saved from a bare encoder have none; :attr:`NameTable.prefix` adds it) and ``{i}`` stands for the layer number.
Another family is another table; another file format is another :class:`Op`. Imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from bertkit.config import BertConfig


class Op(Enum):
    """How one tensor of ours is made of theirs."""

    COPY = "copy"  #: the same numbers under another name
    STACK = "stack"  #: several matrices, one below the other (axis 0)


@dataclass(frozen=True, slots=True)
class Rule:
    """One tensor of ours and where it comes from.

    ours: name in our model, ``{i}`` for the layer.
    theirs: names in the file, in the order of stacking.
    shape: sizes of each of *theirs*, as letters of :func:`sizes` or numbers, for example ``"V D"``.
    op: how theirs become ours.
    """

    ours: str
    theirs: tuple[str, ...]
    shape: str
    op: Op = Op.COPY

    def at(self, layer: int) -> Rule:
        """The rule for one layer."""
        number = str(layer)
        return replace(
            self,
            ours=self.ours.replace("{i}", number),
            theirs=tuple(name.replace("{i}", number) for name in self.theirs),
        )

    def their_shape(self, letters: Mapping[str, int]) -> tuple[int, ...]:
        """Shape each of theirs must have."""
        return tuple(letters[size] if size in letters else int(size) for size in self.shape.split())

    def our_shape(self, letters: Mapping[str, int]) -> tuple[int, ...]:
        """Shape of our tensor."""
        first, *rest = self.their_shape(letters)
        return (first * len(self.theirs), *rest)


def _dense(ours: str, theirs: str, shape: str) -> tuple[Rule, Rule]:
    """Weight and bias of a linear layer."""
    return _pair(ours, (theirs,), shape, Op.COPY)


def _norm(ours: str, theirs: str) -> tuple[Rule, Rule]:
    return _pair(ours, (theirs,), "D", Op.COPY)


def _pair(ours: str, theirs: tuple[str, ...], shape: str, op: Op) -> tuple[Rule, Rule]:
    return (
        Rule(f"{ours}.weight", tuple(f"{name}.weight" for name in theirs), shape, op),
        Rule(f"{ours}.bias", tuple(f"{name}.bias" for name in theirs), shape.split()[0], op),
    )


@dataclass(frozen=True, slots=True)
class NameTable:
    """All names of one family.

    prefix: what stands before the names of :attr:`prefixed` parts in a file saved from a model with a head.
    parts: rules by part. "encoder" is what every model has; each other part is there or not, as a whole.
    prefixed: the parts whose names carry the prefix.
    ignored: names of buffers that hold no weights; read past, never written.
    endings: old endings of names and what they are called today; read, never written.
    ties: (name, name of the tensor it always equals): a file may hold the first or not.
    """

    family: str
    prefix: str
    parts: Mapping[str, tuple[Rule, ...]]
    prefixed: frozenset[str]
    ignored: frozenset[str]
    endings: Mapping[str, str]
    ties: tuple[tuple[str, str], ...]
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

    def rules(self, part: str, num_layers: int) -> Iterator[Rule]:
        """Rules of a part with the layer numbers filled in."""
        for rule in self.parts[part]:
            if "{i}" not in rule.ours:
                yield rule
        for layer in range(num_layers):
            for rule in self.parts[part]:
                if "{i}" in rule.ours:
                    yield rule.at(layer)

    def written_prefix(self, part: str, base_prefix: str) -> str:
        """What stands before the names of ``part`` in a model whose encoder is the attribute ``base_prefix``."""
        return f"{base_prefix}." if base_prefix and part in self.prefixed else ""


_LAYER = "encoder.layer.{i}."
_SELF = _LAYER + "attention.self."

BERT = NameTable(
    family="bert",
    prefix="bert.",
    parts={
        "encoder": (
            Rule("embeddings.word_embeddings.weight", ("embeddings.word_embeddings.weight",), "V D"),
            Rule("embeddings.position_embeddings.weight", ("embeddings.position_embeddings.weight",), "P D"),
            Rule("embeddings.token_type_embeddings.weight", ("embeddings.token_type_embeddings.weight",), "G D"),
            *_norm("embeddings.LayerNorm", "embeddings.LayerNorm"),
            *_pair(_LAYER + "attention.qkv", tuple(_SELF + n for n in ("query", "key", "value")), "D D", Op.STACK),
            *_dense(_LAYER + "attention.out", _LAYER + "attention.output.dense", "D D"),
            *_norm(_LAYER + "attention_norm", _LAYER + "attention.output.LayerNorm"),
            *_dense(_LAYER + "ffn_up", _LAYER + "intermediate.dense", "F D"),
            *_dense(_LAYER + "ffn_down", _LAYER + "output.dense", "D F"),
            *_norm(_LAYER + "ffn_norm", _LAYER + "output.LayerNorm"),
        ),
        "pooler": _dense("pooler.dense", "pooler.dense", "D D"),
        "masked-lm head": (
            *_dense("cls.predictions.transform.dense", "cls.predictions.transform.dense", "D D"),
            *_norm("cls.predictions.transform.LayerNorm", "cls.predictions.transform.LayerNorm"),
            Rule("cls.predictions.bias", ("cls.predictions.bias",), "V"),
        ),
        "next-sentence head": _dense("cls.seq_relationship", "cls.seq_relationship", "2 D"),
        "classifier": _dense("classifier", "classifier", "C D"),
        "span head": _dense("qa_outputs", "qa_outputs", "2 D"),
    },
    prefixed=frozenset({"encoder", "pooler"}),
    ignored=frozenset({"embeddings.position_ids", "embeddings.token_type_ids"}),
    endings={".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"},
    ties=(
        ("cls.predictions.decoder.weight", "embeddings.word_embeddings.weight"),
        ("cls.predictions.decoder.bias", "cls.predictions.bias"),
    ),
)

TABLES: Mapping[str, NameTable] = {"bert": BERT}


@dataclass(frozen=True, slots=True)
class ClassSpec:
    """Which parts of the table a model class has.

    name: of the class, as in ``architectures`` of a config.
    heads: its own parts, in order; with none it is the bare encoder.
    pooler: whether it has a pooler; the bare encoder has one exactly when the file has.
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


CLASSES: Mapping[str, ClassSpec] = {
    spec.name: spec
    for spec in (
        ClassSpec("BertModel", pooler=True),
        ClassSpec("BertForPreTraining", ("masked-lm head", "next-sentence head"), pooler=True),
        ClassSpec("BertForMaskedLM", ("masked-lm head",)),
        ClassSpec("BertForNextSentencePrediction", ("next-sentence head",), pooler=True),
        ClassSpec("BertForSequenceClassification", ("classifier",), pooler=True, label_head=True),
        ClassSpec("BertForTokenClassification", ("classifier",), label_head=True),
        ClassSpec("BertForQuestionAnswering", ("span head",)),
        ClassSpec("BertForMultipleChoice", ("classifier",), pooler=True, outputs=1, label_head=True),
    )
}


def sizes(config: BertConfig, spec: ClassSpec) -> dict[str, int]:
    """What the letters of :attr:`Rule.shape` stand for: words V, positions P, segments G, widths D and F, outputs C."""
    return {
        "V": config.vocab_size,
        "P": config.max_position_embeddings,
        "G": config.type_vocab_size,
        "D": config.hidden_size,
        "F": config.intermediate_size,
        "C": config.num_labels if spec.outputs is None else spec.outputs,
    }


def layer_number(name: str) -> int | None:
    """Layer a canonical name speaks of, or None."""
    found = re.match(r"encoder\.layer\.(\d{1,6})\.", name)
    return int(found[1]) if found else None
