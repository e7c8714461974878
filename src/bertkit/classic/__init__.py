"""The original BERT code's names, thin over the rest of this package; google-research/bert, Devlin et al. 2019.

Each module is named as there, so that only the import line of old code changes::

    from bertkit.classic import modeling, optimization, tokenization
    from bertkit.classic.run_classifier import DataProcessor, InputExample

The modules are ``create_pretraining_data``, ``modeling``, ``optimization``, ``run_classifier`` and ``tokenization``;
what is in them can be had from :mod:`bertkit.classic` itself. Importing it brings no torch; using what needs it does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bertkit.classic.create_pretraining_data import (
        MaskedLmInstance,
        Sentence,
        TokenizedDocument,
        TrainingInstance,
        create_instances_from_document,
        create_masked_lm_predictions,
        create_training_instances,
        instances_from_documents,
        truncate_seq_pair,
    )
    from bertkit.classic.modeling import BertConfig, BertModel, gather_indexes, gelu, get_shape_list
    from bertkit.classic.optimization import AdamWeightDecayOptimizer, create_optimizer
    from bertkit.classic.run_classifier import (
        ColaProcessor,
        DataProcessor,
        InputExample,
        InputFeatures,
        MrpcProcessor,
        convert_examples_to_features,
        convert_single_example,
    )
    from bertkit.classic.tokenization import (
        BasicTokenizer,
        FullTokenizer,
        WordpieceTokenizer,
        convert_by_vocab,
        convert_ids_to_tokens,
        convert_to_unicode,
        convert_tokens_to_ids,
        load_vocab,
        whitespace_tokenize,
    )

#: Module to what it has; loaded when first used.
_NAMES = {
    "create_pretraining_data": (
        "MaskedLmInstance",
        "Sentence",
        "TokenizedDocument",
        "TrainingInstance",
        "create_instances_from_document",
        "create_masked_lm_predictions",
        "create_training_instances",
        "instances_from_documents",
        "truncate_seq_pair",
    ),
    "modeling": ("BertConfig", "BertModel", "gather_indexes", "gelu", "get_shape_list"),
    "optimization": ("AdamWeightDecayOptimizer", "create_optimizer"),
    "run_classifier": (
        "ColaProcessor",
        "DataProcessor",
        "InputExample",
        "InputFeatures",
        "MrpcProcessor",
        "convert_examples_to_features",
        "convert_single_example",
    ),
    "tokenization": (
        "BasicTokenizer",
        "FullTokenizer",
        "WordpieceTokenizer",
        "convert_by_vocab",
        "convert_ids_to_tokens",
        "convert_to_unicode",
        "convert_tokens_to_ids",
        "load_vocab",
        "whitespace_tokenize",
    ),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "AdamWeightDecayOptimizer",
    "BasicTokenizer",
    "BertConfig",
    "BertModel",
    "ColaProcessor",
    "DataProcessor",
    "FullTokenizer",
    "InputExample",
    "InputFeatures",
    "MaskedLmInstance",
    "MrpcProcessor",
    "Sentence",
    "TokenizedDocument",
    "TrainingInstance",
    "WordpieceTokenizer",
    "convert_by_vocab",
    "convert_examples_to_features",
    "convert_ids_to_tokens",
    "convert_single_example",
    "convert_to_unicode",
    "convert_tokens_to_ids",
    "create_instances_from_document",
    "create_masked_lm_predictions",
    "create_optimizer",
    "create_training_instances",
    "gather_indexes",
    "gelu",
    "get_shape_list",
    "instances_from_documents",
    "load_vocab",
    "truncate_seq_pair",
    "whitespace_tokenize",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return import_module(f"{__name__}.{name}")
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_NAMES])
