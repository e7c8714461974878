"""Ids and tokens: the part of every tokenizer that is only look-up."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, ClassVar, SupportsIndex, overload

from tokenizers import Tokenizer

from bertkit.errors import InputError
from bertkit.tokenization import templates
from bertkit.tokenization.vocabulary import PUBLIC_NAMES, MergedVocabulary, TokenTable

#: What loses its blanks after words were joined by spaces: contractions and punctuation.
_LOOSE = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")


class Decoder:
    """Special tokens, conversion between tokens and ids, and decoding."""

    #: The columns of a call that asks for nothing else.
    model_input_names: ClassVar[tuple[str, ...]] = ("input_ids", "token_type_ids", "attention_mask")
    #: The special tokens, as in transformers: None where a family has no such token.
    unk_token: str
    sep_token: str
    pad_token: str
    cls_token: str
    mask_token: str
    bos_token: str
    eos_token: str
    unk_token_id: int
    sep_token_id: int
    pad_token_id: int
    cls_token_id: int
    mask_token_id: int
    bos_token_id: int
    eos_token_id: int
    #: Where the special tokens of a row stand.
    template: templates.Template = templates.BERT

    def __init__(self, vocabulary: TokenTable, engine: Tokenizer, clean_up_tokenization_spaces: bool) -> None:
        self._vocabulary = vocabulary
        self._engine = engine
        self.clean_up_tokenization_spaces = clean_up_tokenization_spaces
        self._ids = {**vocabulary.vocab, **{token.content: token.id for token in vocabulary.added}}
        self._tokens = sorted(self._ids, key=self._ids.__getitem__)
        names = vocabulary.special_tokens
        for name in PUBLIC_NAMES:
            setattr(self, name, names.get(name))
            setattr(self, f"{name}_id", self._ids[names[name]] if name in names else None)

    def __len__(self) -> int:
        """Number of tokens, including added ones."""
        return len(self._ids)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self):,} tokens)"

    @property
    def vocab_size(self) -> int:
        """Number of tokens without those added to the vocabulary."""
        return len(self._vocabulary.vocab)

    @property
    def vocab(self) -> dict[str, int]:
        """Token to id, including added tokens: a copy."""
        return dict(self._ids)

    def get_vocab(self) -> dict[str, int]:
        """The same as :attr:`vocab`."""
        return self.vocab

    @property
    def special_tokens_map(self) -> dict[str, str]:
        """The special tokens by name: ``unk_token``, ``sep_token`` and so on."""
        return self._vocabulary.special_tokens

    @property
    def all_special_tokens(self) -> list[str]:
        """The special tokens, including added ones."""
        return [token.content for token in self._vocabulary.never_split if token.special]

    @property
    def all_special_ids(self) -> list[int]:
        """Ids of :attr:`all_special_tokens`."""
        return [self._ids[token] for token in self.all_special_tokens]

    def num_special_tokens_to_add(self, pair: bool = False) -> int:
        """Number of special tokens in a row."""
        return self.template.num_special(pair)

    @overload
    def convert_tokens_to_ids(self, tokens: str) -> int: ...
    @overload
    def convert_tokens_to_ids(self, tokens: list[str] | tuple[str, ...]) -> list[int]: ...
    def convert_tokens_to_ids(self, tokens: str | Iterable[str]) -> int | list[int]:
        """Id of a token, or ids of several; unknown tokens get the id of ``unk_token``."""
        if isinstance(tokens, str):
            return self._ids.get(tokens, self.unk_token_id)
        return [self._ids.get(token, self.unk_token_id) for token in tokens]

    @overload
    def convert_ids_to_tokens(self, ids: int, skip_special_tokens: bool = False) -> str: ...
    @overload
    def convert_ids_to_tokens(self, ids: Iterable[int], skip_special_tokens: bool = False) -> list[str]: ...
    def convert_ids_to_tokens(self, ids: int | Iterable[int], skip_special_tokens: bool = False) -> str | list[str]:
        """Token of an id, or tokens of ids.

        Raises:
            InputError: an id without a token (transformers returns None).
        """
        numbers = _numbers(ids)
        if isinstance(numbers, int):
            return self._tokens[self._check(numbers)]
        skip = set(self.all_special_ids) if skip_special_tokens else set()
        return [self._tokens[self._check(number)] for number in numbers if number not in skip]

    def _check(self, number: SupportsIndex) -> int:
        whole = operator.index(number) if hasattr(number, "__index__") and not isinstance(number, bool) else -1
        if not 0 <= whole < len(self._tokens):
            raise InputError(f"{number!r} is not the id of a token: ids are 0 to {len(self._tokens) - 1:,}")
        return whole

    def _check_words(self, words: bool) -> None:
        """Refuse words where they would not be tokenized as in a text."""
        if words and isinstance(self._vocabulary, MergedVocabulary) and not self._vocabulary.add_prefix_space:
            raise InputError(
                f"{type(self).__name__} takes words without the blank before them for parts of words; for texts given "
                "as words load it with add_prefix_space=True"
            )

    def decode(
        self, token_ids: Any, skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool | None = None
    ) -> Any:
        """The text of some ids, or a list of texts for rows of ids.

        Args:
            token_ids: an id; a list, array or tensor of ids; or rows of these.
            skip_special_tokens: omit [CLS], [SEP], [PAD] and so on.
            clean_up_tokenization_spaces: None means the tokenizer's own setting. Without effect on byte pair encoding,
                whose tokens hold the blanks of the text.

        Raises:
            InputError: an id without a token (transformers drops it).
        """
        numbers = _numbers(token_ids)
        if isinstance(numbers, int):
            numbers = [numbers]
        if numbers and isinstance(numbers[0], list | tuple):
            return [self.decode(row, skip_special_tokens, clean_up_tokenization_spaces) for row in numbers]
        text = self._engine.decode([self._check(number) for number in numbers], skip_special_tokens=skip_special_tokens)
        clean_up = self.clean_up_tokenization_spaces
        if clean_up_tokenization_spaces is not None:
            clean_up = clean_up_tokenization_spaces
        if clean_up and not isinstance(self._vocabulary, MergedVocabulary):
            for loose in _LOOSE:
                text = text.replace(loose, loose.strip())
        return text

    def batch_decode(
        self,
        sequences: Iterable[Iterable[int]],
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool | None = None,
    ) -> list[str]:
        """Texts of rows of ids."""
        return [self.decode(row, skip_special_tokens, clean_up_tokenization_spaces) for row in sequences]


def _numbers(ids: Any) -> Any:
    if isinstance(ids, int):
        return ids
    ids = ids.tolist() if hasattr(ids, "tolist") else list(ids)
    if isinstance(ids, list):
        return [row.tolist() if hasattr(row, "tolist") else row for row in ids]
    return ids
