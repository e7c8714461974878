"""The discriminator of ELECTRA (Clark et al. 2020): which tokens of a text were replaced?"""

from __future__ import annotations

from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.config.bert_config import BertConfig
from bertkit.model.activations import ACTIVATIONS
from bertkit.model.kernels.linear import Linear
from bertkit.model.losses import LossTerm, replaced_token_loss
from bertkit.model.models import HeadModel
from bertkit.model.output import ModelOutput


class ReplacedTokenHead(nn.Module):
    """Was this token replaced? Linear, activation, one score (Clark et al. 2020, section 2)."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.hidden_size)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.out = Linear(config.hidden_size, 1)

    def forward(self, x_TD: Tensor) -> Tensor:
        """``(T, D)`` to logits ``(T,)``; above 0: replaced."""
        return self.out(self.activation(self.dense(x_TD))).squeeze(-1)  # type: ignore[no-any-return]


class ElectraForPreTraining(HeadModel):
    """The discriminator of ELECTRA: was a token replaced? ``logits`` ``(B, S)``, above 0 means yes.

    Targets: ``labels`` ``(B, S)``, 1 = replaced, 0 = original; those of padding, and -100, do not count.
    """

    targets = token_targets = ("labels",)
    token_fields = ("logits",)
    head_prefixes = ("discriminator.",)
    families = frozenset({"electra"})
    reads, uses_pooler = "tokens", False
    allows_padded_targets = True

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.discriminator = self._new(ReplacedTokenHead(config))

    def _head(self, encoded: ModelOutput, batch: Batch, out: ModelOutput) -> dict[str, LossTerm]:
        out.logits = self.discriminator(encoded.last_hidden_state)
        return {"loss": replaced_token_loss(out.logits, batch.targets["labels"])} if batch.targets else {}
