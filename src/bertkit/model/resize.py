"""A larger vocabulary for a model that is there: new rows of the word embeddings and of the masked-LM bias."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.errors import InputError
from bertkit.model.configured_model import ConfiguredModel
from bertkit.model.embeddings import Embeddings
from bertkit.model.heads import MaskedLMHead


def resize_vocabulary(model: ConfiguredModel, vocab_size: int, pieces: Mapping[int, Sequence[int]]) -> None:
    """Give new tokens a row each, in place: the mean of the rows of the pieces that stood for the token until now.

    A new token so begins where its pieces were, nearer to its meaning than a random vector. All other rows keep their
    bits, and so do the hidden states of texts without a new token. The logits of old tokens are the same vectors times
    the same rows: equal, but that a few of the last may be rounded otherwise in a product of another width.

    Args:
        model: of any class; a masked-LM head, whose projection is the table of word embeddings, gets the bias for it.
            The old tables are replaced: make an optimizer afterwards.
        vocab_size: rows afterwards, at least as many as now; ``model.config`` will say so.
        pieces: for each new token the ids, at least one, of its pieces in the table as it is now. Named must be every
            new row, and may be rows that are there and get another meaning.

    Raises:
        InputError: fewer rows than now, a new row without pieces, a row or a piece that there is not.
    """
    _check(model.config.vocab_size, vocab_size, pieces)
    shape = model.config.replace(vocab_size=vocab_size)
    means = _Means(pieces)
    for module in list(model.modules()):
        if isinstance(module, ConfiguredModel):
            module.config = shape
        elif isinstance(module, Embeddings):
            old = module.word_embeddings
            module.word_embeddings = nn.Embedding.from_pretrained(
                means.added_to(old.weight, vocab_size),
                freeze=not old.weight.requires_grad,
                padding_idx=old.padding_idx,
            ).train(old.training)
        elif isinstance(module, MaskedLMHead):
            bias_V = means.added_to(module.bias[:, None], vocab_size)[:, 0]
            module.bias = nn.Parameter(bias_V, requires_grad=module.bias.requires_grad)


class _Means:
    """The pieces of all new tokens in a row, N tokens of T pieces."""

    def __init__(self, pieces: Mapping[int, Sequence[int]]) -> None:
        lengths = [0, *map(len, pieces.values())]
        self.ids_N = torch.tensor(list(pieces), dtype=torch.int64)
        self.pieces_T = torch.tensor([piece for split in pieces.values() for piece in split], dtype=torch.int64)
        self.starts_N = torch.tensor(lengths, dtype=torch.int64).cumsum(0)[:-1]

    @torch.no_grad()
    def added_to(self, rows_VD: Tensor, vocab_size: int) -> Tensor:
        """A table of ``vocab_size`` rows: the old ones, and the means in their places."""
        grown = rows_VD.new_empty(vocab_size, rows_VD.shape[1])
        grown[: len(rows_VD)] = rows_VD
        if len(self.ids_N):
            device = rows_VD.device
            starts_N = self.starts_N.to(device)
            means_ND = F.embedding_bag(self.pieces_T.to(device), rows_VD.detach(), starts_N, mode="mean")
            grown[self.ids_N.to(device)] = means_ND
        return grown


def _check(old_size: int, vocab_size: int, pieces: Mapping[int, Sequence[int]]) -> None:
    if vocab_size < old_size:
        raise InputError(f"vocab_size={vocab_size:,}, but the model has {old_size:,} already, and none is taken away")
    without = next((number for number in range(old_size, vocab_size) if number not in pieces), None)
    if without is not None:
        raise InputError(f"row {without:,} is new, so pieces must say which tokens it begins as")
    for number, split in pieces.items():
        if not 0 <= number < vocab_size:
            raise InputError(f"pieces names row {number:,}, outside 0 ... {vocab_size - 1:,}")
        if not split:
            raise InputError(f"pieces has none for row {number:,}; give at least one, for example the id of [UNK]")
        for piece in split:
            if not 0 <= piece < old_size:
                raise InputError(f"pieces of row {number:,}: id {piece:,} is outside 0 ... {old_size - 1:,}")
