"""Train only those word vectors that the training texts use, with the result of training the whole table.

Of some 30,000 rows of a table of word embeddings, 1,500 MB of traffic a step for a table of BERT-base, the texts of a
task use a few thousand. The others never have a gradient, so Adam changes them by their weight decay only. Inside
:func:`only_used_words` the table has one row for each word that is used, and one that stands for all others.
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
    """A table of word embeddings ``(V, E)`` in training on texts with K different words.

    ``weight`` ``(K + 1, E)`` has the rows of these words and a last one for all others, at first of ones: what an
    optimizer makes of a row without gradients is the same factor for all of them, so each is its first value times that
    row. Holds for optimizers that compute each number by itself, as those of Adam do.

    words: int64 ``(K,)``, ascending.
    """

    def __init__(self, table: nn.Embedding, words: Tensor) -> None:
        ones = table.weight.new_ones(1, table.embedding_dim)
        weight = torch.cat([table.weight.detach()[words], ones])
        super().__init__(len(words) + 1, table.embedding_dim, _weight=weight)
        self.num_embeddings = table.num_embeddings
        self.first, self.words = table.weight.detach(), words
        self.rows = torch.full((table.num_embeddings,), len(words))
        self.rows[words] = torch.arange(len(words))
        self.padding_idx = None if table.padding_idx is None else int(self.rows[table.padding_idx])

    def forward(self, input: Tensor) -> Tensor:  # named as in torch
        """Vectors ``(T, E)`` of words ``(T,)``; of others than :attr:`words` only where nothing is trained."""
        rows = self.rows[input]
        if int(rows.max()) < len(self.words):
            return F.embedding(rows, self.weight, self.padding_idx)
        assert not torch.is_grad_enabled(), "a training batch has a word that is not among those of the training texts"
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

    Afterwards its table is as if it had been trained whole by AdamW or :class:`bertkit.optim.AdamWeightDecay`: the rows
    of words in ``ids`` bit for bit, if gradients were not clipped (their norm is summed in another order), the others to
    rounding of the weight decay. Nothing is replaced on a GPU, if the table is not trained, if a head reads it too
    (masked LM), or if it would not pay.
    """
    found = [part for part in module.modules() if isinstance(part, Embeddings)]
    words = torch.from_numpy(np.unique(ids).astype(np.int64))
    if len(found) != 1 or not _pays(module, found[0].word_embeddings, len(words)):
        yield
        return
    table = found[0].word_embeddings
    found[0].word_embeddings = used = UsedWords(table, words)
    try:
        yield
    finally:
        with torch.no_grad():
            table.weight.copy_(used.whole())
        found[0].word_embeddings = table


def _pays(module: nn.Module, table: nn.Embedding, num_words: int) -> bool:
    return (
        table.weight.requires_grad
        and table.weight.device.type == "cpu"
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
