"""The processor's facts, against other sources of the same facts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from bertkit.system.processor import INSTRUCTION_SETS, Processor, find_processor, read_cpuinfo

X86 = "vendor_id\t: AuthenticAMD\nmodel name\t: EPYC\nflags\t\t: fpu avx2 avx512f avx512_bf16\n\nprocessor\t: 1\n"
ARM = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd asimddp i8mm bf16 sve\nCPU part\t: 0xd40\n"


def test_cpuinfo_of_x86_and_of_arm() -> None:
    assert read_cpuinfo(X86) == ("EPYC", "AuthenticAMD", {"fpu", "avx2", "avx512f", "avx512_bf16"})
    assert read_cpuinfo(ARM) == ("", "", {"fp", "asimd", "asimddp", "i8mm", "bf16", "sve"})
    assert read_cpuinfo("") == ("", "", set())


def test_torch_sees_the_same_instruction_sets() -> None:
    capability = torch.backends.cpu.get_cpu_capability()
    sets = find_processor().instruction_sets
    assert set(sets) <= set(INSTRUCTION_SETS.values())
    if "ATEN_CPU_CAPABILITY" not in os.environ:
        assert ("AVX-512" in sets) == (capability == "AVX512")
        assert ("AVX2" in sets) == (capability in ("AVX2", "AVX512"))


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="Linux only")
def test_cores_and_memory() -> None:
    found = find_processor()
    kilobytes = int(Path("/proc/meminfo").read_text().split()[1])
    assert found.memory == pytest.approx(1024 * kilobytes, rel=0.01)
    assert 1 <= found.cores <= (os.cpu_count() or 1)


def test_what_it_can_multiply() -> None:
    plain = Processor("p", 2, ("AVX2",), None)
    assert (plain.has_bf16, plain.has_int8) == (False, False)
    assert Processor("p", 2, ("AVX-512", "AVX-512 BF16"), None).has_bf16
    assert Processor("p", 2, ("NEON", "DotProd"), None).has_int8
    assert not plain.is_wide_without_mkl
    wide = Processor("p", 2, ("AVX2", "AVX-512"), None)
    found = [wide._replace(vendor=vendor).is_wide_without_mkl for vendor in ("AuthenticAMD", "GenuineIntel", "")]
    assert found == [True, False, False]
    assert str(plain) == "2 x p (AVX2)"
    assert str(Processor("p", 2, (), 4 << 30)) == "2 x p (instruction sets unknown), 4 GB"
