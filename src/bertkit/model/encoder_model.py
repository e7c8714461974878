"""The encoder as a model, and what every encoder with a head shares."""

from __future__ import annotations

from typing import ClassVar, TypeVar

import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.config.bert_config import BertConfig
from bertkit.errors import ConfigError
from bertkit.model.attention import Chosen
from bertkit.model.configured_model import initialize
from bertkit.model.embeddings import Embeddings
from bertkit.model.encoder import Encoder
from bertkit.model.heads import Pooler, PreTrainingHeads
from bertkit.model.kernels.dropout import Dropout
from bertkit.model.losses import LossTerm
from bertkit.model.output import ModelOutput
from bertkit.model.padded import PackedModel

Part = TypeVar("Part", bound=nn.Module)


class BertModel(PackedModel):
    """The encoder with its pooler: ``last_hidden_state`` and ``pooler_output``.

    Args:
        config: the shape.
        add_pooling_layer: False leaves the pooler out, and ``pooler_output`` is None, as it is in families without one.
    """

    base_prefix = ""

    def __init__(self, config: BertConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config)
        self.pooler = Pooler(config) if add_pooling_layer and config.family.has_pooler else None
        self.init_weights()

    def forward_packed(
        self, batch: Batch, *, output_attentions: bool = False, output_hidden_states: bool = False
    ) -> ModelOutput:
        """Packed batch to ``last_hidden_state`` ``(T, D)`` and ``pooler_output`` ``(B, D)``."""
        x_TD, states, attentions = self.encoder(
            self.embeddings(batch), batch.layout, want_states=output_hidden_states, want_probs=output_attentions
        )
        first_BD = x_TD.index_select(0, batch.layout.first_rows(x_TD.device))
        return ModelOutput(
            last_hidden_state=x_TD,
            pooler_output=self.pooler(first_BD) if self.pooler is not None else None,
            hidden_states=tuple(states) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
        )

    def forward_pooled(self, batch: Batch) -> ModelOutput:
        """``pooler_output`` ``(B, D)`` only: the same values as of :meth:`forward_packed`, for less work."""
        assert self.pooler is not None
        return ModelOutput(pooler_output=self.pooler(self.forward_first(batch)))

    def forward_first(self, batch: Batch) -> Tensor:
        """``last_hidden_state`` at the first token of each sequence, ``(B, D)``; of the top layer nothing else."""
        return self.encoder.forward_first(self.embeddings(batch), batch.layout)

    def forward_at(self, batch: Batch, rows_R: Tensor) -> ModelOutput:
        """``last_hidden_state`` ``(R, D)`` at some flat rows, and ``pooler_output`` ``(B, D)``.

        The same values as of :meth:`forward_packed`; of the top layer nothing else is computed.
        """
        chosen = Chosen.first_and(rows_R, batch.layout)
        x_RD = self.encoder.forward_chosen(self.embeddings(batch), batch.layout, chosen)
        first = chosen.places_of(batch.layout.first_rows(x_RD.device))
        return ModelOutput(
            last_hidden_state=x_RD.index_select(0, chosen.places_of(rows_R)),
            pooler_output=self.pooler(x_RD.index_select(0, first)) if self.pooler is not None else None,
        )


