"""Text to token ids and back.

:class:`BertTokenizer` is the one to use. :class:`BasicTokenizer`, :class:`WordpieceTokenizer` and
:class:`FullTokenizer` are the readable reference, named as in the original code, that it is tested against.
"""

from __future__ import annotations

from bertkit.tokenization.encoding import BatchEncoding
from bertkit.tokenization.normalize import BasicTokenizer
from bertkit.tokenization.ragged import Ragged
from bertkit.tokenization.tokenizer import BertTokenizer
from bertkit.tokenization.vocabulary import AddedToken
from bertkit.tokenization.wordpiece import FullTokenizer, WordpieceTokenizer, load_vocab

__all__ = [
    "AddedToken",
    "BasicTokenizer",
    "BatchEncoding",
    "BertTokenizer",
    "FullTokenizer",
    "Ragged",
    "WordpieceTokenizer",
    "load_vocab",
]
