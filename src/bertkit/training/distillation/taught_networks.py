"""A student of running text in training, and its teacher, which reads the same batches.

Masks are drawn anew in every epoch, so teacher outputs cannot be cached; they are computed with each batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bertkit.batch import Batch
from bertkit.config.bert_config import BertConfig
from bertkit.errors import ConfigError
from bertkit.model.losses import LossOutput, LossTerm, count_targets, masked_lm_loss
from bertkit.model.models import BertForMaskedLM, BertForPreTraining, BertModel, HeadModel
from bertkit.model.output import ModelOutput
from bertkit.training.distillation.corpus_losses import (
    attention_loss,
    captured,
    direction_loss,
    prediction_loss,
    queries_keys_values,
    relation_loss,
    state_loss,
)
from bertkit.training.distillation.distill_settings import PredictionDistillation, RelationDistillation, StateLoss
from bertkit.training.trainer.generators import seeded

Student = BertForPreTraining | BertForMaskedLM
#: The layer of a teacher with so many that MiniLMv2 compares with; of others the last (Wang et al. 2021, section 4.1).
TEACHER_LAYERS = {24: 21}


class TaughtNetwork(nn.Module):
    """A student with another loss than its own. The teacher is no part of it: it is neither trained nor saved."""

    def __init__(self, student: Any, teacher: nn.Module) -> None:
        super().__init__()
        self.student = student
        self._teacher = (teacher.eval().requires_grad_(False).to(student.device),)

    @property
    def teacher(self) -> Any:
        """A model of the class that the subclass needs."""
        return self._teacher[0]


class TaughtPredictions(TaughtNetwork):
    """DistilBERT: soft predictions, masked words, directions of the last states (Sanh et al. 2019).

    Deviates: masks are drawn for each text, as in pre-training, not for a batch with rare words more often; segments
    stay.
    """

    def __init__(self, student: Student, teacher: BertForMaskedLM, settings: PredictionDistillation) -> None:
        super().__init__(student, teacher)
        check_pair(student.config, teacher.config, settings)
        self.settings = settings

    def forward_packed(self, batch: Batch) -> LossOutput:
        settings, labels = self.settings, batch.targets["labels"]
        masked = (labels != -100).nonzero().squeeze(1)
        asked = replace(batch, targets={}, logit_rows=masked if settings.positions == "masked" else None)
        said = self.student.forward_packed(asked, output_hidden_states=True)
        with torch.no_grad():
            told = self.teacher.forward_packed(asked, output_hidden_states=True)
        with torch.autocast(labels.device.type, enabled=False):
            ours = words_of(said)
            terms = {
                "soft": (settings.soft_weight, prediction_loss(ours, words_of(told), settings.temperature)),
                "masked_lm": (settings.masked_lm_weight, masked_lm_loss(ours.float(), labels, asked.logit_rows)),
            }
            if settings.cosine_weight:
                terms["cosine"] = (settings.cosine_weight, direction_loss(last_state(said), last_state(told)))
        return LossOutput(weighted(terms))

    def num_targets(self, batch: Batch) -> dict[str, float]:
        settings, masked = self.settings, count_targets(batch.targets["labels"])
        tokens = float(batch.layout.num_tokens)
        counts = {"soft": masked if settings.positions == "masked" else tokens, "masked_lm": masked}
        return {**counts, **({"cosine": tokens} if settings.cosine_weight else {})}


class TaughtRelations(TaughtNetwork):
    """MiniLMv2: relations among the queries, the keys and the values of one layer (Wang et al. 2021)."""

    def __init__(self, student: Student, teacher: BertModel, settings: RelationDistillation) -> None:
        super().__init__(student, teacher)
        check_pair(student.config, teacher.config, settings)
        self.heads, total = settings.relation_heads, teacher.config.num_hidden_layers
        layer = settings.teacher_layer or TEACHER_LAYERS.get(total, total)
        self._ours = queries_keys_values(student.bert, [student.config.num_hidden_layers - 1])
        self._theirs = queries_keys_values(teacher, [layer - 1])

    def forward_packed(self, batch: Batch) -> LossOutput:
        asked = replace(batch, targets={}, logit_rows=None)
        with captured(self._ours) as said:
            self.student.bert.forward_packed(asked)
        with torch.no_grad(), captured(self._theirs) as told:
            self.teacher.forward_packed(asked)
        with torch.autocast(batch.input_ids.device.type, enabled=False):
            parts = zip(NAMES, said[0].chunk(3, dim=-1), told[0].chunk(3, dim=-1), strict=True)
            return LossOutput(
                {name: relation_loss(ours, theirs, batch.layout, self.heads) for name, ours, theirs in parts}
            )

    def num_targets(self, batch: Batch) -> dict[str, float]:
        return dict.fromkeys(NAMES, float(self.heads * batch.layout.num_tokens))


#: The relations of MiniLMv2.
NAMES = ("queries", "keys", "values")


class TaughtStates(TaughtNetwork):
    """TinyBERT: attention scores and states of all layers, by a uniform map of layers (Jiao et al. 2020).

    As the published code and unlike the paper, one matrix projects embeddings and states alike.
    """

    def __init__(self, student: HeadModel | BertModel, teacher: BertModel, settings: StateLoss, *, seed: int) -> None:
        super().__init__(student, teacher)
        check_pair(student.config, teacher.config, settings)
        self.settings, ours, theirs = settings, student.config, teacher.config
        self.every, self.heads = theirs.num_hidden_layers // ours.num_hidden_layers, ours.num_attention_heads
        with seeded(seed):
            self.project = nn.Linear(ours.hidden_size, theirs.hidden_size)
            nn.init.trunc_normal_(self.project.weight, std=ours.initializer_range)
            nn.init.zeros_(self.project.bias)
        self.project.to(student.device)
        numbers = range(ours.num_hidden_layers)
        self._ours = queries_keys_values(encoder_of(student), numbers)
        self._theirs = queries_keys_values(teacher, [self.every * (number + 1) - 1 for number in numbers])

    def forward_packed(self, batch: Batch) -> LossOutput:
        asked, layout = replace(batch, targets={}, logit_rows=None), batch.layout
        with captured(self._ours) as said:
            ours = encoder_of(self.student).forward_packed(asked, output_hidden_states=True).hidden_states
        with torch.no_grad(), captured(self._theirs) as told:
            theirs = self.teacher.forward_packed(asked, output_hidden_states=True).hidden_states
        assert ours is not None
        terms: dict[str, tuple[float, LossTerm]] = {}
        with torch.autocast(batch.input_ids.device.type, enabled=False):
            if self.settings.state_weight:
                pairs = zip(ours, theirs[:: self.every], strict=True)
                terms["states"] = (self.settings.state_weight, total_of([state_loss(*p, self.project) for p in pairs]))
            if self.settings.attention_weight:
                places = range(len(self._ours))
                both = [(said[place].unflatten(-1, (3, -1)), told[place].unflatten(-1, (3, -1))) for place in places]
                scores = [attention_loss(ours_T3D, theirs_T3D, layout, self.heads) for ours_T3D, theirs_T3D in both]
                terms["attention"] = (self.settings.attention_weight, total_of(scores))
        return LossOutput(weighted(terms))

    def num_targets(self, batch: Batch) -> dict[str, float]:
        lengths, width = batch.layout.lengths, self.teacher.config.hidden_size
        counts = {"states": float(sum(lengths) * width), "attention": float(self.heads * sum(s * s for s in lengths))}
        weights = {"states": self.settings.state_weight, "attention": self.settings.attention_weight}
        return {name: count for name, count in counts.items() if weights[name]}


def words_of(output: ModelOutput) -> Tensor:
    """The scores of words, of a masked LM or of a pre-training model."""
    found = output.logits if output.prediction_logits is None else output.prediction_logits
    assert found is not None
    return found


def last_state(output: ModelOutput) -> Tensor:
    """The states of the top layer ``(T, D)``."""
    assert output.hidden_states is not None
    return output.hidden_states[-1]


def weighted(terms: Mapping[str, tuple[float, LossTerm]]) -> dict[str, LossTerm]:
    """The terms, each times its weight."""
    return {name: LossTerm(weight * term.total, term.num_targets) for name, (weight, term) in terms.items()}


def total_of(terms: list[LossTerm]) -> LossTerm:
    """The sum of means with the same divisor."""
    return LossTerm(torch.stack([term.total for term in terms]).sum(), terms[0].num_targets)


def check_pair(
    ours: BertConfig, theirs: BertConfig, settings: PredictionDistillation | RelationDistillation | StateLoss
) -> None:
    """Refuse (ConfigError, with all that is wrong) shapes of a student and its teacher that cannot be compared."""
    faults = [
        f"the {name} reads {shape.attention_direction}; models are compared on running text if they read both ways"
        for name, shape in (("student", ours), ("teacher", theirs))
        if shape.attention_direction != "both"
    ]
    match settings:
        case PredictionDistillation():
            if settings.cosine_weight and ours.hidden_size != theirs.hidden_size:
                faults.append(
                    f"the student's states have {ours.hidden_size} numbers, the teacher's {theirs.hidden_size}, so "
                    "their directions cannot be compared: take layers of the teacher (--student "
                    f"{ours.num_hidden_layers}), or --set cosine_weight=0"
                )
        case RelationDistillation():
            faults += [*_not_plain(ours, theirs), *_relation_faults(ours, theirs, settings)]
        case StateLoss():
            faults += [*_not_plain(ours, theirs), *_state_faults(ours, theirs, settings)]
    if faults:
        raise ConfigError("; ".join(faults))


def _not_plain(ours: BertConfig, theirs: BertConfig) -> list[str]:
    return [
        f"the {name} is of the {shape.model_type} family, whose attention is more than queries, keys and values, or "
        "whose layers share weights; this method compares those of BERT and its like"
        for name, shape in (("student", ours), ("teacher", theirs))
        if shape.family.scores != "content" or shape.num_stored_layers != shape.num_hidden_layers
    ]


def _relation_faults(ours: BertConfig, theirs: BertConfig, settings: RelationDistillation) -> list[str]:
    total, heads = theirs.num_hidden_layers, settings.relation_heads
    faults = []
    if (settings.teacher_layer or 1) > total:
        faults.append(f"teacher_layer={settings.teacher_layer}, but the teacher has {total} layers")
    widths = {name: shape.hidden_size for name, shape in (("student", ours), ("teacher", theirs))}
    if wrong := [f"the {name}'s width of {width}" for name, width in widths.items() if width % heads]:
        fits = max(n for n in range(1, heads + 1) if not any(width % n for width in widths.values()))
        faults.append(f"relation_heads={heads} does not divide {' and '.join(wrong)}; --set relation_heads={fits} does")
    return faults


def _state_faults(ours: BertConfig, theirs: BertConfig, settings: StateLoss) -> list[str]:
    layers, total, heads = ours.num_hidden_layers, theirs.num_hidden_layers, theirs.num_attention_heads
    faults = []
    if total % layers:
        faults.append(
            f"a student of {layers} layers learns every k-th layer of its teacher, which has {total}: choose a number "
            "that divides that"
        )
    if settings.attention_weight and ours.num_attention_heads != heads:
        faults.append(
            f"the student has {ours.num_attention_heads} attention heads, the teacher {heads}, so attention cannot be "
            "compared: give a new student as many, which must divide its width, or --set attention_weight=0"
        )
    if faults:
        fewer = max((n for n in range(1, layers + 1) if total % n == 0), default=1)
        width = max(ours.hidden_size // heads, 1) * heads
        faults.append(f"for example --student {fewer}x{width} --set heads={heads}")
    return faults


def encoder_of(model: HeadModel | BertModel) -> BertModel:
    """The model without its head."""
    return model if isinstance(model, BertModel) else model.bert


def load_teacher(path: str | Path, method: str) -> Any:
    """The teacher in the class that a method needs; CheckpointError if it has no masked-LM head and needs one."""
    return (BertForMaskedLM if method == "distilbert" else BertModel).from_pretrained(path)
