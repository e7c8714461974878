"""What sits on an encoder, by the class of the model: a pooler, a layer, a classifier, the words of the vocabulary."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from bertkit.config.bert_config import BertConfig
from bertkit.ragged import Floats
from bertkit.weights.encoder_weights import Arrays, matrix_of, norm_of
from bertkit.weights.parts import ACTIVATIONS, Matrix, Norm

#: Class of a model -> what it judges; see ``HeadModel.kind``. Those that are not here the library does not compute.
KINDS = {
    "BertModel": "",
    "BertForMaskedLM": "words",
    "BertForMultipleChoice": "choice",
    "BertForNextSentencePrediction": "pair",
    "BertForQuestionAnswering": "span",
    "BertForSequenceClassification": "sequence",
    "BertForTokenClassification": "token",
}
#: Activations of heads: those of the library, and the pooler's.
HEAD_ACTIVATIONS = (*ACTIVATIONS, "tanh")


class Dense(NamedTuple):
    """A linear layer, an activation if there is one, and a normalization if there is one."""

    matrix: Matrix
    activation: str | None = None
    norm: Norm | None = None


class Words(NamedTuple):
    """The table whose rows are multiplied with vectors, float32 ``(V, E)``, and a bias ``(V,)``, or None."""

    table: Floats
    bias: Floats | None


class HeadWeights(NamedTuple):
    """A head. It reads the vectors of tokens, or of each row one: that of the first token, or the mean or maximum.

    layers: what these vectors go through one after another, the classifier last, unless ``words`` are.
    reads: ``"tokens"``, ``"first"``, ``"mean"`` or ``"max"``.
    outputs: names of the results; several have a column each.
    """

    reads: Literal["tokens", "first", "mean", "max"]
    layers: tuple[Dense, ...]
    outputs: tuple[str, ...]
    words: Words | None = None


def head_of(model_class: str, config: BertConfig, arrays: Arrays) -> HeadWeights | None:
    """The head of a model, from arrays by its names; of an encoder its pooler, or None without one."""
    kind = KINDS[model_class]
    base = "bert." if kind else ""
    pooler = _dense(arrays, f"{base}pooler.dense", _pooler_activation(kind, config))
    if not kind:
        return None if pooler is None else HeadWeights("first", (pooler,), ("pooler_output",))
    if kind == "words":
        layer = _layer(arrays, "cls.predictions.transform", config)
        assert layer is not None
        table = arrays.get("cls.predictions.decoder")
        if table is None:
            table = arrays[f"{base}embeddings.word_embeddings.weight"]
        return HeadWeights("tokens", (layer,), ("logits",), Words(table, arrays.get("cls.predictions.bias")))
    name = {"span": "qa_outputs", "pair": "cls.seq_relationship"}.get(kind, "classifier")
    classifier = _dense(arrays, name)
    assert classifier is not None
    layers = tuple(each for each in (pooler, _layer(arrays, "layer", config), classifier) if each is not None)
    outputs = ("start_logits", "end_logits") if kind == "span" else ("logits",)
    if kind in ("span", "token"):
        return HeadWeights("tokens", layers, outputs)
    if config.pooling != "cls" and (kind == "sequence" or (config.family.head_layer and kind == "choice")):
        return HeadWeights(config.pooling, layers, outputs)
    return HeadWeights("first", layers, outputs)


def head_activations(model_class: str, config: BertConfig) -> set[str]:
    """The activations that a head has."""
    kind = KINDS[model_class]
    return {_pooler_activation(kind, config), _layer_activation(config)}


def _pooler_activation(kind: str, config: BertConfig) -> str:
    own = config.family.poolers.get(kind)
    return "tanh" if own is None else own.activation


def _layer_activation(config: BertConfig) -> str:
    return config.classifier_activation or config.family.words_act or config.hidden_act


def _dense(arrays: Arrays, name: str, activation: str | None = None) -> Dense | None:
    if f"{name}.weight" not in arrays:
        return None
    return Dense(matrix_of(arrays, name, "float32"), activation)


def _layer(arrays: Arrays, name: str, config: BertConfig) -> Dense | None:
    """A layer as before the words; ModernBERT has one before every head."""
    if f"{name}.dense.weight" not in arrays:
        return None
    norm = norm_of(arrays, f"{name}.LayerNorm")
    return Dense(matrix_of(arrays, f"{name}.dense", "float32"), _layer_activation(config), norm)


def words_of(logits_RE: Floats, words: Words) -> Floats:
    """Scores of the words ``(R, V)`` for vectors ``(R, E)``."""
    found = logits_RE @ words.table.T
    if words.bias is not None:
        found += words.bias
    return np.asarray(found, np.float32)
