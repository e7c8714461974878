"""Sharded weights: what ``torch.distributed.fsdp.fully_shard`` needs to know of our models, and gathering them."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, distribute_tensor

from bertkit.model.encoder import EncoderLayer


def shard(model: nn.Module, device: torch.device, num_ranks: int) -> None:
    """Split every parameter along axis 0 into ``num_ranks`` parts, in place; each encoder layer is one unit."""
    mesh = init_device_mesh(device.type, (num_ranks,))
    units = [module for module in model.modules() if isinstance(module, EncoderLayer)]
    for unit in (*units, model):
        sharded = fully_shard(unit, mesh=mesh)
        if hasattr(unit, "forward_packed"):  # its weights must be gathered before this method, too
            register_fsdp_forward_method(unit, "forward_packed")
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)  # gloo has no other reduction
    # Ranks whose micro-batches use different parts of the model must still send the same numbers.
    cast(FSDPModule, model).set_reduce_scatter_unused_params(True)


def accumulate_unsharded(model: nn.Module, *, last: bool) -> None:
    """Sum gradients over the ranks only after the ``last`` micro-batch of a step."""
    sharded = cast(FSDPModule, model)
    sharded.set_requires_gradient_sync(last)
    sharded.set_is_last_backward(last)


def scatter(model: nn.Module) -> None:
    """Keep only this rank's parts of the weights; ``named_parameters`` returns those again."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


def whole(tensor: Tensor) -> Tensor:
    """All parts of a sharded tensor; a plain tensor unchanged. Call it on all ranks."""
    return tensor.full_tensor().cpu() if isinstance(tensor, DTensor) else tensor


def part_of(value: Tensor, like: Tensor) -> Tensor:
    """This rank's part of a whole tensor, sharded as ``like`` is. No communication: every rank has the whole value."""
    assert isinstance(like, DTensor)
    return distribute_tensor(value.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def unsharded_copy(model: nn.Module, *, keep: bool) -> nn.Module | None:
    """A model as before :func:`shard`, whole on the CPU; None without ``keep``. Call it on all ranks."""
    gathered = ((name, whole(p.detach())) for name, p in model.named_parameters())
    values = {name: value for name, value in gathered if keep}
    if not keep:
        return None
    original = type(model).__mro__[2]  # fully_shard puts its own class and FSDPModule before it
    copy = cast(nn.Module, original(model.config))
    with torch.no_grad():
        for name, p in copy.named_parameters():
            p.copy_(values[name])
    return copy.train(model.training)
