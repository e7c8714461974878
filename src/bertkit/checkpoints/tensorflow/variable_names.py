"""Variable names in TensorFlow checkpoints, tensor names in published PyTorch files, and what is dropped.

A line says: this variable is that tensor, in this layout. ``{i}`` is a number. TensorFlow stores the matrix of a linear
layer as (inputs, outputs), PyTorch as (outputs, inputs). The Keras versions also split the axis of the heads. Sources:
``modeling.py``, ``run_classifier.py`` and ``run_squad.py`` of google-research/bert; ``modeling.py`` of
google-research/albert; and for the Keras names the replacements that ``tf1_checkpoint_converter_lib.py`` in
tensorflow/models made for the models on TF-Hub.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from math import prod

from bertkit.checkpoints.safetensors_format import Values


class Layout(Enum):
    """How a variable becomes the published tensor."""

    SAME = "same"  #: as they are
    KERNEL = "kernel"  #: (inputs, outputs) to (outputs, inputs)
    TO_HEADS = "to heads"  #: (width, heads, head size) to (width, width): queries, keys, values
    FROM_HEADS = "from heads"  #: (heads, head size, width) to (width, width): what comes after attention
    HEADS = "heads"  #: (heads, head size) to (width): the bias of queries, keys, values

    def shape(self, theirs: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of the published tensor; unchanged for a variable with other axes than this layout."""
        if len(theirs) != _AXES.get(self, len(theirs)):
            return theirs
        if self is Layout.KERNEL:
            return theirs[::-1]
        if self is Layout.TO_HEADS:
            return (prod(theirs[1:]), theirs[0])
        if self is Layout.FROM_HEADS:
            return (theirs[2], prod(theirs[:2]))
        return (prod(theirs),) if self is Layout.HEADS else theirs

    def apply(self, theirs: Values) -> Values:
        """The published tensor, as a view if possible."""
        if self is Layout.KERNEL:
            return theirs.T
        if self is Layout.TO_HEADS:
            return theirs.reshape(len(theirs), -1).T
        if self is Layout.FROM_HEADS:
            return theirs.reshape(-1, theirs.shape[-1]).T
        return theirs.reshape(-1) if self is Layout.HEADS else theirs

    def undo(self, published: Values, theirs: tuple[int, ...]) -> Values:
        """The variable of shape ``theirs`` from the published tensor."""
        turned = self in (Layout.KERNEL, Layout.TO_HEADS, Layout.FROM_HEADS)
        return (published.T if turned else published).reshape(theirs)


_NUMBER = re.compile(r"(?:(?<=/layer_)|(?<=/group_)|(?<=/inner_group_))(?:0|[1-9]\d{0,3})(?=/)")
_AXES = {Layout.KERNEL: 2, Layout.TO_HEADS: 3, Layout.FROM_HEADS: 3, Layout.HEADS: 2}


@dataclass(frozen=True, slots=True)
class Line:
    """One variable, the published name of its tensor, and the layout."""

    theirs: str
    published: str
    layout: Layout = Layout.SAME


@dataclass(frozen=True)
class VariableNames:
    """All names of one implementation; ``anchor``: a variable of every such checkpoint, whose prefix all names have."""

    name: str
    model_type: str
    anchor: str
    lines: tuple[Line, ...]
    _by_name: Mapping[str, Line] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {line.theirs: line for line in self.lines})

    def find(self, variable: str) -> Line | None:
        """The line of a variable, with its layer filled in; None if it is not in the table."""
        line = self._by_name.get(_NUMBER.sub("{i}", variable))
        if line is None:
            return None
        published = line.published
        for number in _NUMBER.findall(variable):
            published = published.replace("{i}", number, 1)
        return Line(variable, published, line.layout)


def _dense(theirs: str, published: str, kernel: Layout = Layout.KERNEL, bias: Layout = Layout.SAME) -> Iterator[Line]:
    yield Line(f"{theirs}/kernel", f"{published}.weight", kernel)
    yield Line(f"{theirs}/bias", f"{published}.bias", bias)


