"""Ids and tokens: the part of every tokenizer that is only look-up."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, SupportsIndex, overload

import numpy as np

from bertkit.errors import InputError
from bertkit.habit_table import no_attribute
from bertkit.ragged import Ragged
from bertkit.tokenization import templates
from bertkit.tokenization.templates import assemble
from bertkit.tokenization.vocabulary import PUBLIC_NAMES, AddedToken, TokenTable

if TYPE_CHECKING:
    from tokenizers import Tokenizer

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
    model_max_length: int
    #: All tokenizers are as fast as this, and know offsets and words.
    is_fast: ClassVar[bool] = True
    #: What stands in ``token_type_ids`` at padding.
    pad_token_type_id: ClassVar[int] = 0
    #: What ``from_pretrained`` was given; empty for a tokenizer that was made otherwise.
    name_or_path: str = ""
    #: Makes the tokenizer's engine and the one without special tokens, once.
    _built: Callable[[], tuple[Tokenizer, Tokenizer]]

    def __init__(self, vocabulary: TokenTable, clean_up_tokenization_spaces: bool) -> None:
        self._vocabulary = vocabulary
        self.clean_up_tokenization_spaces = clean_up_tokenization_spaces
        self._ids = vocabulary.ids
        self._tokens = sorted(self._ids, key=self._ids.__getitem__)
        names = vocabulary.special_tokens
        for name in PUBLIC_NAMES:
            setattr(self, name, names.get(name))
            setattr(self, f"{name}_id", self._ids[names[name]] if name in names else None)

    @property
    def _engine(self) -> Tokenizer:
        return self._built()[0] if self.template.ends else self._bare

    @property
    def _bare(self) -> Tokenizer:
        return self._built()[1]

    def __getattr__(self, name: str) -> Any:
        raise no_attribute(self, "tokenizer.", name, PUBLIC_NAMES)

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

    @property
    def additional_special_tokens(self) -> list[str]:
        """The special tokens without a name of their own."""
        named = set(self.special_tokens_map.values())
        return [token for token in self.all_special_tokens if token not in named]

    @property
    def additional_special_tokens_ids(self) -> list[int]:
        """Ids of :attr:`additional_special_tokens`."""
        return [self._ids[token] for token in self.additional_special_tokens]

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        """The tokens that are never split, special ones and added ones, by id."""
        return {token.id: token for token in sorted(self._vocabulary.never_split, key=lambda token: token.id)}

    def get_added_vocab(self) -> dict[str, int]:
        """Ids of the tokens that are never split, special ones and added ones."""
        return {token.content: number for number, token in self.added_tokens_decoder.items()}

    @property
    def max_len_single_sentence(self) -> int:
        """Most tokens of a text beside the special ones."""
        return self.model_max_length - self.num_special_tokens_to_add()

    @property
    def max_len_sentences_pair(self) -> int:
        """Most tokens of two texts beside the special ones."""
        return self.model_max_length - self.num_special_tokens_to_add(pair=True)

    def build_inputs_with_special_tokens(self, ids: Sequence[int], pair_ids: Sequence[int] | None = None) -> list[int]:
        """A row of a text, or of two, that is given as ids: with the special tokens around them."""
        found: list[int] = self._row_of(ids, pair_ids).ids.tolist()
        return found

    def create_token_type_ids_from_sequences(
        self, ids: Sequence[int], pair_ids: Sequence[int] | None = None
    ) -> list[int]:
        """The segment of each token of :meth:`build_inputs_with_special_tokens`."""
        found: list[int] = self._row_of(ids, pair_ids).token_type_ids.tolist()
        return found

    def get_special_tokens_mask(
        self, ids: Sequence[int], pair_ids: Sequence[int] | None = None, already_has_special_tokens: bool = False
    ) -> list[int]:
        """1 for each special token of a row: of the given one, or of the one that is built of texts."""
        if already_has_special_tokens:
            special = set(self.all_special_ids)
            return [int(number in special) for number in ids]
        marks = [[0] * len(part) for part in (ids, pair_ids) if part is not None]
        before, between = [1] * self.template.begins, [1] * self.template.between
        parts = [*before, *marks[0], *(mark for more in marks[1:] for mark in (*between, *more))]
        return [*parts, *[1] * self.template.ends]

    def _row_of(self, ids: Sequence[int], pair_ids: Sequence[int] | None) -> Ragged:
        bodies = [np.array(part, np.int32) for part in (ids, pair_ids) if part is not None]
        lengths = [np.array([len(body)]) for body in bodies]
        around = self._vocabulary.id_of(self._vocabulary.cls_token), self._vocabulary.id_of(self._vocabulary.sep_token)
        return assemble(list(zip(bodies, lengths, strict=True)), lengths, around, template=self.template)

    def convert_tokens_to_string(self, tokens: Sequence[str]) -> str:
        """The text of some tokens."""
        decoder = self._engine.decoder
        return " ".join(tokens) if decoder is None else str(decoder.decode(list(tokens)))

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
        if not words:
            return
        from bertkit.tokenization.family_vocabularies import MergedVocabulary

        if isinstance(self._vocabulary, MergedVocabulary) and not self._vocabulary.add_prefix_space:
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
        from bertkit.tokenization.family_vocabularies import MergedVocabulary

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
