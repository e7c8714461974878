"""Rows of a data set to the inputs of a model, and the outputs of many batches to one array."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from itertools import zip_longest
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from bertkit.errors import DataError, InputError
from bertkit.model.losses import LossOutput, LossTerm

#: What a row has for the model: numbers, lists of numbers, arrays, tensors.
Row = Mapping[str, Any]
Inputs = dict[str, Tensor]
Collate = Callable[[list[Row]], Mapping[str, Any]]
#: Names of a label in a row, which a model calls ``labels``.
LABELS = ("label", "label_ids")
#: Where a sequence of another batch is shorter.
FILL = -100


def rows_of(dataset: Any, name: str) -> Sequence[Row]:
    """The rows of a list of dicts, a torch or ``datasets`` Dataset, a DataFrame, or a dict of columns.

    Raises:
        DataError: something else, or no row.
    """
    if hasattr(dataset, "to_dict") and hasattr(dataset, "columns"):
        dataset = dataset.to_dict("records") if hasattr(dataset, "iloc") else dataset.to_dicts()
    elif isinstance(dataset, Mapping):
        dataset = [dict(zip(dataset, values, strict=True)) for values in zip(*dataset.values(), strict=True)]
    if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        hint = f"; write {name}=list(...)" if isinstance(dataset, Iterable) else ""
        raise DataError(
            f"{name} must have a length and rows: a list of dicts, a Dataset or a table, got "
            f"{type(dataset).__name__}{hint}"
        )
    if not len(dataset):
        raise DataError(f"{name} has no rows")
    rows: Sequence[Row] = dataset
    return rows


def is_several(dataset: Any) -> bool:
    """Whether it is a dict of data sets by name, not one of columns."""
    return isinstance(dataset, Mapping) and all(
        hasattr(each, "columns") or (len(each) > 0 and hasattr(each[0], "keys")) for each in dataset.values()
    )


def read_names(model: nn.Module) -> frozenset[str] | None:
    """Columns that the model's ``forward`` reads, and labels; None: it takes any keyword."""
    parameters = signature(model.forward).parameters
    kinds = {each.kind for each in parameters.values()}
    takes_any = Parameter.VAR_KEYWORD in kinds and not any("label" in name for name in parameters)
    if takes_any or Parameter.VAR_POSITIONAL in kinds:
        return None
    return frozenset(parameters) | {*LABELS, "labels"}


def label_names_of(model: nn.Module) -> tuple[str, ...]:
    """Keywords of ``forward`` that its loss compares with."""
    names = list(signature(model.forward).parameters)
    spans = tuple(name for name in names if name in ("start_positions", "end_positions"))
    return spans or tuple(name for name in names if "label" in name) or ("labels",)


def collate_with(tokenizer: Any) -> Collate:
    """Rows padded by a tokenizer to the longest; None: rows of one length as they are."""

    def padded(rows: list[Row]) -> Mapping[str, Any]:
        found = tokenizer.pad([dict(row) for row in rows], return_tensors="pt")
        return {"labels" if name in LABELS else name: value for name, value in found.items()}

    return stacked if tokenizer is None else padded


def stacked(rows: list[Row]) -> Inputs:
    """Each column as a tensor, ``label`` as ``labels``; columns of texts are left out. ``default_data_collator``."""
    found: Inputs = {}
    for name, value in rows[0].items():
        if isinstance(value, str) or value is None:
            continue
        values = [row[name] for row in rows]
        try:
            tensor = torch.stack(values) if isinstance(value, Tensor) else torch.as_tensor(np.array(values))
        except (ValueError, TypeError, RuntimeError):
            raise InputError(
                f"column {name!r} has rows of different lengths: give the trainer processing_class=tokenizer, or a "
                "data_collator, which pads them"
            ) from None
        found["labels" if name in LABELS else name] = tensor.float() if tensor.dtype == torch.float64 else tensor
    return found


@dataclass(frozen=True, slots=True)
class Collated:
    """What a collator made of some rows, for a model that is called with padded tensors; ``size``: rows."""

    inputs: Mapping[str, Any]
    size: int

    def to(self, device: torch.device | str) -> Collated:
        """The same on ``device``."""
        return Collated(on_device(self.inputs, device), self.size)


def on_device(inputs: Mapping[str, Any], device: torch.device | str) -> dict[str, Any]:
    """Tensors on ``device``; what is no tensor as it is."""
    return {name: value.to(device) if isinstance(value, Tensor) else value for name, value in inputs.items()}


class CalledModel(nn.Module):
    """A model whose loss someone else computes: any module, or a ``compute_loss`` of one's own.

    ``loss_of`` gives the mean loss of the inputs. A batch counts as many targets as it has labels that are not -100, or
    else rows.
    """

    def __init__(self, model: nn.Module, loss_of: Callable[[nn.Module, dict[str, Any]], Tensor]) -> None:
        super().__init__()
        self.model, self.loss_of = model, loss_of

    def forward_packed(self, batch: Collated) -> LossOutput:
        """The loss as a sum over the targets of the batch."""
        count = self.num_targets(batch)["loss"]
        return LossOutput({"loss": LossTerm(self.loss_of(self.model, dict(batch.inputs)) * count, count)})

    def num_targets(self, batch: Collated) -> dict[str, float]:
        """What the loss is a mean over."""
        return {"loss": num_items(batch.inputs) or float(batch.size)}


def num_items(inputs: Mapping[str, Any]) -> float:
    """Labels that are not -100; 0 without labels."""
    labels = inputs.get("labels")
    return float((labels != FILL).sum()) if isinstance(labels, Tensor) else 0.0


def joined(parts: Sequence[Any]) -> Any:
    """Outputs of batches as one array, or as a tuple of arrays; where widths differ, filled with -100."""
    if isinstance(parts[0], tuple):
        return tuple(joined(each) for each in zip_longest(*parts))
    arrays: list[npt.NDArray[np.generic]] = [
        part.detach().float().cpu().numpy() if part.is_floating_point() else part.detach().cpu().numpy()
        for part in parts
    ]
    if arrays[0].ndim < 2 or len({each.shape[1:] for each in arrays}) == 1:
        return np.concatenate(arrays)
    width = max(each.shape[1] for each in arrays)
    shape = (sum(map(len, arrays)), width, *arrays[0].shape[2:])
    out: npt.NDArray[np.generic] = np.full(shape, FILL, arrays[0].dtype)
    row = 0
    for each in arrays:
        out[row : row + len(each), : each.shape[1]] = each
        row += len(each)
    return out
