"""The configs of BART and T5, encoder-decoders: what their ``config.json`` says, under its own names.

Each key of a file is a field, or must have one value (``_required``), or has no effect here (:data:`NO_EFFECT`); any
other is an error. :meth:`EncoderDecoderConfig.tower` gives the modules one view of both.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any, Literal, Self

from bertkit.config.config_file import OF_CALLS, ConfigFile
from bertkit.config.families import ENCODER_DECODERS, IGNORED_KEYS, REQUIRED_VALUES, SAME_ACTIVATIONS, Fixed
from bertkit.config.family_fields import Probability, Size
from bertkit.config.labels import LABEL_KEYS, check_labels, merged_labels
from bertkit.config.tower import FEED_FORWARDS, Activation, Tower
from bertkit.errors import ConfigError
from bertkit.system.untrusted_files import Json
from bertkit.system.validated_settings import Field

#: Fields that say how to generate; the defaults of ``generate`` where there is no ``generation_config.json``.
TOKENS = ("bos_token_id", "eos_token_id", "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id")
#: Those of which None means that there is none; elsewhere None is the default.
_OPTIONAL_TOKENS = ("bos_token_id", "forced_bos_token_id", "forced_eos_token_id")
#: Keys that do not affect the arithmetic. The settings of generation among them are read where generation is set up.
NO_EFFECT = IGNORED_KEYS - set(TOKENS)


class EncoderDecoderConfig(ConfigFile):
    """What :class:`BartConfig` and :class:`T5Config` share."""

    without_effect = NO_EFFECT
    model_type: str
    vocab_size: int = Field(ge=1, le=4_000_000, description="tokens in the vocabulary")
    d_model: Size = Field(description="width D of one token vector")
    pad_token_id: int = Field(ge=0, description="id of padding")
    bos_token_id: int | None = Field(None, ge=0, description="id of the token before a text")
    eos_token_id: int = Field(ge=0, description="id of the token behind a text; ends generation")
    decoder_start_token_id: int = Field(ge=0, description="first id that the decoder reads")
    forced_bos_token_id: int | None = Field(None, ge=0, description="id that generation begins with")
    forced_eos_token_id: int | None = Field(None, ge=0, description="id that generation ends with at its limit")
    classifier_dropout: Probability = Field(0.0, description="dropout around the layer of a classifier")
    id2label: dict[int, str] = Field({0: "LABEL_0", 1: "LABEL_1"}, description="name of each label, numbered from 0")
    problem_type: Literal["regression", "single_label_classification", "multi_label_classification"] | None = Field(
        None, description="loss of the sequence classifier; None: regression for one label, else single label"
    )
    tie_word_embeddings: bool = Field(True, description="whether the output reads the table of word embeddings")
    architectures: list[str] | None = Field(None, description="classes that the file was saved from")

    @classmethod
    def _prepared(cls, values: dict[str, Any]) -> dict[str, Any]:
        values = {name: value for name, value in values.items() if value is not None or name in _OPTIONAL_TOKENS}
        labels = merged_labels(*(values.pop(name, None) for name in LABEL_KEYS))
        return values if labels is None else {**values, "id2label": labels}

    def _check(self) -> None:
        for name in ("pad_token_id", *TOKENS):
            if (number := getattr(self, name)) is not None and number >= self.vocab_size:
                raise ValueError(f"{name}={number} is outside the vocabulary of {self.vocab_size}")
        check_labels(self.id2label)

    @property
    def init_range(self) -> float:
        """Standard deviation of new weights; see :meth:`Tower.init_scale`."""
        raise NotImplementedError

    @property
    def longest_with_gaps(self) -> int | None:
        """See :attr:`bertkit.BertConfig.longest_with_gaps`."""
        return 0 if self.tower(decoder=False).buckets else None

    @property
    def unused_row(self) -> int | None:
        """The row of word embeddings that gets no gradient; T5 has none, for its decoder begins with padding."""
        return None

    @property
    def encoder_depth(self) -> int:
        """Layers of the encoder."""
        return self.tower(decoder=False).layers

    @property
    def decoder_depth(self) -> int:
        """Layers of the decoder."""
        return self.tower(decoder=True).layers

    @property
    def has_last_norm(self) -> bool:
        """Whether a norm stands behind the last layer."""
        return self.tower(decoder=False).pre_norm

    @property
    def has_gate(self) -> bool:
        """Whether the feed-forward multiplies two products."""
        return self.tower(decoder=False).gated

    @property
    def has_one_product(self) -> bool:
        """The opposite of :attr:`has_gate`."""
        return not self.has_gate

    @property
    def differs_elsewhere(self) -> bool:
        """Whether other software would compute otherwise: never, unlike an encoder's."""
        return False

    @property
    def has_own_output(self) -> bool:
        """Whether the output has a matrix of its own, and does not read the table of word embeddings."""
        return not self.tie_word_embeddings

    @property
    def output_scale(self) -> float:
        """What the decoder's vectors are multiplied with before the output."""
        return 1.0

    @property
    def hidden_size(self) -> int:
        """Width D, under the name that encoders have for it."""
        return self.d_model

    @property
    def num_hidden_layers(self) -> int:
        """Layers of encoder and decoder together."""
        return self.encoder_depth + self.decoder_depth

    @property
    def max_input_length(self) -> int:
        """Tokens of the longest input; without a table of positions as many as memory holds."""
        return self.tower(decoder=False).positions or sys.maxsize

    @property
    def learning_rate(self) -> float:
        """Peak rate of fine-tuning with Adam, where none is given."""
        raise NotImplementedError

    def tower(self, decoder: bool) -> Tower:
        """The shape of the decoder, or of the encoder."""
        raise NotImplementedError

    def check_heads(self) -> None:
        """See that the heads divide the width."""
        for tower in (self.tower(decoder=False), self.tower(decoder=True)):
            if tower.head_width < 1 or (tower.biases and tower.head_width * tower.heads != self.d_model):
                raise ConfigError(
                    f"d_model must be a multiple of the attention heads, got {self.d_model} and {tower.heads}"
                )

    @classmethod
    def from_dict(cls, values: Mapping[str, Json]) -> Self:
        """Read the content of a published ``config.json``; every key must be known.

        Raises:
            ConfigError: as the constructor; also a setting that is not supported.
        """
        values = cls._canonical(dict(values))
        required = {**REQUIRED_VALUES, "is_encoder_decoder": (True,), **cls._required(values)}
        for key, allowed in required.items():
            if key in values and values[key] not in allowed:
                raise ConfigError(f"{key} is {values[key]!r:.80}; bertkit only supports {key}={allowed[0]!r}")
        passive = NO_EFFECT | required.keys()
        return cls(**{key: value for key, value in values.items() if key not in passive or key in cls.model_fields})

    @classmethod
    def _required(cls, values: Mapping[str, Json]) -> Mapping[str, tuple[Fixed, ...]]:
        """Keys that must be absent or have one of some values."""
        raise NotImplementedError

    @classmethod
    def _canonical(cls, values: dict[str, Json]) -> dict[str, Json]:
        """The content of a file with each setting in one form."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Json]:
        """The content of a ``config.json`` that other software reads."""
        values = self.model_dump()
        for name, field in type(self).model_fields.items():
            if (values[name] is None and field.default is None) or (name in OF_CALLS and not values[name]):
                del values[name]
        values["id2label"] = {str(number): label for number, label in self.id2label.items()}
        values["label2id"] = self.label2id
        return {**values, "is_encoder_decoder": "T5EncoderModel" not in (self.architectures or ())}


class BartConfig(EncoderDecoderConfig):
    """Shape of a BART (Lewis et al. 2019, section 2.1), or of an mBART (Liu et al. 2020): norms first, and one behind.

    The defaults are BART-large.
    """

    model_type: Literal["bart", "mbart"] = "bart"
    vocab_size: int = Field(50265, ge=1, le=4_000_000, description="tokens in the vocabulary")
    max_position_embeddings: int = Field(1024, ge=1, le=1_000_000, description="longest input and output in tokens")
    d_model: Size = Field(1024, description="width D of one token vector")
    encoder_layers: int = Field(12, ge=1, le=512, description="layers of the encoder")
    encoder_ffn_dim: int = Field(4096, ge=1, le=262_144, description="width inside its feed-forward")
    encoder_attention_heads: Size = Field(16, description="attention heads of the encoder")
    decoder_layers: int = Field(12, ge=1, le=512, description="layers of the decoder")
    decoder_ffn_dim: int = Field(4096, ge=1, le=262_144, description="width inside its feed-forward")
    decoder_attention_heads: Size = Field(16, description="attention heads of the decoder")
    activation_function: Activation = Field("gelu", description="inside the feed-forward")
    dropout: Probability = Field(0.1, description="dropout on hidden vectors")
    attention_dropout: Probability = Field(0.0, description="dropout on attention probabilities")
    activation_dropout: Probability = Field(0.0, description="dropout inside the feed-forward")
    init_std: float = Field(0.02, gt=0.0, le=10.0, description="sd of new weights")
    scale_embedding: bool = Field(False, description="whether word embeddings are multiplied with sqrt(d_model)")
    pad_token_id: int = Field(1, ge=0, description="id of padding")
    bos_token_id: int | None = Field(0, ge=0, description="id of the token before a text")
    eos_token_id: int = Field(2, ge=0, description="id of the token behind a text")
    decoder_start_token_id: int = Field(2, ge=0, description="first id that the decoder reads")
    forced_eos_token_id: int | None = Field(2, ge=0, description="id that generation ends with at its limit")
    id2label: dict[int, str] = Field(
        {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"}, description="name of each label, numbered from 0"
    )

    @classmethod
    def _prepared(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Files leave out what is the default elsewhere: three labels of a BART, two of an mBART."""
        named = any(values.get(name) is not None for name in LABEL_KEYS)
        if named or values.get("model_type") != "mbart":
            return super()._prepared(values)
        return super()._prepared({**values, "id2label": {0: "LABEL_0", 1: "LABEL_1"}})

    def _check(self) -> None:
        super()._check()
        if not self.tie_word_embeddings:
            raise ValueError("tie_word_embeddings is False; bertkit only supports tie_word_embeddings=True in a BART")

    @property
    def init_range(self) -> float:
        return self.init_std

    @property
    def learning_rate(self) -> float:
        return 3e-5  # the authors' recipe for summaries

    @property
    def unused_row(self) -> int | None:
        return self.pad_token_id

    def tower(self, decoder: bool) -> Tower:
        heads = self.decoder_attention_heads if decoder else self.encoder_attention_heads
        return Tower(
            width=self.d_model,
            layers=self.decoder_layers if decoder else self.encoder_layers,
            heads=heads,
            head_width=self.d_model // heads,
            inner_width=self.decoder_ffn_dim if decoder else self.encoder_ffn_dim,
            activation=self.activation_function,
            gated=False,
            pre_norm=self.model_type == "mbart",
            biases=True,
            eps=1e-5,  # torch's own
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            inner_dropout=self.activation_dropout,
            positions=self.max_position_embeddings,
            word_scale=self.d_model**0.5 if self.scale_embedding else 1.0,
        )

    @classmethod
    def _required(cls, values: Mapping[str, Json]) -> Mapping[str, tuple[Fixed, ...]]:
        pre_norm = values.get("model_type") == "mbart"
        return {
            "normalize_before": (pre_norm,),
            "add_final_layer_norm": (pre_norm,),
            "normalize_embedding": (True,),
            "static_position_embeddings": (False,),
            "extra_pos_embeddings": (2,),
            "add_bias_logits": (False,),
            "encoder_layerdrop": (0,),
            "decoder_layerdrop": (0,),
            "num_hidden_layers": (_number(values.get("encoder_layers", 12)),),  # a second name
        }

    @classmethod
    def _canonical(cls, values: dict[str, Json]) -> dict[str, Json]:
        if isinstance(act := values.get("activation_function"), str):
            values["activation_function"] = SAME_ACTIVATIONS.get(act, act)
        if (rate := values.pop("classif_dropout", None)) is not None:  # the name in old files
            values.setdefault("classifier_dropout", rate)
        if values.pop("force_bos_token_to_be_generated", None) is True:
            values.setdefault("forced_bos_token_id", values.get("bos_token_id", 0))
        if values.get("model_type") != "mbart":
            return values
        if values.get("decoder_start_token_id") is None:
            values["decoder_start_token_id"] = values.get("bos_token_id", 0)
        if isinstance(names := values.get("architectures"), list):  # here one class serves both families
            values["architectures"] = [
                re.sub("^MBart", "Bart", name) if isinstance(name, str) else name for name in names
            ]
        return values

    def to_dict(self) -> dict[str, Json]:
        values = super().to_dict()
        if self.model_type == "mbart" and self.architectures is not None:
            values["architectures"] = [re.sub("^Bart", "MBart", name) for name in self.architectures]
        return values


