"""Small packs on a GPU: the kernels of a whole encoder are launched as one, by CUDA graphs.

A GPU computes a layer of a short text faster than the host can launch its kernels, of which twelve layers have more
than a hundred. A graph of them is recorded once for a number of tokens, and replayed with other values in the same
memory. A pack is filled up to that number; the kernel of attention reads where texts begin from the GPU's memory, so
one graph serves all lengths of texts. See ``docs/decisions/0329-graphs-of-small-packs.md``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bertkit.batch import Fill, Layout
from bertkit.engine.module_views import ModuleT, computing_parts, hooks_of, module_view
from bertkit.model.configured_model import ConfiguredModel
from bertkit.model.encoder import Encoder
from bertkit.model.kernels.chosen_rows import ChosenRows
from bertkit.model.kernels.varlen_attention import attend_packed, backend_for, has_known_operator, varlen_capability
from bertkit.system.console import say_once
from bertkit.system.fork_locks import ForkSafeLock

#: Set to 0, every pack launches its kernels one by one.
SWITCH = "BERTKIT_CUDA_GRAPHS"
#: Numbers of tokens with a graph of their own; larger packs keep a GPU busy without one.
SIZES = (32, 64, 128, 256, 512, 1024)
#: A graph has room for one sequence for so many tokens.
TOKENS_A_SEQUENCE = 8
#: From a function that computes in fixed memory: its result, and what computes it again into the same memory.
Record = Callable[[Callable[[], Tensor]], tuple[Tensor, Callable[[], Any]]]


def fill_for(layout: Layout) -> Fill | None:
    """The shape of the graph for a pack; None: it is too large for one, or has too many sequences."""
    size = next((size for size in SIZES if size >= layout.num_tokens), None)
    if size is None:
        return None
    fill = Fill(size, size // TOKENS_A_SEQUENCE, size)
    return fill if len(Layout(layout.lengths, fill).attended) <= fill.sequences else None


def can_be_filled(model: nn.Module) -> bool:
    """Whether the encoders attend by the kernel for packed batches, and know positions from what they read."""
    encoders = [module for module in model.modules() if isinstance(module, Encoder)]
    attends = (getattr(layer.attention, "attend", None) for each in encoders for layer in each.layer)
    return bool(encoders) and all(e.positions is None for e in encoders) and all(a is attend_packed for a in attends)


def can_be_recorded(model: ConfiguredModel) -> bool:
    """Whether graphs of the model's encoder can be made: on a GPU with variable-length attention, in its types."""
    capability = varlen_capability(model.device)  # None on a CPU, where nothing else is looked at
    if capability is None or os.environ.get(SWITCH) == "0" or not can_be_filled(model):
        return False
    kernel = backend_for(capability, model.dtype, model.config.head_size)
    hooked = any(any(map(len, hooks_of(part))) for part in computing_parts(model))
    return kernel.name == "variable-length" and has_known_operator() and not hooked


def with_graphs(model: ModuleT, record: Record | None = None) -> ModuleT:
    """A second tree of modules over the model's parameters, in eval mode, whose encoders replay graphs."""
    record = record or cuda_graph

    def replacement(module: nn.Module) -> nn.Module | None:
        return CapturedEncoder(module_view(module, lambda part: None), record) if isinstance(module, Encoder) else None

    return module_view(model, replacement)


@dataclass(frozen=True, slots=True)
class Graph:
    """An encoder in fixed memory: what it reads, ``(size, D)`` and int32 ``(sequences + 1,)``, and what it writes."""

    input: Tensor
    offsets: Tensor
    output: Tensor
    replay: Callable[[], Any]

    def __call__(self, x_TD: Tensor, layout: Layout) -> Tensor:
        """The top layer of a pack that fits, ``(T, D)``. What is behind it in the memory are sequences of their own."""
        assert layout.offsets is not None
        self.input[: len(x_TD)].copy_(x_TD)
        self.offsets.copy_(layout.offsets, non_blocking=True)
        self.replay()
        return self.output[: len(x_TD)].clone()


