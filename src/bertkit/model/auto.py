"""``AutoModel...``: the class and the family are chosen by the ``model_type`` in the checkpoint's config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from bertkit.checkpoints.huggingface import config_path
from bertkit.checkpoints.names import TABLES
from bertkit.config.bert_config import BertConfig
from bertkit.errors import InputError
from bertkit.model.loading import load_model
from bertkit.model.models import (
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForNextSentencePrediction,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    ElectraForPreTraining,
)
from bertkit.model.padded import PackedModel
from bertkit.system.model_sources import resolve

#: The classes by the names that ``config.json`` files list under ``architectures``.
MODEL_CLASSES: dict[str, type[PackedModel]] = {
    cls.__name__: cls
    for cls in (
        BertModel,
        BertForPreTraining,
        BertForMaskedLM,
        BertForNextSentencePrediction,
        BertForSequenceClassification,
        BertForTokenClassification,
        BertForQuestionAnswering,
        BertForMultipleChoice,
        ElectraForPreTraining,
    )
}


class _AutoModel:
    """Chooses the class by the ``model_type`` of the checkpoint's config; has no instances."""

    #: Class by ``model_type``. One class serves all families that have such a head.
    classes: ClassVar[Mapping[str, str]] = {}

    def __new__(cls) -> Self:
        raise InputError(
            f"{cls.__name__} is not a model: call {cls.__name__}.from_pretrained(name_or_path), or from_config(config)"
        )

    @classmethod
    def from_config(cls, config: BertConfig) -> Any:
        """A new model with random weights, in the class for the config's family.

        Raises:
            ConfigError: the family has no such head.
        """
        return MODEL_CLASSES[cls.classes[config.model_type]](config)

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, **options: Any) -> Any:
        """Load a checkpoint into the class for its family; arguments and errors as for :func:`load_model`.

        Raises:
            CheckpointError: also a ``model_type`` that this version does not read, and a family without such a head;
                lists what there is.
        """
        path = resolve(name_or_path, revision=options.pop("revision", None))
        config = BertConfig.from_json_file(config_path(path))
        return load_model(MODEL_CLASSES[cls.classes[config.model_type]], path, **options)


class AutoModel(_AutoModel):
    """The bare encoder."""

    classes: ClassVar[Mapping[str, str]] = dict.fromkeys(TABLES, "BertModel")


class AutoModelForPreTraining(_AutoModel):
    """What the family was pre-trained with: masked LM alone, or with next sentence (BERT) or sentence order (ALBERT);
    replaced tokens (ELECTRA).
    """

    classes: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(TABLES, "BertForMaskedLM"),
        **dict.fromkeys(("bert", "albert"), "BertForPreTraining"),
        "electra": "ElectraForPreTraining",
    }


class AutoModelForMaskedLM(_AutoModel):
    """Masked LM."""

    classes: ClassVar[Mapping[str, str]] = dict.fromkeys(TABLES, "BertForMaskedLM")


class AutoModelForNextSentencePrediction(_AutoModel):
    """Next sentence; BERT only."""

    classes: ClassVar[Mapping[str, str]] = dict.fromkeys(TABLES, "BertForNextSentencePrediction")


class AutoModelForSequenceClassification(_AutoModel):
    """One label, several labels or a number for a sentence or pair."""

    classes: ClassVar[Mapping[str, str]] = dict.fromkeys(TABLES, "BertForSequenceClassification")


class AutoModelForTokenClassification(_AutoModel):
    """A label for each token."""

    classes: ClassVar[Mapping[str, str]] = dict.fromkeys(TABLES, "BertForTokenClassification")


class AutoModelForQuestionAnswering(_AutoModel):
    """Start and end of an answer."""

    classes: ClassVar[Mapping[str, str]] = dict.fromkeys(TABLES, "BertForQuestionAnswering")


class AutoModelForMultipleChoice(_AutoModel):
    """The right one of several continuations."""

    classes: ClassVar[Mapping[str, str]] = dict.fromkeys(TABLES, "BertForMultipleChoice")