def _norm(theirs: str, published: str) -> Iterator[Line]:
    yield Line(f"{theirs}/gamma", f"{published}.weight")
    yield Line(f"{theirs}/beta", f"{published}.bias")


def _head(theirs: str, published: str) -> Iterator[Line]:
    """Heads whose matrix the original stores as (outputs, inputs)."""
    prefix = f"{theirs}/" if theirs else ""
    yield Line(f"{prefix}output_weights", f"{published}.weight")
    yield Line(f"{prefix}output_bias", f"{published}.bias")


_EMBEDDINGS = "bert.embeddings."
_LAYER = "bert.encoder.layer.{i}."
_TRANSFORM = "cls.predictions.transform."


def _original(encoder: str, predictions: str, transform: str, pairs: str) -> Iterator[Line]:
    """What the original codes of BERT and ALBERT have in common."""
    for kind in ("word", "position", "token_type"):
        yield Line(f"bert/embeddings/{kind}_embeddings", f"{encoder}embeddings.{kind}_embeddings.weight")
    yield from _norm("bert/embeddings/LayerNorm", f"{encoder}embeddings.LayerNorm")
    yield from _dense("cls/predictions/transform/dense", f"{transform}dense")
    yield from _norm("cls/predictions/transform/LayerNorm", f"{transform}LayerNorm")
    yield Line("cls/predictions/output_bias", f"{predictions}bias")
    yield from _head("cls/seq_relationship", pairs)
    yield from _head("", "classifier")
    yield from _head("cls/squad", "qa_outputs")


def _original_layer(theirs: str) -> Iterator[Line]:
    for part in ("query", "key", "value"):
        yield from _dense(f"{theirs}attention/self/{part}", f"{_LAYER}attention.self.{part}")
    for part in ("attention/output", "output"):
        yield from _dense(f"{theirs}{part}/dense", f"{_LAYER}{part.replace('/', '.')}.dense")
        yield from _norm(f"{theirs}{part}/LayerNorm", f"{_LAYER}{part.replace('/', '.')}.LayerNorm")
    yield from _dense(f"{theirs}intermediate/dense", f"{_LAYER}intermediate.dense")


def _keras_layer(theirs: str) -> Iterator[Line]:
    for part in ("query", "key", "value"):
        to_part = (f"{theirs}self_attention/{part}", f"{_LAYER}attention.self.{part}")
        yield from _dense(*to_part, Layout.TO_HEADS, Layout.HEADS)
    for output in ("self_attention/attention_output", "self_attention_output"):
        yield from _dense(f"{theirs}{output}", f"{_LAYER}attention.output.dense", Layout.FROM_HEADS)
    yield from _norm(f"{theirs}self_attention_layer_norm", f"{_LAYER}attention.output.LayerNorm")
    yield from _dense(f"{theirs}intermediate", f"{_LAYER}intermediate.dense")
    yield from _dense(f"{theirs}output", f"{_LAYER}output.dense")
    yield from _norm(f"{theirs}output_layer_norm", f"{_LAYER}output.LayerNorm")


ORIGINAL = VariableNames(
    name="the original BERT",
    model_type="bert",
    anchor="bert/embeddings/word_embeddings",
    lines=(
        *_original("bert.", "cls.predictions.", _TRANSFORM, "cls.seq_relationship"),
        *_original_layer("bert/encoder/layer_{i}/"),
        *_dense("bert/pooler/dense", "bert.pooler.dense"),
    ),
)

