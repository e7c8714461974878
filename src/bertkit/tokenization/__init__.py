"""Text to token ids and back.

:class:`AutoTokenizer` finds the right class for the files at hand; :class:`BertTokenizer` and its relatives are the
ones to use. :class:`BasicTokenizer`, :class:`WordpieceTokenizer` and
:class:`FullTokenizer` are the readable reference, named as in the original code, that it is tested against.
"""

from __future__ import annotations

from bertkit.tokenization.base import PreTrainedTokenizer
from bertkit.tokenization.encoding import BatchEncoding
from bertkit.tokenization.normalize import BasicTokenizer
from bertkit.tokenization.ragged import Ragged
from bertkit.tokenization.roberta import RobertaTokenizer
from bertkit.tokenization.tokenizer import BertTokenizer, DistilBertTokenizer, ElectraTokenizer
from bertkit.tokenization.vocabulary import AddedToken
from bertkit.tokenization.wordpiece import FullTokenizer, WordpieceTokenizer, load_vocab

__all__ = [
    "AddedToken",
    "BasicTokenizer",
    "BatchEncoding",
    "BertTokenizer",
    "DistilBertTokenizer",
    "ElectraTokenizer",
    "FullTokenizer",
    "PreTrainedTokenizer",
    "Ragged",
    "RobertaTokenizer",
    "WordpieceTokenizer",
    "load_vocab",
]
