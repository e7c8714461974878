"""BART that reads: the heads that classify a text and find an answer in it.

Axes, in the order of the suffix letters::

    B sequences   S tokens of a sequence   D model width   C labels   T tokens of the encoder, flat
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bertkit.config.encoder_decoder_config import BartConfig, EncoderDecoderConfig
from bertkit.errors import InputError
from bertkit.model.kernels.dropout import Dropout
from bertkit.model.kernels.linear import Linear
from bertkit.model.losses import class_loss, span_loss
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


class BartForSequenceClassification(Seq2SeqModel):
    """One label, several labels or a number for a text: ``logits`` ``(B, C)``.

    The decoder reads the text too, and the classifier its vector at the last ``</s>`` (section 3.1).
    """

    config_class = BartConfig
    head_prefixes = ("classification_head.",)
    label_head = True

    def _add_head(self, config: EncoderDecoderConfig) -> None:
        self.classification_head = ClassificationHead(config)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        *,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
    ) -> Seq2SeqOutput:
        """Run a padded batch; ``labels`` as :class:`bertkit.BertForSequenceClassification` takes them.

        The other arguments are those of :meth:`BartModel.forward`.

        Raises:
            InputError: a row without ``</s>``; shapes that do not agree, ids outside the vocabulary, too many tokens.
        """
        out, _, _ = self._run(
            input_ids, attention_mask, output_attentions=output_attentions, output_hidden_states=output_hidden_states
        )
        ends_BS = input_ids == self.config.eos_token_id
        if not bool(ends_BS.any(dim=1).all()):
            row = int((~ends_BS.any(dim=1)).nonzero()[0])
            raise InputError(
                f"row {row} of input_ids has no eos_token_id={self.config.eos_token_id}, where the classifier reads"
            )
        assert out.last_hidden_state is not None
        columns_S = torch.arange(input_ids.shape[1], device=input_ids.device)
        last_B = (columns_S * ends_BS).amax(dim=1)
        out.logits = self.classification_head(out.last_hidden_state[torch.arange(len(last_B)), last_B])
        if labels is not None:
            term = class_loss(out.logits, labels, self.config.problem_type)
            out.loss, out.loss_terms = term.mean(), {"loss": term}
        return out


class BartForQuestionAnswering(Seq2SeqModel):
    """Start and end of the answer in a context: ``start_logits``, ``end_logits`` ``(B, S)``."""

    config_class = BartConfig
    head_prefixes = ("qa_outputs.",)

    def _add_head(self, config: EncoderDecoderConfig) -> None:
        self.qa_outputs = Linear(config.d_model, 2)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        start_positions: Tensor | None = None,
        end_positions: Tensor | None = None,
        *,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
    ) -> Seq2SeqOutput:
        """Run a padded batch; the positions and the loss are those of :class:`bertkit.BertForQuestionAnswering`.

        The other arguments are those of :meth:`BartModel.forward`.

        Raises:
            InputError: one position without the other; shapes that do not agree, ids outside the vocabulary.
        """
        if (start_positions is None) != (end_positions is None):
            raise InputError("give start_positions and end_positions, or neither")
        out, layout, padding = self._run(
            input_ids, attention_mask, output_attentions=output_attentions, output_hidden_states=output_hidden_states
        )
        out.start_logits, out.end_logits = self.qa_outputs(out.last_hidden_state).unbind(dim=-1)
        if start_positions is not None and end_positions is not None:
            start_T, end_T = padding.pack(out.start_logits), padding.pack(out.end_logits)
            term = span_loss(start_T, end_T, start_positions, end_positions, layout)
            out.loss, out.loss_terms = term.mean(), {"loss": term}
        return out
