"""``TrainingArguments`` as they are typed for ``transformers``, and the same training in bertkit's own words."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

from bertkit.config.number_formats import Precision
from bertkit.errors import ConfigError
from bertkit.habit_table import habits, no_attribute, remedy, without_meaning
from bertkit.habits.trainer_schedules import SCHEDULES
from bertkit.optim import Schedule
from bertkit.system.device import find_device

if TYPE_CHECKING:
    import torch

STRATEGIES = ("no", "steps", "epoch")
SAMPLING = ("random", "sequential", "group_by_length")
#: Optimizers by the names of ``optim``: all are AdamW.
ADAMW = ("adamw_torch", "adamw_torch_fused", "adamw_hf", "adamw")
#: What reports go to; ``none`` and ``all``, of what is installed, are to nowhere.
TRACKERS = ("tensorboard", "mlflow")


@dataclass(init=False)
class Arguments:
    """Arguments of a training under the names of another library; a subclass lists them.

    Those that the table of habits calls without meaning here are accepted, and kept as they were given. An unknown one,
    or a value that this training does not have, is refused with the same training in bertkit's own words.
    """

    #: Of :mod:`bertkit.habit_table`.
    entry: ClassVar[str] = "TrainingArguments"
    #: Older names of some.
    older: ClassVar[Mapping[str, str]] = {"evaluation_strategy": "eval_strategy", "no_cuda": "use_cpu"}
    output_dir: str | None = None
    seed: int = 42
    eval_strategy: str = "no"
    logging_steps: float = 500
    logging_first_step: bool = False
    logging_strategy: str = "steps"
    metric_for_best_model: Any = None
    greater_is_better: bool | None = None
    save_strategy: str = "steps"

    def __getattr__(self, name: str) -> Any:
        raise no_attribute(self, f"{self.entry}.", name)

    def __init__(self, output_dir: str | None = None, **given: Any) -> None:
        given = {**({} if output_dir is None else {"output_dir": str(output_dir)}), **given}
        for old, new in self.older.items():
            if given.get(old) is not None:
                given[new] = given[old]
            given.pop(old, None)
        known = {each.name: each for each in fields(self)}
        ignored = without_meaning(self.entry)
        for name in given:
            asks_nothing = (self.entry, name) in habits() and given[name] in (None, False, 0, "", [], ())
            if name not in known and name not in ignored and not asks_nothing:
                raise ConfigError(f"{self.entry} has no {name}={given[name]!r}{self._instead(name, given)}")
        for name, each in known.items():
            setattr(self, name, given.get(name, each.default))
        for name in given.keys() & ignored:
            setattr(self, name, given[name])
        self.__post_init__()

    def __post_init__(self) -> None:
        """Check what was given; a subclass does more."""
        for name in ("eval_strategy", "logging_strategy", "save_strategy"):
            value = getattr(self, name)
            value = str(getattr(value, "value", value))
            known = (*STRATEGIES, "best") if name == "save_strategy" else STRATEGIES
            if value not in known:
                raise ConfigError(f"{name}={value!r}: it is one of {', '.join(map(repr, known))}")
            setattr(self, name, value)

    def _instead(self, name: str, given: Mapping[str, Any]) -> str:
        known = [each.name for each in fields(self)]
        near = remedy(self.entry, name, known)
        return near if (self.entry, name) not in habits() else f"{near}. {self.in_our_words(given)}"

    def refuse(self, reason: str) -> ConfigError:
        """That something is not possible here, with the same training in bertkit's words."""
        return ConfigError(f"{reason}. {self.in_our_words(self.to_dict())}")

    @classmethod
    def in_our_words(cls, given: Mapping[str, Any], task: str = "csv", model: str = "MODEL") -> str:
        """The same training by :func:`bertkit.finetune` and by the command."""
        return our_words(given, task=task, model=model)

    def to_dict(self) -> dict[str, Any]:
        """All arguments by name."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def to_json_string(self) -> str:
        """All arguments as JSON."""
        return json.dumps(self.to_dict(), indent=2, default=str)

    @classmethod
    def from_dict(cls, arguments: Mapping[str, Any]) -> Self:
        """Arguments that :meth:`to_dict` gave."""
        return cls(**arguments)

    def __repr__(self) -> str:
        changed = {each.name: getattr(self, each.name) for each in fields(self)}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in changed.items())})"


@dataclass(init=False, repr=False)
class TrainingArguments(Arguments):
    """How to train and evaluate, under the names and with the defaults of ``transformers`` 5.

    The training is bertkit's: one device, AdamW, gradients clipped to ``max_grad_norm``. ``warmup_ratio`` and
    ``evaluation_strategy`` of older versions are read too. What has no meaning here (``dataloader_num_workers``,
    ``fsdp=None``...) is accepted; the table of habits lists it.

    Raises:
        ConfigError: an unknown argument, or one that this training does not have: the message has the same training as
            a call of :func:`bertkit.finetune` and as a command.
    """

    per_device_train_batch_size: int = 8
    per_device_eval_batch_size: int = 8
    gradient_accumulation_steps: int = 1
    learning_rate: float = 5e-5
    weight_decay: float = 0.0
    adam_beta1: float = 0.9
    adam_beta2: float = 0.999
    adam_epsilon: float = 1e-8
    max_grad_norm: float = 1.0
    num_train_epochs: float = 3.0
    max_steps: int = -1
    lr_scheduler_type: str = "linear"
    lr_scheduler_kwargs: Mapping[str, float] | None = None
    warmup_steps: float = 0
    warmup_ratio: float | None = None
    optim: str = "adamw_torch_fused"
    fp16: bool = False
    bf16: bool = False
    torch_compile: bool = False
    eval_steps: float | None = None
    save_steps: float = 500
    save_total_limit: int | None = None
    save_only_model: bool = False
    load_best_model_at_end: bool = False
    data_seed: int | None = None
    use_cpu: bool = False
    dataloader_drop_last: bool = False
    train_sampling_strategy: str = "random"
    remove_unused_columns: bool = True
    label_names: list[str] | None = None
    prediction_loss_only: bool = False
    report_to: Any = "none"
    logging_dir: str | None = None
    run_name: str | None = None
    resume_from_checkpoint: str | bool | None = None
    do_train: bool = False
    do_eval: bool = False
    do_predict: bool = False
    disable_tqdm: bool | None = None
    push_to_hub: bool = False
    label_smoothing_factor: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.output_dir = self.output_dir or "trainer_output"
        self.lr_scheduler_type = str(getattr(self.lr_scheduler_type, "value", self.lr_scheduler_type))
        self.optim = str(getattr(self.optim, "value", self.optim))
        if self.eval_strategy == "steps" and self.eval_steps is None:
            self.eval_steps = self.logging_steps
        if self.load_best_model_at_end and self.metric_for_best_model is None:
            self.metric_for_best_model = "loss"
        if self.metric_for_best_model is not None and self.greater_is_better is None:
            self.greater_is_better = not str(self.metric_for_best_model).endswith("loss")
        self._check()

    def _check(self) -> None:
        if self.fp16 and self.bf16:
            raise ConfigError("fp16 and bf16 cannot both be True; choose one")
        for name in ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)!r}: it is a whole number from 1")
        if self.optim not in ADAMW:
            raise self.refuse(f"optim={self.optim!r}: this training has {', '.join(ADAMW[:2])}")
        if self.lr_scheduler_type not in SCHEDULES:
            raise self.refuse(f"lr_scheduler_type={self.lr_scheduler_type!r}: this training has {', '.join(SCHEDULES)}")
        if self.train_sampling_strategy not in SAMPLING:
            raise ConfigError(
                f"train_sampling_strategy={self.train_sampling_strategy!r}: it is one of {', '.join(SAMPLING)}"
            )
        if self.label_smoothing_factor:
            raise self.refuse(
                f"label_smoothing_factor={self.label_smoothing_factor}: leave it out, or write a subclass of Trainer "
                "with its own compute_loss(self, model, inputs, return_outputs=False, **options)"
            )
        if self.push_to_hub:
            raise self.refuse(
                "push_to_hub=True: a training uploads nothing here; leave it out, and write "
                "trainer.model.push_to_hub('NAME') after it"
            )
        if other := [name for name in self.reports if name not in TRACKERS]:
            raise self.refuse(
                f"report_to={self.report_to!r}: it is tensorboard, mlflow or none; write report_to='none', and a "
                f"TrainerCallback whose on_log(..., logs) passes them to {other[0]}"
            )
        differ = self.eval_strategy == "no" or self.save_strategy not in (self.eval_strategy, "best")
        if self.load_best_model_at_end and differ:
            raise ConfigError(
                f"load_best_model_at_end needs the same strategies, got eval_strategy={self.eval_strategy!r} and "
                f"save_strategy={self.save_strategy!r}: write eval_strategy='epoch', save_strategy='epoch'"
            )

    @property
    def warmup(self) -> float:
        """Of the loop's own schedule, which is replaced by :meth:`schedule`."""
        return 0.0

    @property
    def checkpoint_every_s(self) -> float:
        """Checkpoints follow ``save_strategy``, not the clock."""
        return math.inf

    @property
    def train_batch_size(self) -> int:
        """Rows of a forward pass."""
        return self.per_device_train_batch_size

    @property
    def eval_batch_size(self) -> int:
        """Rows of a forward pass of an evaluation."""
        return self.per_device_eval_batch_size

    @property
    def reports(self) -> list[str]:
        """What is reported to, without ``none`` and ``all``."""
        given = [self.report_to] if isinstance(self.report_to, str) else list(self.report_to or ())
        return [name for name in given if name not in ("none", "all")]

    @property
    def device(self) -> torch.device:
        """Where the model is trained: a GPU where there is one, unless ``use_cpu``."""
        return find_device("cpu" if self.use_cpu else "auto")

    @property
    def precision(self) -> Precision:
        """The number format of the products."""
        return "fp16" if self.fp16 else "bf16" if self.bf16 else "fp32"

    def steps(self, steps_per_epoch: int) -> int:
        """Optimizer steps of the whole training."""
        return self.max_steps if self.max_steps > 0 else math.ceil(self.num_train_epochs * steps_per_epoch)

    def get_warmup_steps(self, num_training_steps: int) -> int:
        """Steps in which the rate rises: a number, or below 1 a share of all steps."""
        share = self.warmup_ratio if self.warmup_ratio and not self.warmup_steps else self.warmup_steps
        return int(share) if share >= 1 else math.ceil(num_training_steps * share)

    def schedule(self, num_steps: int) -> Schedule:
        """The factor of the learning rate at each step, as in ``transformers``."""
        given = {"lr": self.learning_rate, **(self.lr_scheduler_kwargs or {})}
        return SCHEDULES[self.lr_scheduler_type](num_steps, self.get_warmup_steps(num_steps), given)

    @property
    def n_gpu(self) -> int:
        """1 where the model is trained on a GPU, else 0."""
        return int(self.device.type == "cuda")

    @property
    def world_size(self) -> int:
        """One process."""
        return 1

    @property
    def process_index(self) -> int:
        """Of one process."""
        return 0

    local_process_index = process_index
    local_rank = -1

    @property
    def should_save(self) -> bool:
        """Whether this process writes checkpoints."""
        return True

    should_log = should_save

    def every(self, name: str, num_steps: int) -> int:
        """``logging_steps``, ``eval_steps`` or ``save_steps``, which below 1 are a share of all steps."""
        value = getattr(self, name) or 0
        return math.ceil(num_steps * value) if 0 < value < 1 else int(value)


