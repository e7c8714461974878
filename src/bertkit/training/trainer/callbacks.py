"""Follow a run from Python: subclass :class:`Callback` and override what you need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from bertkit.training.trainer.loop import Trainer
from bertkit.training.trainer.loop_options import Record

#: A trainer on batches of any kind.
AnyTrainer = Trainer[Any]


class Callback:
    """Called during training, between steps; each method does nothing by default.

    ``trainer`` gives what is needed: ``trainer.model``, ``trainer.at`` (step, epochs so far, best score),
    ``trainer.options`` (``num_steps``, ``label``), and :meth:`Trainer.stop`. What a callback raises ends the run; the
    last checkpoint stays.

    each_step: whether :meth:`on_step` acts on the run, so that each step must be told before the next one. On a GPU
    every step then waits for its result. Example::

        class Print(Callback):
            def on_epoch(self, trainer, record):
                print(record["epoch"], record["train_loss"], record["dev_accuracy"])
    """

    each_step: ClassVar[bool] = False

    def on_begin(self, trainer: AnyTrainer) -> None:
        """Before the first step, also of a resumed run (``trainer.at.step`` steps are done)."""

    def on_step(self, trainer: AnyTrainer, record: Record) -> None:
        """After an optimizer step.

        ``record``: ``step``, ``epoch``, ``loss``, ``lr``, ``grad_norm`` and the speed. On a GPU up to 20 steps are told
        together, when they were read: the weights and ``trainer.at`` are then those of the last of them, unless
        :attr:`each_step` is set.
        """

    def on_epoch(self, trainer: AnyTrainer, record: Record) -> None:
        """After an epoch and its evaluation.

        ``record``: ``step``, ``epoch``, ``train_loss``, ``dev_loss`` and each ``dev_METRIC``, ``seconds``.
        """

    def on_end(self, trainer: AnyTrainer) -> None:
        """After the last step, before the best weights are restored."""


def reporting(
    trainer: AnyTrainer, log: Callable[[Record], None], callbacks: Sequence[Callback]
) -> Callable[[Record], None]:
    """A log that also calls callbacks."""

    def report(record: Record) -> None:
        log(record)
        for callback in callbacks:
            (callback.on_epoch if record.get("event") == "epoch" else callback.on_step)(trainer, record)

    return report
