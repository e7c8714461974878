"""The settings of a fine-tuning run: plain, frozen, checked data."""

from __future__ import annotations

import math
from typing import Literal

from bertkit.config.adapter_config import AdapterConfig
from bertkit.config.any_config import AnyConfig
from bertkit.config.bert_config import BertConfig
from bertkit.config.encoder_decoder_config import EncoderDecoderConfig
from bertkit.config.number_formats import Compile, Precision
from bertkit.errors import ConfigError
from bertkit.system.validated_settings import Field
from bertkit.tasks.task_settings import TaskSettings

#: Fewest updates of a run, because runs on small data sets fail from too few steps (Zhang et al. 2021), and the most
#: epochs that this rule asks for.
MIN_UPDATES, MAX_EPOCHS = 1000, 20
#: Fewest epochs without a better dev score after which a run stops by default.
MIN_PATIENCE = 3
#: As MIN_UPDATES and MAX_EPOCHS, for a linear head on frozen features, where a step costs almost nothing.
MIN_HEAD_UPDATES, MAX_HEAD_EPOCHS = 2000, 50
#: Adapters count ``alpha / rank``; alpha is that of Hu et al. 2021 for RoBERTa-large (table 9).
LORA_ALPHA = 16.0
#: The best rate of adapters is about ten times that of the whole model (Schulman et al. 2025, "LoRA Without Regret");
#: for RoBERTa-base that is 3e-4, where Hu et al. 2021 (table 9) chose 4e-4 to 5e-4. No more than they ever used.
LORA_RATE, MAX_LORA_RATE = 10.0, 1e-3
FewShotMethod = Literal["auto", "contrastive", "linear", "finetune", "pseudo"]
FEW_SHOT_FIELDS = ("few_shot", "few_shot_method", "few_shot_pairs", "unlabelled")
#: What few_shot decides by itself, or has no use for, and the value that it must have.
NOT_WITH_FEW_SHOT: dict[str, object] = {
    "freeze_encoder": False,
    "lora": None,
    "search": None,
    "protocol": "sane",
    "long_texts": "cut",
    "class_weights": "none",
    "layer_decay": None,
    "max_steps": None,
}
LORA_FIELDS = ("lora", "lora_targets", "lora_alpha", "lora_dropout", "lora_rank_stabilized")


