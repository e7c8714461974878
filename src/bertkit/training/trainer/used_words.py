"""Train only those word vectors that the training texts use, with the result of training the whole table.

Of the 30,000 rows of a table of word embeddings the texts of a task use some thousand. The others never have a
gradient, so Adam changes them by their weight decay only. Inside :func:`only_used_words` the table has one row for each
word that is used, and one that stands for all others.
See ``docs/decisions/0150-training-on-a-cpu.md``.

Letters of the array shapes: V words, K of them used, E width of a word vector.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from bertkit.model.embeddings import Embeddings
from bertkit.model.heads import MaskedLMHead
from bertkit.ragged import Ids

#: A table is replaced if that leaves out so many numbers, 4 MB: of small models nothing is worth saving.
WORTH_SAVING = 1 << 20


class UsedWords(nn.Embedding):
    """A table of word embeddings ``(V, E)`` in training on texts with K different words, ``words``, ascending.

    ``weight`` ``(K + 1, E)`` has the rows of these words and a last one for all others, at first of ones: what an
    optimizer makes of a row without gradients is the same factor for all of them, so each is its first value times that
    row. Holds for optimizers that compute each number by itself, as those of Adam do.
    """

    def __init__(self, table: nn.Embedding, words: Tensor) -> None:
        num_words = len(words)
        weight = torch.cat([table.weight.detach()[words], table.weight.new_ones(1, table.embedding_dim)])
        super().__init__(num_words + 1, table.embedding_dim, _weight=weight)
        self.num_embeddings = table.num_embeddings
        self.first, self.words = table.weight.detach(), words
        # Other words have a row that does not exist: to train them is an error, on every device.
        self.rows = torch.full((table.num_embeddings,), num_words + 1, device=words.device)
        self.rows[words] = torch.arange(num_words, device=words.device)
        pad = num_words + 1 if table.padding_idx is None else int(self.rows[table.padding_idx])
        self.padding_idx = pad if pad < num_words else None

    def forward(self, input: Tensor) -> Tensor:  # named as in torch
        """Vectors ``(T, E)`` of words ``(T,)``; in training mode of those in :attr:`words`."""
        if self.training:
            return F.embedding(self.rows[input], self.weight, self.padding_idx)
        return F.embedding(input, self.whole())

    @torch.no_grad()
    def whole(self) -> Tensor:
        """The whole table ``(V, E)`` as it is now."""
        found = self.first * self.weight[-1]
        found[self.words] = self.weight[:-1]
        return found

    def _save_to_state_dict(self, destination: dict[str, Tensor], prefix: str, keep_vars: bool) -> None:
        """The whole table: a callback may save the model."""
        destination[f"{prefix}weight"] = self.whole()


@contextmanager
def only_used_words(module: nn.Module, ids: Ids) -> Iterator[None]:
    """Inside the block, ``module`` trains the vectors of the words ``ids`` only; make the optimizer inside.

    Afterwards its table is as if AdamW had trained it whole: rows of ``ids`` bit for bit as long as gradients are not
    clipped (their norm is summed in another order), others to rounding of the weight decay. Nothing is replaced if the
    table is not trained, if a head reads it too (masked LM), or if it would not pay.
    """
    found = [part for part in module.modules() if isinstance(part, Embeddings)]
    words = np.unique(ids).astype(np.int64)
    if len(found) != 1 or not _pays(module, found[0].word_embeddings, len(words)):
        yield
        return
    table = found[0].word_embeddings
    found[0].word_embeddings = used = UsedWords(table, torch.from_numpy(words).to(table.weight.device))
    try:
        yield
    finally:
        with torch.no_grad():
            table.weight.copy_(used.whole())
        found[0].word_embeddings = table


def _pays(module: nn.Module, table: nn.Embedding, num_words: int) -> bool:
    return (
        table.weight.requires_grad
        and not any(isinstance(part, MaskedLMHead) for part in module.modules())
        and (table.num_embeddings - num_words) * table.embedding_dim >= WORTH_SAVING
    )


@contextmanager
def all_words(module: nn.Module) -> Iterator[None]:
    """Inside the block, a module inside :func:`only_used_words` has its whole table, as it is now, to be read."""
    found = [(part, part.word_embeddings) for part in module.modules() if isinstance(part, Embeddings)]
    replaced = [(part, used) for part, used in found if isinstance(used, UsedWords)]
    for part, used in replaced:
        part.word_embeddings = nn.Embedding.from_pretrained(used.whole(), freeze=False)
    try:
        yield
    finally:
        for part, used in replaced:
            part.word_embeddings = used
