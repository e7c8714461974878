"""A torch model as the back-end of the engine: eval mode, inference mode, device and threads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from threading import local
from typing import Any, Self

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor, nn

from bertkit.batch import Batch, Layout
from bertkit.checkpoints.huggingface import is_int8
from bertkit.checkpoints.int8_folder import slow_here
from bertkit.config.bert_config import BertConfig
from bertkit.engine.backend import Pack, Precision, Values, Wanted, check_options
from bertkit.engine.captured_encoder import can_be_recorded, with_graphs
from bertkit.engine.closeness import check_precision
from bertkit.engine.fused_modules import Fused, FusedModel, can_fuse, fuse, mean_vectors
from bertkit.engine.gpu_precision import float32_products, half_type
from bertkit.engine.module_views import Watch, eval_view
from bertkit.engine.native.library import native_library, why_not
from bertkit.engine.native.packed_model import WEIGHT_TYPES, check_bf16, check_int8
from bertkit.engine.rows import MAX_TOKENS_PER_BATCH, threads_for
from bertkit.errors import ConfigError, InputError, ResourceError
from bertkit.model.auto import class_named
from bertkit.model.configured_model import ConfiguredModel
from bertkit.model.int8_model import has_bytes
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.loading import float_type
from bertkit.model.models import BertForMaskedLM, BertModel, HeadModel
from bertkit.model.padded import PackedModel
from bertkit.model.pooling import pool_sentences
from bertkit.model.word_weights import word_weights
from bertkit.ragged import Floats, Ints
from bertkit.system.console import say, say_once
from bertkit.system.device import find_device, runs_ahead
from bertkit.system.fork_locks import ForkSafeLock
from bertkit.weights.parts import WeightType

#: Tokens computed at once on other devices than a CPU.
MAX_TOKENS_PER_DEVICE_BATCH = 32_768
_HALF_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
#: Tokens in one forward pass over a whole data set: enough to keep the cores busy.
SCORING_TOKENS = 4096


class TorchBackend:
    """Runs a model in eval mode and without gradients, whatever mode it is in, and leaves its mode alone.

    On a CPU in float32 its layers are computed by the C library, where there is one: see
    :mod:`bertkit.engine.fused_modules`. Autocasting by the caller has no effect.

    model: what is run, and followed if it changes. max_pack: tokens of a pack at most; None: what suits the device.
    """

    def __init__(
        self,
        model: ConfiguredModel,
        precision: Precision = "auto",
        threads: int | None = None,
        max_pack: int | None = None,
    ) -> None:
        check_options(precision, threads)
        self.model = model
        self.precision = precision
        self.threads = threads
        self.max_pack = max_pack
        #: Whether a GPU multiplies float32 numbers as they are; else in TF32.
        self.exact = precision == "fp32"
        self._lock = ForkSafeLock()
        self._now = local()
        self._fused: Fused | None = None
        self._refused: str | None = None
        self._read()
        facts = model.quantization
        if facts is not None and self._place.type == "cpu" and (slow := slow_here(facts, native_library())):
            say(slow)

    def __getstate__(self) -> dict[str, Any]:
        """What it was made of, for copies and other processes, which make the library's copy of the weights anew."""
        return {name: getattr(self, name) for name in ("model", "precision", "threads", "max_pack")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def _read(self) -> None:
        """Note what does not change until the model is moved to another device or type."""
        model = self.model
        self.config: BertConfig = model.config
        self.model_class = type(model).__name__
        self._place, self._dtype = model.device, model.dtype
        self._projects_to_words = isinstance(model, HeadModel) and model.reads == "words"
        self.weight_type = self._choose()
        #: Whether small packs are computed by graphs of a GPU.
        self.records = can_be_recorded(model)

    @classmethod
    def of(
        cls,
        model: Any,
        device: Any = None,
        dtype: torch.dtype | str | None = None,
        precision: Precision = "auto",
        threads: int | None = None,
    ) -> Self:
        """The back-end of a model object; InputError for anything else."""
        if not isinstance(model, ConfiguredModel):
            raise InputError(f"expected a model of bertkit, such as BertModel, got {type(model).__name__}")
        if device is not None or dtype is not None:
            kind = None if dtype is None else float_type({"dtype": dtype})
            model.to(device=None if device is None else find_device(device), dtype=kind)
        return cls(model, precision if dtype is None else _as_given(model.device, precision), threads)

    @classmethod
    def for_scoring(cls, model: Any) -> Self:
        made = cls.of(model, precision="int8" if isinstance(model, nn.Module) and has_bytes(model) else "fp32")
        made.model.prepack()
        made.max_pack, made.exact = SCORING_TOKENS, False
        return made

    @classmethod
    def load(
        cls, path: Path, model_class: str, device: Any, dtype: Any, precision: Precision, threads: int | None
    ) -> Self:
        check_options(precision, threads)
        known, place = class_named(model_class), find_device(device)
        chosen = precision if dtype is None else _as_given(place, precision)
        if dtype is None and precision == "auto" and not is_int8(path) and (dtype := half_type(place)) is not None:
            say_once(f"computes in {str(dtype).removeprefix('torch.')} on {place}; precision fp32 keeps all bits")
        made = cls(known.from_pretrained(path, device=place, dtype=dtype), chosen, threads)
        if made.weight_type is None and made.place.type == "cpu":
            made.model.prepack()
        return made

    @property
    def place(self) -> torch.device:
        return self.model.device

    @property
    def dtype(self) -> str:
        return str(self._dtype)

    def _choose(self) -> WeightType | None:
        """What the library keeps the weights in; None: torch computes the layers.

        The model stays in memory beside the library's copy, which "fp32" would make as large.
        """
        model = self.model
        fusable = self._place.type == "cpu" and self._dtype == torch.float32 and can_fuse(model)
        library = native_library() if fusable else None
        in_bytes = has_bytes(model)
        check_int8(self.precision, in_bytes=in_bytes)
        if self.precision in ("fp16", "bf16") and self._place.type == "cpu":
            if library is None:
                lack = why_not() if fusable else "only unchanged encoders in float32 with a usual activation run there"
                raise ConfigError(f"precision {self.precision!r} needs the compiled encoder: {lack}. Use 'auto'")
            check_bf16(self.precision, library)
        if library is None or self.precision == "fp32":
            return None
        return WEIGHT_TYPES[self.precision]

    def _network(self, batch: Batch) -> ConfiguredModel:
        """What computes: torch's modules, or a view of them with the library's encoder or a GPU's graphs."""
        if self._follow() or (self.weight_type is None and not self.records):
            return eval_view(self.model)
        fused = self._fused  # once: another thread may replace it
        return fused.view if fused is not None and fused.is_current() else self._fuse(batch)

    def _follow(self) -> bool:
        """Notice another device or type. Returns whether the model is in training mode, in which torch computes."""
        model = self.model
        if (model.device, model.dtype) != (self._place, self._dtype):
            self._fused = None
            self._read()
        return model.training

    def _fuse(self, batch: Batch) -> ConfiguredModel:
        with self._lock:
            if self._fused is not None and self._fused.is_current():
                return self._fused.view  # made by another thread
            if self._refused is not None:
                raise ConfigError(self._refused)
            model = self.model
            if self.records:
                if not can_be_recorded(model):  # it has hooks or another kernel by now
                    return eval_view(model)
                self._fused = Fused(with_graphs(model), Watch(model), None)
                return self._fused.view
            library = native_library()
            if self.weight_type is None or not can_fuse(model):
                return eval_view(model)
            assert library is not None
            now = self._now  # not self, which would hold itself by its view
            watch = Watch(model)
            view = fuse(model, library, self.weight_type, lambda: getattr(now, "threads", 1))
            if self.precision in ("fp16", "bf16") and self._fused is None:
                vectors = mean_vectors(view, batch), mean_vectors(eval_view(model), batch)
                try:
                    check_precision(*vectors, self.precision)
                except ConfigError as error:
                    self._refused = str(error)
                    raise
            self._fused = Fused(view, watch, FusedModel.of(view))
            return view

    @property
    def packs_ahead(self) -> int:
        return 1 if runs_ahead(self.place) else 0

    @property
    def max_tokens(self) -> int:
        on_cpu = self.place.type == "cpu"
        return self.max_pack or (MAX_TOKENS_PER_BATCH if on_cpu else MAX_TOKENS_PER_DEVICE_BATCH)

    def compute(self, pack: Pack, wanted: Wanted) -> Values:
        hidden = self._without_torch(pack, wanted)
        values = self._computed(pack, wanted) if hidden is None else {"last_hidden_state": hidden}
        if self.place.type == "cpu" and wanted.pooling is not None and not wanted.first_token:
            return {name: pack.pool(x_TD, wanted.pooling, wanted.skipped) for name, x_TD in values.items()}
        return values

    def _without_torch(self, pack: Pack, wanted: Wanted) -> Floats | None:
        """The hidden vectors of an encoder that the library computes alone; None: torch has to, or says why not."""
        if wanted.outputs != ("last_hidden_state",) or self._follow():
            return None
        fused = self._fused
        if fused is None or fused.parts is None or not fused.is_current():
            return None
        return fused.parts.hidden(pack, first_token=wanted.first_token)

    def _computed(self, pack: Pack, wanted: Wanted) -> Values:
        """What torch computes, in part by the library; of vectors on a CPU that are to be pooled, all."""
        device = self.place
        batch = batch_of(pack, wanted)
        try:
            exact = float32_products(device, exact=self.exact)
            with self._limited(), torch.inference_mode(), self._autocast(), exact:
                if device.type != "cpu":
                    batch = replace(batch, layout=batch.layout.with_offsets()).to(device)
                # The library computes the top layer alone.
                network = eval_view(self.model) if wanted.layers else self._network(batch)
                found = _outputs(network, batch, wanted)
                if device.type == "cuda":
                    return LateValues(found, device)
                return {name: x.float().cpu().numpy() for name, x in found.items()}
        except torch.OutOfMemoryError as error:
            raise ResourceError(
                f"out of memory on {device} with a batch of {len(pack.ids):,} tokens in "
                f"{len(pack.lengths)} sequences: {str(error).splitlines()[0]}. Use truncation=True with a "
                "smaller max_length, or device='cpu'"
            ) from None

    def num_threads(self, lengths: Ints) -> int:
        """On a CPU as many threads as torch uses, if each has far more to do than the longest row.

        Threads that share a pack wait for each other in every layer, after each operation where torch computes; those
        that work on their own wait once, for whichever has the last pack.
        """
        threads = self.threads or torch.get_num_threads()
        return threads_for(lengths, threads) if self.place.type == "cpu" and len(self._openmp) else 1

    def in_thread(self, alone: bool) -> AbstractContextManager[None]:
        """Keeps the computation to the calling thread, or to the number that was asked for."""
        self._now.threads = (self.threads or torch.get_num_threads()) if alone else 1
        fused = self._fused
        without_torch = alone and fused is not None and fused.parts is not None
        return nullcontext() if without_torch else self._limited()

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Limits the threads of torch's operations in this thread.

        Torch's threads wait in a loop for a while after an operation, and would take the cores from the library's. So
        where the library computes the layers, torch does the little that is left in one thread.
        """
        threads = torch.get_num_threads()  # also sets torch up in this thread, which would overrule a limit set before
        only_rest = self.weight_type is not None and not self._projects_to_words
        limit = 1 if only_rest else getattr(self._now, "threads", 1)
        if limit == threads:
            yield
            return
        libraries = self._openmp.lib_controllers
        before = [library.get_num_threads() for library in libraries]
        for library in libraries:  # torch.set_num_threads would change the threads of the whole process
            library.set_num_threads(limit)
        try:
            yield
        finally:
            for library, number in zip(libraries, before, strict=True):
                library.set_num_threads(number)

    def encoder(self) -> TorchBackend:
        """That of the model's encoder; InputError if it has none."""
        if self.model_class == BertModel.__name__:
            return self
        if not isinstance(self.model, PackedModel):
            return self  # an encoder-decoder, which gives vectors of tokens beside what its head says
        encoder = getattr(self.model, "bert", None)
        if not isinstance(encoder, BertModel):
            raise InputError(f"{self.model_class} has no encoder to take features from; pass a BertModel")
        return TorchBackend(encoder, self.precision, self.threads, self.max_pack)

    def _autocast(self) -> AbstractContextManager[Any]:
        """Products in 16 bits on another device than a CPU, if asked for, or by themselves; the caller's ends here."""
        device = self.place.type
        half = _HALF_TYPES.get(self.precision)
        if self.precision == "auto" and self._dtype == torch.float32 and not has_bytes(self.model):
            half = half_type(self.place)
        if half is not None and device != "cpu":
            return torch.autocast(device, half)
        return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()

    @cached_property
    def _openmp(self) -> ThreadpoolController:
        return ThreadpoolController().select(user_api="openmp")


class LateValues(Mapping[str, Floats]):
    """Outputs that a GPU may still be computing: the host waits for them when it reads one."""

    def __init__(self, found: Mapping[str, Tensor], device: torch.device) -> None:
        self._found = {name: x.float().to("cpu", non_blocking=True) for name, x in found.items()}
        self._there = torch.cuda.current_stream(device).record_event()

    def __getitem__(self, name: str) -> Floats:
        self._there.synchronize()
        values: Floats = self._found[name].numpy()
        return values

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _as_given(place: torch.device, precision: Precision) -> Precision:
    """The precision of weights whose type was asked for: on a GPU no other type than theirs is chosen."""
    return "fp32" if precision == "auto" and place.type == "cuda" else precision


def batch_of(pack: Pack, wanted: Wanted) -> Batch:
    """The rows of a pack as tensors."""
    ids = torch.from_numpy(pack.ids)
    return Batch(
        input_ids=ids,
        token_type_ids=torch.from_numpy(pack.token_type_ids),
        position_ids=torch.from_numpy(pack.positions),
        layout=Layout(pack.lengths),
        logit_rows=None if wanted.only_at is None else (ids == wanted.only_at).nonzero().squeeze(1),
    )


def _outputs(model: ConfiguredModel, batch: Batch, wanted: Wanted) -> Mapping[str, Tensor]:
    """The wanted outputs of a model in eval mode: of tokens ``(T, ...)``, of rows ``(B, ...)``."""
    if isinstance(model, BertModel):
        (name,) = wanted.outputs
        return {name: _pooled(model, batch) if name == "pooler_output" else _hidden(model, batch, wanted)}
    if wanted.words is not None:
        assert isinstance(model, BertForMaskedLM), "only asked of a masked LM"
        return {"word_weights": word_weights(model, batch, wanted.words.pooling, wanted.words.logs)}
    out = model.forward_packed(batch)
    found: dict[str, Tensor] = {name: out[name] for name in wanted.outputs}
    if wanted.pooling is not None:
        found = {name: _pool(x, batch.layout, wanted) for name, x in found.items()}
    if model.has_choices:  # all in one row, as if they belonged to one question
        found = {name: x.reshape(-1, 1) for name, x in found.items()}
    return found


def _hidden(encoder: BertModel, batch: Batch, wanted: Wanted) -> Tensor:
    """The hidden vectors, without the pooler's matrix and tanh; of [CLS] alone the top layer is computed there."""
    x_TD, layout = encoder.embeddings(batch), batch.layout
    rows = ChosenRows.first(layout, x_TD.device) if wanted.first_token and not wanted.layers else None
    hidden, states, _ = encoder.encoder(x_TD, layout, rows, want_states=bool(wanted.layers))
    if wanted.layers:
        hidden = torch.cat([states[number] for number in wanted.layers], dim=1)
    return hidden if wanted.pooling is None or rows is not None else _pool(hidden, layout, wanted)


def _pool(x_TD: Tensor, layout: Layout, wanted: Wanted) -> Tensor:
    """A vector of each row. On a CPU all but the first token's is left to :meth:`Pack.pool`, which takes less time."""
    assert wanted.pooling is not None
    if wanted.first_token:
        return x_TD[layout.first_rows(x_TD.device)]
    return x_TD if x_TD.device.type == "cpu" else pool_sentences(x_TD, layout, wanted.pooling, wanted.skipped)


def _pooled(encoder: BertModel, batch: Batch) -> Tensor:
    pooled = encoder.forward_packed(batch, rows="first").pooler_output
    assert pooled is not None, "only asked of an encoder with a pooler"
    return pooled
