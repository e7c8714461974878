"""Text to token ids and back.

:class:`AutoTokenizer` chooses the class that fits the files: :class:`BertTokenizer` or one of its relatives.
:class:`BasicTokenizer`, :class:`WordpieceTokenizer` and :class:`FullTokenizer`, named as in the original code, are the
readable reference that BERT's tokenizer is tested against. The names load when first used.

All tokenizers are fast, so ``BertTokenizerFast`` and the like are aliases: ``BertTokenizerFast is BertTokenizer``.
"""

from __future__ import annotations

from bertkit.system.lazy_names import lazy_names

#: Module to the public names in it.
_NAMES = {
    "bertkit.ragged": "Ragged",
    "bertkit.tokenization.auto_tokenizer": "AutoTokenizer",
    "bertkit.tokenization.batch_encoding": "BatchEncoding",
    "bertkit.tokenization.bert_tokenizer": """
        BertTokenizer BertTokenizerFast DistilBertTokenizer DistilBertTokenizerFast ElectraTokenizer
        ElectraTokenizerFast MPNetTokenizer MPNetTokenizerFast
    """,
    "bertkit.tokenization.gemma_tokenizer": "GemmaTokenizer GemmaTokenizerFast",
    "bertkit.tokenization.pretrained_tokenizer": "PreTrainedTokenizer",
    "bertkit.tokenization.reference": "BasicTokenizer FullTokenizer WordpieceTokenizer load_vocab",
    "bertkit.tokenization.roberta_tokenizer": """
        BartTokenizer BartTokenizerFast ModernBertTokenizer RobertaTokenizer RobertaTokenizerFast
    """,
    "bertkit.tokenization.unigram_tokenizers": """
        AlbertTokenizer AlbertTokenizerFast CamembertTokenizer CamembertTokenizerFast DebertaV2Tokenizer
        DebertaV2TokenizerFast T5Tokenizer T5TokenizerFast XLMRobertaTokenizer XLMRobertaTokenizerFast
    """,
    "bertkit.tokenization.vocabulary": "AddedToken",
}
__getattr__, __all__ = lazy_names(__name__, _NAMES)


def __dir__() -> list[str]:
    return __all__
