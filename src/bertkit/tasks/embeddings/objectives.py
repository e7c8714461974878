"""Which loss an embedding task is trained with, by its settings."""

from __future__ import annotations

from collections.abc import Collection

from bertkit.config.reading_settings import LossName, ReadingSettings
from bertkit.errors import ConfigError
from bertkit.tasks.embeddings.settings import EmbeddingTaskSettings
from bertkit.tasks.embeddings.task import Comparison, EmbeddingTask
from bertkit.tasks.examples import Row

#: The losses for what rows say, the default one first.
LOSSES: dict[Comparison, tuple[LossName, ...]] = {
    "pairs": ("in-batch", "triplet"),
    "triplets": ("in-batch", "triplet"),
    "scores": ("cosent", "angle", "cosine", "contrastive", "online-contrastive"),
}
#: The settings that a loss has.
_OF_LOSS: dict[LossName, tuple[str, ...]] = {
    "in-batch": ("temperature", "symmetric"),
    "triplet": ("margin",),
    "cosine": (),
    "cosent": ("temperature",),
    "angle": ("temperature",),
    "contrastive": ("margin",),
    "online-contrastive": ("margin",),
}
#: Temperature, and margins of triplets and of pairs, where nothing is said; see :mod:`bertkit.model.vector_losses`.
TEMPERATURE, MARGIN, MARGIN_OF_PAIRS = 0.05, 0.1, 0.5
#: Largest share of a positive's cosine that a mined negative may have (NV-Retriever, Moreira et al. 2024).
MAX_NEGATIVE = 0.95


def loss_of(task: EmbeddingTask, settings: ReadingSettings) -> LossName:
    """The loss that is asked for, or the default one of the task."""
    return settings.of(EmbeddingTaskSettings).loss or LOSSES[task.compares][0]


def margin_of(task: EmbeddingTask, settings: ReadingSettings) -> float:
    """The margin that is asked for, or the default one of the loss."""
    usual = MARGIN if loss_of(task, settings) == "triplet" else MARGIN_OF_PAIRS
    return settings.of(EmbeddingTaskSettings).margin or usual


def own_settings(task: EmbeddingTask, settings: ReadingSettings) -> Collection[str]:
    """Which of the settings that only some tasks have this one has."""
    own = ["pooling", "loss", "matryoshka", *_OF_LOSS[loss_of(task, settings)]]
    if task.compares != "scores":
        own += ["query_prompt", "document_prompt"]
    if task.compares == "pairs":
        own += ["mine_negatives", *(["max_negative"] if settings.of(EmbeddingTaskSettings).mine_negatives else [])]
    return own


def check_objective(task: EmbeddingTask, settings: ReadingSettings) -> None:
    """Refuse (ConfigError) a loss that the rows do not fit, and batches in which there is nothing to compare."""
    loss, fitting = loss_of(task, settings), LOSSES[task.compares]
    if loss not in fitting:
        raise ConfigError(f"loss={loss!r} does not fit task {task.name}, which has {' and '.join(fitting)}")
    size = getattr(settings, "batch_size", 2) * getattr(settings, "accumulation", 1)
    if size < 2 and compares_rows(loss):
        raise ConfigError(
            f"batch_size=1: the loss {loss} compares the rows of a batch, so one alone teaches nothing; give 2 or more"
        )


def compares_rows(loss: LossName) -> bool:
    """Whether the loss of a row depends on the others of its batch."""
    return loss in ("in-batch", "cosent", "angle", "online-contrastive")


def widths_of(settings: ReadingSettings) -> tuple[int, ...]:
    """The widths of ``matryoshka``, the largest first; none without."""
    widths = settings.of(EmbeddingTaskSettings).matryoshka
    given = () if widths is None else widths.split(",")
    return tuple(sorted({int(width) for width in given}, reverse=True))


def objective_facts(task: EmbeddingTask, settings: ReadingSettings) -> Row:
    """What the protocol says of the loss."""
    loss, own = loss_of(task, settings), settings.of(EmbeddingTaskSettings)
    values: Row = {"temperature": own.temperature or TEMPERATURE, "margin": margin_of(task, settings)}
    values["symmetric"] = own.symmetric
    found: Row = {"loss": loss, **{name: values[name] for name in _OF_LOSS[loss]}}
    if own.matryoshka:
        found["matryoshka"] = list(widths_of(settings))
    if own.mine_negatives:
        found |= {"mined_negatives": own.mine_negatives, "max_negative": own.max_negative or MAX_NEGATIVE}
    return found
