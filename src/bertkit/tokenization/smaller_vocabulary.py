"""A tokenizer with fewer tokens, which splits the words that it keeps as before.

Each algorithm chooses among what the vocabulary offers, and what is taken away was never chosen in these words:

- WordPiece takes the longest token at each place: it is still there, and a longer one has not come.
- BPE applies the merge of the lowest rank again and again. A token comes about by the same merges in a word as by
  itself, because no merge crosses the end of a token that remains; these merges and what they make are kept.
- A unigram tokenizer takes the split with the best sum of scores: it is still there, and there are fewer others. The
  piece with the lowest score, from which that of unknown characters is reckoned, stays.

Words with other tokens are split into shorter ones, down to characters or bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import TypeVar

from bertkit.errors import InputError
from bertkit.ragged import Ints
from bertkit.tokenization.family_vocabularies import BYTE_CHARS, BpeVocabulary, UnigramVocabulary
from bertkit.tokenization.pretrained_tokenizer import PreTrainedTokenizer
from bertkit.tokenization.vocabulary import AddedToken, TokenTable, Vocabulary

TokenizerT = TypeVar("TokenizerT", bound=PreTrainedTokenizer)


def cut_vocabulary(tokenizer: TokenizerT, seen: Iterable[int] | Ints) -> tuple[TokenizerT, list[int]]:
    """The tokenizer with the tokens ``seen``, special, added and one-character ones; and the old ids, ascending."""
    old = tokenizer._vocabulary
    names = {number: token for token, number in old.vocab.items()}
    wanted = {names[int(number)] for number in seen if int(number) in names}
    wanted |= {token.content for token in old.never_split if token.content in old.vocab}
    match old:
        case Vocabulary():
            lone = {token for token in old.vocab if len(token.removeprefix(old.prefix)) == 1}
            vocab, added = _renumbered(old, wanted | lone)
            new: TokenTable = replace(old, vocab=vocab, added=added)
        case BpeVocabulary():
            kept, merges = _with_merges(old, wanted | set(BYTE_CHARS))
            vocab, added = _renumbered(old, kept)
            new = replace(old, vocab=vocab, added=added, merges=merges)
        case UnigramVocabulary():
            lone = {piece for piece, _ in old.pieces if len(piece) == 1}
            lowest = min(old.pieces, key=lambda piece: piece[1])[0]
            kept = wanted | lone | {lowest}
            pieces = tuple(each for each in old.pieces if each[0] in kept)
            new = replace(old, pieces=pieces, model=None, added=_renumbered(old, kept)[1])
        case _:
            raise InputError(
                f"the vocabulary of a {type(tokenizer).__name__} cannot be cut: its tokens may span several words, so "
                "that words which stay would be split differently; WordPiece, byte-level BPE and unigram ones can"
            )
    state = {**tokenizer.__getstate__(), "vocabulary": new}
    made = object.__new__(type(tokenizer))
    made.__setstate__(state)
    before, after = tokenizer.vocab, made.vocab
    return made, [before[token] for token in sorted(after, key=after.__getitem__)]


def _renumbered(old: TokenTable, kept: Collection[str]) -> tuple[dict[str, int], tuple[AddedToken, ...]]:
    """The tokens that are kept, in the order of their ids, and the added ones behind them."""
    order = sorted((token for token in old.vocab if token in kept), key=old.vocab.__getitem__)
    vocab = {token: number for number, token in enumerate(order)}
    added, following = [], len(vocab)
    for token in sorted(old.added, key=lambda each: each.id):
        number = vocab.get(token.content)
        if number is None:
            number, following = following, following + 1
        added.append(token._replace(id=number))
    return vocab, tuple(added)


def _with_merges(old: BpeVocabulary, wanted: Collection[str]) -> tuple[set[str], tuple[tuple[str, str], ...]]:
    """The tokens with everything that they are merged from, and the merges that are needed, in their order."""
    ranks = {pair: rank for rank, pair in enumerate(old.merges)}
    whole = {token.content for token in old.never_split}
    kept, used = set(wanted), set[tuple[str, str]]()
    for token in wanted:
        if token in whole:
            continue
        for pair in _merges_of(token, ranks):
            used.add(pair)
            kept.update((*pair, "".join(pair)))
    return kept, tuple(pair for pair in old.merges if pair in used)


def _merges_of(token: str, ranks: Mapping[tuple[str, str], int]) -> list[tuple[str, str]]:
    """The merges that make a token of its characters, in their order (Sennrich et al. 2016, algorithm 1)."""
    parts, found = list(token), []
    while len(parts) > 1:
        pairs = [(left, right) for left, right in pairwise(parts) if (left, right) in ranks]
        if not pairs:
            break
        best = min(pairs, key=ranks.__getitem__)
        found.append(best)
        place = 0
        while place < len(parts) - 1:
            if (parts[place], parts[place + 1]) == best:
                parts[place : place + 2] = ["".join(best)]
            place += 1
    return found
