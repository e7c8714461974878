"""A torch model as the back-end of the engine: eval mode, inference mode, device and threads."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor, nn

from bertkit.batch import Batch, Layout
from bertkit.config.bert_config import BertConfig
from bertkit.engine.backend import Pack, Precision, Values, Wanted, check_options
from bertkit.errors import ConfigError, InputError, ResourceError
from bertkit.model.auto import MODEL_CLASSES
from bertkit.model.heads import pool_tokens
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.models import BertModel
from bertkit.model.padded import PackedModel
from bertkit.system.device import find_device

#: Tokens computed at once, on a CPU so few that they stay in its cache, and on other devices.
MAX_TOKENS_PER_BATCH = 1024
MAX_TOKENS_PER_DEVICE_BATCH = 32_768
#: Tokens in one forward pass over a whole data set: enough to keep the cores busy.
SCORING_TOKENS = 4096

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class TorchBackend:
    """Runs a model in eval mode and without gradients, whatever mode it is in, and leaves its mode alone.

    A model in training mode is read through :func:`eval_view`. Autocasting by the caller has no effect.

    model: what is run.
    precision, threads: see :meth:`bertkit.engine.inference_engine.InferenceEngine.of`.
    most: tokens of a pack; None: what suits the device.
    """

    def __init__(
        self,
        model: PackedModel,
        precision: Precision = "auto",
        threads: int | None = None,
        most: int | None = None,
    ) -> None:
        check_options(precision, threads)
        if precision not in ("auto", "fp32"):
            raise ConfigError(f"precision {precision!r} is not available for this model; use 'auto' or 'fp32'")
        self.model = model
        self.precision = precision
        self.threads = threads
        self.most = most

    @classmethod
    def of(
        cls,
        model: Any,
        device: Any = None,
        dtype: torch.dtype | None = None,
        precision: Precision = "auto",
        threads: int | None = None,
    ) -> Self:
        """The back-end of a model object; InputError for anything else."""
        if not isinstance(model, PackedModel):
            raise InputError(f"expected a model of bertkit, such as BertModel, got {type(model).__name__}")
        if device is not None or dtype is not None:
            model.to(device=None if device is None else find_device(device), dtype=dtype)
        return cls(model, precision, threads)

    @classmethod
    def for_scoring(cls, model: Any) -> Self:
        """See :meth:`bertkit.engine.inference_engine.InferenceEngine.for_scoring`."""
        made = cls.of(model)
        made.model.prepack()
        made.most = SCORING_TOKENS
        return made

    @classmethod
    def load(
        cls, path: Path, model_class: str, device: Any, dtype: Any, precision: Precision, threads: int | None
    ) -> Self:
        """The back-end of a checkpoint; see :meth:`bertkit.engine.inference_engine.InferenceEngine.load`."""
        check_options(precision, threads)
        place = find_device(device)
        model = MODEL_CLASSES[model_class].from_pretrained(path, device=place, dtype=dtype)
        if place.type == "cpu":
            model.prepack()  # nobody else holds this model, so the copy of its weights cannot go stale
        return cls(model, precision, threads)

    @property
    def config(self) -> BertConfig:
        """That of the model."""
        return self.model.config

    @property
    def model_class(self) -> str:
        """Name of the model's class."""
        return type(self.model).__name__

    @property
    def place(self) -> torch.device:
        """Where the model's weights are."""
        return self.model.device

    @property
    def dtype(self) -> str:
        """Type of the model's weights."""
        return str(self.model.dtype)

    @property
    def max_tokens(self) -> int:
        """Most tokens of a pack."""
        on_cpu = self.model.device.type == "cpu"
        return self.most or (MAX_TOKENS_PER_BATCH if on_cpu else MAX_TOKENS_PER_DEVICE_BATCH)

    def compute(self, pack: Pack, wanted: Wanted) -> Values:
        """The wanted outputs, float32."""
        device = self.model.device
        batch = _batch_of(pack, wanted)
        try:
            with torch.inference_mode(), _without_autocast(device.type):
                found = _outputs(eval_view(self.model), batch if device.type == "cpu" else batch.to(device), wanted)
                return {name: x.float().cpu().numpy() for name, x in found.items()}
        except torch.OutOfMemoryError as error:
            raise ResourceError(
                f"out of memory on {device} with a batch of {len(pack.ids):,} tokens in "
                f"{len(pack.lengths)} sequences: {str(error).splitlines()[0]}. Use truncation=True with a "
                "smaller max_length, or device='cpu'"
            ) from None

    def num_threads(self, num_packs: int) -> int:
        """On a CPU as many threads as torch uses, if each gets several packs.

        Threads that share a batch wait for each other after every operation of every layer; with two threads that each
        work on their own, a window takes a tenth less time. The last packs of a window leave threads idle, so a small
        window is computed in the usual way.
        """
        threads = self.threads or torch.get_num_threads()
        if self.model.device.type != "cpu" or threads == 1 or num_packs < 4 * threads:
            return 1
        return threads if len(self._openmp) else 1

    def in_thread(self, alone: bool) -> AbstractContextManager[None]:
        """Keeps torch's operations inside the calling thread, or to the number that was asked for."""
        if not alone:
            return self._limited(1)
        return nullcontext() if self.threads is None else self._limited(self.threads)

    def encoder(self) -> TorchBackend:
        """That of the model's encoder; InputError if it has none."""
        if isinstance(self.model, BertModel):
            return self
        encoder = getattr(self.model, "bert", None)
        if not isinstance(encoder, BertModel):
            raise InputError(f"{self.model_class} has no encoder to take features from; pass a BertModel")
        return TorchBackend(encoder, self.precision, self.threads, self.most)

    @cached_property
    def _openmp(self) -> ThreadpoolController:
        return ThreadpoolController().select(user_api="openmp")

    @contextmanager
    def _limited(self, threads: int) -> Iterator[None]:
        """Torch's operations use so many threads when called in this thread; nothing changes for any other.

        ``torch.set_num_threads`` would also change the number of threads started from now on anywhere in the process.
        """
        torch.get_num_threads()  # torch sets this thread up at its first use, which would overrule the limit
        with self._openmp.limit(limits=threads):
            yield


