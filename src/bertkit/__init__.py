"""BERT, whole: tokenizer, packed encoder, strict loading, fine-tuning, pipelines.

The public names are loaded when first used, so ``import bertkit`` is quick and does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_MODULE_OF = {
    **dict.fromkeys(
        (
            "BertModel",
            "BertForPreTraining",
            "BertForMaskedLM",
            "BertForNextSentencePrediction",
            "BertForSequenceClassification",
            "BertForTokenClassification",
            "BertForQuestionAnswering",
            "BertForMultipleChoice",
            "ElectraForPreTraining",
        ),
        "bertkit.model.models",
    ),
    **dict.fromkeys(
        (
            "AlbertForPreTraining",
            *(
                f"{family}{head}"
                for family in ("Albert", "Camembert", "DistilBert", "Electra", "Roberta", "XLMRoberta")
                for head in (
                    "Model",
                    "ForMaskedLM",
                    "ForMultipleChoice",
                    "ForQuestionAnswering",
                    "ForSequenceClassification",
                    "ForTokenClassification",
                )
            ),
        ),
        "bertkit.model.model_aliases",
    ),
    **dict.fromkeys(
        (
            "AutoModel",
            "AutoModelForMaskedLM",
            "AutoModelForMultipleChoice",
            "AutoModelForNextSentencePrediction",
            "AutoModelForPreTraining",
            "AutoModelForQuestionAnswering",
            "AutoModelForSequenceClassification",
            "AutoModelForTokenClassification",
        ),
        "bertkit.model.auto",
    ),
    **dict.fromkeys(
        (
            "AlbertTokenizer",
            "AlbertTokenizerFast",
            "AutoTokenizer",
            "BasicTokenizer",
            "BertTokenizer",
            "BertTokenizerFast",
            "CamembertTokenizer",
            "CamembertTokenizerFast",
            "DistilBertTokenizer",
            "DistilBertTokenizerFast",
            "ElectraTokenizer",
            "ElectraTokenizerFast",
            "FullTokenizer",
            "RobertaTokenizer",
            "RobertaTokenizerFast",
            "WordpieceTokenizer",
            "XLMRobertaTokenizer",
            "XLMRobertaTokenizerFast",
        ),
        "bertkit.tokenization",
    ),
    **dict.fromkeys(
        (
            "BertkitError",
            "CheckpointError",
            "ConfigError",
            "DataError",
            "InputError",
            "MissingExtraError",
            "ResourceError",
            "TrainingError",
        ),
        "bertkit.errors",
    ),
    **dict.fromkeys(("BertConfig", "AutoConfig"), "bertkit.config.bert_config"),
    **dict.fromkeys(
        (
            "AlbertConfig",
            "CamembertConfig",
            "DistilBertConfig",
            "ElectraConfig",
            "RobertaConfig",
            "XLMRobertaConfig",
        ),
        "bertkit.config.config_aliases",
    ),
    "AdamW": "bertkit.optim",
    "BertClassifier": "bertkit.training.finetuning.estimator",
    "Callback": "bertkit.training.trainer.callbacks",
    "FinetuneConfig": "bertkit.training.finetuning.finetune_settings",
    "finetune": "bertkit.training.finetuning.finetune",
    "pipeline": "bertkit.inference.pipelines",
}

__all__ = ["__version__", *sorted(_MODULE_OF)]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'bertkit' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
