"""The one way from rows to outputs: sort by length, pack, compute, and put the results back in order.

Sorting costs nothing here, because rows do not depend on each other, and gives attention sequences of equal length.
Nothing is kept between two calls, so any number of threads may call at the same time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bertkit.checkpoints.static_folder import static_folder
from bertkit.config.any_config import AnyConfig, counterpart
from bertkit.config.config_file import config_path
from bertkit.engine.backend import Backend, Check, Network, Pack, Precision, Values, Wanted
from bertkit.engine.export_folder import is_export
from bertkit.engine.native.native_backend import NativeBackend, why_not_native
from bertkit.engine.rows import pack_by_length
from bertkit.errors import CheckpointError, needs_bertkit
from bertkit.ragged import Floats, Ragged
from bertkit.system.console import Progress

ResultT = TypeVar("ResultT")
PartT = TypeVar("PartT")
#: From a pack and its outputs to one result per row, in the order of the pack.
Read = Callable[[Pack, Values], Sequence[ResultT]]
#: The same, to a matrix of one row for each.
ReadMatrix = Callable[[Pack, Values], Floats]
#: Called with the number of rows after each pack; may raise to stop.
Advance = Callable[[int], None]


def tell_nobody(count: int) -> None:
    """The :data:`Advance` of a computation that nobody watches."""


def stop_nothing() -> None:
    """The check of a computation that is not to be stopped."""


class InferenceEngine:
    """Rows of token ids to outputs of a model, in eval mode and without gradients whatever mode it is in.

    Made by :meth:`of` from a model object, by :meth:`load` from a checkpoint or an exported folder.
    """

    def __init__(self, backend: Backend) -> None:
        self.backend = backend

    @classmethod
    def of(
        cls,
        model: Network,
        *,
        device: Any = None,
        dtype: Any = None,
        precision: Precision = "auto",
        threads: int | None = None,
    ) -> InferenceEngine:
        """The engine of a model object, whose later changes are followed; device and dtype, if given, change the model.

        precision: how weights are kept and multiplied. ``"auto"``: what is fastest with answers as in float32. On a CPU
            that is weights in 24 bits, or in 32 if they stay in its cache; on an NVIDIA GPU bfloat16, or float16 on one
            older than Ampere (weights of a checkpoint too; those of a model object, or of a given dtype, stay as they
            are). ``"fp32"``: all 32 bits. ``"fp16"``: 16 bits, multiplied in float32 on a CPU. ``"bf16"``: products of
            bfloat16 numbers. ``"int8"``: a model that ``bertkit quantize`` made. On a CPU the first texts are also
            computed in float32 for ``"fp16"`` and ``"bf16"``, and the model refused if its answers change.
        threads: of the processor that one call may use; None: as many as torch uses.
        """
        with needs_bertkit("a model object"):
            from bertkit.engine.torch_backend import TorchBackend

        return cls(TorchBackend.of(model, device, dtype, precision, threads))

    @classmethod
    def for_scoring(cls, model: Network) -> InferenceEngine:
        """The engine for whole data sets: float32 whatever the model was trained in, and large packs.

        What is scored is the model as it is saved. It is put into eval mode and prepacked, and left so.
        """
        from bertkit.engine.torch_backend import TorchBackend

        return cls(TorchBackend.for_scoring(model))

    @classmethod
    def load(
        cls,
        path: Path,
        model_class: str,
        *,
        device: Any = None,
        dtype: Any = None,
        precision: Precision = "auto",
        threads: int | None = None,
        in_memory: bool = False,
        by_torch: bool = False,
    ) -> InferenceEngine:
        """The engine of a checkpoint, loaded as a class or its counterpart, of an export, or of word vectors.

        by_torch: torch computes a checkpoint also where the C library could.
        in_memory: where the C library computes, nothing of a float checkpoint stays mapped, so that it may change.
        """
        if (found := static_folder(path)) is not None:
            from bertkit.engine.static.static_backend import StaticBackend  # few need it

            return cls(StaticBackend.load(found, model_class, device, dtype, precision, threads))
        if is_export(path):
            from bertkit.engine.onnx_backend import OnnxBackend

            return cls(OnnxBackend.load(path, model_class, device, dtype, precision, threads))
        path, chosen = path.absolute(), counterpart(model_class, config_path(path))
        reason = "torch was asked for" if by_torch else why_not_native(path, chosen, device)
        if reason is None and str(dtype) in ("None", "float32", "torch.float32"):
            return cls(NativeBackend(path, chosen, precision, threads, in_memory=in_memory))
        with needs_bertkit(f"{path}, which the compiled encoder does not compute ({reason}),"):
            from bertkit.engine.torch_backend import TorchBackend

        return cls(TorchBackend.load(path, chosen, device, dtype, precision, threads))

    @property
    def config(self) -> AnyConfig:
        """Shape and labels of the model."""
        return self.backend.config

    @property
    def model_class(self) -> str:
        """Name of the model's class."""
        return self.backend.model_class

    @property
    def model(self) -> Network:
        """The model object; InputError for an exported model, which has none.

        That of a checkpoint which the C library computes is loaded when it is first asked for, and computes from then
        on, because it may be changed.
        """
        return self._with_model().model

    def _with_model(self) -> Backend:
        """The back-end, made anew from its checkpoint if it has no model object, but could have one."""
        backend = self.backend
        if isinstance(backend, NativeBackend):
            with needs_bertkit("a model object"):
                from bertkit.engine.torch_backend import TorchBackend

            given = (backend.path, backend.model_class, "cpu", None, backend.precision, backend.threads)
            self.backend = backend = TorchBackend.load(*given)
        return backend

    @property
    def device(self) -> str:
        """Where it computes: ``"cpu"``, ``"cuda:0"`` ..."""
        return str(self.backend.place)

    @property
    def max_tokens(self) -> int:
        """Most tokens that are computed at once; a single row that is longer is computed by itself."""
        return self.backend.max_tokens

    def encoder(self) -> InferenceEngine:
        """The same without the head; InputError (a model object) or CheckpointError (an export) if there is none."""
        backend = self.backend.encoder()
        return self if backend is self.backend else InferenceEngine(backend)

    def run(self, rows: Ragged, wanted: Wanted, read: Read[ResultT], advance: Advance = tell_nobody) -> list[ResultT]:
        """One result per row, at least one, in the order of the rows.

        read: makes results of the outputs of a pack, in the thread that computed it.
        """
        values: list[ResultT | None] = [None] * len(rows)
        for numbers, results in self.in_packs(rows, wanted, read, advance):
            for number, value in zip(numbers, results, strict=True):
                values[number] = value
        return values  # type: ignore[return-value]  # every row was in exactly one pack

    def matrix(self, rows: Ragged, wanted: Wanted, read: ReadMatrix, advance: Advance = tell_nobody) -> Floats:
        """One row of a float32 matrix ``(B, width)`` per row, at least one, in their order: no object for each."""
        found: Floats | None = None
        for numbers, part in self.in_packs(rows, wanted, read, advance):
            if found is None:
                found = np.empty((len(rows), *part.shape[1:]), np.float32)
            found[numbers] = part
        assert found is not None, "there is at least one row"
        return found

    def in_packs(
        self, rows: Ragged, wanted: Wanted, read: Callable[[Pack, Values], PartT], advance: Advance
    ) -> Iterator[tuple[Sequence[int], PartT]]:
        """What is read of each pack, with the numbers of its rows: every row once, in any order.

        The one way to the back-end of :meth:`run` and :meth:`matrix`, which take all that it gives.
        """
        if len(rows) == 1:
            with self.backend.in_thread(alone=True):
                found = self._compute(Pack.of(rows), wanted, read)
            advance(1)
            yield [0], found
            return
        threads = self.backend.num_threads(rows.lengths)
        packs = pack_by_length(rows.lengths, self.max_tokens, threads)
        for numbers, part in zip(packs, self._computed(packs, threads, rows, wanted, read), strict=True):
            yield numbers, part
            advance(len(numbers))

    def row_outputs(
        self, rows: Ragged, wanted: Wanted, *, check: Check = stop_nothing, label: str = "scoring"
    ) -> Floats:
        """The one wanted output of every row, at least one, in their order: float32 ``(B, width)``."""
        check()
        with Progress(len(rows), label=label, unit="rows", check=check) as bar:
            return self.matrix(rows, wanted, vectors_of, bar.advance)

    def token_outputs(
        self, rows: Ragged, wanted: Wanted, *, check: Check = stop_nothing, label: str = "scoring"
    ) -> Floats:
        """The wanted outputs of every token, rows end to end in their order, several side by side: ``(T, width)``."""
        check()
        with Progress(len(rows), label=label, unit="rows", check=check) as bar:
            return np.concatenate(self.run(rows, wanted, tokens_of, bar.advance))

    def _computed(
        self,
        packs: Sequence[Sequence[int]],
        threads: int,
        rows: Ragged,
        wanted: Wanted,
        read: Callable[[Pack, Values], PartT],
    ) -> Iterator[PartT]:
        """The results of each pack, in order, computed by so many threads."""
        if threads == 1:
            yield from self._in_turn(packs, rows, wanted, read)
            return

        def compute(numbers: Sequence[int]) -> PartT:
            with self.backend.in_thread(alone=False):
                return self._compute(Pack.of(rows, numbers), wanted, read)

        from concurrent.futures import ThreadPoolExecutor  # one short text needs none

        pool = ThreadPoolExecutor(threads)
        try:
            yield from pool.map(compute, packs)
        finally:
            pool.shutdown(cancel_futures=True)

    def _in_turn(
        self, packs: Sequence[Sequence[int]], rows: Ragged, wanted: Wanted, read: Callable[[Pack, Values], PartT]
    ) -> Iterator[PartT]:
        """The results of each pack, in order, by the calling thread; a GPU has the next pack before one is read."""
        begun: deque[tuple[Pack, Values]] = deque()
        for numbers in packs:
            with self.backend.in_thread(alone=True):
                pack = Pack.of(rows, numbers)
                begun.append((pack, self._begun(pack, wanted)))
                if len(begun) <= self.backend.packs_ahead:
                    continue
                found = self._read(*begun.popleft(), wanted, read)
            yield found
        for pack, values in begun:
            yield self._read(pack, values, wanted, read)

    def _compute(self, pack: Pack, wanted: Wanted, read: Callable[[Pack, Values], PartT]) -> PartT:
        return self._read(pack, self._begun(pack, wanted), wanted, read)

    def _begun(self, pack: Pack, wanted: Wanted) -> Values:
        return (self._with_model() if wanted.layers else self.backend).compute(pack, wanted)

    def _read(self, pack: Pack, values: Values, wanted: Wanted, read: Callable[[Pack, Values], PartT]) -> PartT:
        for name, array in values.items():
            if not np.isfinite(array).all():  # results of such a model look like any others
                raise CheckpointError(
                    f"the model's {name.replace('_', ' ')} are not finite (NaN or infinity): its weights are damaged, "
                    f"or {self.backend.dtype} is too narrow for it. Try dtype float32; 'bertkit inspect' shows whether "
                    "the file holds such values"
                )
        if wanted.num_words is not None:
            values = {name: array[:, : wanted.num_words] for name, array in values.items()}
        return read(pack, values)


def vectors_of(pack: Pack, values: Values) -> Floats:
    """The only output, which has something for each row."""
    (found_B,) = values.values()
    return found_B


def rows_of(pack: Pack, values: Values) -> Sequence[Floats]:
    """The same row by row: copies, so that one result does not keep its whole pack."""
    return [row.copy() for row in vectors_of(pack, values)]


def tokens_of(pack: Pack, values: Values) -> Sequence[Floats]:
    """Of each row ``(s, width)``, what is said of its tokens; several outputs of one number each side by side."""
    arrays = list(values.values())
    found_T = np.stack(arrays, axis=1) if len(arrays) > 1 else arrays[0]
    return [part.copy() for part in pack.split(found_T)]
