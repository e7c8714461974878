"""The model classes by the names they have in other software, where each family has its own.

One class serves all families, so each name stands for the class itself: ``RobertaModel is BertModel``, and it is the
config that says which family a model is of.
"""

from __future__ import annotations

from bertkit.model.models import (
    BertForMaskedLM,
    BertForMultipleChoice,
    BertForPreTraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)

RobertaModel = CamembertModel = XLMRobertaModel = BertModel
DistilBertModel = AlbertModel = ElectraModel = BertModel

RobertaForMaskedLM = CamembertForMaskedLM = XLMRobertaForMaskedLM = BertForMaskedLM
DistilBertForMaskedLM = AlbertForMaskedLM = ElectraForMaskedLM = BertForMaskedLM

RobertaForSequenceClassification = CamembertForSequenceClassification = BertForSequenceClassification
XLMRobertaForSequenceClassification = DistilBertForSequenceClassification = BertForSequenceClassification
AlbertForSequenceClassification = ElectraForSequenceClassification = BertForSequenceClassification

RobertaForTokenClassification = CamembertForTokenClassification = BertForTokenClassification
XLMRobertaForTokenClassification = DistilBertForTokenClassification = BertForTokenClassification
AlbertForTokenClassification = ElectraForTokenClassification = BertForTokenClassification

RobertaForQuestionAnswering = CamembertForQuestionAnswering = BertForQuestionAnswering
XLMRobertaForQuestionAnswering = DistilBertForQuestionAnswering = BertForQuestionAnswering
AlbertForQuestionAnswering = ElectraForQuestionAnswering = BertForQuestionAnswering

RobertaForMultipleChoice = CamembertForMultipleChoice = BertForMultipleChoice
XLMRobertaForMultipleChoice = DistilBertForMultipleChoice = BertForMultipleChoice
AlbertForMultipleChoice = ElectraForMultipleChoice = BertForMultipleChoice

AlbertForPreTraining = BertForPreTraining
