"""The choice of what is measured."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from bertkit.benchmark.runtimes import BERTKIT, INT8, PEERS, REFERENCE, choose
from bertkit.errors import ConfigError, MissingExtraError
from bertkit.system.processor import Processor

PLAIN = Processor("plain", 2, ("AVX2",), None)
WIDE = Processor("wide", 2, ("AVX-512", "AVX-512 BF16"), None)


@pytest.fixture
def bare(tmp_path: Path) -> str:
    """An interpreter without any package."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_every_runtime_has_its_script() -> None:
    for runtime in (BERTKIT, *PEERS.values()):
        assert runtime.script.is_file()


def test_what_is_installed_is_measured(bare: str) -> None:
    choice = choose(None, None, sys.executable, WIDE)
    assert choice.modes[0] == REFERENCE
    assert "transformers fp32" in map(str, choice.modes)
    assert choice.versions["peers"]["torch"]
    assert {"bertkit", "torch"} <= choice.versions["bertkit"].keys()
    without = choose(None, None, bare, WIDE)
    assert {mode.runtime for mode in without.modes} == {BERTKIT}
    assert [mode.precision for mode in without.modes] == ["fp32", "auto", "fp16", "bf16", "int8"]
    assert (without.versions["peers"], without.absent) == ({}, tuple(PEERS))


@pytest.fixture
def without_nncf(tmp_path: Path) -> str:
    """An interpreter with the packages of OpenVINO in fp32, as their metadata say."""
    for package in PEERS["openvino"].packages:
        (tmp_path / f"{package}-1.0.dist-info").mkdir()
        (tmp_path / f"{package}-1.0.dist-info" / "METADATA").write_text(f"Name: {package}\nVersion: 1.0\n")
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}" exec "{sys.executable}" -S "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_openvino_in_8_bits_needs_nncf(without_nncf: str, tmp_path: Path) -> None:
    with pytest.raises(MissingExtraError, match=r"comparing with openvino int8 needs nncf, not installed"):
        choose(["openvino"], ["int8", "fp32"], without_nncf, PLAIN, has_int8=True)
    assert "openvino fp32" in map(str, choose(["openvino"], ["fp32"], without_nncf, PLAIN).modes)
    choice = choose(None, None, without_nncf, PLAIN)
    assert "openvino int8" in choice.absent
    assert [mode.precision for mode in choice.modes if mode.runtime.name == "openvino"] == ["fp32"]
    (tmp_path / "nncf-3.0.dist-info").mkdir()
    (tmp_path / "nncf-3.0.dist-info" / "METADATA").write_text("Name: nncf\nVersion: 3.0\n")
    choice = choose(["openvino"], ["int8", "fp32"], without_nncf, PLAIN, has_int8=True)
    assert "openvino int8" in map(str, choice.modes)
    assert choice.versions["peers"]["nncf"] == "3.0"


def test_peers_and_precisions_can_be_chosen() -> None:
    choice = choose(["transformers", "transformers"], ["bf16"], sys.executable, WIDE)
    assert list(map(str, choice.modes)) == ["bertkit fp32", "bertkit bf16", "transformers bf16"]
    assert choose([], ["fp32"], sys.executable, WIDE).modes == (REFERENCE,)


def test_bf16_is_left_out_where_the_processor_has_none_and_refused_when_asked_for() -> None:
    assert not [mode for mode in choose([], None, sys.executable, PLAIN).modes if mode.precision == "bf16"]
    assert [mode for mode in choose([], None, sys.executable, WIDE).modes if mode.precision == "bf16"]
    with pytest.raises(
        ConfigError, match=r"precision bf16: this processor cannot multiply in bfloat16: 2 x plain \(AVX2\)"
    ):
        choose([], ["bf16"], sys.executable, PLAIN)


def test_int8_needs_the_model_in_8_bits() -> None:
    assert INT8 in choose([], ["int8"], sys.executable, WIDE, has_int8=True).modes
    assert INT8 in choose([], None, sys.executable, WIDE).modes  # left out later, with a reason
    with pytest.raises(ConfigError, match="precision int8: it needs the model in 8 bits: make it with 'bertkit quant"):
        choose([], ["int8"], sys.executable, WIDE)
    with pytest.raises(ConfigError, match="int8 is not among the precisions; add it, or leave out --int8"):
        choose([], ["fp32"], sys.executable, WIDE, has_int8=True)


def test_what_cannot_be_measured_is_an_error(bare: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown runtime 'openvin' \(did you mean 'openvino'\?\); known: onnx"):
        choose(["openvin"], None, sys.executable, WIDE)
    with pytest.raises(ConfigError, match=r"unknown precision 'fp23' \(did you mean 'fp32'\?\); known: auto"):
        choose([], ["fp23"], sys.executable, WIDE)
    with pytest.raises(MissingExtraError, match=r"ctranslate2 needs ctranslate2, torch, transformers, not .* -m pip"):
        choose(["ctranslate2"], None, bare, WIDE)
    with pytest.raises(ConfigError, match="is not a Python interpreter that runs here"):
        choose(["ctranslate2"], None, str(tmp_path / "no-python"), WIDE)
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho Welcome\n")
    other.chmod(other.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(ConfigError, match="other is not a Python interpreter that runs here"):
        choose(["ctranslate2"], None, str(other), WIDE)