class HeadModel(PackedModel):
    """Encoder + head. A class says which parts it has, how logits come from the encoder, and its loss.

    Raises:
        ConfigError: the config's family has no such head.
    """

    uses_pooler: ClassVar[bool] = True
    #: Whether the head needs nothing but the pooled vector; the top layer is then computed at [CLS] only.
    reads_pooler_only: ClassVar[bool] = True
    token_fields: ClassVar[tuple[str, ...]] = ()
    #: What the head judges: "sequence", "token", "choice", "span" or "pair". Families may have other values for it.
    kind: ClassVar[str] = "token"
    #: The families that have such a head; None: all.
    families: ClassVar[frozenset[str] | None] = None

    def __init__(self, config: BertConfig) -> None:
        if self.families is not None and config.model_type not in self.families:
            raise ConfigError(
                f"the {config.model_type} family has no {type(self).__name__}, which is a model of "
                f"{' and '.join(sorted(self.families))}; use another class, such as BertForMaskedLM, or a config of "
                "such a family"
            )
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=self.uses_pooler)
        if own := config.family.poolers.get(self.kind):
            rate = config.head_dropout(self.kind) if own.drops_input else 0.0
            self.bert.pooler = self._head_part(Pooler(config, own.activation, rate))

    @property
    def has_own_pooler(self) -> bool:
        """Whether the layer in front of the classifier is the head's, in place of the encoder's pooler.

        Also where the encoder was loaded from a file without a pooler, and a new one was drawn with the head.
        """
        drawn = self.load_report is not None and "pooler" in self.load_report.new_parts
        return drawn or self.kind in self.config.family.poolers

    def _head_part(self, part: Part) -> Part:
        """A freshly initialised part of the head."""
        initialize(part, self.config.initializer_range)
        return part

    def _head_dropout(self) -> Dropout:
        return Dropout(self.config.head_dropout(self.kind))

    def forward_packed(
        self, batch: Batch, *, output_attentions: bool = False, output_hidden_states: bool = False
    ) -> ModelOutput:
        """Packed batch to logits, and with ``batch.targets`` to ``loss`` and ``loss_terms``."""
        encoded = self._encode(batch, output_attentions=output_attentions, output_hidden_states=output_hidden_states)
        out = ModelOutput(hidden_states=encoded.hidden_states, attentions=encoded.attentions)
        terms = self._head(encoded, batch, out)
        if terms:
            out.loss = torch.stack([term.mean() for term in terms.values()]).sum()
            out.loss_terms = terms
        return out

    def _encode(self, batch: Batch, **wanted: bool) -> ModelOutput:
        """What the head reads of the encoder, and what else is ``wanted`` of it."""
        if self.reads_pooler_only and not any(wanted.values()):
            return self.bert.forward_pooled(batch)
        return self.bert.forward_packed(batch, **wanted)

    def num_targets(self, batch: Batch) -> dict[str, float]:
        """What each of ``loss_terms`` will be divided by, known before the forward pass.

        Targets of -100 do not count. With class weights it is the sum of the targets' weights.
        """
        return {"loss": count_targets(batch.targets[self.targets[0]])}

    def _head(self, encoded: ModelOutput, batch: Batch, out: ModelOutput) -> dict[str, LossTerm]:
        """Fill ``out`` with logits; return the terms of the loss, none without targets."""
        raise AssertionError("each class has its own")


def count_targets(labels: Tensor) -> float:
    """Numbers to predict, or labels that are not -100."""
    return float(labels.numel() if labels.is_floating_point() else (labels != -100).sum())


class WordHeadModel(HeadModel):
    """A model that predicts words: at all rows, or at ``batch.logit_rows`` only."""

    reads_pooler_only = False

    def _encode(self, batch: Batch, **wanted: bool) -> ModelOutput:
        rows_R = batch.logit_rows
        if rows_R is None:
            return super()._encode(batch, **wanted)
        # On another device, how many rows each sequence has would have to be waited for.
        if rows_R.device.type == "cpu" and not any(wanted.values()):
            return self.bert.forward_at(batch, rows_R)
        encoded = super()._encode(batch, **wanted)
        assert encoded.last_hidden_state is not None
        encoded.last_hidden_state = encoded.last_hidden_state.index_select(0, rows_R)
        return encoded

    def _predict_words(self, encoded: ModelOutput) -> Tensor:
        """Vocabulary logits at all rows ``(T, V)``, or at ``batch.logit_rows`` ``(R, V)``."""
        head, embeddings = self.cls, self.bert.embeddings
        assert isinstance(head, PreTrainingHeads)
        return head.predictions(encoded.last_hidden_state, embeddings.word_embeddings.weight)  # type: ignore[no-any-return]
