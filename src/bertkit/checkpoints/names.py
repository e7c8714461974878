"""Our tensor names and those in published files: one table per family, used in both directions.

A line says: this tensor of ours is made from those tensors of theirs, each of that shape. Names here lack the prefix,
which files saved from a bare encoder lack too; ``{i}`` is the layer number.
"""

from __future__ import annotations

from collections.abc import Mapping

from bertkit.checkpoints.rules import ClassSpec, NameTable, Rule, copied, dense, norm, weight_and
from bertkit.config.families import FAMILIES
from bertkit.errors import CheckpointError

_LAYER = "encoder.layer.{i}."
_QKV = _LAYER + "attention.qkv"
_OUT = _LAYER + "attention.out"
_WORDS = "embeddings.word_embeddings.weight"
_TRANSFORM = "cls.predictions.transform."

_TABLES = (copied(_WORDS, "V E"), copied("embeddings.position_embeddings.weight", "P E"))
_SEGMENTS = copied("embeddings.token_type_embeddings.weight", "G E", needs="type_vocab_size")
_EMBEDDINGS = (*_TABLES, _SEGMENTS, *norm("embeddings.LayerNorm", shape="E"))

_FEED_FORWARD = (
    *dense(_LAYER + "ffn_up", "F D", _LAYER + "intermediate.dense"),
    *dense(_LAYER + "ffn_down", "D F", _LAYER + "output.dense"),
    *norm(_LAYER + "ffn_norm", _LAYER + "output.LayerNorm"),
)
_SELF = _LAYER + "attention.self."
#: The layers of BERT, RoBERTa and ELECTRA.
_LAYERS = (
    *dense(_QKV, "D D", *(_SELF + name for name in ("query", "key", "value"))),
    *dense(_OUT, "D D", _LAYER + "attention.output.dense"),
    *norm(_LAYER + "attention_norm", _LAYER + "attention.output.LayerNorm"),
    *_FEED_FORWARD,
)
_POOLER = dense("pooler.dense", "D D")
_CLASSIFIER = dense("classifier", "C D")
#: The heads that every family has under the same names.
_TASKS = {"classifier": _CLASSIFIER, "span head": dense("qa_outputs", "2 D")}


def _own_pooler(theirs: str) -> tuple[Rule, Rule]:
    """The layer before a classifier; in our models it takes the place of the pooler."""
    return dense("bert.pooler.dense", "D D", theirs)


_OUT_PROJ = (*_own_pooler("classifier.dense"), *dense("classifier", "C D", "classifier.out_proj"))


def _masked_lm(dense_name: str, norm_name: str, bias: str) -> tuple[Rule, ...]:
    return (
        *dense(_TRANSFORM + "dense", "E D", dense_name),
        *norm(_TRANSFORM + "LayerNorm", norm_name, "E"),
        copied("cls.predictions.bias", "V", bias),
    )


def _classes(*specs: ClassSpec) -> Mapping[str, ClassSpec]:
    """The classes of every family, replaced or extended by those given."""
    common = (
        ClassSpec("BertModel", pooler=True),
        ClassSpec("BertForMaskedLM", ("masked-lm head",)),
        ClassSpec("BertForSequenceClassification", ("classifier",), pooler=True, label_head=True),
        ClassSpec("BertForTokenClassification", ("classifier",), label_head=True),
        ClassSpec("BertForQuestionAnswering", ("span head",)),
        ClassSpec("BertForMultipleChoice", ("classifier",), pooler=True, outputs=1, label_head=True),
    )
    return {spec.name: spec for spec in (*common, *specs)}


