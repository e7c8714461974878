"""The shape of a BERT and its heads: plain, frozen, validated data.

Field names are those of ``config.json`` files on the Hugging Face Hub. A field exists only where two published
checkpoints need different values of it; keys that do not affect the arithmetic are listed in
``bertkit.config.families.IGNORED_KEYS``, and any other key is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from bertkit.config.config_file import OF_CALLS, ConfigFile
from bertkit.config.families import (
    ENCODER_DECODERS,
    FAMILIES,
    IGNORED_KEYS,
    REQUIRED_VALUES,
    SAME_ACTIVATIONS,
    Family,
)
from bertkit.config.family_fields import FamilyFields, Probability, Size
from bertkit.config.family_forms import FULL, SLIDING, canonical, check_family, layer_types, under_other_keys
from bertkit.config.labels import LABEL_KEYS, check_labels, merged_labels
from bertkit.errors import ConfigError, did_you_mean
from bertkit.system.untrusted_files import Json
from bertkit.system.validated_settings import Field

#: What a token attends to: all others, or itself and those to its left, or to its right.
Direction = Literal["both", "left-to-right", "right-to-left"]
#: Before the ``model_type`` in the file of a model that other software would load and compute otherwise, so that it
#: refuses: one whose classifier reads the mean or maximum of the tokens, or whose tokens attend to their right only.
OWN_MODEL_TYPE = "bertkit-"
#: Where sentence-transformers notes the activation of a cross-encoder: in an object, and before release 4 by itself.
NOTES, ACTIVATION, OLD_ACTIVATION = "sentence_transformers", "activation_fn", "sbert_ce_default_activation_function"


class BertConfig(ConfigFile, FamilyFields):
    """Shape of a BERT (Devlin et al. 2019, section 3) or, as ``model_type`` says, of one of its descendants.

    The defaults are BERT-base, uncased; those of another family are in ``bertkit.config.families``. Also accepts all
    keys of a ``config.json``, as :meth:`from_dict`; ``num_labels=n`` in place of ``id2label``, with the labels
    ``LABEL_0 ... LABEL_{n-1}``; and ``label2id``, see :func:`bertkit.config.labels.merged_labels`.

    Raises:
        ConfigError: an unknown field (with the nearest known one), a value of the wrong type or out of bounds,
            labels that are not numbered ``0 ... n-1`` or that contradict each other, a field that the family does not
            have.
    """

    without_effect = IGNORED_KEYS
    model_type: Literal[
        "bert",
        "roberta",
        "camembert",
        "xlm-roberta",
        "distilbert",
        "albert",
        "electra",
        "modernbert",
        "deberta-v2",
        "mpnet",
    ] = Field("bert", description="the family")
    vocab_size: int = Field(30522, ge=1, le=4_000_000, description="word pieces in the vocabulary")
    hidden_size: Size = Field(768, description="width D of one token vector")
    num_hidden_layers: int = Field(12, ge=0, le=512, description="transformer layers, L")
    num_attention_heads: Size = Field(12, description="attention heads N; must divide hidden_size")
    intermediate_size: int = Field(3072, ge=1, le=262_144, description="width F inside the feed-forward")
    hidden_act: Literal["gelu", "gelu_new", "relu"] = Field(
        "gelu", description="gelu is the erf form, gelu_new the tanh form of the original TensorFlow code"
    )
    hidden_dropout_prob: Probability = Field(0.1, description="dropout on hidden vectors (appendix A.2)")
    attention_probs_dropout_prob: Probability = Field(0.1, description="dropout on attention probabilities")
    max_position_embeddings: int = Field(
        512, ge=1, le=1_000_000, description="longest input in word pieces, special tokens included"
    )
    type_vocab_size: int = Field(2, ge=0, le=1024, description="segments (sentence A, sentence B); 0: none")
    initializer_range: float = Field(0.02, gt=0.0, le=10.0, description="sd of the truncated normal")
    layer_norm_eps: float = Field(1e-12, gt=0.0, le=1.0, description="added to the variance in LayerNorm")
    pad_token_id: int = Field(0, ge=0, description="id of [PAD]; its word embedding gets no gradient")
    classifier_dropout: Probability | None = Field(
        None, description="dropout before a task head; None means hidden_dropout_prob"
    )
    id2label: dict[int, str] = Field({0: "LABEL_0", 1: "LABEL_1"}, description="name of each label, numbered from 0")
    problem_type: Literal["regression", "single_label_classification", "multi_label_classification"] | None = Field(
        None, description="loss of the sequence classifier; None: regression for one label, else single label"
    )
    pooling: Literal["cls", "mean", "max"] = Field(
        "cls", description="what a sequence classifier reads: pooled [CLS] vector, or mean or maximum of all tokens"
    )
    activation_fn: str | None = Field(
        None,
        description="class of torch that sentence-transformers makes scores by; None: a sigmoid for one label",
    )
    tie_word_embeddings: bool = Field(
        True, description="whether a masked-LM head shares the table of word embeddings; only ModernBERT's may not"
    )
    attention_direction: Direction = Field(
        "both",
        description="both: as BERT; left-to-right: a token attends to itself and those before it, is_decoder in a "
        "config.json; right-to-left: to itself and those behind it; one way only in the bert family",
    )
    architectures: list[str] | None = Field(
        None, description="classes the file was saved from, by their names in this package"
    )

    def __init__(self, /, **values: Any) -> None:
        super().__init__(**(self._read(values) if _is_of_file(values) else values))

    @classmethod
    def _prepared(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Fill in the family's defaults, also for None, and ``id2label`` from its other forms."""
        defaults = _family(values.get("model_type", "bert")).defaults
        values.update({name: value for name, value in defaults.items() if values.get(name) is None})
        for name in ("tie_word_embeddings", "pad_token_id"):
            if values.get(name) is None:
                values.pop(name, None)
        labels = merged_labels(*(values.pop(name, None) for name in LABEL_KEYS))
        return values if labels is None else {**values, "id2label": labels}

    def _check(self) -> None:
        for name in _OWN_FIELDS - self.family.own:
            if getattr(self, name) is not None:
                raise ValueError(f"the {self.model_type} family has no field {name}, got {getattr(self, name)!r:.80}")
        for name in self.family.absent:
            fixed = self.family.defaults.get(name, type(self).model_fields[name].default)
            if getattr(self, name) != fixed:
                got = getattr(self, name)
                raise ValueError(f"{name} is {fixed!r} in the {self.model_type} family, got {got!r:.80}")
        check_family(self)
        if self.attention_direction != "both" and self.model_type != "bert":
            raise ValueError(
                f"attention_direction is {self.attention_direction!r}; only the bert family has models that read one "
                f"way, and this is {self.model_type}"
            )
        if self.pad_token_id >= self.vocab_size:
            raise ValueError(f"pad_token_id={self.pad_token_id} is outside the vocabulary of {self.vocab_size}")
        if self.max_input_length < 1:
            raise ValueError(
                f"max_position_embeddings={self.max_position_embeddings} leaves no position: in the "
                f"{self.model_type} family they begin at pad_token_id + 1 = {self.first_position}"
            )
        check_labels(self.id2label)

    @property
    def differs_elsewhere(self) -> bool:
        """Whether other software of the family would compute otherwise: another pooling, attention to the right."""
        return self.pooling not in self.family.poolings or self.attention_direction == "right-to-left"

    @property
    def head_size(self) -> int:
        """Width H of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def family(self) -> Family:
        """What all checkpoints of this ``model_type`` share."""
        return FAMILIES[self.model_type]

    @property
    def layer_kinds(self) -> tuple[str, ...]:
        """What the tokens of each layer attend to: ``"full_attention"`` or ``"sliding_attention"``."""
        if self.layer_types is None and self.global_attn_every_n_layers is None:
            return (FULL,) * self.num_hidden_layers
        return tuple(self.layer_types or layer_types(self.num_hidden_layers, self.global_attn_every_n_layers or 1))

    def reach_of(self, kind: str) -> int | None:
        """Tokens on each side that a layer of this kind attends to; None: all."""
        return (self.local_attention or 0) // 2 if kind == SLIDING else None

    @property
    def longest_with_gaps(self) -> int | None:
        """Columns of the longest padded row that may have padding between its tokens; None: any row.

        Where attention depends on distances, these count tokens, so that a gap would change them.
        """
        if self.family.scores in ("biased", "disentangled"):
            return 0
        reaches = [reach for kind in self.layer_kinds if (reach := self.reach_of(kind)) is not None]
        return min(reaches) + 1 if reaches else None

    @property
    def first_position(self) -> int:
        """Row of the position table for the first token of a text."""
        return self.pad_token_id + 1 if self.family.positions_after_padding else 0

    @property
    def max_input_length(self) -> int:
        """Tokens of the longest input, special tokens included."""
        return self.max_position_embeddings - self.first_position

    @property
    def embedding_width(self) -> int:
        """Width E of word, position and segment embeddings."""
        return self.hidden_size if self.embedding_size is None else self.embedding_size

    @property
    def farthest_distance(self) -> int:
        """Distance from which DeBERTa's attention tells no longer apart."""
        given = self.max_relative_positions or 0
        return given if given >= 1 else self.max_position_embeddings

    @property
    def distance_span(self) -> int:
        """Vectors of distances to one side (DeBERTa)."""
        buckets = self.position_buckets or 0
        return buckets if buckets > 0 else self.farthest_distance

    @property
    def has_own_decoder(self) -> bool:
        """Whether a masked-LM head has a table of its own."""
        return self.family.head_layer and not self.tie_word_embeddings

    @property
    def has_position_keys(self) -> bool:
        """Whether keys of distances have a matrix of their own (DeBERTa)."""
        return "c2p" in (self.pos_att_type or []) and not self.share_att_key

    @property
    def has_position_queries(self) -> bool:
        """Whether queries of distances have a matrix of their own (DeBERTa)."""
        return "p2c" in (self.pos_att_type or []) and not self.share_att_key

    @property
    def has_distance_norm(self) -> bool:
        """Whether vectors of distances are normalized (DeBERTa)."""
        return self.norm_rel_ebd == "layer_norm"

    @property
    def has_position_table(self) -> bool:
        """Whether embeddings have absolute positions."""
        return self.family.position_table or bool(self.position_biased_input)

    @property
    def has_projection(self) -> bool:
        """Whether a linear layer projects the embeddings to the width of the encoder."""
        return self.embedding_width != self.hidden_size or self.family.projects_always

    @property
    def num_stored_layers(self) -> int:
        """Layers with their own weights."""
        if self.num_hidden_groups is None:
            return self.num_hidden_layers
        return self.num_hidden_groups * (self.inner_group_num or 1)

    @property
    def layer_order(self) -> tuple[int, ...]:
        """Index of the stored layer at each step through the encoder (Lan et al. 2020, section 3.1)."""
        if self.num_hidden_groups is None:
            return tuple(range(self.num_hidden_layers))
        inner, share = self.inner_group_num or 1, self.num_hidden_layers / self.num_hidden_groups
        return tuple(int(i / share) * inner + j for i in range(self.num_hidden_layers) for j in range(inner))

    def head_dropout(self, head: str) -> float:
        """Rate of the dropout before a head: "sequence", "token", "choice", "span" or "pair"."""
        name = self.family.dropouts.get(head, "classifier_dropout")
        rate = getattr(self, name) if name else 0.0
        return self.hidden_dropout_prob if rate is None else float(rate)

    def check_heads(self) -> None:
        """See that the heads divide the width, or no model can be built: the original's own tests make such configs."""
        if self.hidden_size % self.num_attention_heads:
            raise ConfigError(
                f"hidden_size must be a multiple of num_attention_heads, got {self.hidden_size} and "
                f"{self.num_attention_heads} (remainder {self.hidden_size % self.num_attention_heads})"
            )

    def _changed(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        replaced = under_other_keys(self.family, changes)
        return _whole({name: value for name, value in super()._changed(changes).items() if name not in replaced})

    def to_dict(self) -> dict[str, Json]:
        """The content of a ``config.json`` that other software of the family reads."""
        family = self.family
        values = self.model_dump(exclude=set(family.absent))
        values["id2label"] = {str(number): label for number, label in self.id2label.items()}
        values["label2id"] = self.label2id
        direction = values.pop("attention_direction")
        if direction == "left-to-right":
            values["is_decoder"] = True
        elif direction == "right-to-left":  # which no other software has
            values["attention_direction"] = direction
        for name in OF_CALLS:
            if not values[name]:
                del values[name]
        if self.differs_elsewhere:
            values["model_type"] = OWN_MODEL_TYPE + self.model_type
        for name, default in (("pooling", "cls"), ("tie_word_embeddings", True)):
            if values[name] == default and name not in family.keys:  # everybody's
                del values[name]
        if (activation := values.pop("activation_fn")) is not None:
            values[NOTES] = {ACTIVATION: activation}
        values.update(family.written)
        if self.architectures is not None:
            values["architectures"] = [family.their_class(name) for name in self.architectures]
        return {family.keys.get(name, name): value for name, value in values.items() if value is not None}

    @classmethod
    def for_model(cls, model_type: str, **values: Any) -> BertConfig:
        """The config of a family, with these keys of its file."""
        return cls.from_dict({"model_type": model_type, **values})

    @classmethod
    def from_dict(cls, values: Mapping[str, Json]) -> BertConfig:
        """Read the content of a published ``config.json``; every key must be known.

        Raises:
            ConfigError: as the constructor; also a ``model_type`` or a setting that is not supported.
        """
        return cls(**_whole(cls._read(values)))

    @classmethod
    def _read(cls, values: Mapping[str, Json]) -> dict[str, Any]:
        """The content of a ``config.json`` as fields."""
        values = dict(values)
        if (kind := str(values.get("model_type"))).startswith(OWN_MODEL_TYPE):
            values["model_type"] = kind.removeprefix(OWN_MODEL_TYPE)
        family = _family(values.get("model_type", "bert"))
        values = canonical(values)
        notes, old = values.get(NOTES), values.get(OLD_ACTIVATION)
        activation = notes.get(ACTIVATION, old) if isinstance(notes, dict) else old
        required = {**REQUIRED_VALUES, **family.required}
        for key, allowed in required.items():
            if key in values and values[key] not in allowed:
                raise ConfigError(f"{key} is {values[key]!r:.80}; bertkit only supports {key}={allowed[0]!r}")
        fields = {key: name for name, key in family.keys.items()}
        for key, name in fields.items():
            if key in values and name in values and values[key] != values[name]:
                raise ConfigError(
                    f"{key} is {values[key]!r:.80} but {name}, another name for it, is {values[name]!r:.80}"
                )
        passive = IGNORED_KEYS | required.keys() | family.ignored
        read = {fields.get(key, key): value for key, value in values.items() if key not in passive}
        if isinstance(act := read.get("hidden_act"), str):
            read["hidden_act"] = SAME_ACTIVATIONS.get(act, act)
        if isinstance(names := read.get("architectures"), list):
            read["architectures"] = [family.our_class(name) if isinstance(name, str) else name for name in names]
        return {**read, **({} if activation is None else {"activation_fn": activation})}


#: Fields that only some families have.
_OWN_FIELDS = frozenset().union(*(family.own for family in FAMILIES.values()))
#: Keys of files that are no fields.
_FILE_KEYS = (
    IGNORED_KEYS.union(
        REQUIRED_VALUES, *({*family.required, *family.ignored, *family.keys.values()} for family in FAMILIES.values())
    )
    - BertConfig.model_fields.keys()
)


def _is_of_file(values: Mapping[str, Any]) -> bool:
    """Whether arguments are the content of a file, by a key or a name that reading would change."""
    family, named = _family_named(values), values.get("architectures")
    names = [str(name) for name in named] if isinstance(named, list) else []
    own = str(values.get("model_type")).startswith(OWN_MODEL_TYPE)
    return own or any(family.our_class(name) != name for name in names) or bool(values.keys() & _FILE_KEYS)


def _whole(values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields with what a file of the family must say besides, so that reading them once more changes nothing."""
    return {**_family_named(values).written, **values}


def _family_named(values: Mapping[str, Any]) -> Family:
    """The family, or that of BERT for a name that is refused later."""
    return FAMILIES.get(str(values.get("model_type", "bert")).removeprefix(OWN_MODEL_TYPE), FAMILIES["bert"])


def _family(model_type: Json) -> Family:
    if isinstance(model_type, str) and model_type in ENCODER_DECODERS:
        raise ConfigError(
            f"model_type is {model_type!r}, an encoder-decoder, where an encoder is needed; it is for 'bertkit "
            "generate', the tasks summarize and text2text, the pipelines text2text-generation, summarization and "
            "translation, and 'embed'; a BART also for 'classify', 'answer', 'fill-mask' and the tasks of texts and "
            "of answers"
        )
    if model_type == "model2vec":
        raise ConfigError(
            "model_type is 'model2vec': word vectors, which have no layers to train, export or look into; they are for "
            "vectors of texts ('bertkit embed', 'similarity', 'search', 'cluster')"
        )
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        near = did_you_mean(model_type, (*FAMILIES, *ENCODER_DECODERS)) if isinstance(model_type, str) else ""
        known = f"{', '.join(FAMILIES)}, and the encoder-decoders {', '.join(ENCODER_DECODERS)}"
        raise ConfigError(f"model_type is {model_type!r:.80}{near}; this version of bertkit reads {known}")
    return FAMILIES[model_type]


#: transformers' name for the config of any family.
AutoConfig = BertConfig
