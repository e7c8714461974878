"""Failed allocations are a resource error, everything else stays what it is; what is freed in a loop is used again."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys

import numpy as np
import pytest
import torch

from bertkit.errors import InputError, ResourceError
from bertkit.system import memory
from bertkit.system.memory import memory_guard
from forked_interpreter import run_forked


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
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), -1))
with memory_guard("Use less."):
    torch.ones(1 << 32)
"""
    assert "ResourceError: out of memory" in run_forked(code).stderr


#: Ten arrays of 48 MiB, one after the other; minor page faults of the last nine, with and without the block.
COUNT_FAULTS = """
import resource, sys
import numpy as np
from contextlib import nullcontext
from bertkit.system.memory import freed_memory_kept

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

with freed_memory_kept() if sys.argv[1] == "kept" else nullcontext():
    for number in range(10):
        if number == 1:
            before = faults()
        np.ones(6 << 20)
    within = faults() - before
before = faults()
np.ones(6 << 20)
print(within, faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc only")
def test_freed_memory_is_kept_inside_the_block_only() -> None:
    found = {}
    for case in ("kept", "plain"):
        # One page each and no huge ones, so that faults count memory.
        done = subprocess.run(
            [sys.executable, "-c", COUNT_FAULTS, case], env={**os.environ, "NUMPY_MADVISE_HUGEPAGE": "0"},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        found[case] = [int(count) for count in done.stdout.split()]
    pages = (48 << 20) // resource.getpagesize()
    assert found["kept"][0] < pages / 10  # without a new page for every array
    assert found["plain"][0] > 8 * pages  # control
    assert found["kept"][1] > pages / 2  # handed back at the end


def test_another_c_library_is_left_alone(monkeypatch) -> None:
    monkeypatch.setattr(memory, "_glibc", lambda: None)
    with memory.freed_memory_kept():
        assert len(bytes(1 << 20)) == 1 << 20


#: Environment variables with which a user says how glibc allocates.
USER_SETTINGS = {
    "MALLOC_TRIM_THRESHOLD_": "1000000",
    "MALLOC_MMAP_THRESHOLD_": "1000000",
    "GLIBC_TUNABLES": "glibc.rtld.nns=4:glibc.malloc.mmap_threshold=1000000",
}


class OldGlibc:
    """Refuses the larger of what it is asked for, as glibc did before 2.35."""

    def __init__(self) -> None:
        self.options: dict[int, int] = {}
        self.trims = 0

    def mallopt(self, option: int, value: int) -> int:
        if option == memory._MMAP_THRESHOLD and value > 32 << 20:
            return 0
        self.options[option] = value
        return 1

    def malloc_trim(self, keep: int) -> int:
        self.trims += 1
        return keep


@pytest.fixture
def old_glibc(monkeypatch) -> OldGlibc:
    for name in USER_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    glibc = OldGlibc()
    monkeypatch.setattr(memory, "_glibc", lambda: glibc)
    return glibc


def test_a_refused_threshold_is_as_large_as_it_may_be(old_glibc: OldGlibc) -> None:
    with memory.freed_memory_kept():
        assert old_glibc.options == {memory._TRIM_THRESHOLD: 2**31 - 1, memory._MMAP_THRESHOLD: 32 << 20}
    assert old_glibc.options == memory._USUAL
    assert old_glibc.trims == 1


@pytest.mark.parametrize(("name", "value"), USER_SETTINGS.items())
def test_what_the_user_has_set_stays(old_glibc: OldGlibc, monkeypatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with memory.freed_memory_kept():
        pass
    assert (old_glibc.options, old_glibc.trims) == ({}, 0)


def test_other_settings_of_the_user_do_not_matter(old_glibc: OldGlibc, monkeypatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.rtld.nns=4")
    with memory.freed_memory_kept():
        assert old_glibc.options