class FinetuneConfig(TaskSettings):
    """Settings of one fine-tuning run. ``None`` means "choose for me"; :meth:`resolved` shows the choice.

    Raises:
        ConfigError: an unknown setting (with the nearest known one) or a value out of bounds.
    """

    protocol: Literal["sane", "original"] = Field(
        "sane",
        description="sane: AdamW with bias correction, enough steps; original: the 2018 recipe "
        "(no bias correction, warm-up from 0; rate of 2e-5, 3e-5, 5e-5 and epochs of 2, 3, 4 chosen on dev)",
    )
    learning_rate: float | None = Field(
        None,
        gt=0,
        le=1,
        description="peak rate; default 2e-5 large, 3e-5 base, 1e-4 small, ten times as much for LoRA, on a "
        "frozen encoder 1e-2, or 1e-3 for a head with a layer of its own",
    )
    epochs: int | None = Field(None, ge=1, le=1000, description="passes over the data; default 3, more on small data")
    max_steps: int | None = Field(
        None, ge=1, description="train this many optimizer steps, whatever epochs says, with a schedule made for them"
    )
    batch_size: int = Field(32, ge=1, le=65_536, description="sequences in a batch")
    accumulation: int = Field(1, ge=1, le=4096, description="batches in one optimizer step")
    warmup: float = Field(0.1, ge=0, lt=1, description="share of the steps in which the rate rises")
    weight_decay: float = Field(0.01, ge=0, le=1, description="decay of weights; never of LayerNorm and bias")
    layer_decay: float | None = Field(
        None, gt=0, le=1, description="learning-rate factor from one layer to the one below"
    )
    max_grad_norm: float = Field(1.0, gt=0, description="gradients are clipped to this norm")
    seeds: int = Field(1, ge=1, le=1000, description="runs, with seed, seed + 1, ...")
    freeze_encoder: bool = Field(False, description="train only the head, on features computed once")
    lora: int | None = Field(
        None,
        ge=1,
        le=4096,
        description="train LoRA adapters of this rank (8 is usual) and the head; the run folder holds only these",
    )
    lora_targets: str | None = Field(
        None, description="LoRA: linear layers with adapters, as in query,value; default all-linear"
    )
    lora_alpha: float | None = Field(
        None, gt=0, description=f"LoRA: adapters are scaled by alpha / rank; default {LORA_ALPHA:g}"
    )
    lora_dropout: float = Field(0.0, ge=0, lt=1, description="LoRA: dropout on the adapters' input")
    lora_rank_stabilized: bool = Field(False, description="LoRA: adapters are scaled by alpha / sqrt(rank) (rsLoRA)")
    patience: int | None = Field(
        None,
        ge=0,
        description="stop after this many epochs without a better dev score; default a quarter of the epochs, at "
        "least 3; 0 trains all epochs",
    )
    metric_for_best: str | None = Field(
        None, description="dev metric that chooses epoch and seed, such as macro_f1; default the task's main metric"
    )
    keep: Literal["best", "all"] = Field(
        "best", description="models to keep: best: that of the best seed; all: the best and last of every seed"
    )
    baseline: bool = Field(True, description="also score a simple baseline, for texts TF-IDF with a linear model")
    search: int | None = Field(
        None,
        ge=1,
        description="Optuna trials over rate, epochs, batch size and warm-up (those not given), judged on dev, "
        "before the seeds run",
    )
    engine: Literal["local", "ray"] = Field(
        "local",
        description="where seeds and trials are trained: this machine, or a Ray cluster (RAY_ADDRESS) that shares the "
        "disks of --out and the model (extra: ray)",
    )
    workers: int | None = Field(
        None,
        ge=1,
        le=10_000,
        description="seeds or trials trained at once, each in a process with as many threads as this one "
        "(OMP_NUM_THREADS); default 1, with ray as many as the cluster has room for. Seeds come out the same; a search "
        "tries so many settings before it learns from them",
    )
    restarts: int = Field(
        3,
        ge=0,
        le=100,
        description="total number of dead runs that are replaced by the next seed; never with a frozen encoder",
    )
    precision: Precision | None = Field(
        None,
        description="number format of the products in training; default for an encoder that is trained as a whole: "
        "bf16 on a GPU (fp16 on older ones), on a CPU where that is measured to be faster; for the rest fp32, on a GPU "
        "with tf32 products; weights and every evaluation stay fp32",
    )
    compile: Compile = Field(
        "auto", description="torch.compile for parts of the layers; auto: on a GPU, if the run is long enough to gain"
    )
    deterministic: bool = Field(
        False, description="on a GPU, kernels that give the same bits every time, which are slower; a CPU always does"
    )
    checkpoint_every_s: float = Field(120.0, ge=0, description="seconds between two saved training states")
    tensorboard: bool = Field(False, description="also write RUN/seed-N/tensorboard; needs the extra tensorboard")
    mlflow: bool = Field(
        False, description="also log to MLflow (MLFLOW_TRACKING_URI, else mlruns); needs the extra mlflow"
    )
    few_shot: bool = Field(
        False,
        description="learn from a handful of labels, by the method that cross-validation on the training rows finds "
        "best; without a dev file the scores are those of cross-validation",
    )
    few_shot_method: FewShotMethod = Field(
        "auto",
        description="how to learn from few labels: contrastive: pairs of texts train the encoder, then a linear head; "
        "linear: that on the frozen encoder; finetune: plain fine-tuning; pseudo: contrastive, with the labels that it "
        "gives to unlabelled texts; auto compares them, and TF-IDF",
    )
    few_shot_pairs: int = Field(
        20, ge=2, le=10_000, description="for few labels: pairs per text, half of them with the same label"
    )
    unlabelled: str | None = Field(
        None,
        description="for few labels: file of more texts, without labels, one per line or a table: whether it helps to "
        "learn from those that the model is sure of is compared ('bertkit adapt --texts' learns from all of them)",
    )

    def _check(self) -> None:
        super()._check()
        if self.freeze_encoder and self.precision not in (None, "fp32", "tf32"):
            raise ValueError(
                f"precision {self.precision} cannot be combined with freeze_encoder, which trains only the head"
            )
        if self.freeze_encoder and self.compile == "on":
            raise ValueError("compile='on' cannot be combined with freeze_encoder, which trains no layer")
        if self.few_shot and self.compile == "on":
            raise ValueError("compile='on' cannot be combined with few_shot, whose runs are short; leave it out")
        if self.few_shot and self.precision not in (None, "fp32", "tf32"):
            raise ValueError(f"precision {self.precision} has not been measured with few_shot; leave precision out")
        if self.freeze_encoder and self.layer_decay is not None:
            raise ValueError("layer_decay cannot be combined with freeze_encoder, which trains no layer")
        if self.freeze_encoder and self.lora:
            raise ValueError(
                "lora cannot be combined with freeze_encoder, which trains only the head; choose one of them"
            )
        if self.protocol == "original" and self.lora:
            raise ValueError("lora cannot be combined with protocol 'original', which trains the whole model")
        given = [name for name in LORA_FIELDS if name != "lora" and name in self.model_fields_set]
        if self.lora is None and any(getattr(self, name) != type(self).model_fields[name].default for name in given):
            raise ValueError(f"{given[0]} needs lora, the rank of the adapters; add lora=8")
        others = [name for name in FEW_SHOT_FIELDS if getattr(self, name) != type(self).model_fields[name].default]
        if others and not self.few_shot:
            raise ValueError(f"{others[0]} needs few_shot; add it")
        if (self.few_shot_method == "pseudo" and self.unlabelled is None) or (
            self.unlabelled is not None and self.few_shot_method not in ("auto", "pseudo")
        ):
            raise ValueError(
                f"few_shot_method {self.few_shot_method!r} with unlabelled={self.unlabelled!r}: method 'pseudo' needs "
                "a file of texts, and only it and 'auto' read one"
            )
        for name, value in NOT_WITH_FEW_SHOT.items():
            if self.few_shot and getattr(self, name) != value:
                raise ValueError(f"few_shot cannot be combined with {name}={getattr(self, name)!r}; leave one out")
        if self.search and self.engine == "ray" and self.workers is None:
            raise ValueError("search with engine 'ray' needs workers, on which its outcome depends; add workers=4")
        if self.search and self.max_steps:
            raise ValueError("max_steps cannot be combined with search, which chooses epochs; leave one out")
        if self.protocol == "original" and self.patience:
            raise ValueError("patience cannot be combined with protocol 'original', which keeps the last epoch")

    def adapters(self, base: str, revision: str | None) -> AdapterConfig | None:
        """The adapters that are trained, for the start checkpoint of that name; None for another kind of training."""
        if self.lora is None:
            return None
        return AdapterConfig(
            base_model_name_or_path=base,
            revision=revision,
            r=self.lora,
            lora_alpha=self.lora_alpha or LORA_ALPHA,
            lora_dropout=self.lora_dropout,
            use_rslora=self.lora_rank_stabilized,
            target_modules=None if self.lora_targets is None else tuple(self.lora_targets.replace(" ", "").split(",")),
        )

    @property
    def contrasts(self) -> bool:
        """Whether pairs of texts train the encoder."""
        return self.few_shot and self.few_shot_method in ("contrastive", "pseudo")

    @property
    def learns_by_vectors(self) -> bool:
        """Whether the head is a logistic regression on vectors of the training texts."""
        return self.few_shot and self.few_shot_method in ("contrastive", "linear", "pseudo")

    @property
    def keeps_best_epoch(self) -> bool:
        """Whether a seed's model is that of its best epoch on dev, not of its last."""
        return self.protocol != "original"

    def resolved(
        self, *, model: AnyConfig, num_train_rows: int, longest: int = 128, head: str = "sequence"
    ) -> FinetuneConfig:
        """The same settings with every choice made, as they are used and recorded.

        ``num_train_rows`` are those after any cut; an example of several rows counts as all of them. ``longest`` is
        ``max_length`` where nothing is set. ``head`` is the kind of head; one that is
        more than a linear layer has another rate on a frozen encoder. A ``precision`` that is not set is that of a CPU.
        """
        updates_per_epoch = math.ceil(num_train_rows / (self.batch_size * self.accumulation))
        max_length = self.max_length or min(longest, model.max_input_length)
        if max_length > model.max_input_length:
            raise ConfigError(
                f"max_length={max_length} but the model has {model.max_input_length} positions; give at most that many"
            )
        if self.compile == "on" and isinstance(model, EncoderDecoderConfig):
            raise ConfigError("compile='on' works on the layers of encoders only; leave compile out")
        epochs = self.epochs or self._default_epochs(updates_per_epoch)
        if self.max_steps is not None:
            epochs = math.ceil(self.max_steps / updates_per_epoch)
        patience = self.patience
        if patience is None and self.keeps_best_epoch:
            patience = max(MIN_PATIENCE, math.ceil(epochs / 4))
        return self.model_copy(
            update={
                "learning_rate": self.learning_rate or self._default_learning_rate(model, head),
                "epochs": epochs,
                "max_length": max_length,
                "patience": patience or None,
                "pooling": model.pooling if isinstance(model, BertConfig) and head == "sequence" else self.pooling,
                "precision": self.precision or "fp32",
            }
        )

    def num_steps(self, steps_per_epoch: int) -> int:
        """Optimizer steps of a run with these settings, which are resolved."""
        assert self.epochs is not None, "settings are resolved"
        return self.max_steps or self.epochs * steps_per_epoch

    def is_short(self, num_train_rows: int) -> bool:
        """Whether so few updates were asked for that nothing follows of a loss that has not fallen.

        That is fewer than by default, and fewer than :data:`MIN_UPDATES`.
        """
        per_epoch = math.ceil(num_train_rows / (self.batch_size * self.accumulation))
        return self.num_steps(per_epoch) < min(MIN_UPDATES, self._default_epochs(per_epoch) * per_epoch)

    def _default_learning_rate(self, model: AnyConfig, head: str) -> float:
        usual = self._usual_learning_rate(model, head)
        return usual if self.lora is None else min(LORA_RATE * usual, MAX_LORA_RATE)

    def _usual_learning_rate(self, model: AnyConfig, head: str) -> float:
        if isinstance(model, EncoderDecoderConfig) and head == "text":
            return model.learning_rate
        if self.freeze_encoder:
            if isinstance(model, EncoderDecoderConfig):
                has_layer = head == "sequence"
            else:
                has_layer = model.family.head_layer or (head in model.family.poolers and model.pooling == "cls")
            return 1e-3 if has_layer else 1e-2
        if self.protocol == "original" or model.hidden_size >= 1024:
            return 2e-5
        return 1e-4 if model.num_hidden_layers <= 8 and model.hidden_size <= 512 else 3e-5

    def _default_epochs(self, updates_per_epoch: int) -> int:
        if self.freeze_encoder:
            return min(MAX_HEAD_EPOCHS, max(10, math.ceil(MIN_HEAD_UPDATES / updates_per_epoch)))
        if self.protocol == "original":
            return 3
        return min(MAX_EPOCHS, max(3, math.ceil(MIN_UPDATES / updates_per_epoch)))
