"""``ddp``: the sums of gradients over all ranks, sent while the backward pass of the last micro-batch still runs.

Ranks have different numbers of micro-batches, and some have none; so nothing is sent before a rank's last backward
pass, where a gradient is complete. See ``docs/decisions/0354-gradients-sent-in-the-backward-pass.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from bertkit.training.trainer.parallel import Parallel

#: Numbers in a buffer that is sent at once, 25 MB of fp32.
BUFFER_NUMBERS = 25 << 18


class GradientSums:
    """The gradients of ``parameters``, which are in the order of the forward pass.

    Buffers are filled from the last parameter to the first, as a backward pass computes their gradients. A buffer is
    sent when it is complete and all before it were sent, so that the ranks send the same buffers in the same order.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._buffers = _buffers([p for p in reversed(parameters) if p.requires_grad])
        # The numbers of a buffer, what to wait for, and for each parameter whether this rank has a gradient.
        self._sent: list[tuple[Tensor, Any, list[bool]]] = []
        self._missing: list[int] = []
        self._hooks: list[Any] = []

    def begin(self, *, last: bool) -> None:
        """Call before a micro-batch; in the ``last`` one of this rank buffers are sent as they are complete.

        Called again in a step that is repeated, it keeps the buffers that were sent: they had the whole gradients.
        """
        self._unhook()
        if last:
            self._missing = list(map(len, self._buffers))
            for number, buffer in enumerate(self._buffers[len(self._sent) :], start=len(self._sent)):
                self._hooks += [p.register_post_accumulate_grad_hook(partial(self._arrived, number)) for p in buffer]

    def finish(self) -> None:
        """Send what is left, and wait: each gradient becomes its sum over all ranks, with the same bits on each.

        Gradients that no rank has stay None.
        """
        self._unhook()
        while len(self._sent) < len(self._buffers):
            self._send()
        used = torch.tensor([each for _, _, there in self._sent for each in there], dtype=torch.uint8)
        dist.all_reduce(used, dist.ReduceOp.MAX)
        somewhere = iter(used.tolist())
        for buffer, (numbers, work, _) in zip(self._buffers, self._sent, strict=True):
            work.wait()
            for p, grad in zip(buffer, numbers.split([p.numel() for p in buffer]), strict=True):
                p.grad = grad.view_as(p) if next(somewhere) else None
        self._sent = []

    def _arrived(self, number: int, parameter: nn.Parameter) -> None:
        assert number >= len(self._sent), "a gradient was added to after it was sent"
        self._missing[number] -= 1
        while len(self._sent) < len(self._buffers) and not self._missing[len(self._sent)]:
            self._send()

    def _send(self) -> None:
        buffer = self._buffers[len(self._sent)]
        grads = [p.grad for p in buffer]
        parts = [p.new_zeros(p.numel()) if g is None else g.reshape(-1) for p, g in zip(buffer, grads, strict=True)]
        numbers = torch.cat(parts)
        for p in buffer:
            p.grad = None  # it is in the buffer, and finish() makes it a view of that
        work = dist.all_reduce(numbers, async_op=True)
        self._sent.append((numbers, work, [grad is not None for grad in grads]))

    def _unhook(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


def gradient_sums(model: nn.Module, trained: Sequence[nn.Parameter], parallel: Parallel) -> GradientSums | None:
    """Those of the parameters that are trained; None where nothing is to be added up, or ``fsdp`` does it."""
    if parallel.num_ranks == 1 or parallel.is_sharded:
        return None
    chosen = {id(p) for p in trained}
    return GradientSums([p for p in model.parameters() if id(p) in chosen])


def _buffers(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Neighbours of one type together, at most :data:`BUFFER_NUMBERS` numbers, but at least one parameter."""
    found: list[list[nn.Parameter]] = []
    numbers = 0
    for p in parameters:
        if not found or p.dtype != found[-1][0].dtype or numbers + p.numel() > BUFFER_NUMBERS:
            found.append([])
            numbers = 0
        found[-1].append(p)
        numbers += p.numel()
    return found
