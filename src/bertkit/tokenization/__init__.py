"""Text to token ids and back.

:class:`AutoTokenizer` finds the right class for the files at hand: :class:`BertTokenizer` or one of its relatives.
:class:`BasicTokenizer`, :class:`WordpieceTokenizer` and :class:`FullTokenizer` are the readable reference, named as in
the original code, that BERT's is tested against; :mod:`~bertkit.tokenization.reference.byte_bpe` is that of RoBERTa's.

All tokenizers are fast ones, so ``BertTokenizerFast`` and its like are second names: ``BertTokenizerFast is
BertTokenizer``.
"""

from __future__ import annotations

from bertkit.ragged import Ragged
from bertkit.tokenization.auto_tokenizer import AutoTokenizer
from bertkit.tokenization.batch_encoding import BatchEncoding
from bertkit.tokenization.bert_tokenizer import BertTokenizer, DistilBertTokenizer, ElectraTokenizer
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.tokenization.reference.normalize import BasicTokenizer
from bertkit.tokenization.reference.wordpiece import FullTokenizer, WordpieceTokenizer, load_vocab
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
