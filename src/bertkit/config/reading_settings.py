"""How a run reads its data and decides: settings that evaluation and prediction need as well.

Here is what kinds of tasks have in common; what a kind has of its own is in ``tasks/KIND/settings.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

from bertkit.system.validated_settings import Field, Settings

#: The file of a run folder that says what the model was trained for, and how it read its data.
RUN_SETTINGS = "finetune.json"
LossName = Literal["in-batch", "triplet", "cosine", "cosent", "angle", "contrastive", "online-contrastive"]
RankLoss = Literal["listwise", "pointwise", "lambda"]
OwnT = TypeVar("OwnT", bound=Settings)


@dataclass(frozen=True, slots=True)
class Use:
    """What a setting says of itself that not all kinds of tasks have a use for; it stands in the field's annotation.

    what: what it is for, as the end of a sentence.
    everyday: ``--help`` shows it, not only ``--help-all``.
    as_before: values that mean, as the default does, what bertkit did before it had the setting. None: it had it from
        the first release on, so that every training state names it.
    """

    what: str
    everyday: bool = False
    as_before: tuple[str, ...] | None = ()


class ReadingSettings(Settings):
    """What a kind of task has to know to read its files, encode them, make its model and its decisions on dev."""

    max_length: int | None = Field(
        None,
        ge=3,
        le=1_000_000,
        description="tokens of the longest input; default 128, imdb 512, squad 384, csv 256, rerank 512",
    )
    seed: int = Field(0, ge=0, lt=2**31, description="first seed: data order, new head, dropout")
    class_weights: Annotated[
        Literal["none", "balanced"],
        Use("texts with one label, or any number of them", everyday=True, as_before=None),
    ] = Field("none", description="balanced: rare labels get more weight in the loss")
    pooling: Annotated[
        Literal["cls", "mean", "max"] | None,
        Use("texts with one label, any number of them, or a score", everyday=True, as_before=("cls",)),
    ] = Field(
        None,
        description="what a text classifier reads from the encoder: pooled [CLS] vector, mean or maximum of all "
        "tokens; default as the checkpoint says (1_Pooling), otherwise cls",
    )
    max_train_rows: int | None = Field(
        None, ge=1, description="use a random sample of this many training rows; recorded in metrics.json"
    )
    on_error: Literal["raise", "skip"] = Field(
        "raise", description="raise: stop at the first bad row; skip: leave it out and report it"
    )
    dev_share: float = Field(
        0.1, gt=0, le=0.5, description="share of the training rows kept for dev when there is no dev split"
    )
    worst: int = Field(50, ge=0, description="worst dev examples that errors-dev.jsonl lists")
    max_tokens: int = Field(
        4096, ge=1, description="tokens in memory at once; larger batches are split, with the same result"
    )

    def of(self, own: type[OwnT]) -> OwnT:
        """A kind's own settings among these; their defaults, where these are the common settings alone."""
        return self if isinstance(self, own) else own()
