"""The config of any kind of model, by the ``model_type`` in its file, and which class has the head for a task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from bertkit.config.bert_config import BertConfig
from bertkit.config.config_file import read_config
from bertkit.config.families import ENCODER_DECODERS
from bertkit.errors import CheckpointError
from bertkit.system.untrusted_files import Json

if TYPE_CHECKING:  # most models are encoders, and every command waits for what is imported
    from bertkit.config.encoder_decoder_config import EncoderDecoderConfig

AnyConfig: TypeAlias = "BertConfig | EncoderDecoderConfig"

_OF_BART = {
    "BertModel": "BartModel",
    "BertForMaskedLM": "BartForConditionalGeneration",
    "BertForSequenceClassification": "BartForSequenceClassification",
    "BertForQuestionAnswering": "BartForQuestionAnswering",
}
#: By ``model_type`` of an encoder-decoder: class of an encoder -> its own class that does the same.
COUNTERPARTS: Mapping[str, Mapping[str, str]] = {
    "bart": _OF_BART,
    "mbart": _OF_BART,
    "t5": {"BertModel": "T5EncoderModel"},
}
_WRITES = (
    "it writes {0} as text: use 'bertkit finetune text2text' and pipeline('text2text-generation'), or for {1}, BART "
    "or an encoder, such as RoBERTa"
)
_AN_ENCODER = "use an encoder, such as RoBERTa or DeBERTa-v3"
#: Class of an encoder -> what an encoder-decoder that does not do the same lacks, and what to use instead.
_INSTEAD = {
    "BertForSequenceClassification": ("classifier", _WRITES.format("a label", "a classifier")),
    "BertForQuestionAnswering": ("span head", _WRITES.format("an answer", "answers that are pieces of a text")),
    "BertForMaskedLM": (
        "mask token",
        "T5 fills <extra_id_0>, with 'bertkit generate' or pipeline('text2text-generation')",
    ),
    "BertForTokenClassification": ("head for tokens", _AN_ENCODER),
    "BertForMultipleChoice": ("head that compares choices", _AN_ENCODER),
    "BertForNextSentencePrediction": ("next-sentence head", "use a BERT, which was trained with one"),
}


def is_encoder_decoder(file: Path) -> bool:
    """Whether a ``config.json`` is that of an encoder-decoder; CheckpointError for a damaged file."""
    return _model_type(file) in ENCODER_DECODERS


def config_class(model_type: Json) -> type[AnyConfig]:
    """The class for a ``model_type``; that of encoders for one that is unknown, which it refuses, or is not given."""
    if model_type not in ENCODER_DECODERS:
        return BertConfig
    from bertkit.config.encoder_decoder_config import CONFIG_CLASSES

    return CONFIG_CLASSES[str(model_type)]


def read_any_config(file: Path) -> AnyConfig:
    """The content of a ``config.json``: of an encoder-decoder, or of an encoder."""
    return config_class(_model_type(file)).from_json_file(file)


def read_config_for(model_class: str, file: Path) -> AnyConfig:
    """:func:`read_any_config` of a model that is used as ``model_class``; CheckpointError if it has no such head."""
    found = read_any_config(file)
    class_for(model_class, found.model_type, str(file))
    return found


def counterpart(model_class: str, file: Path) -> str:
    """:func:`class_for` of the family that a ``config.json`` is of."""
    return class_for(model_class, _model_type(file), str(file))


def class_for(model_class: str, model_type: str, where: str) -> str:
    """The class of a family that does what ``model_class`` of an encoder does: itself, or of :data:`COUNTERPARTS`."""
    if model_type not in COUNTERPARTS:
        return model_class
    found = COUNTERPARTS[model_type].get(model_class)
    if found is None:
        lacks, instead = _INSTEAD.get(model_class, (f"class like {model_class}", _AN_ENCODER))
        raise CheckpointError(f"{where}: {model_type} is an encoder-decoder without a {lacks}; {instead}")
    return found


def _model_type(file: Path) -> str:
    """What a ``config.json`` says; empty if that is no text."""
    found = read_config(file).get("model_type")
    return found if isinstance(found, str) else ""


def head_of(name: str) -> str:
    """The class of an encoder with the head of an encoder-decoder's class: ``BertForX`` of ``BartForX``."""
    return f"BertFor{name.partition('For')[2]}" if "For" in name else "BertModel"
