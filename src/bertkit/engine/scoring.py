"""What a model says of a whole data set, as one array in the order of its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from bertkit.batch import Batch
from bertkit.engine.rows import run_rows
from bertkit.engine.torch_backend import TorchBackend
from bertkit.model.pretrained_model import PretrainedModel
from bertkit.ragged import Floats, Ragged
from bertkit.system.console import Progress

#: Tokens in one forward pass: enough to keep the cores busy.
SCORING_TOKENS = 4096

ModelT = TypeVar("ModelT", bound=PretrainedModel)
#: A model and a packed batch to a tensor with a row for each sequence, or for each token.
Forward = Callable[[ModelT, Batch], Tensor]
#: Called between batches of a long computation; may raise to stop it.
Check = Callable[[], None]


def stop_nothing() -> None:
    """The check of a computation that is not to be stopped."""


def row_outputs(
    model: ModelT, rows: Ragged, forward: Forward[ModelT], *, check: Check = stop_nothing, label: str = "scoring"
) -> Floats:
    """``forward``, to ``(sequences of a batch, width)``, of every row, at least one, in their order: ``(B, width)``.

    Computed in float32 even after training in half precision: what is scored is the model as it is saved. The model is
    put into eval mode, and left in it.
    """
    return np.stack(_outputs(model, rows, lambda net, batch: list(_array(forward, net, batch)), check, label))


def token_outputs(
    model: ModelT, rows: Ragged, forward: Forward[ModelT], *, check: Check = stop_nothing, label: str = "scoring"
) -> Floats:
    """``forward`` of every token, rows end to end in their order: float32 ``(T, width)``.

    As :func:`row_outputs`, but ``forward`` returns ``(tokens of the batch, width)``.
    """

    def by_row(net: ModelT, batch: Batch) -> Sequence[Floats]:
        values = _array(forward, net, batch)
        return [values[start:end] for start, end in batch.layout.spans()]

    return np.concatenate(_outputs(model, rows, by_row, check, label))


def _array(forward: Forward[ModelT], model: ModelT, batch: Batch) -> Floats:
    with torch.autocast(model.device.type, enabled=False):
        values: Floats = forward(model, batch).float().cpu().numpy()
    return values


def _outputs(
    model: ModelT, rows: Ragged, forward: Callable[[ModelT, Batch], Sequence[Floats]], check: Check, label: str
) -> list[Floats]:
    model.prepack()
    check()
    with Progress(len(rows), label=label, unit="rows") as bar:

        def advance(count: int) -> None:
            bar.advance(count)
            check()

        return run_rows(rows, TorchBackend(model, forward, SCORING_TOKENS), advance)
