"""One run on several processes, started by ``torchrun``: replicated weights (``ddp``) or sharded ones (``fsdp``).

The global batch does not depend on the number of ranks: the plan gives each rank its part of every step, the targets
are counted over all ranks before the forward pass, every rank divides its sums by that count, and the gradients are
summed once per step. So N ranks compute the same step as one rank, except for rounding and for dropout masks, which
come from a different random stream on each rank.

``ddp`` here is not ``torch.nn.parallel.DistributedDataParallel``, but :mod:`bertkit.training.trainer.gradient_sums`.
See ``docs/decisions/0041-parallel-training.md``.

Methods that communicate must be called on all ranks, in the same order.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from bertkit.errors import BertkitError, ConfigError, TrainingError
from bertkit.optim.groups import GroupOptimizer
from bertkit.system.console import set_quiet
from bertkit.system.device import Device, find_device
from bertkit.training.trainer.generators import seed_generators

Mode = Literal["ddp", "fsdp"]
T = TypeVar("T")

#: Signs in torch's errors that another process is gone or does not answer.
_LOST = ("connection", "by peer", "timed out", "timeout", "broken pipe", "ncclremoteerror", "remote process")


@dataclass(frozen=True, slots=True)
class Parallel:
    """This process among those of the run. :data:`SINGLE` is a run of one process.

    mode: ``ddp``: every rank has all weights; ``fsdp``: weights, gradients and optimizer state are split into
    ``num_ranks`` parts (``torch.distributed.fsdp.fully_shard``); None: one process.
    """

    rank: int = 0
    num_ranks: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    mode: Mode | None = None

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes checkpoints, logs and progress."""
        return self.rank == 0

    @property
    def is_sharded(self) -> bool:
        """Whether each rank holds only a part of each weight."""
        return self.mode == "fsdp" and self.num_ranks > 1

    def prepare(self, model: nn.Module) -> None:
        """Before the optimizer is made: move ``model``, share the weights of rank 0, for ``fsdp`` shard it in place."""
        model.to(self.device)
        if self.num_ranks == 1:
            return
        with torch.no_grad(), self.explained():
            for tensor in (*model.parameters(), *model.buffers()):
                dist.broadcast(tensor, 0)
        if self.is_sharded:
            from bertkit.training.trainer.sharding import shard

            shard(model, self.device, self.num_ranks)

    def check_optimizer(self, optimizer: Optimizer) -> None:
        """Refuse an optimizer whose update needs whole matrices (LAMB, Muon) or plain tensors for sharded weights."""
        if self.is_sharded and isinstance(optimizer, GroupOptimizer):
            raise ConfigError(
                f"{type(optimizer).__name__} does not work on sharded weights; use the optimizer adamw, or mode ddp"
            )

    def spread_generators(self) -> None:
        """Give ranks other than 0 their own generators, derived from torch's seed, so that dropout differs by rank."""
        if self.rank > 0:
            state = np.random.SeedSequence((torch.initial_seed(), self.rank)).generate_state(1, np.uint64)
            seed_generators(int(state[0]) >> 1)

    def whole_model(self, model: nn.Module) -> nn.Module | None:
        """The model with all of its weights on rank 0, None elsewhere: ``model`` itself, or for ``fsdp`` a CPU copy."""
        if self.is_sharded:
            from bertkit.training.trainer.sharding import unsharded_copy

            with self.explained():
                return unsharded_copy(model, keep=self.is_first)
        return model if self.is_first else None

    def begin_micro_batch(self, model: nn.Module, *, last: bool) -> None:
        """Call before the forward pass of a micro-batch: sharded gradients are summed only in the ``last`` one."""
        if self.is_sharded:
            from bertkit.training.trainer.sharding import accumulate_unsharded

            accumulate_unsharded(model, last=last)

    def end_evaluation(self, model: nn.Module) -> None:
        """Call after forward passes without backward, which leave weights gathered."""
        if self.is_sharded:
            from bertkit.training.trainer.sharding import scatter

            scatter(model)

    def add(self, values: Tensor) -> Tensor:
        """The sum of a tensor over all ranks, a new tensor that is bit for bit the same on each."""
        if self.num_ranks == 1:
            return values
        total = values.clone()
        dist.all_reduce(total)
        return total

    def norm(self, gradients: Sequence[Tensor]) -> Tensor:
        """The global norm of the gradients; for sharded ones over all ranks."""
        total = get_total_norm(gradients)
        return total.full_tensor() if self.is_sharded else total  # type: ignore[attr-defined]

    def gather(self, value: T) -> list[T]:
        """The values of all ranks, in order, on every rank; anything that can be pickled."""
        if self.num_ranks == 1:
            return [value]
        found = [value] * self.num_ranks
        with self.explained():
            dist.all_gather_object(found, value)
        return found

    def from_first(self, value: T) -> T:
        """The value of rank 0, on every rank."""
        if self.num_ranks == 1:
            return value
        box = [value]
        with self.explained():
            dist.broadcast_object_list(box, 0, device=torch.device("cpu"))
        return box[0]

    def on_first(self, do: Callable[[], T]) -> T:
        """Run ``do`` on rank 0 and return its result on every rank; a BertkitError is raised on every rank."""
        if self.num_ranks == 1:
            return do()
        outcome: list[T] | BertkitError = []
        if self.is_first:
            try:
                outcome = [do()]
            except BertkitError as refused:
                outcome = refused
        outcome = self.from_first(outcome)
        if isinstance(outcome, BertkitError):
            raise outcome
        return outcome[0]

    def share(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The named CPU tensors of rank 0 on every rank, so that only rank 0 has to read them from disk."""
        if self.num_ranks == 1:
            return dict(tensors)
        shapes = self.from_first({name: (value.dtype, value.shape) for name, value in tensors.items()})
        shared = {}
        for name, (dtype, shape) in shapes.items():
            shared[name] = tensors[name].contiguous() if self.is_first else torch.empty(shape, dtype=dtype)
            dist.broadcast(shared[name].view(-1).view(torch.uint8), 0)
        return shared

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn torch's errors about other processes into a TrainingError that says what happened."""
        try:
            yield
        except BertkitError:
            raise
        except RuntimeError as error:
            text = str(error)
            if self.num_ranks == 1 or not any(word in text.lower() for word in _LOST):
                raise
            raise TrainingError(
                f"rank {self.rank} of {self.num_ranks} lost another rank: it was killed, it failed (its own message "
                f"says why), or it did not answer in time. What was saved before is intact; start all ranks again to "
                f"continue from the newest checkpoint. ({text.strip().splitlines()[0][:200]})"
            ) from error

    def close(self) -> None:
        """Leave the process group; call it when the run is over."""
        if self.num_ranks > 1 and dist.is_initialized():
            dist.destroy_process_group()


#: A run of one process.
SINGLE = Parallel()


def parallel_from_environment(device: Device = None, mode: Mode | None = None, *, timeout_s: float = 600.0) -> Parallel:
    """Join the run that ``torchrun`` started this process for; without ``torchrun``, a run of one process.

    Ranks communicate by gloo on the CPU, by NCCL between GPUs; rank r of a machine gets GPU r. Ranks other than 0 are
    quiet. A rank waits ``timeout_s`` for the others.
    """
    if mode not in (None, "ddp", "fsdp"):
        raise ConfigError(f"mode must be ddp or fsdp, got {mode!r}")
    wanted = find_device(device, "cpu")
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        if mode is not None:
            raise ConfigError(
                f"mode {mode} is for several processes; start them with "
                f"'torchrun --nproc-per-node N -m bertkit ...', N the number of devices"
            )
        return Parallel(device=wanted)
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if wanted.type == "cuda":
        local = int(os.environ.get("LOCAL_RANK", rank))
        if local >= torch.cuda.device_count():
            raise ConfigError(
                f"rank {rank} needs GPU {local}, but this machine has {torch.cuda.device_count()}: start at most "
                f"that many processes on it (torchrun --nproc-per-node)"
            )
        wanted = torch.device("cuda", local)
        torch.cuda.set_device(wanted)
    if num_ranks == 1:
        return Parallel(device=wanted)
    found = Parallel(rank, num_ranks, wanted, mode or "ddp")
    if not dist.is_initialized():
        # Imported later (torch's compiler does), its default arguments would keep the group, and so gloo's threads,
        # alive; a thread that frees a tensor while the interpreter shuts down aborts the process.
        from torch.distributed.nn import functional  # noqa: F401

        backend = "cpu:gloo,cuda:nccl" if wanted.type == "cuda" else "gloo"
        with found.explained():
            dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
    if rank > 0:
        set_quiet(True)
    return found