BERT = NameTable(
    family="bert",
    prefix="bert.",
    parts={
        "encoder": (*_EMBEDDINGS, *_LAYERS),
        "pooler": _POOLER,
        "masked-lm head": _masked_lm(_TRANSFORM + "dense", _TRANSFORM + "LayerNorm", "cls.predictions.bias"),
        "next-sentence head": dense("cls.seq_relationship", "2 D"),
        **_TASKS,
    },
    ties=(("cls.predictions.decoder.weight", _WORDS), ("cls.predictions.decoder.bias", "cls.predictions.bias")),
    classes=_classes(
        ClassSpec("BertForPreTraining", ("masked-lm head", "next-sentence head"), pooler=True),
        ClassSpec("BertForNextSentencePrediction", ("next-sentence head",), pooler=True),
    ),
)


def _roberta(family: str) -> NameTable:
    """RoBERTa, CamemBERT and XLM-R, which share their names."""
    return NameTable(
        family=family,
        prefix="roberta.",
        parts={
            "encoder": (*_EMBEDDINGS, *_LAYERS),
            "pooler": _POOLER,
            "masked-lm head": _masked_lm("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
            "sentence classifier": _OUT_PROJ,
            **_TASKS,
        },
        ties=(("lm_head.decoder.weight", _WORDS), ("lm_head.decoder.bias", "lm_head.bias")),
        classes=_classes(ClassSpec("BertForSequenceClassification", ("sentence classifier",), label_head=True)),
    )


_THEIRS = "transformer.layer.{i}."
DISTILBERT = NameTable(
    family="distilbert",
    prefix="distilbert.",
    parts={
        "encoder": (
            *_TABLES,
            *norm("embeddings.LayerNorm"),
            *dense(_QKV, "D D", *(f"{_THEIRS}attention.{name}" for name in ("q_lin", "k_lin", "v_lin"))),
            *dense(_OUT, "D D", _THEIRS + "attention.out_lin"),
            *norm(_LAYER + "attention_norm", _THEIRS + "sa_layer_norm"),
            *dense(_LAYER + "ffn_up", "F D", _THEIRS + "ffn.lin1"),
            *dense(_LAYER + "ffn_down", "D F", _THEIRS + "ffn.lin2"),
            *norm(_LAYER + "ffn_norm", _THEIRS + "output_layer_norm"),
        ),
        "masked-lm head": _masked_lm("vocab_transform", "vocab_layer_norm", "vocab_projector.bias"),
        "sentence classifier": (*_own_pooler("pre_classifier"), *_CLASSIFIER),
        **_TASKS,
    },
    ties=(("vocab_projector.weight", _WORDS),),
    classes=_classes(
        ClassSpec("BertModel"),
        ClassSpec("BertForSequenceClassification", ("sentence classifier",), label_head=True),
        ClassSpec("BertForMultipleChoice", ("sentence classifier",), outputs=1, label_head=True),
    ),
)

_GROUP = "encoder.albert_layer_groups.{i}.albert_layers.{j}."
ALBERT = NameTable(
    family="albert",
    prefix="albert.",
    parts={
        "encoder": (
            *_EMBEDDINGS,
            *dense("embeddings.projection", "D E", "encoder.embedding_hidden_mapping_in"),
            *dense(_QKV, "D D", *(f"{_GROUP}attention.{name}" for name in ("query", "key", "value"))),
            *dense(_OUT, "D D", _GROUP + "attention.dense"),
            *norm(_LAYER + "attention_norm", _GROUP + "attention.LayerNorm"),
            *dense(_LAYER + "ffn_up", "F D", _GROUP + "ffn"),
            *dense(_LAYER + "ffn_down", "D F", _GROUP + "ffn_output"),
            *norm(_LAYER + "ffn_norm", _GROUP + "full_layer_layer_norm"),
        ),
        "pooler": dense("pooler.dense", "D D", "pooler"),
        "masked-lm head": _masked_lm("predictions.dense", "predictions.LayerNorm", "predictions.bias"),
        "sentence-order head": dense("cls.seq_relationship", "2 D", "sop_classifier.classifier"),
        **_TASKS,
    },
    ties=(("predictions.decoder.weight", _WORDS), ("predictions.decoder.bias", "predictions.bias")),
    classes=_classes(ClassSpec("BertForPreTraining", ("masked-lm head", "sentence-order head"), pooler=True)),
)

ELECTRA = NameTable(
    family="electra",
    prefix="electra.",
    parts={
        "encoder": (
            *_EMBEDDINGS,
            *dense("embeddings.projection", "D E", "embeddings_project", needs="has_projection"),
            *_LAYERS,
        ),
        "masked-lm head": _masked_lm(
            "generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head.bias"
        ),
        "replaced-token head": (
            *dense("discriminator.dense", "D D", "discriminator_predictions.dense"),
            *dense("discriminator.out", "1 D", "discriminator_predictions.dense_prediction"),
        ),
        "sentence classifier": _OUT_PROJ,
        "choice classifier": (*_own_pooler("sequence_summary.summary"), *_CLASSIFIER),
        **_TASKS,
    },
    ties=(("generator_lm_head.weight", _WORDS),),
    classes=_classes(
        ClassSpec("BertModel"),
        ClassSpec("ElectraForPreTraining", ("replaced-token head",)),
        ClassSpec("BertForSequenceClassification", ("sentence classifier",), label_head=True),
        ClassSpec("BertForMultipleChoice", ("choice classifier",), outputs=1, label_head=True),
    ),
)

_MPNET_SELF = _LAYER + "attention.attn."
MPNET = NameTable(
    family="mpnet",
    prefix="mpnet.",
    parts={
        "encoder": (
            *_TABLES,
            *norm("embeddings.LayerNorm"),
            *dense(_QKV, "D D", *(_MPNET_SELF + name for name in "qkv")),
            *dense(_OUT, "D D", _MPNET_SELF + "o"),
            *norm(_LAYER + "attention_norm", _LAYER + "attention.LayerNorm"),
            *_FEED_FORWARD,
            copied("encoder.positions.table.weight", "32 N", "encoder.relative_attention_bias.weight"),
        ),
        "pooler": _POOLER,
        "masked-lm head": _masked_lm("lm_head.dense", "lm_head.layer_norm", "lm_head.bias"),
        "sentence classifier": _OUT_PROJ,
        **_TASKS,
    },
    ties=(("lm_head.decoder.weight", _WORDS), ("lm_head.decoder.bias", "lm_head.bias")),
    classes=_classes(ClassSpec("BertForSequenceClassification", ("sentence classifier",), label_head=True)),
)

DEBERTA = NameTable(
    family="deberta-v2",
    prefix="deberta.",
    parts={
        "encoder": (
            copied(_WORDS, "V E"),
            copied("embeddings.position_embeddings.weight", "P E", needs="has_position_table"),
            _SEGMENTS,
            *norm("embeddings.LayerNorm"),
            *dense(_QKV, "D D", *(f"{_SELF}{name}_proj" for name in ("query", "key", "value"))),
            *dense(_LAYER + "attention.position_key", "D D", _SELF + "pos_key_proj", needs="has_position_keys"),
            *dense(_LAYER + "attention.position_query", "D D", _SELF + "pos_query_proj", needs="has_position_queries"),
            *dense(_OUT, "D D", _LAYER + "attention.output.dense"),
            *norm(_LAYER + "attention_norm", _LAYER + "attention.output.LayerNorm"),
            *_FEED_FORWARD,
            copied("encoder.positions.table.weight", "R D", "encoder.rel_embeddings.weight"),
            *norm("encoder.positions.LayerNorm", "encoder.LayerNorm", needs="has_distance_norm"),
        ),
        "masked-lm head": _masked_lm(_TRANSFORM + "dense", _TRANSFORM + "LayerNorm", "cls.predictions.bias"),
        "sentence classifier": (*_own_pooler("pooler.dense"), *_CLASSIFIER),
        **_TASKS,
    },
    ties=(("cls.predictions.decoder.weight", _WORDS), ("cls.predictions.decoder.bias", "cls.predictions.bias")),
    classes=_classes(
        ClassSpec("BertModel"),
        ClassSpec("BertForSequenceClassification", ("sentence classifier",), label_head=True),
        ClassSpec("BertForMultipleChoice", ("sentence classifier",), outputs=1, label_head=True),
    ),
    # The original's own layout, and that of its replaced-token head.
    aliases={"lm_predictions.lm_head.bias": "cls.predictions.bias", "lm_predictions.lm_head.": _TRANSFORM},
)

_MODERN = "layers.{i}."
MODERNBERT = NameTable(
    family="modernbert",
    prefix="model.",
    parts={
        "encoder": (
            copied(_WORDS, "V D", "embeddings.tok_embeddings.weight"),
            *weight_and("norm_bias", "embeddings.LayerNorm", "D", "embeddings.norm"),
            *weight_and("attention_bias", _QKV, "3D D", _MODERN + "attn.Wqkv"),
            *weight_and("attention_bias", _OUT, "D D", _MODERN + "attn.Wo"),
            *weight_and("norm_bias", _LAYER + "attention_norm", "D", _MODERN + "attn_norm", first=1),
            *weight_and("norm_bias", _LAYER + "ffn_norm", "D", _MODERN + "mlp_norm"),
            *weight_and("mlp_bias", _LAYER + "ffn_up", "U D", _MODERN + "mlp.Wi"),
            *weight_and("mlp_bias", _LAYER + "ffn_down", "D F", _MODERN + "mlp.Wo"),
            *weight_and("norm_bias", "encoder.final_norm", "D", "final_norm"),
        ),
        "masked-lm head": (
            *weight_and("classifier_bias", _TRANSFORM + "dense", "D D", "head.dense"),
            *weight_and("norm_bias", _TRANSFORM + "LayerNorm", "D", "head.norm"),
            copied("cls.predictions.bias", "V", "decoder.bias", needs="decoder_bias"),
            copied("cls.predictions.decoder", "V D", "decoder.weight", needs="has_own_decoder"),
        ),
        "head layer": (
            *weight_and("classifier_bias", "layer.dense", "D D", "head.dense"),
            *weight_and("norm_bias", "layer.LayerNorm", "D", "head.norm"),
        ),
        "classifier": _CLASSIFIER,
        "span classifier": dense("qa_outputs", "2 D", "classifier"),
    },
    ties=(("decoder.weight", "embeddings.tok_embeddings.weight"),),
    classes=_classes(
        ClassSpec("BertModel"),
        ClassSpec("BertForSequenceClassification", ("head layer", "classifier"), label_head=True),
        ClassSpec("BertForTokenClassification", ("head layer", "classifier"), label_head=True),
        ClassSpec("BertForQuestionAnswering", ("head layer", "span classifier")),
        ClassSpec("BertForMultipleChoice", ("head layer", "classifier"), outputs=1, label_head=True),
    ),
)

TABLES: Mapping[str, NameTable] = {
    "bert": BERT,
    **{family: _roberta(family) for family in ("roberta", "camembert", "xlm-roberta")},
    "distilbert": DISTILBERT,
    "albert": ALBERT,
    "electra": ELECTRA,
    "mpnet": MPNET,
    "deberta-v2": DEBERTA,
    "modernbert": MODERNBERT,
}


def class_spec(name: str, family: str, pooling: str = "cls") -> ClassSpec:
    """The parts of a class in a family; with mean or max pooling, sequence classifiers have no pooler."""
    classes = TABLES[family].classes
    if name not in classes:
        have = ", ".join(FAMILIES[family].their_class(other) for other in classes)
        raise CheckpointError(f"the {family} family has no {name}, because its models have no such head; it has {have}")
    if name == "BertForSequenceClassification" and pooling != "cls" and not FAMILIES[family].head_layer:
        return ClassSpec(name, ("classifier",), label_head=True)
    return classes[name]