def _batch_of(pack: Pack, wanted: Wanted) -> Batch:
    ids = torch.from_numpy(pack.ids)
    return Batch(
        input_ids=ids,
        token_type_ids=torch.from_numpy(pack.token_type_ids),
        position_ids=torch.from_numpy(pack.positions),
        layout=Layout(pack.lengths),
        logit_rows=None if wanted.only_at is None else (ids == wanted.only_at).nonzero().squeeze(1),
    )


def _outputs(model: PackedModel, batch: Batch, wanted: Wanted) -> Mapping[str, Tensor]:
    """The wanted outputs of a model in eval mode: of tokens ``(T, ...)``, of rows ``(B, ...)``."""
    if isinstance(model, BertModel):
        (name,) = wanted.outputs
        return {name: _hidden(model, batch, wanted) if name == "last_hidden_state" else _pooled(model, batch)}
    out = model.forward_packed(batch)
    found: dict[str, Tensor] = {name: out[name] for name in wanted.outputs}
    if model.has_choices:  # all in one row, as if they belonged to one question
        found = {name: x.reshape(-1, 1) for name, x in found.items()}
    return found


def _hidden(encoder: BertModel, batch: Batch, wanted: Wanted) -> Tensor:
    """The last hidden vectors, without the pooler's matrix and tanh; of [CLS] alone the top layer is computed there."""
    x_TD, layout = encoder.embeddings(batch), batch.layout
    rows = ChosenRows.first(layout, x_TD.device) if wanted.pooling == "cls" else None
    hidden: Tensor = encoder.encoder(x_TD, layout, rows)[0]
    return hidden if wanted.pooling in (None, "cls") else pool_tokens(hidden, layout, wanted.pooling)


def _pooled(encoder: BertModel, batch: Batch) -> Tensor:
    pooled = encoder.forward_packed(batch, rows="first").pooler_output
    assert pooled is not None, "only asked of an encoder with a pooler"
    return pooled


def _without_autocast(device: str) -> AbstractContextManager[Any]:
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


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
