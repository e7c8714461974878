"""Another vocabulary for an existing model: other rows of the word embeddings and of the masked-LM bias."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.errors import InputError
from bertkit.model.adapters import has_own_adapters
from bertkit.model.configured_model import ConfiguredModel
from bertkit.model.embeddings import Embeddings
from bertkit.model.heads import MaskedLMHead


def resize_vocabulary(model: ConfiguredModel, vocab_size: int, pieces: Mapping[int, Sequence[int]]) -> None:
    """Give each new token a row, in place: the mean of the rows of the pieces it has been split into until now.

    A new token starts where its pieces were, nearer to its meaning than a random vector. All other rows keep their
    bits, and so do the hidden states of texts without a new token. The logits of old tokens are the same products;
    a few may differ in the last bit, because a product of another width may be rounded differently.

    Args:
        model: of any class; a masked-LM head, which projects to the word embeddings, gets the bias too. The old tables
            are replaced: make an optimizer afterwards.
        vocab_size: rows afterwards, at least as many as now; ``model.config`` is updated.
        pieces: for each new token the ids of its pieces, at least one, in the table as it is now. Must include every
            new row; may include existing rows, which get another meaning.

    Raises:
        InputError: fewer rows than now, a new row without pieces, a row or a piece that does not exist.
    """
    _check(model.config.vocab_size, vocab_size, pieces)
    ids_N = torch.tensor(list(pieces), dtype=torch.int64)
    pieces_T = torch.tensor([piece for split in pieces.values() for piece in split], dtype=torch.int64)
    starts_N = torch.tensor([0, *map(len, pieces.values())], dtype=torch.int64).cumsum(0)[:-1]

    @torch.no_grad()
    def grown(rows_VD: Tensor) -> Tensor:
        """The old rows, and the means of the N new tokens, whose T pieces lie end to end."""
        table = rows_VD.new_empty(vocab_size, rows_VD.shape[1])
        table[: len(rows_VD)] = rows_VD
        if pieces:
            device = rows_VD.device
            means_ND = F.embedding_bag(pieces_T.to(device), rows_VD.detach(), starts_N.to(device), mode="mean")
            table[ids_N.to(device)] = means_ND
        return table

    _replace_tables(model, vocab_size, grown)


def grow_vocabulary(model: ConfiguredModel, vocab_size: int) -> None:
    """The same for tokens of unknown pieces: every new row is the mean of all old ones (Hewitt 2021).

    Raises:
        InputError: fewer rows than now.
    """
    _check(model.config.vocab_size, vocab_size, None)

    @torch.no_grad()
    def grown(rows_VD: Tensor) -> Tensor:
        mean_1D = rows_VD.mean(dim=0, keepdim=True)
        return torch.cat([rows_VD, mean_1D.expand(vocab_size - len(rows_VD), -1)])

    _replace_tables(model, vocab_size, grown)


def keep_rows(model: ConfiguredModel, rows: Sequence[int]) -> None:
    """Keep only these tokens, in place: the new token i is the old ``rows[i]``. The rows keep their bits.

    Raises:
        InputError: a row twice or that does not exist; the row of [PAD] is left out, or must stay where it is, because
            positions are counted from its number (RoBERTa).
    """
    shape, pad = model.config, model.config.pad_token_id
    if len(set(rows)) < len(rows) or not all(0 <= row < shape.vocab_size for row in rows):
        raise InputError(f"rows must be different numbers from 0 to {shape.vocab_size - 1:,}")
    if pad not in rows or (shape.family.positions_after_padding and rows.index(pad) != pad):
        raise InputError(f"[PAD], row {pad}, must be kept" + (f" as row {pad}" if pad in rows else ""))
    chosen = torch.tensor(rows, dtype=torch.int64)
    _replace_tables(model, len(rows), lambda table: table.detach()[chosen.to(table.device)], pad=rows.index(pad))


def _replace_tables(
    model: ConfiguredModel, vocab_size: int, grown: Callable[[Tensor], Tensor], pad: int | None = None
) -> None:
    """Replace each table by what ``grown`` makes of it; ``pad`` is the new row of [PAD], None where it stays."""
    if has_own_adapters(model):
        raise InputError(
            "new rows are no part of adapters, which could then not be loaded again: change the vocabulary first, save "
            "the model, and add adapters to the saved one"
        )
    pad = model.config.pad_token_id if pad is None else pad
    shape = model.config.replace(vocab_size=vocab_size, pad_token_id=pad)
    for module in list(model.modules()):
        if isinstance(module, ConfiguredModel):
            module.config = shape
        elif isinstance(module, Embeddings):
            old = module.word_embeddings
            module.word_embeddings = nn.Embedding.from_pretrained(
                grown(old.weight), freeze=not old.weight.requires_grad, padding_idx=pad
            ).train(old.training)
        elif isinstance(module, MaskedLMHead):
            if module.bias is not None:
                bias_V = grown(module.bias[:, None])[:, 0]
                module.bias = nn.Parameter(bias_V, requires_grad=module.bias.requires_grad)
            if module.decoder is not None:
                module.decoder = nn.Parameter(grown(module.decoder), requires_grad=module.decoder.requires_grad)


def _check(old_size: int, vocab_size: int, pieces: Mapping[int, Sequence[int]] | None) -> None:
    if vocab_size < old_size:
        raise InputError(
            f"vocab_size={vocab_size:,}, but the model has {old_size:,} tokens already; vocabularies can only grow"
        )
    if pieces is None:
        return
    without = next((number for number in range(old_size, vocab_size) if number not in pieces), None)
    if without is not None:
        raise InputError(f"row {without:,} is new, so pieces must include the ids of its pieces")
    for number, split in pieces.items():
        if not 0 <= number < vocab_size:
            raise InputError(f"pieces includes row {number:,}, outside 0 ... {vocab_size - 1:,}")
        if not split:
            raise InputError(f"pieces of row {number:,} is empty; give at least one id, for example that of [UNK]")
        for piece in split:
            if not 0 <= piece < old_size:
                raise InputError(f"pieces of row {number:,}: id {piece:,} is outside 0 ... {old_size - 1:,}")