class CapturedEncoder(nn.Module):
    """In place of an :class:`~bertkit.model.encoder.Encoder`, for inference with small packs.

    The first pack of a size is computed without a graph, because recording one takes longer than it saves once.
    """

    def __init__(self, plain: Encoder, record: Record) -> None:
        super().__init__()
        self.plain, self.record = plain, record
        self._seen: set[Fill] = set()
        self._graphs: dict[Fill, Graph] = {}
        self._lock = ForkSafeLock()  # one memory for all threads
        self._failed = False
        #: When the memory may be written again, by whatever stream.
        self._free: torch.cuda.Event | None = None

    @property
    def num_graphs(self) -> int:
        """How many sizes of packs have a graph; 0 if one could not be recorded, after which none is used."""
        return 0 if self._failed else len(self._graphs)

    def forward(
        self,
        x_TD: Tensor,
        layout: Layout,
        rows: ChosenRows | None = None,
        *,
        position_ids: Tensor | None = None,
        want_states: bool = False,
        want_probs: bool = False,
    ) -> tuple[Tensor, list[Tensor], list[list[Tensor]]]:
        """As :meth:`Encoder.forward`; ``position_ids`` are not read by an encoder that has graphs."""
        fill = None if want_states or want_probs else fill_for(layout)
        found_TD = None if fill is None else self._replayed(x_TD, layout, fill)
        if found_TD is None:
            plain: tuple[Tensor, list[Tensor], list[list[Tensor]]] = self.plain(
                x_TD, layout, rows, position_ids=position_ids, want_states=want_states, want_probs=want_probs
            )
            return plain
        return found_TD if rows is None else found_TD.index_select(0, rows.rows), [], []

    def _replayed(self, x_TD: Tensor, layout: Layout, fill: Fill) -> Tensor | None:
        """The top layer by a graph, recorded if need be; None: there is none yet."""
        with self._lock:
            if fill not in self._seen or self._failed:
                self._seen.add(fill)
                return None
            if fill not in self._graphs:
                try:
                    self._graphs[fill] = self._recorded(fill, x_TD)
                except RuntimeError as error:
                    self._failed = True
                    why = str(error).splitlines()[0]
                    say_once(f"no CUDA graphs, so short texts take longer than they could: {why}")
                    return None
            own = torch.cuda.current_stream(x_TD.device) if x_TD.is_cuda else None
            if own is not None and self._free is not None:
                own.wait_event(self._free)  # another thread may use another stream
            found = self._graphs[fill](x_TD, Layout(layout.lengths).with_offsets(fill))
            self._free = None if own is None else own.record_event()
            return found

    def _recorded(self, fill: Fill, x_TD: Tensor) -> Graph:
        x_SD = x_TD.new_zeros((fill.tokens, x_TD.shape[1]))
        # One sequence is as good as any other to record: the graph reads where they begin when it is replayed.
        one = Layout((fill.tokens,)).with_offsets(fill).offsets
        assert one is not None
        offsets = one.to(x_TD.device)
        layout = Layout((fill.tokens,), offsets=offsets)
        with torch.cuda.device_of(x_SD):  # which need not be the one that CUDA takes by itself
            return Graph(x_SD, offsets, *self.record(lambda: self.plain(x_SD, layout)[0]))


#: Held while a graph is recorded: torch allows one at a time in a process.
_RECORDING = ForkSafeLock()


def cuda_graph(compute: Callable[[], Tensor]) -> tuple[Tensor, Callable[[], None]]:
    """:data:`Record` by CUDA. What other threads ask of the GPU meanwhile does not disturb it."""
    with _RECORDING:
        side = torch.cuda.Stream()  # of the current device; torch's own stream for graphs is of the first one used
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # left also when recording fails, which torch.cuda.graph does not see to
            for _ in range(3):  # libraries choose kernels and take memory at first use, which cannot be recorded
                compute()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
                found = compute()
        torch.cuda.current_stream().wait_stream(side)
    return found, graph.replay
