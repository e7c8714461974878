"""States of random generators, of devices that are only pretended."""

from __future__ import annotations

import pytest
import torch

from bertkit.training.trainer.generators import capture_generators, restore_generators


def test_the_state_of_an_apple_gpu_is_kept_too(monkeypatch: pytest.MonkeyPatch) -> None:
    state, restored = torch.arange(16, dtype=torch.uint8), []
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "get_rng_state", lambda: state)
    monkeypatch.setattr(torch.mps, "set_rng_state", restored.append)
    saved = capture_generators()
    restore_generators(*saved)
    assert [each.tolist() for each in restored] == [state.tolist()]
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    restore_generators(*saved)  # on a machine without one
    assert len(restored) == 1
