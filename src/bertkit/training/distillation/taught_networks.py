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
from bertkit.errors import ConfigError
from bertkit.model.losses import LossOutput, LossTerm, count_targets, masked_lm_loss
from bertkit.model.models import BertForMaskedLM, BertForPreTraining, BertModel, HeadModel
from bertkit.model.output import ModelOutput
from bertkit.training.distillation.corpus_losses import (
    attention_loss,
    captured,
    direction_loss,
    has_plain_attention,
    prediction_loss,
    queries_keys_values,
    relation_loss,
    state_loss,
)
from bertkit.training.distillation.distill_settings import (
    PredictionDistillation,
    RelationDistillation,
    StateLoss,
)
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

    def forward_packed(self, batch: Batch) -> LossOutput:
        """The terms of the loss, each with its weight."""
        raise NotImplementedError

    def num_targets(self, batch: Batch) -> dict[str, float]:
        """What each is divided by."""
        raise NotImplementedError


class TaughtPredictions(TaughtNetwork):
    """DistilBERT: soft predictions, masked words, directions of the last states (Sanh et al. 2019).

    Deviates: masks are drawn for each text, as in pre-training, not for a batch with rare words more often; segments
    stay.
    """

    def __init__(self, student: Student, teacher: BertForMaskedLM, settings: PredictionDistillation) -> None:
        super().__init__(student, teacher)
        self.settings = settings
        ours, theirs = student.config.hidden_size, teacher.config.hidden_size
        if settings.cosine_weight and ours != theirs:
            raise ConfigError(
                f"the student's states have {ours} numbers, the teacher's {theirs}, so their directions cannot be "
                "compared: take layers of the teacher, or set cosine_weight=0"
            )

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
        self.heads = settings.relation_heads
        check_layers(student.bert, teacher)
        total = teacher.config.num_hidden_layers
        layer = settings.teacher_layer or TEACHER_LAYERS.get(total, total)
        if layer > total:
            raise ConfigError(f"teacher_layer={layer}, but the teacher has {total} layers")
        for name, width in (("student", student.config.hidden_size), ("teacher", teacher.config.hidden_size)):
            if width % self.heads:
                raise ConfigError(
                    f"relation_heads={self.heads} does not divide the {name}'s width of {width}; give a number that "
                    "divides both widths"
                )
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
        self.settings = settings
        check_layers(encoder_of(student), teacher)
        ours, theirs = student.config, teacher.config
        self.every, rest = divmod(theirs.num_hidden_layers, ours.num_hidden_layers)
        if rest or not self.every:
            raise ConfigError(
                f"a student of {ours.num_hidden_layers} layers learns every k-th layer of its teacher, which has "
                f"{theirs.num_hidden_layers}; choose a number that divides that"
            )
        self.heads = ours.num_attention_heads
        if settings.attention_weight and self.heads != theirs.num_attention_heads:
            raise ConfigError(
                f"the student has {self.heads} attention heads, the teacher {theirs.num_attention_heads}, so attention "
                f"cannot be compared: give a new student as many (--set heads={theirs.num_attention_heads}; they must "
                "divide its width), or set attention_weight=0"
            )
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


def check_layers(student: BertModel, teacher: BertModel) -> None:
    """Refuse (ConfigError) layers whose attention is not BERT's."""
    for name, encoder in (("student", student), ("teacher", teacher)):
        if not has_plain_attention(encoder):
            raise ConfigError(
                f"the {name} is of the {encoder.config.model_type} family, whose attention is more than queries, keys "
                "and values, or whose layers share weights; this method compares those of BERT and its like"
            )


def encoder_of(model: HeadModel | BertModel) -> BertModel:
    """The model without its head."""
    return model if isinstance(model, BertModel) else model.bert


def load_teacher(path: str | Path, method: str) -> Any:
    """The teacher in the class that a method needs; CheckpointError if it has no masked-LM head and needs one."""
    return (BertForMaskedLM if method == "distilbert" else BertModel).from_pretrained(path)
