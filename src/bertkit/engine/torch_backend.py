"""A torch model as the back-end of the engine: eval mode, inference mode, device and threads.

Also what it says of a whole data set, as one array in the order of its rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor, nn

from bertkit.batch import Batch, collate
from bertkit.engine.rows import run_rows
from bertkit.errors import ResourceError
from bertkit.model.pretrained_model import PretrainedModel
from bertkit.ragged import Floats, Ragged
from bertkit.system.console import Progress

#: Tokens computed at once, on a CPU so few that they stay in its cache, and on other devices.
MAX_TOKENS_PER_BATCH = 1024
MAX_TOKENS_PER_DEVICE_BATCH = 32_768
#: Tokens in one forward pass over a whole data set: enough to keep the cores busy.
SCORING_TOKENS = 4096

ModelT = TypeVar("ModelT", bound=PretrainedModel)
ModuleT = TypeVar("ModuleT", bound=nn.Module)
ResultT = TypeVar("ResultT")
#: A model and a packed batch to a tensor with a row for each sequence, or for each token.
Forward = Callable[[ModelT, Batch], Tensor]
#: Called between batches of a long computation; may raise to stop it.
Check = Callable[[], None]


class TorchBackend(Generic[ModelT, ResultT]):
    """Runs a model in eval mode and without gradients, whatever mode it is in, and leaves its mode alone.

    A model in training mode is read through :func:`eval_view`. ``forward`` takes the model and a packed batch on its
    device to one result a sequence, in the order of the batch. ``max_tokens`` of a batch: None: what suits the device.
    """

    def __init__(
        self, model: ModelT, forward: Callable[[ModelT, Batch], Sequence[ResultT]], max_tokens: int | None = None
    ) -> None:
        self.model = eval_view(model)
        self.forward = forward
        self.device = model.device
        self.on_cpu = self.device.type == "cpu"
        self.max_tokens = max_tokens or (MAX_TOKENS_PER_BATCH if self.on_cpu else MAX_TOKENS_PER_DEVICE_BATCH)

    def compute(self, rows: Ragged, numbers: Sequence[int]) -> Sequence[ResultT]:
        """One result per row."""
        batch = collate(rows, numbers)
        try:
            with torch.inference_mode():
                return self.forward(self.model, batch if self.on_cpu else batch.to(self.device))
        except torch.OutOfMemoryError as error:
            raise ResourceError(
                f"out of memory on {self.device} with a batch of {batch.layout.num_tokens:,} tokens in "
                f"{batch.layout.num_sequences} sequences: {str(error).splitlines()[0]}. Use truncation=True with a "
                "smaller max_length, or device='cpu'"
            ) from None

    def num_threads(self, num_packs: int) -> int:
        """On a CPU as many threads as torch uses, if each gets several packs.

        Threads that share a batch wait for each other after every operation of every layer; with two threads that each
        work on their own, a window takes a tenth less time. The last packs of a window leave threads idle, so a small
        window is computed in the usual way.
        """
        threads = torch.get_num_threads()
        if not self.on_cpu or threads == 1 or num_packs < 4 * threads:
            return 1
        return threads if len(self._openmp) else 1

    @cached_property
    def _openmp(self) -> ThreadpoolController:
        return ThreadpoolController().select(user_api="openmp")

    @contextmanager
    def in_thread(self) -> Iterator[None]:
        """Keeps torch's operations inside the calling thread, and changes nothing for any other thread.

        ``torch.set_num_threads`` would also change the number of threads started from now on anywhere in the process.
        """
        torch.get_num_threads()  # torch sets this thread up at its first use, which would overrule the limit
        with self._openmp.limit(limits=1):
            yield


def eval_view(model: ModuleT) -> ModuleT:
    """``model`` if it is in eval mode; otherwise a second tree of modules in eval mode over the same parameters.

    The mode of a module is an attribute that all threads see, so switching it for the time of a computation would put
    dropout into, or take it out of, whatever another thread computes meanwhile.
    """
    if not model.training:
        return model
    seen: dict[nn.Module, nn.Module] = {}

    def view(module: nn.Module) -> nn.Module:
        if module not in seen:
            seen[module] = twin = copy.copy(module)
            twin.training = False
            twin._modules = {name: child if child is None else view(child) for name, child in module._modules.items()}
        return seen[module]

    found = view(model)
    assert isinstance(found, type(model))
    return found


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
