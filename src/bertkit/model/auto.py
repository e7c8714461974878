"""``AutoModel...``: the class and the family are chosen by the ``model_type`` in the checkpoint's config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

from bertkit.checkpoints.huggingface import config_path
from bertkit.checkpoints.names import TABLES
from bertkit.config.bert_config import BertConfig
from bertkit.errors import InputError
from bertkit.model import models
from bertkit.model.loading import LoadOptions, load_model
from bertkit.model.padded import PackedModel
from bertkit.model.replaced_tokens import ElectraForPreTraining
from bertkit.system.model_sources import resolve

#: The classes by the names that ``config.json`` files list under ``architectures``.
MODEL_CLASSES: dict[str, type[PackedModel]] = {
    cls.__name__: cls
    for cls in (
        models.BertModel,
        models.BertForPreTraining,
        models.BertForMaskedLM,
        models.BertForNextSentencePrediction,
        models.BertForSequenceClassification,
        models.BertForTokenClassification,
        models.BertForQuestionAnswering,
        models.BertForMultipleChoice,
        ElectraForPreTraining,
    )
}


class _AutoModel:
    """Chooses the class by the ``model_type`` of the checkpoint's config; has no instances."""

    #: Class by ``model_type``. One class serves all families that have such a head.
    classes: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, usual: str = "") -> None:
        if usual:
            cls.classes = dict.fromkeys(TABLES, usual)

    def __new__(cls, *given: str | Path | BertConfig, **options: Unpack[LoadOptions]) -> Self:
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
    def from_pretrained(cls, name_or_path: str | Path, **options: Unpack[LoadOptions]) -> Any:
        """Load a checkpoint into the class for its family; arguments and errors as for :func:`load_model`.

        Raises:
            CheckpointError: also a ``model_type`` that this version does not read, and a family without such a head;
                lists what there is.
        """
        path = resolve(name_or_path, revision=options.pop("revision", None))
        config = BertConfig.from_json_file(config_path(path))
        return load_model(MODEL_CLASSES[cls.classes[config.model_type]], path, **options)


class AutoModel(_AutoModel, usual="BertModel"):
    """The bare encoder."""


class AutoModelForPreTraining(_AutoModel):
    """What the family was pre-trained with: masked LM alone, or with next sentence (BERT) or sentence order (ALBERT);
    replaced tokens (ELECTRA).
    """

    classes: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(TABLES, "BertForMaskedLM"),
        **dict.fromkeys(("bert", "albert"), "BertForPreTraining"),
        "electra": "ElectraForPreTraining",
    }


class AutoModelForMaskedLM(_AutoModel, usual="BertForMaskedLM"):
    """Masked LM."""


class AutoModelForNextSentencePrediction(_AutoModel, usual="BertForNextSentencePrediction"):
    """Next sentence; BERT only."""


class AutoModelForSequenceClassification(_AutoModel, usual="BertForSequenceClassification"):
    """One label, several labels or a number for a sentence or pair."""


class AutoModelForTokenClassification(_AutoModel, usual="BertForTokenClassification"):
    """A label for each token."""


class AutoModelForQuestionAnswering(_AutoModel, usual="BertForQuestionAnswering"):
    """Start and end of an answer."""


class AutoModelForMultipleChoice(_AutoModel, usual="BertForMultipleChoice"):
    """The right one of several continuations."""
