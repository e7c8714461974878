"""``AutoModel...``: the class and the family are chosen by the ``model_type`` in the checkpoint's config."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

from bertkit.checkpoints.names import TABLES
from bertkit.config.any_config import COUNTERPARTS, AnyConfig, class_for, read_any_config
from bertkit.config.config_file import config_path
from bertkit.errors import InputError
from bertkit.model import models
from bertkit.model.loading import LoadOptions
from bertkit.model.padded import PackedModel
from bertkit.model.replaced_tokens import ElectraForPreTraining
from bertkit.system.model_sources import resolve

if TYPE_CHECKING:
    from bertkit.model.seq2seq.seq2seq_models import Seq2SeqModel

    #: For annotations: a model of any family, without and with a decoder.
    AnyModel = PackedModel | Seq2SeqModel

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


def class_named(name: str) -> type[AnyModel]:
    """The class with this name, of an encoder or of an encoder-decoder."""
    if name in MODEL_CLASSES:
        return MODEL_CLASSES[name]
    from bertkit.model.seq2seq.seq2seq_classes import SEQ2SEQ_CLASSES

    return SEQ2SEQ_CLASSES[name]


class _AutoModel:
    """Chooses the class by the ``model_type`` of the checkpoint's config; has no instances."""

    #: The class of most families, which serves all of them that have such a head.
    usual: ClassVar[str] = ""
    #: Class by ``model_type``.
    classes: ClassVar[Mapping[str, str]] = {}

    def __init_subclass__(cls, usual: str, **others: str) -> None:
        its = {kind: names[usual] for kind, names in COUNTERPARTS.items() if usual in names}
        cls.usual, cls.classes = usual, {**dict.fromkeys(TABLES, usual), **its, **others}

    def __new__(cls, *given: str | Path | AnyConfig, **options: Unpack[LoadOptions]) -> Self:
        raise InputError(
            f"{cls.__name__} is not a model: call {cls.__name__}.from_pretrained(name_or_path), or from_config(config)"
        )

    @classmethod
    def from_config(cls, config: AnyConfig) -> Any:
        """A new model with random weights, in the class for the config's family.

        Raises:
            ConfigError: the family has no such head.
        """
        return cls._class_for(config, "the config")(config)  # type: ignore[arg-type]  # which is of its family

    @classmethod
    def from_pretrained(cls, name_or_path: str | Path, **options: Unpack[LoadOptions]) -> Any:
        """Load a checkpoint into the class for its family; arguments and errors as for :func:`load_model`.

        Raises:
            CheckpointError: also a ``model_type`` that this version does not read, and a family without such a head;
                lists what there is.
        """
        path = resolve(name_or_path, revision=options.pop("revision", None))
        file = config_path(path)
        model = cls._class_for(read_any_config(file), str(file)).from_pretrained(path, **options)
        model.name_or_path = str(name_or_path)
        return model

    @classmethod
    def _class_for(cls, config: AnyConfig, where: str) -> type[AnyModel]:
        kind = config.model_type
        return class_named(cls.classes[kind] if kind in cls.classes else class_for(cls.usual, kind, where))


class AutoModel(_AutoModel, usual="BertModel", t5="T5Model"):
    """The bare model: of an encoder-decoder both halves."""


class AutoModelForPreTraining(
    _AutoModel,
    usual="BertForMaskedLM",
    bert="BertForPreTraining",
    albert="BertForPreTraining",
    electra="ElectraForPreTraining",
    t5="T5ForConditionalGeneration",
):
    """What the family was pre-trained with: masked LM alone, or with next sentence (BERT) or sentence order (ALBERT);
    replaced tokens (ELECTRA); writing what is missing (BART, T5).
    """


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
