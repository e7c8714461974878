"""The names of a model's outputs in ``transformers``: here one class has them all."""

from __future__ import annotations

from bertkit.model.output import ModelOutput
from bertkit.model.seq2seq.seq2seq_models import Seq2SeqOutput

BaseModelOutput = BaseModelOutputWithPooling = BaseModelOutputWithPoolingAndCrossAttentions = ModelOutput
MaskedLMOutput = MultipleChoiceModelOutput = NextSentencePredictorOutput = QuestionAnsweringModelOutput = ModelOutput
SequenceClassifierOutput = TokenClassifierOutput = ModelOutput
Seq2SeqLMOutput = Seq2SeqModelOutput = Seq2SeqQuestionAnsweringModelOutput = Seq2SeqOutput
