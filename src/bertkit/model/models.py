"""The models: encoder, and encoder + head. Names, arguments and results are those of the field's common interface.

One class serves all families: which one a model is of, its config says.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from bertkit.batch import Batch, Padding
from bertkit.config.bert_config import BertConfig
from bertkit.errors import InputError
from bertkit.model.encoder_model import BertModel, HeadModel, WordHeadModel, count_targets
from bertkit.model.heads import PreTrainingHeads, ReplacedTokenHead
from bertkit.model.kernels.linear import Linear
from bertkit.model.losses import LossTerm, class_loss, masked_lm_loss, replaced_token_loss, span_loss, token_loss
from bertkit.model.output import ModelOutput
from bertkit.model.padded import PackedModel

__all__ = [
    "MODEL_CLASSES",
    "BertForMaskedLM",
    "BertForMultipleChoice",
    "BertForNextSentencePrediction",
    "BertForPreTraining",
    "BertForQuestionAnswering",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertModel",
    "ElectraForPreTraining",
]


class BertForPreTraining(WordHeadModel):
    """Masked LM and next sentence: ``prediction_logits``, ``seq_relationship_logits`` (0 = is next, 1 = random).

    ALBERT's second is sentence order (0 = as written, 1 = swapped), ``sentence_order_label`` and ``sop_logits``.

    Targets: ``labels`` ``(B, S)``, -100 where nothing is to be predicted; ``next_sentence_label`` ``(B,)``. A packed
    batch with ``logit_rows`` has the vocabulary projected at those rows only, as pre-training wants it.
    """

    targets = ("labels", "next_sentence_label")
    token_targets = ("labels",)
    #: The loss term of each target.
    terms: ClassVar[dict[str, str]] = {"labels": "masked_lm", "next_sentence_label": "next_sentence"}
    token_fields = ("prediction_logits",)
    head_prefixes = ("cls.",)
    families = frozenset({"bert", "albert"})

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.cls = self._head_part(PreTrainingHeads(config, masked_lm=True, next_sentence=True))

    def num_targets(self, batch: Batch) -> dict[str, float]:
        return {term: count_targets(batch.targets[name]) for name, term in self.terms.items() if name in batch.targets}

    def _head(self, encoded: ModelOutput, batch: Batch, out: ModelOutput) -> dict[str, LossTerm]:
        out.prediction_logits = self._predict_words(encoded)
        assert encoded.pooler_output is not None
        out.seq_relationship_logits = self.cls.follows(encoded.pooler_output)
        terms = {}
        if "labels" in batch.targets:
            terms["masked_lm"] = masked_lm_loss(out.prediction_logits, batch.targets["labels"], batch.logit_rows)
        if "next_sentence_label" in batch.targets:
            terms["next_sentence"] = class_loss(out.seq_relationship_logits, batch.targets["next_sentence_label"])
        return terms


class BertForMaskedLM(WordHeadModel):
    """Scores of every word piece at every position: ``logits``. Targets: ``labels`` ``(B, S)``, -100 = not masked."""

    targets = token_targets = ("labels",)
    token_fields = ("logits",)
    head_prefixes = ("cls.predictions.",)
    uses_pooler = False

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.cls = self._head_part(PreTrainingHeads(config, masked_lm=True))

    def _head(self, encoded: ModelOutput, batch: Batch, out: ModelOutput) -> dict[str, LossTerm]:
        out.logits = self._predict_words(encoded)
        return {"loss": masked_lm_loss(out.logits, batch.targets["labels"], batch.logit_rows)} if batch.targets else {}


class BertForNextSentencePrediction(HeadModel):
    """Does sentence B follow A? ``logits`` ``(B, 2)``: 0 = is next, 1 = random. Targets: ``labels`` ``(B,)``."""

    targets = ("labels",)
    head_prefixes = ("cls.seq_relationship.",)
    families = frozenset({"bert"})

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.cls = self._head_part(PreTrainingHeads(config, next_sentence=True))

    def _head(self, encoded: ModelOutput, batch: Batch, out: ModelOutput) -> dict[str, LossTerm]:
        assert encoded.pooler_output is not None
        out.logits = self.cls.follows(encoded.pooler_output)
        return {"loss": class_loss(out.logits, batch.targets["labels"])} if batch.targets else {}


class BertForSequenceClassification(HeadModel):
    """One label, several labels or a number for a sentence or pair: ``logits`` ``(B, C)``.

    Targets: ``labels``, int64 ``(B,)`` for one label; float ``(B, C)`` for several; float ``(B,)`` for regression with
    one output. ``config.problem_type`` decides; where it is None: one output is regression, integers are one label.

    ``class_weights``: None, or float ``(C,)``; each example's loss is multiplied by its label's weight, and the mean is
    over the sum of the weights, as in ``torch.nn.CrossEntropyLoss``. For several labels it is the weight of a label
    that is there, ``pos_weight`` of ``torch.nn.BCEWithLogitsLoss``.
    """

    targets = ("labels",)
    head_prefixes = ("classifier.", "bert.pooler.")
    label_head = True
    kind = "sequence"

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.dropout = self._head_dropout()
        self.classifier = self._head_part(Linear(config.hidden_size, config.num_labels))
        self.class_weights: Tensor | None = None

    def _head(self, encoded: ModelOutput, batch: Batch, out: ModelOutput) -> dict[str, LossTerm]:
        out.logits = self.classifier(self.dropout(encoded.pooler_output))
        if not batch.targets:
            return {}
        return {"loss": class_loss(out.logits, batch.targets["labels"], self.config.problem_type, self.class_weights)}

    def num_targets(self, batch: Batch) -> dict[str, float]:
        labels = batch.targets["labels"]
        several = self.config.problem_type == "multi_label_classification"  # whose labels may be integers as well
        if self.class_weights is None or several or labels.is_floating_point():
            return {"loss": count_targets(labels)}
        return {"loss": float(self.class_weights.to(labels.device)[labels[labels != -100]].sum())}


class BertForTokenClassification(HeadModel):
    """A label for each token: ``logits`` ``(B, S, C)``. Targets: ``labels`` ``(B, S)``, -100 = ignored."""

    targets = token_targets = ("labels",)
    token_fields = ("logits",)
    head_prefixes = ("classifier.",)
    label_head = True
    uses_pooler = reads_pooler_only = False

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.dropout = self._head_dropout()
        self.classifier = self._head_part(Linear(config.hidden_size, config.num_labels))

    def _head(self, encoded: ModelOutput, batch: Batch, out: ModelOutput) -> dict[str, LossTerm]:
        out.logits = self.classifier(self.dropout(encoded.last_hidden_state))
        return {"loss": token_loss(out.logits, batch.targets["labels"])} if batch.targets else {}


class BertForQuestionAnswering(HeadModel):
    """Start and end of the answer in a context: ``start_logits``, ``end_logits`` ``(B, S)``.

    Targets: ``start_positions`` and ``end_positions`` ``(B,)``, counted in tokens of the sequence; an example with a
    position outside its sequence is ignored. The loss is the mean of the two cross-entropies.
    Deviates from the common implementation: padded positions take no part in the softmax of the loss.
    """

    targets = ("start_positions", "end_positions")
    token_fields = ("start_logits", "end_logits")
    head_prefixes = ("qa_outputs.",)
    uses_pooler = reads_pooler_only = False
    kind = "span"

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.dropout = self._head_dropout()
        self.qa_outputs = self._head_part(Linear(config.hidden_size, 2))

    def _head(self, encoded: ModelOutput, batch: Batch, out: ModelOutput) -> dict[str, LossTerm]:
        out.start_logits, out.end_logits = self.qa_outputs(self.dropout(encoded.last_hidden_state)).unbind(dim=-1)
        if not batch.targets:
            return {}
        start, end = (batch.targets[name] for name in self.targets)
        return {"loss": span_loss(out.start_logits, out.end_logits, start, end, batch.layout)}

    def num_targets(self, batch: Batch) -> dict[str, float]:
        lengths_B = torch.tensor(batch.layout.lengths, device=batch.input_ids.device)
        inside = [(batch.targets[name] >= 0) & (batch.targets[name] < lengths_B) for name in self.targets]
        return {"loss": float((inside[0] & inside[1]).sum())}


class BertForMultipleChoice(HeadModel):
    """The right one of several continuations: ``logits`` ``(B, choices)`` from input ``(B, choices, S)``.

    Targets: ``labels`` ``(B,)``. A packed batch holds the B * choices sequences in order; with
    ``targets["labels"]`` the number of choices is known, without it ``logits`` is ``(1, B * choices)``.
    """

    targets = ("labels",)
    head_prefixes = ("classifier.", "bert.pooler.")
    kind = "choice"

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.dropout = self._head_dropout()
        self.classifier = self._head_part(Linear(config.hidden_size, 1))

    def forward(self, input_ids: Tensor, *args: Any, **kwargs: Any) -> ModelOutput | tuple[Any, ...]:
        """As in the other classes, with a choices axis after the batch axis."""
        if input_ids.ndim != 3:
            raise InputError(f"input_ids must have shape (batch, choices, sequence), got {tuple(input_ids.shape)}")
        choices = input_ids.shape[1]
        merge = {key: _merge_choices(key, value, self.targets) for key, value in kwargs.items()}
        merged = [None if arg is None else arg.flatten(0, 1) for arg in args]
        out = super().forward(input_ids.flatten(0, 1), *merged, **{**merge, "return_dict": True})
        assert isinstance(out, ModelOutput)
        assert out.logits is not None
        out.logits = out.logits.view(-1, choices)
        return out if kwargs.get("return_dict", True) else out.to_tuple()

    def _head(self, encoded: ModelOutput, batch: Batch, out: ModelOutput) -> dict[str, LossTerm]:
        scores_B1 = self.classifier(self.dropout(encoded.pooler_output))
        questions = len(batch.targets["labels"]) if batch.targets else 1
        if batch.layout.num_sequences % questions:
            raise InputError(f"{batch.layout.num_sequences} sequences cannot be shared by {questions} questions")
        out.logits = scores_B1.view(questions, -1)
        return {"loss": class_loss(out.logits, batch.targets["labels"])} if batch.targets else {}


class ElectraForPreTraining(HeadModel):
    """The discriminator of ELECTRA: was a token replaced? ``logits`` ``(B, S)``, above 0 means yes.

    Targets: ``labels`` ``(B, S)``, 1 = replaced, 0 = original; those of padding, and -100, do not count.
    """

    targets = token_targets = ("labels",)
    token_fields = ("logits",)
    head_prefixes = ("discriminator.",)
    families = frozenset({"electra"})
    uses_pooler = reads_pooler_only = False

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.discriminator = self._head_part(ReplacedTokenHead(config))

    def _head(self, encoded: ModelOutput, batch: Batch, out: ModelOutput) -> dict[str, LossTerm]:
        out.logits = self.discriminator(encoded.last_hidden_state)
        return {"loss": replaced_token_loss(out.logits, batch.targets["labels"])} if batch.targets else {}

    def _pack_target(self, name: str, target: Tensor, padding: Padding) -> Tensor:
        return padding.pack(target) if target.shape == padding.shape else super()._pack_target(name, target, padding)


def _merge_choices(key: str, value: Any, targets: tuple[str, ...]) -> Any:
    return value.flatten(0, 1) if isinstance(value, Tensor) and key not in targets else value


#: The classes by the names that ``config.json`` files list under ``architectures``.
MODEL_CLASSES: dict[str, type[PackedModel]] = {
    cls.__name__: cls
    for cls in (
        BertModel,
        BertForPreTraining,
        BertForMaskedLM,
        BertForNextSentencePrediction,
        BertForSequenceClassification,
        BertForTokenClassification,
        BertForQuestionAnswering,
        BertForMultipleChoice,
        ElectraForPreTraining,
    )
}
