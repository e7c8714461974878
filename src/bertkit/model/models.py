"""The models: the encoder, and the encoder with a head. Names, arguments and results are those the field uses.

One class serves all families; the config says which family a model belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from bertkit.batch import Batch, Layout
from bertkit.config.bert_config import BertConfig
from bertkit.errors import ConfigError, InputError
from bertkit.model.configured_model import initialize
from bertkit.model.embeddings import Embeddings
from bertkit.model.heads import MaskedLMTransform, Pooler, PreTrainingHeads
from bertkit.model.kernels.chosen_rows import ChosenRows, Rows, take_rows
from bertkit.model.kernels.dropout import Dropout
from bertkit.model.kernels.linear import Linear
from bertkit.model.losses import LossTerm, class_loss, count_spans, count_targets, masked_lm_loss, span_loss, token_loss
from bertkit.model.output import ModelOutput
from bertkit.model.padded import PackedModel
from bertkit.model.pooling import pool_tokens
from bertkit.model.published_parts import OutProjection
from bertkit.model.variants import encoder_of

Part = TypeVar("Part", bound=nn.Module)


class BertModel(PackedModel):
    """The encoder with its pooler: ``last_hidden_state`` and ``pooler_output``.

    Args:
        config: the shape.
        add_pooling_layer: False leaves the pooler out; ``pooler_output`` is then None, as in families without a pooler.
    """

    base_prefix = ""
    #: Whether the pooler is the first layer of a classifier, which elsewhere is no part of the encoder.
    pools_for_head = False

    def __init__(self, config: BertConfig, add_pooling_layer: bool = True) -> None:
        super().__init__(config)
        self.embeddings = Embeddings(config)
        self.encoder = encoder_of(config)
        self.pooler = Pooler(config) if add_pooling_layer and config.family.has_pooler else None
        self.init_weights()

    def named_parameters(self, prefix: str = "", *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """Those of the encoder, to be frozen: without a pooler that is the first layer of a classifier."""
        left_out = f"{prefix}{prefix and '.'}pooler."
        for name, parameter in super().named_parameters(prefix, *args, **kwargs):
            if not (self.pools_for_head and name.startswith(left_out)):
                yield name, parameter

    def forward_packed(
        self, batch: Batch, *, rows: Rows = None, output_attentions: bool = False, output_hidden_states: bool = False
    ) -> ModelOutput:
        """Packed batch to ``last_hidden_state`` ``(T, D)`` and ``pooler_output`` ``(B, D)``.

        With ``rows``, ``last_hidden_state`` has only these rows, with the same values, for less work: ``"first"`` gives
        the vectors of [CLS], ``(B, D)``; int64 ``(R,)`` gives ``(R, D)``.
        """
        x_TD, layout = self.embeddings(batch), batch.layout
        chosen = None if output_attentions or output_hidden_states else ChosenRows.of(rows, layout, x_TD.device)
        wanted = {"want_states": output_hidden_states, "want_probs": output_attentions}
        x, states, attentions = self.encoder(x_TD, layout, chosen, position_ids=batch.position_ids, **wanted)
        return ModelOutput(
            last_hidden_state=take_rows(x, chosen, rows, layout),
            pooler_output=None if self.pooler is None else self.pooler(take_rows(x, chosen, "first", layout)),
            hidden_states=tuple(states) if output_hidden_states else None,
            attentions=tuple(attentions) if output_attentions else None,
        )


class HeadModel(PackedModel):
    """Encoder and head. A subclass says what the head reads, how it computes logits, and its loss."""

    #: What the head reads: the pooled vector, every token, or the tokens to predict (``batch.logit_rows``).
    reads: Literal["pooled", "tokens", "words"] = "pooled"
    uses_pooler: bool = True
    token_fields: ClassVar[tuple[str, ...]] = ()
    #: What the head judges: "sequence", "token", "choice" or "span". By it a family chooses pooler and dropout.
    kind: ClassVar[str] = "token"
    #: The families that have such a head; None: all.
    families: ClassVar[frozenset[str] | None] = None

    def __init__(self, config: BertConfig) -> None:
        if self.families is not None and config.model_type not in self.families:
            raise ConfigError(
                f"the {config.model_type} family has no {type(self).__name__}; {' and '.join(sorted(self.families))} "
                "only. Use another class, such as BertForMaskedLM, or another config"
            )
        super().__init__(config)
        has_layer = config.family.head_layer and self.reads != "words"
        self.pools = config.pooling != "cls" and (self.kind == "sequence" or (has_layer and self.kind == "choice"))
        if self.pools:
            self.reads, self.uses_pooler = "tokens", False
        if config.attention_direction == "left-to-right" and self.uses_pooler:
            raise ConfigError(
                f"{type(self).__name__} reads the vector of the first token, which has seen no other in a model with "
                "attention_direction='left-to-right'; take pooling 'mean' or 'max', or a head that reads every token"
            )
        self.bert = BertModel(config, add_pooling_layer=self.uses_pooler)
        if self.uses_pooler and (own := config.family.poolers.get(self.kind)):
            rate = config.head_dropout("pooler") if own.drops_input else 0.0
            self.bert.pooler = self._new(Pooler(config, own.activation, rate))
            self.bert.pools_for_head = True
        self.layer = self._new(MaskedLMTransform(config)) if has_layer else None
        self.pool = pool_tokens

    def _new(self, part: Part) -> Part:
        initialize(part, self.config.initializer_range)
        return part

    def forward_packed(
        self, batch: Batch, *, output_attentions: bool = False, output_hidden_states: bool = False
    ) -> ModelOutput:
        """Packed batch to logits, and with ``batch.targets`` to ``loss`` and ``loss_terms``."""
        rows: dict[str, Rows] = {"pooled": "first", "tokens": None, "words": batch.logit_rows}
        encoded = self.bert.forward_packed(
            batch, rows=rows[self.reads], output_attentions=output_attentions, output_hidden_states=output_hidden_states
        )
        out = ModelOutput(hidden_states=encoded.hidden_states, attentions=encoded.attentions)
        terms = self._head(encoded, batch, out)
        if terms:
            out.loss = torch.stack([term.mean() for term in terms.values()]).sum()
            out.loss_terms = terms
        return out

    def num_targets(self, batch: Batch) -> dict[str, float]:
        """What each of ``loss_terms`` is divided by: targets that are not -100, or the sum of their class weights."""
        return {"loss": count_targets(batch.targets[self.targets[0]])}

    def _head(self, encoded: ModelOutput, batch: Batch, out: ModelOutput) -> dict[str, LossTerm]:
        """Fill ``out`` with logits; return the terms of the loss, none without targets."""
        raise AssertionError("every subclass overrides this")

    def _features(self, encoded: ModelOutput, layout: Layout) -> Tensor:
        """What a classifier reads: pooled vectors ``(B, D)``, or those of tokens ``(T, D)``."""
        x = encoded.last_hidden_state if encoded.pooler_output is None else encoded.pooler_output
        assert x is not None
        if self.pools:
            x = self.pool(x, layout, self.config.pooling)
        return x if self.layer is None else self.layer(x)

    def _predict_words(self, encoded: ModelOutput) -> Tensor:
        """Vocabulary logits at the encoded rows, ``(T, V)`` or ``(R, V)``."""
        assert isinstance(self.cls, PreTrainingHeads)
        table = self.bert.embeddings.word_embeddings.weight
        return self.cls.predictions(encoded.last_hidden_state, table)  # type: ignore[no-any-return]


class BertForPreTraining(HeadModel):
    """Masked LM and next sentence: ``prediction_logits``, ``seq_relationship_logits`` (0 = is next, 1 = random).

    ALBERT's second head is sentence order (0 = in order, 1 = swapped): ``sentence_order_label`` and ``sop_logits``.
    ``transformers.Trainer`` needs ``label_names=["labels", "sentence_order_label"]`` then.

    Targets: ``labels`` ``(B, S)``, -100 where nothing is to be predicted; ``next_sentence_label`` ``(B,)``. In a packed
    batch with ``logit_rows`` only these rows are projected to the vocabulary, which is what pre-training wants.
    """

    targets = ("labels", "next_sentence_label")
    token_targets = ("labels",)
    #: The loss term of each target.
    terms: ClassVar[dict[str, str]] = {"labels": "masked_lm", "next_sentence_label": "next_sentence"}
    token_fields = ("prediction_logits",)
    head_prefixes = ("cls.",)
    families = frozenset({"bert", "albert"})
    reads, allows_some_targets = "words", True

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.cls = self._new(PreTrainingHeads(config, masked_lm=True, next_sentence=True))

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
            terms["next_sentence"] = token_loss(out.seq_relationship_logits, batch.targets["next_sentence_label"])
        return terms


class BertForMaskedLM(HeadModel):
    """Scores of every word piece at every position: ``logits``. Targets: ``labels`` ``(B, S)``, -100 = not masked."""

    targets = token_targets = ("labels",)
    token_fields = ("logits",)
    head_prefixes = ("cls.predictions.",)
    reads, uses_pooler = "words", False

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.cls = self._new(PreTrainingHeads(config, masked_lm=True))

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
        self.cls = self._new(PreTrainingHeads(config, next_sentence=True))

    def _head(self, encoded: ModelOutput, batch: Batch, out: ModelOutput) -> dict[str, LossTerm]:
        assert encoded.pooler_output is not None
        out.logits = self.cls.follows(encoded.pooler_output)
        return {"loss": token_loss(out.logits, batch.targets["labels"])} if batch.targets else {}


class BertForSequenceClassification(HeadModel):
    """One label, several labels or a number for a sentence or pair: ``logits`` ``(B, C)``.

    The classifier reads the pooled vector of [CLS]; with ``config.pooling`` "mean" or "max", that of all tokens.

    Targets: ``labels``, int64 ``(B,)`` for one label; float ``(B, C)`` for several; float ``(B,)`` for regression with
    one output. ``config.problem_type`` decides; where it is None, one output is regression, integers are one label.

    ``class_weights``: None, or float ``(C,)``: ``weight`` of ``torch.nn.CrossEntropyLoss``, losses times the
    weights of their labels over the sum of the weights; for several labels ``pos_weight`` of ``BCEWithLogitsLoss``.
    """

    targets = ("labels",)
    head_prefixes = ("classifier.", "bert.pooler.")
    label_head = True
    kind = "sequence"

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.dropout = Dropout(config.head_dropout(self.kind))
        self.classifier = self._new(self._classifier(config))
        self.class_weights: Tensor | None = None

    def _classifier(self, config: BertConfig) -> Linear:
        sizes = config.hidden_size, config.num_labels
        pooler = self.bert.pooler
        return OutProjection(*sizes).follow(pooler) if pooler and config.family.projects_out else Linear(*sizes)

    def num_targets(self, batch: Batch) -> dict[str, float]:
        several = self.config.problem_type == "multi_label_classification"  # whose labels may be integers as well
        return {"loss": count_targets(batch.targets["labels"], None if several else self.class_weights)}

    def _head(self, encoded: ModelOutput, batch: Batch, out: ModelOutput) -> dict[str, LossTerm]:
        out.logits = self.classifier(self.dropout(self._features(encoded, batch.layout)))
        if not batch.targets:
            return {}
        labels, rows = batch.targets["labels"], batch.targets.get("row_weights")
        return {"loss": class_loss(out.logits, labels, self.config.problem_type, self.class_weights, rows)}


class BertForTokenClassification(HeadModel):
    """A label for each token: ``logits`` ``(B, S, C)``. Targets: ``labels`` ``(B, S)``, -100 = ignored."""

    targets = token_targets = ("labels",)
    token_fields = ("logits",)
    head_prefixes = ("classifier.",)
    label_head = True
    reads, uses_pooler = "tokens", False

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.dropout = Dropout(config.head_dropout(self.kind))
        self.classifier = self._new(Linear(config.hidden_size, config.num_labels))

    def _head(self, encoded: ModelOutput, batch: Batch, out: ModelOutput) -> dict[str, LossTerm]:
        out.logits = self.classifier(self.dropout(self._features(encoded, batch.layout)))
        return {"loss": token_loss(out.logits, batch.targets["labels"])} if batch.targets else {}


class BertForQuestionAnswering(HeadModel):
    """Start and end of the answer in a context: ``start_logits``, ``end_logits`` ``(B, S)``.

    Targets: ``start_positions`` and ``end_positions`` ``(B,)``, counted in tokens of the sequence; an example with a
    position outside its sequence is ignored. The loss is the mean of the two cross-entropies.
    Deviates from the common implementation: padded positions have the smallest value of the type, so that an ``argmax``
    or a softmax of a row never chooses them; they take no part in the loss.
    """

    targets = ("start_positions", "end_positions")
    token_fields = place_fields = ("start_logits", "end_logits")
    head_prefixes = ("qa_outputs.",)
    kind = "span"
    reads, uses_pooler = "tokens", False

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.dropout = Dropout(config.head_dropout(self.kind))
        self.qa_outputs = self._new(Linear(config.hidden_size, 2))

    def num_targets(self, batch: Batch) -> dict[str, float]:
        return {"loss": count_spans(batch.targets["start_positions"], batch.targets["end_positions"], batch.layout)}

    def _head(self, encoded: ModelOutput, batch: Batch, out: ModelOutput) -> dict[str, LossTerm]:
        out.start_logits, out.end_logits = self.qa_outputs(self.dropout(self._features(encoded, batch.layout))).unbind(
            dim=-1
        )
        if not batch.targets:
            return {}
        start, end = (batch.targets[name] for name in self.targets)
        return {"loss": span_loss(out.start_logits, out.end_logits, start, end, batch.layout)}


class BertForMultipleChoice(HeadModel):
    """The right one of several continuations: ``logits`` ``(B, choices)`` from input ``(B, choices, S)``.

    Targets: ``labels`` ``(B,)``. A packed batch holds the B * choices sequences in order; with
    ``targets["labels"]`` the number of choices is known, without it ``logits`` is ``(1, B * choices)``.
    """

    targets = ("labels",)
    head_prefixes = ("classifier.", "bert.pooler.")
    kind = "choice"
    has_choices = True

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.dropout = Dropout(config.head_dropout(self.kind))
        self.classifier = self._new(Linear(config.hidden_size, 1))

    def _head(self, encoded: ModelOutput, batch: Batch, out: ModelOutput) -> dict[str, LossTerm]:
        questions = len(batch.targets["labels"]) if batch.targets else 1
        if batch.layout.num_sequences % questions:
            raise InputError(f"{batch.layout.num_sequences} sequences do not split evenly into {questions} questions")
        out.logits = self.classifier(self.dropout(self._features(encoded, batch.layout))).view(questions, -1)
        return {"loss": token_loss(out.logits, batch.targets["labels"])} if batch.targets else {}