KERAS = VariableNames(
    name="BERT in TensorFlow 2",
    model_type="bert",
    anchor="word_embeddings/embeddings",
    lines=(
        Line("word_embeddings/embeddings", f"{_EMBEDDINGS}word_embeddings.weight"),
        Line("position_embedding/embeddings", f"{_EMBEDDINGS}position_embeddings.weight"),
        Line("type_embeddings/embeddings", f"{_EMBEDDINGS}token_type_embeddings.weight"),
        *_norm("embeddings/layer_norm", f"{_EMBEDDINGS}LayerNorm"),
        Line("embedding_postprocessor/position_embeddings", f"{_EMBEDDINGS}position_embeddings.weight"),
        Line("embedding_postprocessor/type_embeddings", f"{_EMBEDDINGS}token_type_embeddings.weight"),
        *_norm("embedding_postprocessor/layer_norm", f"{_EMBEDDINGS}LayerNorm"),
        *_keras_layer("transformer/layer_{i}/"),
        *_keras_layer("encoder/layer_{i}/"),
        *_dense("pooler_transform", "bert.pooler.dense"),
        *_dense("cls/predictions/transform/dense", f"{_TRANSFORM}dense"),
        *_norm("cls/predictions/transform/LayerNorm", f"{_TRANSFORM}LayerNorm"),
        Line("cls/predictions/output_bias/bias", "cls.predictions.bias"),
        *_dense("predictions/transform/logits", "cls.seq_relationship"),
    ),
)

_GROUP = "albert.encoder.albert_layer_groups.{i}.albert_layers.{i}."


def _albert_layer(theirs: str) -> Iterator[Line]:
    for part in ("query", "key", "value"):
        yield from _dense(f"{theirs}attention_1/self/{part}", f"{_GROUP}attention.{part}")
    yield from _dense(f"{theirs}attention_1/output/dense", f"{_GROUP}attention.dense")
    yield from _norm(f"{theirs}LayerNorm", f"{_GROUP}attention.LayerNorm")
    yield from _dense(f"{theirs}ffn_1/intermediate/dense", f"{_GROUP}ffn")
    yield from _dense(f"{theirs}ffn_1/intermediate/output/dense", f"{_GROUP}ffn_output")
    yield from _norm(f"{theirs}LayerNorm_1", f"{_GROUP}full_layer_layer_norm")


ALBERT = VariableNames(
    name="the original ALBERT",
    model_type="albert",
    anchor="bert/encoder/embedding_hidden_mapping_in/kernel",
    lines=(
        *_original("albert.", "predictions.", "predictions.", "sop_classifier.classifier"),
        *_dense("bert/encoder/embedding_hidden_mapping_in", "albert.encoder.embedding_hidden_mapping_in"),
        *_albert_layer("bert/encoder/transformer/group_{i}/inner_group_{i}/"),
        *_dense("bert/pooler/dense", "albert.pooler"),
    ),
)

#: In search order: ALBERT also has the anchor of BERT.
TABLES = (ALBERT, ORIGINAL, KERAS)

#: Endings of optimizer slots: of the original's AdamW and LAMB, then of TensorFlow's own.
_SLOTS = (
    "adam_m", "adam_v", "lamb_m", "lamb_v", "Adam", "Adam_1", "AdamWeightDecay", "AdamWeightDecay_1", "LAMB", "LAMB_1",
    "AdamWeightDecayOptimizer", "AdamWeightDecayOptimizer_1", "Momentum", "RMSProp", "RMSProp_1", "Adagrad", "m", "v",
    "ExponentialMovingAverage",
)  # fmt: skip
#: Counters and settings; all are single numbers.
_BOOKKEEPING = re.compile(
    r"(.*/)?(global_step|save_counter|beta[12]_power|do_lower_case|signal_early_stopping/STOP|(current_)?loss_scale"
    r"|(num_)?good_steps|learning_rate|decay|iter|iteration|beta_[12]|training_step)"
)
#: Prefixes of variables of optimizers and metrics, whatever their shape.
_APART = ("optimizer/", "keras_api/metrics/")


def why_dropped(variable: str, shapes: Mapping[str, tuple[int, ...]]) -> str | None:
    """Why a variable does not belong to the model: "optimizer" or "bookkeeping"; None if it may.

    A slot must have the shape of its variable, a counter must be a scalar; ``shapes`` has those of all variables.
    """
    base, _, ending = variable.rpartition("/")
    if ending in _SLOTS and shapes.get(base) == shapes[variable]:
        return "optimizer"
    counts = variable.startswith(_APART) or (_BOOKKEEPING.fullmatch(variable) and not shapes[variable])
    return "bookkeeping" if counts else None
