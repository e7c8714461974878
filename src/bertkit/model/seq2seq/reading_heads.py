"""BART that reads: the heads that classify a text and find an answer in it.

Axes, in the order of the suffix letters::

    B sequences   S tokens of a sequence   D model width   C labels   T tokens of a batch, flat
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.config.encoder_decoder_config import BartConfig, EncoderDecoderConfig
from bertkit.errors import InputError
from bertkit.model.kernels.dropout import Dropout
from bertkit.model.kernels.linear import Linear
from bertkit.model.losses import LossTerm, class_loss, count_spans, count_targets, span_loss
from bertkit.model.seq2seq.seq2seq_models import Seq2SeqModel, Seq2SeqOutput


class ClassificationHead(nn.Module):
    """Linear, tanh, linear, with dropout before each linear layer."""

    def __init__(self, config: EncoderDecoderConfig) -> None:
        super().__init__()
        self.dense = Linear(config.d_model, config.d_model)
        self.out_proj = Linear(config.d_model, config.num_labels)
        self.dropout = Dropout(config.classifier_dropout)

    def forward(self, x_BD: Tensor) -> Tensor:
        logits_BC: Tensor = self.out_proj(self.dropout(torch.tanh(self.dense(self.dropout(x_BD)))))
        return logits_BC


class _Reader(Seq2SeqModel):
    """A BART whose decoder reads the text too, with a head on the decoder's vectors."""

    config_class = BartConfig
    #: As those of the encoders' heads; see :class:`bertkit.model.models.HeadModel`.
    kind: ClassVar[str]
    targets: ClassVar[tuple[str, ...]]

    def forward_packed(self, batch: Batch) -> Seq2SeqOutput:
        """Packed batch to logits, and with ``batch.targets`` to ``loss`` and ``loss_terms``."""
        out = super().forward_packed(batch)
        assert out.last_hidden_state is not None
        self._add_logits_and_loss(out.last_hidden_state, batch, out)
        return out

    def _add_logits_and_loss(self, x_TD: Tensor, batch: Batch, out: Seq2SeqOutput) -> None:
        """Fill ``out`` with logits, and with the loss if there are targets."""
        self._score(x_TD, batch, out)
        if batch.targets:
            term = self._loss(batch, out)
            out.loss, out.loss_terms = term.mean(), {"loss": term}

    def _score(self, x_TD: Tensor, batch: Batch, out: Seq2SeqOutput) -> None:
        raise AssertionError("every subclass overrides this")

    def _loss(self, batch: Batch, out: Seq2SeqOutput) -> LossTerm:
        raise AssertionError("every subclass overrides this")


class BartForSequenceClassification(_Reader):
    """One label, several labels or a number for a text: ``logits`` ``(B, C)``.

    The classifier reads the decoder's vector at the last ``</s>`` of the text (section 3.1): ``pooler_output``.

    ``class_weights``: see :class:`bertkit.BertForSequenceClassification`.
    """

    head_prefixes = ("classification_head.",)
    label_head = True
    kind = "sequence"
    targets = ("labels",)

    def _add_head(self, config: EncoderDecoderConfig) -> None:
        self.classification_head = ClassificationHead(config)
        self.class_weights: Tensor | None = None

    def num_targets(self, batch: Batch) -> dict[str, float]:
        """What the loss of a batch is divided by."""
        several = self.config.problem_type == "multi_label_classification"  # whose labels may be integers as well
        return {"loss": count_targets(batch.targets["labels"], None if several else self.class_weights)}

    def _score(self, x_TD: Tensor, batch: Batch, out: Seq2SeqOutput) -> None:
        out.pooler_output = x_TD[self._last_ends(batch)]
        out.logits = self.classification_head(out.pooler_output)

    def _loss(self, batch: Batch, out: Seq2SeqOutput) -> LossTerm:
        assert out.logits is not None
        labels, rows = batch.targets["labels"], batch.targets.get("row_weights")
        return class_loss(out.logits, labels, self.config.problem_type, self.class_weights, rows)

    def _last_ends(self, batch: Batch) -> Tensor:
        """The row of each sequence's last ``</s>``, int64 ``(B,)``."""
        ids_T, end = batch.input_ids, self.config.eos_token_id
        places_T = torch.arange(len(ids_T), device=ids_T.device).masked_fill(ids_T != end, -1)
        last_B = torch.stack([places_S.amax() for places_S in places_T.split(batch.layout.lengths)])
        if bool((last_B < 0).any()):
            row = int((last_B < 0).nonzero()[0])
            raise InputError(f"row {row} of input_ids has no eos_token_id={end}, where the classifier reads")
        return last_B

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        *,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> Seq2SeqOutput:
        """Run a padded batch; ``labels`` as :class:`bertkit.BertForSequenceClassification` takes them.

        The other arguments are those of :meth:`BartModel.forward`.

        Raises:
            InputError: a row without ``</s>``; shapes that do not agree, ids outside the vocabulary, too many tokens.
        """
        out, batch, padding = self._run(
            input_ids, attention_mask, output_attentions=output_attentions, output_hidden_states=output_hidden_states
        )
        assert out.last_hidden_state is not None
        batch = batch if labels is None else batch.with_target("labels", labels)
        self._add_logits_and_loss(padding.pack(out.last_hidden_state), batch, out)
        return out


class BartForQuestionAnswering(_Reader):
    """Start and end of the answer in a context: ``start_logits``, ``end_logits`` ``(B, S)``."""

    head_prefixes = ("qa_outputs.",)
    kind = "span"
    targets = ("start_positions", "end_positions")

    def _add_head(self, config: EncoderDecoderConfig) -> None:
        self.qa_outputs = Linear(config.d_model, 2)

    def num_targets(self, batch: Batch) -> dict[str, float]:
        """What the loss of a batch is divided by."""
        return {"loss": count_spans(batch.targets["start_positions"], batch.targets["end_positions"], batch.layout)}

    def _score(self, x_TD: Tensor, batch: Batch, out: Seq2SeqOutput) -> None:
        out.start_logits, out.end_logits = self.qa_outputs(x_TD).unbind(dim=-1)

    def _loss(self, batch: Batch, out: Seq2SeqOutput) -> LossTerm:
        assert out.start_logits is not None
        assert out.end_logits is not None
        start, end = (batch.targets[name] for name in self.targets)
        return span_loss(out.start_logits, out.end_logits, start, end, batch.layout)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        *,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
    ) -> Seq2SeqOutput:
        """Run a padded batch; the positions and the loss are those of :class:`bertkit.BertForQuestionAnswering`.

        The other arguments are those of :meth:`BartModel.forward`.

        Raises:
            InputError: one position without the other; shapes that do not agree, ids outside the vocabulary.
        """
        if (start_positions is None) != (end_positions is None):
            raise InputError("give start_positions and end_positions, or neither")
        out, batch, padding = self._run(
            input_ids, attention_mask, output_attentions=output_attentions, output_hidden_states=output_hidden_states
        )
        if start_positions is not None and end_positions is not None:
            batch = batch.with_target("start_positions", start_positions).with_target("end_positions", end_positions)
        assert out.last_hidden_state is not None
        self._add_logits_and_loss(padding.pack(out.last_hidden_state), batch, out)
        assert out.start_logits is not None
        assert out.end_logits is not None
        out.start_logits, out.end_logits = map(padding.unpack_places, (out.start_logits, out.end_logits))
        return out
