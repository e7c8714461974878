"""Failed allocations are a resource error, everything else stays what it is."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from bertkit.errors import InputError, ResourceError
from bertkit.system.memory import memory_guard


@pytest.mark.parametrize("allocate", [lambda: torch.empty(1 << 60), lambda: np.empty(1 << 60, dtype=np.int8)])
def test_a_failed_allocation_says_what_to_do(allocate: object) -> None:
    with pytest.raises(ResourceError, match=r"out of memory \(.*Use less\."), memory_guard("Use less."):
        allocate()  # type: ignore[operator]


@pytest.mark.parametrize("error", [RuntimeError("shapes differ"), InputError("no text"), OSError(2, "absent")])
def test_other_errors_pass(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, memory_guard("Use less."):
        raise error
    assert caught.value is error


@pytest.mark.slow
def test_a_limit_on_the_address_space() -> None:
    code = """
import resource, torch
from bertkit.system.memory import memory_guard
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, -1))
with memory_guard("Use less."):
    torch.ones(1 << 32)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ResourceError: out of memory" in done.stderr
