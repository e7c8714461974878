"""Tokens that a user adds, and a vocabulary of one's own texts in place of another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from bertkit.errors import InputError, did_you_mean
from bertkit.tokenization.id_lookup import Decoder
from bertkit.tokenization.vocabulary import PUBLIC_NAMES, AddedToken, SpecialTokens, TokenTable

if TYPE_CHECKING:
    from tokenizers import AddedToken as EngineToken

NewToken: TypeAlias = "str | EngineToken"
#: Names of the list of special tokens that have none of their own, in version 4 and in version 5 of transformers.
_LISTS = ("additional_special_tokens", "extra_special_tokens")


class OwnTokens(Decoder):
    """A tokenizer to which tokens can be added."""

    def _set_up(self, vocabulary: TokenTable, clean_up_tokenization_spaces: bool) -> None:
        raise NotImplementedError

    def __setattr__(self, name: str, value: Any) -> None:
        """``tokenizer.pad_token = "[NONE]"`` is :meth:`add_special_tokens` with this name."""
        known = vars(self).get("_vocabulary")
        if name in PUBLIC_NAMES and known is not None and value != known.special_tokens.get(name):
            self.add_special_tokens({name: value})
        else:
            super().__setattr__(name, value)

    def add_tokens(self, new_tokens: NewToken | Sequence[NewToken], special_tokens: bool = False) -> int:
        """Add tokens that are never split, as in transformers.

        The model needs rows for them: ``model.resize_token_embeddings(len(tokenizer))``. This changes the tokenizer, so
        no other thread may use it meanwhile. A token of the vocabulary keeps its id.

        Args:
            new_tokens: one token, or several; an ``AddedToken`` of the tokenizers package says how it is recognized.
            special_tokens: search them in the raw text, and omit them from ``decode(skip_special_tokens=True)``;
                otherwise they are normalized as text is (lower-cased by an uncased tokenizer) and found in that.

        Returns:
            How many tokens were added; those that are never split already do not count.

        Raises:
            InputError: a token that is empty or no str.
            CheckpointError: a token with half a surrogate pair.
        """
        from tokenizers import AddedToken as EngineToken

        listed = [new_tokens] if isinstance(new_tokens, str | EngineToken) else list(new_tokens)
        return self._changed(self._described(listed, special=special_tokens))

    def add_special_tokens(
        self,
        special_tokens_dict: Mapping[str, NewToken | Sequence[NewToken]],
        replace_extra_special_tokens: bool = True,
    ) -> int:
        """Add special tokens, as in transformers: never split, and left out by ``decode(skip_special_tokens=True)``.

        Args:
            special_tokens_dict: ``{"additional_special_tokens": ["[E1]", ...]}``, or tokens by their names, such as
                ``{"pad_token": "[NONE]"}``, which then take the place of the ones that there are.
            replace_extra_special_tokens: whether additional tokens that are not listed stop to be special.

        Returns:
            How many tokens were added; the model needs rows for them, see :meth:`add_tokens`.

        Raises:
            InputError: a name that the family has no special token for.
        """
        from tokenizers import AddedToken as EngineToken

        names, listed = self._vocabulary.names, list[NewToken]()
        changes: SpecialTokens = {}
        for name, value in special_tokens_dict.items():
            if name in _LISTS:
                listed += [value] if isinstance(value, str | EngineToken) else value
            elif name not in names or not isinstance(value, str | EngineToken):
                known = [*names, *_LISTS]
                raise InputError(
                    f"{type(self).__name__} has no special token {name!r}{did_you_mean(name, known)}; it has "
                    f"{', '.join(names)}, and any others under additional_special_tokens"
                )
            else:
                listed.append(value)
                changes[names[name]] = str(value)
        others = set(self.additional_special_tokens if replace_extra_special_tokens else ()) - set(map(str, listed))
        if others and any(name in _LISTS for name in special_tokens_dict):
            kept = tuple(each._replace(special=each.content not in others) for each in self._vocabulary.added)
            self._vocabulary = replace(self._vocabulary, added=kept)
        return self._changed(self._described(listed, special=True), changes)

    def train_new_from_iterator(
        self, text_iterator: Iterable[str | Sequence[str]], vocab_size: int, **trainer_options: Any
    ) -> Self:
        """A tokenizer of the same kind with a vocabulary of these texts: as in transformers, with its result.

        Args:
            text_iterator: texts, or lists of texts.
            vocab_size: most tokens, special ones included.
            trainer_options: ``new_special_tokens``, and those of the trainers of the tokenizers package, such as
                ``min_frequency`` and ``limit_alphabet``.

        ``bertkit vocab`` learns word pieces from files of any size.
        """
        from bertkit.tokenization.learn.same_kind import trained_again

        return trained_again(self, text_iterator, vocab_size, trainer_options)

    def _described(self, tokens: Sequence[NewToken], *, special: bool) -> list[AddedToken]:
        """New tokens with their ids, without those that are never split already."""
        from tokenizers import AddedToken as EngineToken

        for name in tokens:
            if not isinstance(name, str | EngineToken) or not str(name):
                raise InputError(f"a new token must be a str that is not empty, got {name!r}")
        ids, known = self.vocab, {token.content for token in self._vocabulary.never_split}
        return [
            AddedToken(name, ids.setdefault(name, len(ids)), special=special, normalized=not special)
            if isinstance(token, str)
            else AddedToken(
                name,
                ids.setdefault(name, len(ids)),
                special=special or token.special,
                normalized=token.normalized and not special,
                lstrip=token.lstrip,
                rstrip=token.rstrip,
                single_word=token.single_word,
            )
            for name, token in {str(each): each for each in tokens}.items()
            if name not in known
        ]

    def _changed(self, added: Sequence[AddedToken], special: SpecialTokens | None = None) -> int:
        vocabulary = replace(self._vocabulary, added=(*self._vocabulary.added, *added), **(special or {}))
        self._set_up(vocabulary, self.clean_up_tokenization_spaces)
        return len(added)
