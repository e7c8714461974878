"""Loss, outputs and scores of a trainer of ``transformers``' form."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from bertkit.errors import DataError, InputError
from bertkit.habits.followed import FollowedTrainer
from bertkit.habits.trainer_callbacks import Logs
from bertkit.habits.trainer_data import Collate, Row, is_several, joined, num_items, on_device, rows_of
from bertkit.habits.training_arguments import TrainingArguments


class PredictionOutput(NamedTuple):
    """Outputs of all rows (an array, or a tuple where the model has several), their labels, and scores."""

    predictions: Any
    label_ids: Any
    metrics: Logs | None


class EvalPrediction(tuple[Any, Any]):
    """What ``compute_metrics`` is given: ``logits, labels = it``, or by name."""

    def __new__(cls, predictions: Any, label_ids: Any) -> EvalPrediction:
        """Outputs of all rows and their labels."""
        return super().__new__(cls, (predictions, label_ids))

    @property
    def predictions(self) -> Any:
        """Outputs of all rows: logits, or a tuple where the model has several."""
        return self[0]

    @property
    def label_ids(self) -> Any:
        """Labels of all rows, -100 where there is none."""
        return self[1]


class EvaluatingTrainer(FollowedTrainer):
    """A trainer with a model that is asked for its loss and outputs."""

    args: TrainingArguments
    data_collator: Collate
    eval_dataset: Any
    label_names: tuple[str, ...]
    compute_loss_func: Callable[..., Tensor] | None
    compute_metrics: Callable[[EvalPrediction], Mapping[str, float]] | None
    preprocess_logits_for_metrics: Callable[[Any, Any], Tensor] | None
    #: Columns that the model reads; None: all.
    read_names: frozenset[str] | None

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, **options: Any
    ) -> Any:
        """The mean loss of a batch, with the outputs if they are asked for; a subclass may compute another one."""
        outputs = named(model(**inputs))
        if self.compute_loss_func is not None:
            loss = self.compute_loss_func(outputs, inputs.get("labels"), num_items_in_batch=num_items(inputs))
        elif "loss" in outputs.keys():  # noqa: SIM118
            loss = outputs["loss"]
        else:
            raise InputError(
                f"{type(model).__name__} gives no loss for the columns {', '.join(inputs)}: give the rows labels, take "
                "a model with a head, such as AutoModelForSequenceClassification, or override compute_loss"
            )
        return (loss, outputs) if return_outputs else loss

    def evaluate_now(self) -> None:
        """Evaluate because a callback asked for it."""
        self.evaluate()
        self.model.train()

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Sequence[str] | None = None, metric_key_prefix: str = "eval"
    ) -> Logs:
        """Loss and scores of labelled rows, by default of ``eval_dataset``, as ``eval_loss``, ``eval_accuracy`` ...

        Of a dict of data sets those of each, as ``eval_NAME_loss``.
        """
        dataset = self.eval_dataset if eval_dataset is None else eval_dataset
        if dataset is None:
            raise DataError("nothing to evaluate on: give evaluate(rows), or Trainer(..., eval_dataset=rows)")
        if is_several(dataset):
            return {
                name: value
                for key, each in dataset.items()
                for name, value in self.evaluate(each, ignore_keys, f"{metric_key_prefix}_{key}").items()
            }
        metrics = self._outputs(dataset, metric_key_prefix, ignore_keys).metrics or {}
        self.log(metrics)
        self.call("on_evaluate", metrics=metrics)
        return metrics

    def predict(
        self, test_dataset: Any, ignore_keys: Sequence[str] | None = None, metric_key_prefix: str = "test"
    ) -> PredictionOutput:
        """Outputs of rows, with their labels and scores where they have labels."""
        found = self._outputs(test_dataset, metric_key_prefix, ignore_keys)
        self.call("on_predict", metrics=found.metrics)
        return found

    def _outputs(self, dataset: Any, prefix: str, ignore_keys: Sequence[str] | None) -> PredictionOutput:
        rows, size, began = (
            rows_of(dataset, f"{prefix}_dataset"),
            self.args.per_device_eval_batch_size,
            time.monotonic(),
        )
        logits, labels, total = [], [], 0.0
        self.model.eval()
        for start in range(0, len(rows), size):
            batch = [rows[number] for number in range(start, min(start + size, len(rows)))]
            loss, found, right = self.prediction_step(self.model, self.inputs_of(batch), False, ignore_keys)
            if loss is not None:
                total += float(loss) * len(batch)
            if not self.args.prediction_loss_only:
                logits += [] if found is None else [found]
            labels += [] if right is None else [right]
        predicted = joined(logits) if logits else None
        label_ids = joined(labels) if labels else None
        metrics: Logs = {f"{prefix}_loss": total / len(rows)} if labels else {}
        if self.compute_metrics is not None and predicted is not None and label_ids is not None:
            scores = self.compute_metrics(EvalPrediction(predicted, label_ids))
            for name, value in scores.items():
                key = name if name.startswith(f"{prefix}_") else f"{prefix}_{name}"
                metrics[key] = value.item() if isinstance(value, np.generic | Tensor) else value
        metrics |= speed(prefix, began, len(rows), math.ceil(len(rows) / size))
        return PredictionOutput(predicted, label_ids, metrics)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: Sequence[str] | None = None,
    ) -> tuple[Tensor | None, Any, Any]:
        """Loss, outputs and labels of a batch, without gradients."""
        inputs = on_device(inputs, next(model.parameters()).device)
        right = tuple(inputs[name] for name in self.label_names if inputs.get(name) is not None)
        has_labels = len(right) == len(self.label_names)
        loss: Tensor | None = None
        with torch.no_grad():
            if has_labels:
                loss, outputs = self.compute_loss(model, dict(inputs), return_outputs=True)
            else:
                outputs = named(model(**inputs))
        left_out = {"loss", "hidden_states", "attentions", *(ignore_keys or ())}
        values = tuple(outputs[key] for key in outputs.keys() if key not in left_out)  # noqa: SIM118
        found = None if prediction_loss_only or not values else values[0] if len(values) == 1 else values
        labels = None if not has_labels else right[0] if len(right) == 1 else right
        if self.preprocess_logits_for_metrics is not None and found is not None:
            found = self.preprocess_logits_for_metrics(found, labels)
        return loss, found, labels

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """Batches of rows, by default of ``eval_dataset``, to look at; :meth:`evaluate` makes the same ones."""
        return self.loader(self.eval_dataset if eval_dataset is None else eval_dataset, shuffle=False)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader[Any]:
        """Batches of rows, to look at; :meth:`predict` makes the same ones."""
        return self.loader(test_dataset, shuffle=False)

    def loader(self, dataset: Any, *, shuffle: bool) -> DataLoader[Any]:
        """Batches of rows as the model gets them."""
        args, rows = self.args, rows_of(dataset, "dataset")
        size = args.per_device_train_batch_size if shuffle else args.per_device_eval_batch_size
        generator = torch.Generator().manual_seed(args.seed)
        listed = cast("Dataset[Any]", rows)
        return DataLoader(listed, size, shuffle=shuffle, collate_fn=self.inputs_of, generator=generator)

    def inputs_of(self, rows: Sequence[Row]) -> dict[str, Any]:
        """What the collator makes of rows, without the columns that the model does not read."""
        if not hasattr(rows[0], "keys"):
            raise DataError(
                f"a row of the data must be a dict such as {{'input_ids': [...], 'labels': 1}}, got {rows[0]!r:.80}"
            )
        kept: list[Row] = [
            {name: row[name] for name in row.keys() if self.read_names is None or name in self.read_names}  # noqa: SIM118
            for row in rows
        ]
        if not kept[0]:
            raise DataError(
                f"the rows have the columns {', '.join(rows[0])}, and the model reads none of them: encode the texts "
                "first, as in dataset.map(lambda row: tokenizer(row['text'], truncation=True))"
            )
        return dict(self.data_collator(kept))


def named(outputs: Any) -> Any:
    """Outputs by name; of a model that returns a tuple, the loss is first, where there is one."""
    if not isinstance(outputs, tuple) or hasattr(outputs, "keys"):
        return {"logits": outputs} if isinstance(outputs, Tensor) else outputs
    loss_first = isinstance(outputs[0], Tensor) and outputs[0].ndim == 0
    names = ["loss"] * loss_first + [f"output_{number}" for number in range(len(outputs) - loss_first)]
    return dict(zip(names, outputs, strict=True))


def speed(prefix: str, began: float, num_rows: int, num_steps: int) -> Logs:
    """Seconds since ``began``, and rows and steps a second."""
    seconds = max(time.monotonic() - began, 1e-9)
    return {
        f"{prefix}_runtime": round(seconds, 4),
        f"{prefix}_samples_per_second": round(num_rows / seconds, 3),
        f"{prefix}_steps_per_second": round(num_steps / seconds, 3),
    }
