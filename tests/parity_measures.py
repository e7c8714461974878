"""How far a model here is from that of ``transformers``: the errors of one class, and what they may be at most.

An error is ``max |ours - theirs| / max(1, max |theirs|)``: absolute where values are small, relative to the largest of
a tensor where they are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertkit.checkpoints.apply import to_theirs
from bertkit.checkpoints.rules import NameTable
from bertkit.engine.backend import Precision

#: Of the models in float32; observed: below 6e-6.
LIMIT = 1e-5
#: Of the encoder in C, by the precision of the engine: "auto" keeps weights with 16 significant bits.
ENGINE_LIMITS: dict[Precision, float] = {"fp32": 1e-5, "auto": 4e-4}


@dataclass(frozen=True)
class Parity:
    """Largest errors of one class, each the larger of eval and training mode; None: there is no such thing.

    forward: outputs of a padded call, hidden states and attentions included. packed: the outputs of the same sequences
    packed. gradient: over all parameters, from the padded and from the packed call. engine, engine_auto: the outputs of
    the inference engine in "fp32" and in "auto". round_trip: whether transformers loads what we saved with nothing
    missing, and has the same bits again.
    """

    forward: float
    packed: float | None
    loss: float | None
    gradient: float
    round_trip: bool
    engine: float | None = None
    engine_auto: float | None = None

    @property
    def worst(self) -> float:
        """Of all but the engine."""
        return max(self.forward, self.packed or 0.0, self.loss or 0.0, self.gradient)

    @property
    def good(self) -> bool:
        """Whether nothing is above its limit. An error that is not a number is."""
        errors = (
            (self.forward, LIMIT), (self.packed, LIMIT), (self.loss, LIMIT), (self.gradient, LIMIT),
            (self.engine, ENGINE_LIMITS["fp32"]), (self.engine_auto, ENGINE_LIMITS["auto"]),
        )  # fmt: skip
        return self.round_trip and all(error is None or error <= limit for error, limit in errors)


@torch.no_grad()
def error(ours: Tensor, theirs: Tensor) -> float:
    """Infinite where either is not finite: ``max`` would pass over it."""
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    if not ours.numel():
        return 0.0
    if not (bool(ours.isfinite().all()) and bool(theirs.isfinite().all())):
        return float("inf")
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1.0))


def largest(errors: Iterable[float]) -> float | None:
    """None of none."""
    return max(errors, default=None)


def gradient_error(theirs: Any, ours: Any, table: NameTable) -> float:
    """Largest error over all parameters, by their names; both must have gradients at the same ones."""
    spec = table.classes[type(ours).__name__]
    expected = {name: parameter.grad for name, parameter in theirs.named_parameters() if parameter.grad is not None}
    found = {name: parameter.grad for name, parameter in ours.named_parameters() if parameter.grad is not None}
    got = dict(to_theirs(found, ours.config, spec, table))
    ties = dict(table.ties) if ours.config.tie_word_embeddings else {}
    renamed = {ties.get(name.removeprefix(table.prefix), name): value for name, value in expected.items()}
    prefixed = {name if name in got else table.prefix + name: value for name, value in renamed.items()}
    assert got.keys() == prefixed.keys(), got.keys() ^ prefixed.keys()
    return max(error(got[name], prefixed[name]) for name in got)


def comes_back(ours: Any, theirs: Any, folder: Path, fields: Iterable[str]) -> bool:
    """Save ours; does their software load it, with nothing missing or left over, and with the same bits and fields?

    folder: in which theirs is saved as "theirs".
    """
    import transformers

    ours.save_pretrained(folder / "ours")
    again, info = type(theirs).from_pretrained(folder / "ours", output_loading_info=True)
    whole = not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    auto, before = (transformers.AutoConfig.from_pretrained(folder / name) for name in ("ours", "theirs"))
    same_shape = auto.architectures == before.architectures == [type(theirs).__name__] and all(
        getattr(auto, name) == value
        for name in fields
        if (value := getattr(before, name, None)) is not None  # None: left to a default, which ours writes
    )
    state, expected = again.state_dict(), theirs.state_dict()
    return whole and same_shape and all(torch.equal(state[name], expected[name]) for name in expected)
