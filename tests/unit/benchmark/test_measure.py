"""What is measured, and what is refused before anything starts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bertkit.benchmark import measure
from bertkit.benchmark.benchmark_report import System
from bertkit.benchmark.measure import Session, run_benchmark
from bertkit.benchmark.runtimes import INT8, REFERENCE
from bertkit.checkpoints.weight_files import INT8_WEIGHTS
from bertkit.errors import ConfigError, ResourceError
from bertkit.system.interrupts import Interrupted
from pipeline_helpers import save_tiny


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_tiny(tmp_path / "tiny")


def in_8_bits(model: Path, **config: int) -> Path:
    """As far as the files tell."""
    folder = model.with_name("int8")
    shutil.copytree(model, folder)
    (folder / "model.safetensors").rename(folder / INT8_WEIGHTS)
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, **config}))
    return folder


def test_a_model_in_8_bits_is_given_beside_its_original(model: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"int8 is in 8 bits; name the original model first, and this one with --int8"
    ):
        run_benchmark(in_8_bits(model), against=[])
    with pytest.raises(
        ConfigError, match=r"--int8 .*tiny is not in 8 bits; make it with: bertkit quantize .*tiny --out"
    ):
        run_benchmark(model, int8=model, against=[])


def test_a_model_in_8_bits_of_another_is_refused(model: Path) -> None:
    with pytest.raises(ConfigError, match=r"was not made from .*tiny: its vocab_size is 7, and that of .*tiny is \d+"):
        run_benchmark(model, int8=in_8_bits(model, vocab_size=7), against=[])


@pytest.mark.parametrize("given", [True, False])
def test_int8_is_measured_with_its_folder_or_left_out(
    model: Path, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = []
    monkeypatch.setattr(Session, "run", lambda self, rounds: launches.append((self._launch, self._alive())))
    int8 = in_8_bits(model) if given else None
    report = run_benchmark(model, int8=int8, against=[])
    ((launch, alive),) = launches
    assert (launch.int8, INT8 in alive, report.int8) == (int8, given, str(int8) if given else None)
    assert ("bertkit int8 was left out: it needs the model in 8 bits" in report.render()) is not given


def test_a_mode_that_fails_is_left_out_and_the_reference_ends_it_all(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*given: object) -> None:
        raise ResourceError(f"failed with {given}")

    def run(self: Session, rounds: int) -> None:
        assert self._try(INT8, fail, 1, 2) is None
        assert INT8 not in self._alive()
        with pytest.raises(ResourceError):
            self._try(REFERENCE, fail)

    monkeypatch.setattr(Session, "run", run)
    report = run_benchmark(model, int8=in_8_bits(model), against=[])
    assert report.systems[INT8] == System(error="failed with (1, 2)")
    assert "bertkit int8 is left out: failed with (1, 2)" in capsys.readouterr().err


@pytest.mark.parametrize("stop", [Interrupted("stopped by SIGTERM", 15), KeyboardInterrupt("a second signal")])
def test_a_signal_ends_the_measurement_and_keeps_the_report(
    model: Path, stop: KeyboardInterrupt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(self: Session, rounds: int) -> None:
        raise stop

    monkeypatch.setattr(Session, "run", run)
    report = run_benchmark(model, against=[])
    assert isinstance(report.interrupted, Interrupted)
    assert str(report.interrupted) == str(stop)
    assert "interrupted: what was measured until then" in report.render()


def test_memory_that_will_not_do_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    measure._warn_of_memory(0, 440_000_000)
    assert capsys.readouterr().err == ""
    measure._warn_of_memory(13, 440_000_000_000_000)
    err = capsys.readouterr().err
    told = "13 processes need about 5720001.3 GB of memory together, and " in err
    assert told is Path("/proc/meminfo").exists()
