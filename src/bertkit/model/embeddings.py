"""Token + position + segment embeddings (Devlin et al. 2019, figure 2)."""

from __future__ import annotations

from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.config import BertConfig
from bertkit.errors import InputError
from bertkit.model.dropout import Dropout


class Embeddings(nn.Module):
    """Sum of three learned tables, LayerNorm, dropout."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)

    def forward(self, batch: Batch) -> Tensor:
        """Vectors ``(T, D)`` of a packed batch.

        Raises:
            InputError: an id, position or segment is outside its table.
        """
        if batch.inputs_embeds is None:
            _check_range(batch.input_ids, self.word_embeddings, "input_ids", "vocab_size")
            words_TD = self.word_embeddings(batch.input_ids)
        else:
            words_TD = batch.inputs_embeds
        _check_range(batch.position_ids, self.position_embeddings, "position_ids", "max_position_embeddings")
        _check_range(batch.token_type_ids, self.token_type_embeddings, "token_type_ids", "type_vocab_size")
        segments_TD = self.token_type_embeddings(batch.token_type_ids)
        x_TD = words_TD + segments_TD + self.position_embeddings(batch.position_ids)
        return self.dropout(self.LayerNorm(x_TD))  # type: ignore[no-any-return]


def _check_range(ids: Tensor, table: nn.Embedding, name: str, field: str) -> None:
    """Only on the CPU: elsewhere it would make the host wait, and the device reports it itself."""
    if ids.device.type != "cpu":
        return
    low, high = (int(value) for value in ids.aminmax())
    if low < 0 or high >= table.num_embeddings:
        wrong = low if low < 0 else high
        hint = " Truncate the text, or use a model with more positions." if name == "position_ids" else ""
        raise InputError(f"{name} has {wrong}, outside 0 ... {table.num_embeddings - 1} ({field} of the model).{hint}")
