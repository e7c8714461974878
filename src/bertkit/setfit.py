"""The names of SetFit: ``from bertkit.setfit import SetFitModel, Trainer, TrainingArguments, sample_dataset``.

Classifiers from a handful of labels, by the training of ``bertkit finetune --few-shot``.
"""

from __future__ import annotations

from bertkit.system.lazy_names import lazy_names

__getattr__, __all__ = lazy_names(
    "bertkit.setfit",
    {
        "bertkit.habits.few_shot_model": "SetFitModel",
        "bertkit.habits.few_shot_trainer": "Trainer TrainingArguments",
        "bertkit.habits.few_shot_data": "get_templated_dataset sample_dataset",
        "bertkit.habits.trainer_callbacks": "EarlyStoppingCallback TrainerCallback",
    },
    entry="setfit",
)
#: What SetFit has below it is answered by the table of habits.
__path__: list[str] = []


def __dir__() -> list[str]:
    return sorted(__all__)
