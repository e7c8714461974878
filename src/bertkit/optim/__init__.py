"""Optimizers and learning-rate schedules for encoders.

Two recipes. *Sane* (the default) is bias-corrected AdamW (Loshchilov & Hutter 2019) with linear warm-up and linear
decay, which Mosbach et al. 2021 and Zhang et al. 2021 found stable. *Original* is what Devlin et al. 2019
published: Adam without bias correction, and a warm-up that starts at a learning rate of exactly 0. Besides, LAMB
for batches of many thousands, and Muon as an experiment.

Every optimizer takes the groups of :func:`parameter_groups` and one peak rate, keeps only tensors as state, and never
synchronizes with the device.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch.optim import Optimizer

from bertkit.optim.adam import AdamW, AdamWeightDecay, Lamb, adamw, lamb
from bertkit.optim.groups import parameter_groups, set_learning_rate
from bertkit.optim.muon import Muon, muon, orthogonalize
from bertkit.optim.schedules import (
    Schedule,
    budget_schedule,
    linear_schedule,
    original_schedule,
    polynomial_schedule,
    trapezoid_schedule,
)

__all__ = [
    "OPTIMIZERS",
    "AdamW",
    "AdamWeightDecay",
    "Lamb",
    "Muon",
    "Schedule",
    "adamw",
    "budget_schedule",
    "lamb",
    "linear_schedule",
    "muon",
    "original_schedule",
    "orthogonalize",
    "parameter_groups",
    "polynomial_schedule",
    "set_learning_rate",
    "trapezoid_schedule",
]

#: Each takes parameter groups and ``learning_rate=``. ``adam-weight-decay`` is the original's, without bias correction.
OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adamw": adamw,
    "adam-weight-decay": partial(adamw, bias_correction=False),
    "lamb": lamb,
    "muon": muon,
}
