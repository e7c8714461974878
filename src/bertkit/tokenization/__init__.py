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
from bertkit.tokenization.bert_tokenizer import BertTokenizer, DistilBertTokenizer, ElectraTokenizer
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.tokenization.reference import BasicTokenizer, FullTokenizer, WordpieceTokenizer, load_vocab
from bertkit.tokenization.roberta_tokenizer import RobertaTokenizer
from bertkit.tokenization.unigram_tokenizers import AlbertTokenizer, CamembertTokenizer, XLMRobertaTokenizer
from bertkit.tokenization.vocabulary import AddedToken

AlbertTokenizerFast = AlbertTokenizer
BertTokenizerFast = BertTokenizer
CamembertTokenizerFast = CamembertTokenizer
DistilBertTokenizerFast = DistilBertTokenizer
ElectraTokenizerFast = ElectraTokenizer
RobertaTokenizerFast = RobertaTokenizer
XLMRobertaTokenizerFast = XLMRobertaTokenizer

__all__ = [
    "AddedToken",
    "AlbertTokenizer",
    "AlbertTokenizerFast",
    "AutoTokenizer",
    "BasicTokenizer",
    "BatchEncoding",
    "BertTokenizer",
    "BertTokenizerFast",
    "CamembertTokenizer",
    "CamembertTokenizerFast",
    "DistilBertTokenizer",
    "DistilBertTokenizerFast",
    "ElectraTokenizer",
    "ElectraTokenizerFast",
    "FullTokenizer",
    "PreTrainedTokenizer",
    "Ragged",
    "RobertaTokenizer",
    "RobertaTokenizerFast",
    "WordpieceTokenizer",
    "XLMRobertaTokenizer",
    "XLMRobertaTokenizerFast",
    "load_vocab",
]
