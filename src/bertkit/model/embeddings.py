"""Token + position + segment embeddings (Devlin et al. 2019, figure 2), and how its descendants vary them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.config.bert_config import BertConfig
from bertkit.model.kernels.dropout import Dropout
from bertkit.model.kernels.linear import Linear
from bertkit.model.published_parts import PaddedEmbeddings
from bertkit.ragged import outside_table


class Embeddings(PaddedEmbeddings):
    """Sum of three learned tables, LayerNorm, dropout; then a linear layer where they are narrower than the encoder.

    RoBERTa's position table is read from row ``first_position`` on. Where the config has no segments a batch's are
    ignored; where it has no absolute positions, attention learns of them otherwise.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        width, self.first_position = config.embedding_width, config.first_position
        self.word_embeddings = nn.Embedding(config.vocab_size, width, padding_idx=config.pad_token_id)
        place = config.pad_token_id if self.first_position else None
        self.position_embeddings = (
            nn.Embedding(config.max_position_embeddings, width, padding_idx=place)
            if config.has_position_table
            else None
        )
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width) if config.type_vocab_size else None
        self.LayerNorm = nn.LayerNorm(width, eps=config.layer_norm_eps, bias=config.norm_bias is not False)
        own_rate = config.embedding_dropout
        self.dropout = Dropout(config.hidden_dropout_prob if own_rate is None else own_rate)
        self.projection = Linear(width, config.hidden_size) if config.has_projection else None

    def forward(self, batch: Batch | Tensor | None = None, *others: Tensor | None, **padded: Tensor | None) -> Tensor:
        """Vectors ``(T, D)`` of a packed batch; InputError for an id, position or segment outside its table.

        Of padded tensors as in ``transformers``, ``(B, S, D)``.
        """
        if batch is None or isinstance(batch, Tensor):
            return self.padded(*([] if batch is None else [batch]), *others, **padded)
        if batch.inputs_embeds is None:
            check_range(batch.input_ids, self.word_embeddings, "input_ids", "vocab_size")
            words_TD = self.word_embeddings(batch.input_ids)
        else:
            words_TD = batch.inputs_embeds
        if self.token_type_embeddings is not None:
            check_range(batch.token_type_ids, self.token_type_embeddings, "token_type_ids", "type_vocab_size")
            words_TD = words_TD + self.token_type_embeddings(batch.token_type_ids)
        if self.position_embeddings is not None:
            positions = batch.position_ids + self.first_position if self.first_position else batch.position_ids
            check_range(positions, self.position_embeddings, "position_ids", "max_position_embeddings")
            words_TD = words_TD + self.position_embeddings(positions)
        x_TD = self.dropout(self.LayerNorm(words_TD))
        return x_TD if self.projection is None else self.projection(x_TD)  # type: ignore[no-any-return]


def check_range(ids: Tensor, table: nn.Embedding, name: str, field: str) -> None:
    """On the CPU only: elsewhere it would make the host wait, and the device reports it itself. Not while exporting."""
    if ids.device.type != "cpu" or torch.compiler.is_exporting():
        return
    low, high = (int(value) for value in ids.aminmax())
    if low < 0 or high >= table.num_embeddings:
        raise outside_table(name, field, low if low < 0 else high, table.num_embeddings)
