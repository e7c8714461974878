"""Which tokens continue a word, so that whole words can be masked, for tokenizers of every kind.

Word pieces say it themselves (``##s``). The tokens of byte-level BPE (``Ġword``), unigram pieces and Gemma's tokens
(``▁word``) hold the blank before a word, as in RoBERTa's and ALBERT's code. There a token of nothing but punctuation
and symbols is a word of its own too, as in BERT, and one that begins with an ideograph or kana begins a word, because
languages with those write no blanks. What follows such a sign without a blank (the second half of ``co-op``) is a part
of its word.
"""

from __future__ import annotations

import unicodedata

import numpy as np

from bertkit.ragged import Flags
from bertkit.tokenization.characters import FROZEN
from bertkit.tokenization.family_vocabularies import BYTE_CHARS, BpeVocabulary
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.tokenization.vocabulary import BLANK, Vocabulary

_BYTES = {char: byte for byte, char in enumerate(BYTE_CHARS)}
#: Hiragana and Katakana, with the marks among them.
_FIRST_KANA, _LAST_KANA = "\u3041", "\u30ff"


def continuing(tokenizer: PreTrainedTokenizer) -> Flags | None:
    """Whether each of the V tokens, added ones included, continues a word: bool ``(V,)``; None if nothing shows it."""
    vocabulary = tokenizer._vocabulary
    tokens = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    if isinstance(vocabulary, Vocabulary):
        prefix = vocabulary.prefix
        return np.array([token.startswith(prefix) for token in tokens], bool) if prefix else None
    if isinstance(vocabulary, BpeVocabulary):
        # Added tokens are written as they are, the others in characters that stand for bytes.
        texts = [_decoded(token) if token in vocabulary.vocab else token for token in tokens]
    else:
        texts = [token.replace(BLANK, " ") for token in tokens]
    # A character without a piece is a part of its word, whose blank is a piece before it.
    whole = {token.content for token in vocabulary.never_split} - {vocabulary.unk_token}
    return np.array([token not in whole and not _begins(text) for token, text in zip(tokens, texts, strict=True)], bool)


def _decoded(token: str) -> str:
    """The text of a token of byte-level BPE; U+FFFD where a character is not whole."""
    if not all(char in _BYTES for char in token):  # one that no merge makes
        return token
    return bytes(_BYTES[char] for char in token).decode("utf-8", "replace")


def _begins(text: str) -> bool:
    first = text[:1]
    if first.isspace() or (first and (FROZEN.is_chinese(first) or _FIRST_KANA <= first <= _LAST_KANA)):
        return True
    are_signs = (FROZEN.is_punctuation(char) or unicodedata.category(char).startswith("S") for char in text)
    return "\ufffd" not in text and all(are_signs)