#: Their name to ours; a function makes the value.
_OURS = {
    "learning_rate": "learning_rate",
    "num_train_epochs": "epochs",
    "per_device_train_batch_size": "batch_size",
    "gradient_accumulation_steps": "accumulation",
    "warmup_ratio": "warmup",
    "weight_decay": "weight_decay",
    "max_grad_norm": "max_grad_norm",
    "seed": "seed",
    "metric_for_best_model": "metric_for_best",
    "max_steps": "max_steps",
}


def our_words(given: Mapping[str, Any], *, task: str = "csv", model: str = "MODEL") -> str:
    """The training that ``given`` describes, as a call of :func:`bertkit.finetune` and as a command."""
    settings: dict[str, Any] = {}
    for name, ours in _OURS.items():
        if (value := given.get(name)) is not None and value != getattr(TrainingArguments, name, None):
            settings[ours] = max(1, round(value)) if ours == "epochs" else value
    if settings.get("max_steps", -1) > 0:  # which counts, not the epochs
        settings.pop("epochs", None)
    best = str(settings.pop("metric_for_best", "loss")).removeprefix("eval_")
    if best != "loss":  # of equal scores ours takes the one with the lower loss
        settings["metric_for_best"] = best
    if precision := next((name for name in ("bf16", "fp16") if given.get(name)), None):
        settings["precision"] = precision
    out = given.get("output_dir") or "OUT"
    return call_and_command(task, model, str(out), settings)


def call_and_command(task: str, model: str, out: str, settings: Mapping[str, Any]) -> str:
    """A line of Python and a command that train alike."""
    config = ", ".join(f"{name}={value!r}" for name, value in settings.items())
    options = "".join(_option(name, value) for name, value in settings.items())
    return (
        f"In bertkit's words: bertkit.finetune({task!r}, data='train.csv', model={model!r}, out={out!r}, "
        f"config=bertkit.FinetuneConfig({config})), or on the command line: bertkit finetune {task} --data train.csv "
        f"--model {model} --out {out}{options}"
    )


def _option(name: str, value: object) -> str:
    option = f" --{name.replace('_', '-')}"
    return option if value is True else f"{option} {value}"
