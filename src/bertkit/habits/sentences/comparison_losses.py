"""``losses`` of sentence-transformers: each says with which task and settings of ``bertkit finetune`` it is trained."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from bertkit.errors import DataError, InputError
from bertkit.habits.keywords import known_keywords
from bertkit.habits.sentences.compared_vectors import ScoreFunction, cos_sim, pairwise_angle_sim, pairwise_cos_sim
from bertkit.habits.sentences.training_rows import TASKS, compared_rows
from bertkit.tasks.embeddings.task import Comparison
from bertkit.tasks.embeddings.workflow import EmbeddingWorkflow
from bertkit.tasks.examples import Examples
from bertkit.tasks.workflow import AnyWorkflow


class TrainingLoss(ABC):
    """A loss as the task and the settings of ``bertkit finetune`` that it is; ``settings`` are those that it says."""

    settings: Mapping[str, Any]

    @abstractmethod
    def workflow(self) -> AnyWorkflow:
        """The kind of task."""

    @abstractmethod
    def examples(self, rows: Any) -> Examples[Any]:
        """Its examples of rows in memory; DataError, with the row from 0, for what does not fit."""


@dataclass(frozen=True)
class ComparisonLoss(TrainingLoss):
    """A loss that compares vectors; ``model`` is what it was made with, and not needed.

    compares: what rows must say. objective: of :class:`bertkit.model.text_comparison.Objective`, what no setting says.
    """

    model: object
    compares: Comparison
    settings: Mapping[str, Any]
    objective: Mapping[str, Any] = field(default_factory=dict)

    def workflow(self) -> AnyWorkflow:
        made = LossWorkflow(TASKS[self.compares])
        made.objective = self.objective
        return made

    def examples(self, rows: Any) -> Examples[Any]:
        return compared_rows(rows, self.compares)


class MultipleNegativesRankingLoss(ComparisonLoss):
    """Of all texts of a batch, find each anchor's own: loss ``in-batch`` at temperature ``1 / scale``."""

    symmetric = False

    def __init__(
        self, model: object, scale: float = 20.0, similarity_fct: ScoreFunction = cos_sim, **options: object
    ) -> None:
        known_keywords("MultipleNegativesRankingLoss", options, ())
        _check_cosine(type(self).__name__, similarity_fct, cos_sim)
        super().__init__(model, "pairs", {"loss": "in-batch", "temperature": 1 / scale, "symmetric": self.symmetric})


class CachedMultipleNegativesRankingLoss(MultipleNegativesRankingLoss):
    """The same: every batch is computed in parts that fit the memory (``max_tokens``), with the same result."""


class MultipleNegativesSymmetricRankingLoss(MultipleNegativesRankingLoss):
    """The same in both directions."""

    symmetric = True


class CoSENTLoss(ComparisonLoss):
    """The order of the scores of pairs: loss ``cosent`` at temperature ``1 / scale``."""

    def __init__(self, model: object, scale: float = 20.0, similarity_fct: ScoreFunction = pairwise_cos_sim) -> None:
        _check_cosine("CoSENTLoss", similarity_fct, pairwise_cos_sim)
        super().__init__(model, "scores", {"loss": "cosent", "temperature": 1 / scale})


class AnglELoss(ComparisonLoss):
    """The same by angles of complex numbers (Li & Li 2023): loss ``angle``."""

    def __init__(self, model: object, scale: float = 20.0, similarity_fct: ScoreFunction = pairwise_angle_sim) -> None:
        _check_cosine("AnglELoss", similarity_fct, pairwise_angle_sim)
        super().__init__(model, "scores", {"loss": "angle", "temperature": 1 / scale})


class CosineSimilarityLoss(ComparisonLoss):
    """The squared error of the cosine against the score of a pair: loss ``cosine``, without scaling the scores."""

    def __init__(self, model: object) -> None:
        super().__init__(model, "scores", {"loss": "cosine"}, {"scores": (0.0, 1.0)})


