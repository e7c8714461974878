"""All of BERT: tokenizers, packed encoder, strict loading, fine-tuning, pipelines.

Public names are loaded when first used, so ``import bertkit`` is quick and does not import torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

__version__ = "0.2.0.dev0"

#: Module to the public names in it.
_NAMES = {
    "bertkit.model.models": """
        BertModel BertForPreTraining BertForMaskedLM BertForNextSentencePrediction BertForSequenceClassification
        BertForTokenClassification BertForQuestionAnswering BertForMultipleChoice
    """,
    "bertkit.model.replaced_tokens": "ElectraForPreTraining",
    "bertkit.model.auto": """
        AutoModel AutoModelForMaskedLM AutoModelForMultipleChoice AutoModelForNextSentencePrediction
        AutoModelForPreTraining AutoModelForQuestionAnswering AutoModelForSequenceClassification
        AutoModelForTokenClassification
    """,
    "bertkit.model.seq2seq.seq2seq_models": "BartModel T5EncoderModel T5Model",
    "bertkit.model.seq2seq.conditional_generation": """
        AutoModelForSeq2SeqLM BartForConditionalGeneration T5ForConditionalGeneration
    """,
    "bertkit.model.seq2seq.reading_heads": "BartForQuestionAnswering BartForSequenceClassification",
    "bertkit.tokenization": """
        AlbertTokenizer AlbertTokenizerFast AutoTokenizer BartTokenizer BartTokenizerFast BasicTokenizer
        BertTokenizer BertTokenizerFast CamembertTokenizer CamembertTokenizerFast DebertaV2Tokenizer
        DebertaV2TokenizerFast DistilBertTokenizer DistilBertTokenizerFast ElectraTokenizer ElectraTokenizerFast
        FullTokenizer GemmaTokenizer GemmaTokenizerFast ModernBertTokenizer MPNetTokenizer MPNetTokenizerFast
        RobertaTokenizer RobertaTokenizerFast T5Tokenizer T5TokenizerFast WordpieceTokenizer XLMRobertaTokenizer
        XLMRobertaTokenizerFast
    """,
    "bertkit.tokenization.batch_encoding": "BatchEncoding",
    "tokenizers": "AddedToken",
    "bertkit.errors": """
        BertkitError CheckpointError ConfigError DataError InputError MissingExtraError ResourceError
        TextError TrainingError
    """,
    "bertkit.config.bert_config": "AutoConfig BertConfig",
    "bertkit.config.encoder_decoder_config": "BartConfig T5Config",
    "bertkit.config.generation_settings": "GenerationSettings",
    "bertkit.config.config_aliases": """
        AlbertConfig CamembertConfig DebertaV2Config DistilBertConfig ElectraConfig ModernBertConfig MPNetConfig
        RobertaConfig XLMRobertaConfig
    """,
    "bertkit.habits.data_collators": """
        DataCollatorForLanguageModeling DataCollatorForMultipleChoice DataCollatorForSeq2Seq
        DataCollatorForTokenClassification DataCollatorForWholeWordMask DataCollatorWithPadding
        DefaultDataCollator default_data_collator
    """,
    "bertkit.habits.generation_config": "GenerationConfig",
    "bertkit.habits.message_levels": "logging",
    "bertkit.habits.own_models": "BertPreTrainedModel PreTrainedModel",
    "bertkit.habits.key_datasets": "KeyDataset KeyPairDataset",
    "bertkit.habits.learning_rates": """
        get_constant_schedule get_constant_schedule_with_warmup get_cosine_schedule_with_warmup
        get_cosine_with_hard_restarts_schedule_with_warmup get_inverse_sqrt_schedule get_linear_schedule_with_warmup
        get_polynomial_decay_schedule_with_warmup get_scheduler
    """,
    "bertkit.habits.seeds": "set_seed",
    "bertkit.habits.few_shot_data": "get_templated_dataset sample_dataset",
    "bertkit.habits.few_shot_model": "SetFitModel",
    "bertkit.habits.tokenizer_files": "PreTrainedTokenizerFast",
    "bertkit.habits.trainer": "Trainer",
    "bertkit.habits.trainer_callbacks": """
        EarlyStoppingCallback PrinterCallback TrainerCallback TrainerControl TrainerState
    """,
    "bertkit.habits.trainer_evaluation": "EvalPrediction",
    "bertkit.habits.trainer_schedules": "IntervalStrategy SchedulerType",
    "bertkit.habits.training_arguments": "TrainingArguments",
    "bertkit.optim": "AdamW",
    "bertkit.inference.vectorizer": "BertVectorizer",
    "bertkit.training.finetuning.estimator": "BertClassifier",
    "bertkit.training.finetuning.regressor": "BertRegressor",
    "bertkit.training.finetuning.tagger": "BertTagger",
    "bertkit.training.trainer.callbacks": "Callback",
    "bertkit.training.trainer.trackers": "MLflowCallback TensorBoardCallback",
    "bertkit.training.finetuning.finetune_settings": "FinetuneConfig",
    "bertkit.training.finetuning.finetune": "finetune",
    "bertkit.training.finetuning.several_heads": "finetune_heads",
    "bertkit.sentence_transformers": """
        CrossEncoder CrossEncoderTrainer CrossEncoderTrainingArguments InputExample SentenceTransformer
        SentenceTransformerTrainer SentenceTransformerTrainingArguments SimilarityFunction SparseEncoder
        SparseEncoderTrainer SparseEncoderTrainingArguments datasets evaluation losses models readers util
    """,
    "bertkit.bulk.predictor": "BatchPredictor",
    "bertkit.inference.analysis": "Analyzer analyze",
    "bertkit.inference.pipeline_base": "Pipeline",
    "bertkit.inference.pipelines": "pipeline",
    "bertkit.inference.feature_extraction": "FeatureExtractionPipeline",
    "bertkit.inference.fill_mask": "FillMaskPipeline",
    "bertkit.inference.question_answering": "QuestionAnsweringPipeline",
    "bertkit.inference.text_classification": "TextClassificationPipeline",
    "bertkit.inference.token_classification": "TokenClassificationPipeline",
    "bertkit.inference.sentence_encoder": "SentenceEncoder",
    "bertkit.inference.retrieval.grouped_texts": "find_clusters find_duplicates find_topics",
    "bertkit.inference.retrieval.search_index": "SearchIndex",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

#: The names that other software has for the model classes of each family. Here one class serves all families, so
#: ``RobertaModel is BertModel``; the config says which family a model belongs to.
_ALIASES = {
    f"{family}{head}": f"Bert{head}"
    for family in ("Albert Camembert DebertaV2 DistilBert Electra ModernBert MPNet Roberta XLMRoberta").split()
    for head in (
        "Model ForMaskedLM ForMultipleChoice ForQuestionAnswering ForSequenceClassification ForTokenClassification "
        "PreTrainedModel"
    ).split()
} | {"AlbertForPreTraining": "BertForPreTraining"}

#: Modules of public names, and where they are.
_MODULES = {name: f"bertkit.{name}" for name in ("sentence_transformers", "setfit", "static", "visualize")} | {
    "spark": "bertkit.bulk.spark"
}

__all__ = ["__version__", *sorted([*_MODULE_OF, *_ALIASES, *_MODULES])]


class _OtherModules:
    """Asked for modules of bertkit that do not exist: those that other libraries have, and advice."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> Any:
        if not name.startswith("bertkit."):
            return None
        from bertkit.system.other_modules import find

        return find(name)


sys.meta_path.append(_OtherModules)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    target = _ALIASES.get(name, name)
    if target not in _MODULE_OF:
        # Imported here, so that `import bertkit` stays quick.
        from bertkit.habit_table import instead_of
        from bertkit.system.lazy_names import unknown_name
        from bertkit.system.other_modules import SOURCES

        if name in SOURCES:  # a module of another library
            return import_module(f"bertkit.{name}")
        instead = None if name.startswith("_") else instead_of("import", name)
        plain = name.removeprefix("TF").removeprefix("Flax")
        if instead is None and plain != name and plain in __all__:
            instead = f"from bertkit import {plain} (PyTorch)"
        raise unknown_name("bertkit", name, instead)
    from bertkit.errors import needs_bertkit

    with needs_bertkit(f"bertkit.{name}"):
        value = getattr(import_module(_MODULE_OF[target]), target)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