class T5Config(EncoderDecoderConfig):
    """Shape of a T5 (Raffel et al. 2020, section 2.1) or of a T5 v1.1 (Flan-T5): gated GELU, an output of its own.

    The defaults are T5-small.
    """

    model_type: Literal["t5"] = "t5"
    vocab_size: int = Field(32128, ge=1, le=4_000_000, description="tokens in the vocabulary")
    d_model: Size = Field(512, description="width D of one token vector")
    d_kv: Size = Field(64, description="width H of one attention head")
    d_ff: int = Field(2048, ge=1, le=262_144, description="width inside the feed-forward")
    num_layers: int = Field(6, ge=1, le=512, description="layers of the encoder")
    num_decoder_layers: int | None = Field(None, ge=1, le=512, description="layers of the decoder; None: as many")
    num_heads: Size = Field(8, description="attention heads")
    relative_attention_num_buckets: int = Field(32, ge=4, le=4096, description="biases for distances")
    relative_attention_max_distance: int = Field(
        128, ge=2, le=1_000_000, description="distance from which all share one"
    )
    dropout_rate: Probability = Field(0.1, description="dropout on hidden vectors and attention probabilities")
    layer_norm_epsilon: float = Field(1e-6, gt=0.0, le=1.0, description="added to the mean square")
    initializer_factor: float = Field(1.0, gt=0.0, le=10.0, description="of the standard deviations of new weights")
    feed_forward_proj: Literal["relu", "gelu", "gelu_new", "gated-relu", "gated-gelu", "gated-gelu_new"] = Field(
        "relu", description="activation inside the feed-forward; gated: multiplied with another product"
    )
    scale_decoder_outputs: bool | None = Field(
        None, description="whether the output is divided by sqrt(d_model); None: if it reads the word embeddings"
    )
    pad_token_id: int = Field(0, ge=0, description="id of padding")
    eos_token_id: int = Field(1, ge=0, description="id of the token behind a text")
    decoder_start_token_id: int = Field(0, ge=0, description="first id that the decoder reads")

    @property
    def init_range(self) -> float:
        return self.initializer_factor

    @property
    def learning_rate(self) -> float:
        return 3e-4  # its authors use 1e-3, with Adafactor (Raffel et al. 2020, section 3.1.2)

    @property
    def output_scale(self) -> float:
        scaled = self.tie_word_embeddings if self.scale_decoder_outputs is None else self.scale_decoder_outputs
        return self.d_model**-0.5 if scaled else 1.0

    def tower(self, decoder: bool) -> Tower:
        gated, activation = FEED_FORWARDS[self.feed_forward_proj]
        return Tower(
            width=self.d_model,
            layers=(self.num_decoder_layers or self.num_layers) if decoder else self.num_layers,
            heads=self.num_heads,
            head_width=self.d_kv,
            inner_width=self.d_ff,
            activation=activation,
            gated=gated,
            pre_norm=True,
            biases=False,
            eps=self.layer_norm_epsilon,
            dropout=self.dropout_rate,
            attention_dropout=self.dropout_rate,
            inner_dropout=self.dropout_rate,
            buckets=self.relative_attention_num_buckets,
            max_distance=self.relative_attention_max_distance,
        )

    @classmethod
    def _required(cls, values: Mapping[str, Json]) -> Mapping[str, tuple[Fixed, ...]]:
        gated, activation = FEED_FORWARDS[str(values.get("feed_forward_proj", "relu"))]
        # The first two say the same again; the last is False where the encoder was saved alone.
        return {"is_gated_act": (gated,), "dense_act_fn": (activation,), "is_encoder_decoder": (True, False)}

    @classmethod
    def _canonical(cls, values: dict[str, Json]) -> dict[str, Json]:
        values.pop("n_positions", None)  # of the training data; there is no table
        kind = values.get("feed_forward_proj")
        if kind is None:
            values.pop("feed_forward_proj", None)
        elif str(kind) not in FEED_FORWARDS:
            raise ConfigError(f"feed_forward_proj = {kind!r:.80}: expected one of {', '.join(FEED_FORWARDS)}")
        return values


#: By ``model_type``.
CONFIG_CLASSES: Mapping[str, type[EncoderDecoderConfig]] = {"bart": BartConfig, "mbart": BartConfig, "t5": T5Config}
assert tuple(CONFIG_CLASSES) == ENCODER_DECODERS


def _number(value: Json) -> Fixed:
    return value if isinstance(value, int) else None