class TripletDistanceMetric(Enum):
    """What :class:`TripletLoss` compares."""

    COSINE = "cosine"
    EUCLIDEAN = "euclidean"
    MANHATTAN = "manhattan"


class TripletLoss(ComparisonLoss):
    """A text is nearer to its positive than to its negative by a margin: loss ``triplet``."""

    def __init__(
        self,
        model: object,
        distance_metric: TripletDistanceMetric = TripletDistanceMetric.EUCLIDEAN,
        triplet_margin: float = 5.0,
    ) -> None:
        if not isinstance(distance_metric, TripletDistanceMetric):
            raise InputError(f"distance_metric must be a losses.TripletDistanceMetric, got {distance_metric!r:.80}")
        objective = {"distance": distance_metric.value, "margin": float(triplet_margin)}
        super().__init__(model, "triplets", {"loss": "triplet"}, objective)


class SiameseDistanceMetric(Enum):
    """What :class:`ContrastiveLoss` compares."""

    COSINE_DISTANCE = "cosine"
    EUCLIDEAN = "euclidean"
    MANHATTAN = "manhattan"


class ContrastiveLoss(ComparisonLoss):
    """Pairs of label 1 near each other, pairs of label 0 apart by a margin: loss ``contrastive``."""

    loss = "contrastive"

    def __init__(
        self,
        model: object,
        distance_metric: SiameseDistanceMetric = SiameseDistanceMetric.COSINE_DISTANCE,
        margin: float = 0.5,
        size_average: bool = True,
    ) -> None:
        if not isinstance(distance_metric, SiameseDistanceMetric):
            raise InputError(f"distance_metric must be a losses.SiameseDistanceMetric, got {distance_metric!r:.80}")
        if not size_average:
            raise InputError("a loss is the mean over a batch; omit size_average and give a larger learning_rate")
        objective = {"distance": distance_metric.value, "margin": float(margin), "scores": (0.0, 1.0)}
        super().__init__(model, "scores", {"loss": self.loss}, objective)

    def examples(self, rows: Any) -> Examples[Any]:
        found = super().examples(rows)
        for example in found:
            if example.score not in (0, 1):
                raise DataError(
                    f"row {example.row} (counted from 0): {type(self).__name__} reads the labels 1 and 0, got "
                    f"{example.score:g}; for scores between take losses.CoSENTLoss(model)"
                )
        return found


class OnlineContrastiveLoss(ContrastiveLoss):
    """The same of the hard pairs of each batch: loss ``online-contrastive``."""

    loss = "online-contrastive"

    def __init__(
        self,
        model: object,
        distance_metric: SiameseDistanceMetric = SiameseDistanceMetric.COSINE_DISTANCE,
        margin: float = 0.5,
    ) -> None:
        super().__init__(model, distance_metric, margin)


class MatryoshkaLoss(ComparisonLoss):
    """Another loss over vectors of several widths: setting ``matryoshka``. Whole vectors are trained as well."""

    def __init__(
        self,
        model: object,
        loss: ComparisonLoss,
        matryoshka_dims: Sequence[int],
        matryoshka_weights: Sequence[float] | None = None,
        n_dims_per_step: int = -1,
    ) -> None:
        if n_dims_per_step != -1 or any(weight != 1 for weight in matryoshka_weights or ()):
            raise InputError("all widths count the same in every step; omit matryoshka_weights and n_dims_per_step")
        widths = ",".join(map(str, matryoshka_dims))
        super().__init__(model, loss.compares, {**loss.settings, "matryoshka": widths}, loss.objective)


class LossWorkflow(EmbeddingWorkflow):
    """A task of texts that are compared, with what a loss says and no setting does."""

    objective: Mapping[str, Any]

    def set_up(self, model: Any, train: Any, settings: Any) -> None:
        super().set_up(model, train, settings)
        model.objective = replace(model.objective, **self.objective)


def _check_cosine(name: str, given: ScoreFunction, usual: ScoreFunction) -> None:
    if given is not usual:
        raise InputError(f"{name} compares vectors by {usual.__name__}; omit similarity_fct")
