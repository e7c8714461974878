"""Text to token ids and back.

:class:`AutoTokenizer` finds the right class for the files at hand: :class:`BertTokenizer` or one of its relatives.
:class:`BasicTokenizer`, :class:`WordpieceTokenizer` and :class:`FullTokenizer` are the readable reference, named as in
the original code, that BERT's is tested against; :mod:`~bertkit.tokenization.byte_bpe` is that of RoBERTa's.
"""

from __future__ import annotations

from bertkit.tokenization.auto import AutoTokenizer
from bertkit.tokenization.base import PreTrainedTokenizer
from bertkit.tokenization.encoding import BatchEncoding
from bertkit.tokenization.normalize import BasicTokenizer
from bertkit.tokenization.ragged import Ragged
from bertkit.tokenization.roberta import RobertaTokenizer
from bertkit.tokenization.tokenizer import BertTokenizer, DistilBertTokenizer, ElectraTokenizer
from bertkit.tokenization.unigram_tokenizers import AlbertTokenizer, CamembertTokenizer, XLMRobertaTokenizer
from bertkit.tokenization.vocabulary import AddedToken
from bertkit.tokenization.wordpiece import FullTokenizer, WordpieceTokenizer, load_vocab

__all__ = [
    "AddedToken",
    "AlbertTokenizer",
    "AutoTokenizer",
    "BasicTokenizer",
    "BatchEncoding",
    "BertTokenizer",
    "CamembertTokenizer",
    "DistilBertTokenizer",
    "ElectraTokenizer",
    "FullTokenizer",
    "PreTrainedTokenizer",
    "Ragged",
    "RobertaTokenizer",
    "WordpieceTokenizer",
    "XLMRobertaTokenizer",
    "load_vocab",
]
