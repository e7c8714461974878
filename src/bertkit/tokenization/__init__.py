"""Text to token ids and back.

:class:`AutoTokenizer` chooses the class that fits the files: :class:`BertTokenizer` or one of its relatives.
:class:`BasicTokenizer`, :class:`WordpieceTokenizer` and :class:`FullTokenizer`, named as in the original code, are the
readable reference that BERT's tokenizer is tested against.

All tokenizers are fast, so ``BertTokenizerFast`` and the like are aliases: ``BertTokenizerFast is BertTokenizer``.
"""

from __future__ import annotations

from bertkit.ragged import Ragged
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.batch_encoding import BatchEncoding
from bertkit.tokenization.bert_tokenizer import BertTokenizer, DistilBertTokenizer, ElectraTokenizer, MPNetTokenizer
from bertkit.tokenization.gemma_tokenizer import GemmaTokenizer
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.tokenization.reference import BasicTokenizer, FullTokenizer, WordpieceTokenizer, load_vocab
from bertkit.tokenization.roberta_tokenizer import ModernBertTokenizer, RobertaTokenizer
from bertkit.tokenization.unigram_tokenizers import (
    AlbertTokenizer,
    CamembertTokenizer,
    DebertaV2Tokenizer,
    T5Tokenizer,
    XLMRobertaTokenizer,
)
from bertkit.tokenization.vocabulary import AddedToken

AlbertTokenizerFast = AlbertTokenizer
BartTokenizer = BartTokenizerFast = RobertaTokenizer
BertTokenizerFast = BertTokenizer
CamembertTokenizerFast = CamembertTokenizer
DebertaV2TokenizerFast = DebertaV2Tokenizer
DistilBertTokenizerFast = DistilBertTokenizer
ElectraTokenizerFast = ElectraTokenizer
GemmaTokenizerFast = GemmaTokenizer
MPNetTokenizerFast = MPNetTokenizer
RobertaTokenizerFast = RobertaTokenizer
T5TokenizerFast = T5Tokenizer
XLMRobertaTokenizerFast = XLMRobertaTokenizer

__all__ = [
    "AddedToken",
    "AlbertTokenizer",
    "AlbertTokenizerFast",
    "AutoTokenizer",
    "BartTokenizer",
    "BartTokenizerFast",
    "BasicTokenizer",
    "BatchEncoding",
    "BertTokenizer",
    "BertTokenizerFast",
    "CamembertTokenizer",
    "CamembertTokenizerFast",
    "DebertaV2Tokenizer",
    "DebertaV2TokenizerFast",
    "DistilBertTokenizer",
    "DistilBertTokenizerFast",
    "ElectraTokenizer",
    "ElectraTokenizerFast",
    "FullTokenizer",
    "GemmaTokenizer",
    "GemmaTokenizerFast",
    "MPNetTokenizer",
    "MPNetTokenizerFast",
    "ModernBertTokenizer",
    "PreTrainedTokenizer",
    "Ragged",
    "RobertaTokenizer",
    "RobertaTokenizerFast",
    "T5Tokenizer",
    "T5TokenizerFast",
    "WordpieceTokenizer",
    "XLMRobertaTokenizer",
    "XLMRobertaTokenizerFast",
    "load_vocab",
]
