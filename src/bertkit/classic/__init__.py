"""The original BERT code's names, thin over the rest of this package; google-research/bert, Devlin et al. 2019.

Each module is named as there, so that only the import line of old code changes::

    from bertkit.classic import modeling, optimization, tokenization
    from bertkit.classic.run_classifier import DataProcessor, InputExample

The modules are ``create_pretraining_data``, ``modeling``, ``optimization``, ``run_classifier`` and ``tokenization``;
their names can also be imported from :mod:`bertkit.classic` itself. Importing it does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

#: The names of each module; loaded when first used.
_NAMES = {
    "create_pretraining_data": """
        MaskedLmInstance TrainingInstance create_float_feature create_instances_from_document create_int_feature
        create_masked_lm_predictions create_training_instances truncate_seq_pair write_instance_to_example_files
    """,
    "modeling": "BertConfig BertModel gather_indexes gelu get_shape_list",
    "optimization": "AdamWeightDecayOptimizer create_optimizer",
    "run_classifier": """
        ColaProcessor DataProcessor InputExample InputFeatures MrpcProcessor convert_examples_to_features
        convert_single_example
    """,
    "tokenization": """
        BasicTokenizer FullTokenizer WordpieceTokenizer convert_by_vocab convert_ids_to_tokens convert_to_unicode
        convert_tokens_to_ids load_vocab printable_text validate_case_matches_checkpoint whitespace_tokenize
    """,
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted(_MODULE_OF)


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
